package core

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/core/internal/algo"
	"github.com/weir-go/weir/core/internal/rows"
)

// Policy is a named set of limits, all of which must admit a request or none is
// charged. It is an immutable value that may be shared; everything that depends
// on it alone is worked out once, when it is built by [NewPolicy] or [Parse].
//
// A Policy may be compared with == and used as a map key. This compares identity:
// a policy equals its copies, and two policies differ even if they were built from
// the same text. To see whether two policies say the same, compare what
// [Policy.String] returns.
//
// The zero Policy has no limits. It stands for "none"; to enforce it is an error.
type Policy struct{ p *policy }

type policy struct {
	name       string
	options    PolicyOptions
	limits     []Limit          // the permits' last
	algorithms []algo.Algorithm // of the limits but the permits'
	reply      int              // integers in a script's reply, without the time
	shape      string           // of all but the permits
	kinds      string
	calendar   bool        // whether a limit is aligned to it
	summary    bool        // whether a script replies with a summary of a limit's state
	permits    *Limit      // nil if there are none
	alone      *algo.GCRA  // the one limit, if it is of that kind; else nil
	rows       rows.Policy // for the in-process store
	share      *policy     // a process's share of the limits, by which the fallback decides; nil if that is p itself
	whole      *policy     // the policy that p is the share of; nil if it is none

	permitShape string // of the permits, also if there are none
}

// PolicyOptions hold for all limits of a policy. In its text they stand after ";", as in
// "100/1m; wait 2s; fail closed".
type PolicyOptions struct {
	// Wait bounds the time by which a [Take] may reserve ahead by its Wait: the grammar's "wait". With
	// "10/1s burst 1; wait 2s", up to 20 units may be reserved ahead. All limits must be able to reserve, which are
	// GCRA and TokenBucket. Zero means that nothing is reserved; whole microseconds up to MaxPeriod.
	//
	// With several limits the turn is that of the slowest; the others are charged when
	// the take is made, so that more than they say may start together then.
	Wait time.Duration
	// Fail chooses the decision while the store does not answer. Zero is FailLocal.
	Fail Failure
	// Processes is the number of processes that share the limits under FailLocal: 4 is "fail local 1/4" of the grammar.
	// While the store fails, each decides by its share: of 100/1m and 4 processes, 25/1m. The share is the exact rate
	// divided by Processes for GCRA and LeakyBucket, nearly that for TokenBucket, and for the others the count of each
	// window; bursts, debts and permits are divided too, and all counts are rounded up, so that together they admit less
	// than one unit too many for each process. 0 and 1 mean that each admits the whole limit; at most a million. It is an
	// error with another Fail, and if a share would be less than one unit in MaxPeriod. It changes nothing while the
	// store decides, nor where state is kept, so that it may follow the size of a fleet.
	Processes int
	// Shadow makes a policy a trial: a Guard counts by it and reports what it would refuse, and refuses nothing. A
	// Limiter answers as ever.
	Shadow bool
	// Epoch is the grammar's "epoch": a policy of another epoch starts afresh for everybody, units and permits, and
	// shares nothing with those before. 0 to 999999999; raise it by one to forget all that was counted. While processes
	// of two epochs run side by side, each admits by its counts alone, and together they admit the sum.
	Epoch int
}

// NewPolicy builds a policy. The name may be empty: then a Limiter or Guard calls
// it "default", or demands a name. Otherwise it has 1 to 64 letters, digits, "_",
// "." or "-". There are one to MaxLimits limits.
//
// The error reports every mistake at once, one on each line.
func NewPolicy(name string, o PolicyOptions, limits ...Limit) (Policy, error) {
	p, mistakes := newPolicy(name, o, limits)
	return p, joinMistakes("core: ", mistakes)
}

// joinMistakes makes one error of them, nil if there are none. Each has a line of its own
// with the prefix.
func joinMistakes(prefix string, mistakes []error) error {
	lines := make([]error, len(mistakes))
	for i, m := range mistakes {
		lines[i] = fmt.Errorf("%s%w", prefix, m)
	}
	return errors.Join(lines...)
}

// newPolicy is NewPolicy with errors that do not say which policy they are about.
func newPolicy(name string, o PolicyOptions, limits []Limit) (Policy, []error) {
	var mistakes []error
	wrong := func(format string, args ...any) { mistakes = append(mistakes, fmt.Errorf(format, args...)) }
	if err := nameMistake(name); name != "" && err != nil {
		mistakes = append(mistakes, err)
	}
	if o.Fail > FailClosed {
		wrong("Fail is %d; give FailLocal, FailOpen or FailClosed", o.Fail)
	}
	switch {
	case o.Processes < 0 || o.Processes > maxProcesses:
		wrong("Processes is %d; give 1 to %d, or 0 for no share", o.Processes, maxProcesses)
	case o.Processes > 0 && o.Fail != FailLocal:
		wrong("Processes is %d, but \"fail %v\" counts nothing that could be shared; leave it out, or give FailLocal", o.Processes, o.Fail)
	}
	if o.Epoch < 0 || o.Epoch > maxEpoch {
		wrong("Epoch is %d; give 0 to %d", o.Epoch, maxEpoch)
	}
	if o.Wait < 0 || o.Wait > MaxPeriod || o.Wait%time.Microsecond != 0 {
		wrong("Wait is %s; give whole microseconds up to %s, or 0 for none", periodText(o.Wait), periodText(MaxPeriod))
		o.Wait = 0
	}
	if len(limits) < 1 || len(limits) > MaxLimits {
		wrong("a policy has %d limits; give 1 to %d", len(limits), MaxLimits)
	}
	type prepared struct {
		number    int // as the caller counts, from 1
		limit     Limit
		algorithm algo.Algorithm
	}
	var each []prepared
	for i, l := range limits {
		full, a, wrongs := l.prepare(o)
		for _, w := range wrongs {
			wrong("limit %d (%v): %w", i+1, l, w)
		}
		if wrongs == nil {
			each = append(each, prepared{i + 1, full, a})
		}
	}
	// The segments of the stored state are in this order. It follows
	// kind and period, so that writing the same limits in another order, or
	// changing a rate, keeps each limit's state. Where a change of the numbers could
	// change the order, the shape has them.
	sort.SliceStable(each, func(i, j int) bool {
		a, b := each[i].limit, each[j].limit
		return cmp.Or(cmp.Compare(a.Algorithm, b.Algorithm), cmp.Compare(a.Period, b.Period),
			cmp.Compare(a.Rate, b.Rate), cmp.Compare(a.Burst, b.Burst), cmp.Compare(a.Debt, b.Debt),
			cmp.Compare(a.Buckets, b.Buckets), cmp.Compare(a.Align, b.Align)) < 0
	})
	p := &policy{options: o, limits: make([]Limit, 0, len(each))}
	for i, e := range each {
		if i > 0 && e.limit == each[i-1].limit && p.permits == nil {
			wrong("limit %d (%v): the same as limit %d; leave one out", e.number, e.limit, each[i-1].number)
		}
		p.limits = append(p.limits, e.limit)
		if e.limit.Algorithm == Concurrent {
			if p.permits != nil {
				wrong("limit %d (%v): a policy has at most one limit of permits", e.number, e.limit)
			}
			p.permits = &p.limits[len(p.limits)-1]
			continue
		}
		p.add(e.limit, e.algorithm)
	}
	p.finish()
	if o.Wait > 0 && len(p.algorithms) == 0 && mistakes == nil {
		wrong("Wait is %s, but permits cannot be reserved; leave it out", periodText(o.Wait))
	}
	if mistakes == nil && o.Processes > 1 {
		var err error
		if p.share, err = p.divided(); err != nil {
			wrong("Processes is %d, but %w", o.Processes, err)
		}
	}
	if mistakes != nil {
		return Policy{}, mistakes
	}
	return p.named(name), nil
}

// add adds a limit of a rate.
func (p *policy) add(l Limit, a algo.Algorithm) {
	p.algorithms = append(p.algorithms, a)
	p.reply += a.Reply()
	p.calendar = p.calendar || l.onCalendar()
	p.summary = p.summary || algo.Kinds[l.Algorithm].Summary
	p.kinds += string(a.Sections())
}

// finish works out what follows from all limits.
func (p *policy) finish() {
	rates := p.limits[:len(p.algorithms)]
	p.shape, p.permitShape = strings.Join(shapes(rates, p.algorithms), ""), "p"
	if p.options.Epoch > 0 {
		epoch := "@" + strconv.Itoa(p.options.Epoch)
		if p.permitShape += epoch; p.shape != "" {
			p.shape += epoch
		}
	}
	if len(p.algorithms) == 1 {
		p.alone, _ = p.algorithms[0].(*algo.GCRA)
	}
}

func (p *policy) named(name string) Policy {
	q := *p
	q.name = name
	var layout strings.Builder
	for _, l := range q.limits[:len(q.algorithms)] {
		layout.WriteString(l.layout())
	}
	q.rows = rows.NewPolicy(name, q.shape, layout.String(), q.algorithms)
	if p.share != nil {
		q.share = p.share.named(name).p
		q.share.whole = &q
	}
	return Policy{&q}
}

func checkName(name string) error {
	if err := nameMistake(name); err != nil {
		return fmt.Errorf("core: %w", err)
	}
	return nil
}

// nameMistake is checkName with an error that does not begin with the package.
func nameMistake(name string) error {
	ok := len(name) >= 1 && len(name) <= 64
	for i := range len(name) {
		ok = ok && isNameByte(name[i])
	}
	if !ok {
		return fmt.Errorf("policy name %.80q: give 1 to 64 letters, digits, \"_\", \".\" or \"-\"", name)
	}
	return nil
}

func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-'
}

// IsZero reports whether p is the zero Policy, which enforces nothing and is an
// error wherever a policy is needed. It also makes the omitzero option of
// encoding/json work.
func (p Policy) IsZero() bool { return p.p == nil }

// Name returns the policy's name, or "" if none was given.
func (p Policy) Name() string {
	if p.p == nil {
		return ""
	}
	return p.p.name
}

// Named returns the same limits under another name. The name is part of where
// state is kept: the two policies count separately. It panics if the name is not
// one that [NewPolicy] accepts, or if p is zero.
func (p Policy) Named(name string) Policy {
	if p.p == nil {
		panic("core: Named on the zero Policy: build one with Parse or NewPolicy")
	}
	if err := checkName(name); err != nil {
		panic(err)
	}
	return p.p.named(name)
}

// Limits returns the policy's limits in the order of [Result.Each]: those of one
// algorithm stand together, the shortest period first.
func (p Policy) Limits() []Limit {
	if p.p == nil {
		return nil
	}
	return slices.Clone(p.p.limits)
}

// Options returns what holds for all limits of the policy.
func (p Policy) Options() PolicyOptions {
	if p.p == nil {
		return PolicyOptions{}
	}
	return p.p.options
}

// Concurrent returns the number of permits for each key, and the time for which one lives unless it is renewed. ok is
// false if the policy has none.
func (p Policy) Concurrent() (n int64, lease time.Duration, ok bool) {
	if p.p == nil || p.p.permits == nil {
		return 0, 0, false
	}
	return p.p.permits.Burst, p.p.permits.Lease, true
}
