package core

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/weir-go/weir/core/internal/algo"
)

// Policy is a named set of limits, all of which must admit a request or none is
// charged. It is an immutable value that may be compared, shared and used as a
// map key; everything that depends on it alone is worked out once, when it is
// built by [NewPolicy] or [Parse].
//
// The zero Policy has no limits. It stands for "none", and whatever is asked to
// enforce it answers with an error.
type Policy struct{ p *policy }

type policy struct {
	name       string
	options    Options
	limits     []Limit
	algorithms []algo.Algorithm
	words      int // of state, of all algorithms together
	shape      string
	id         [2]uint64 // stands for name and shape in the in-process store
}

// Options are the words of a policy that hold for all of its limits.
type Options struct {
	// Fail says who decides while the store does not answer. Zero is FailLocal.
	Fail Failure
}

// NewPolicy builds a policy. The name may be empty, in which case the place where
// the policy is used derives one; otherwise it has 1 to 64 letters, digits, "_",
// "." or "-". There are one to MaxLimits limits.
//
// The error tells every mistake at once.
func NewPolicy(name string, o Options, limits ...Limit) (Policy, error) {
	var mistakes []error
	if err := checkName(name); name != "" && err != nil {
		mistakes = append(mistakes, err)
	}
	if o.Fail > FailClosed {
		mistakes = append(mistakes, fmt.Errorf("core: Fail is %d; give FailLocal, FailOpen or FailClosed", o.Fail))
	}
	if len(limits) < 1 || len(limits) > MaxLimits {
		mistakes = append(mistakes, fmt.Errorf("core: a policy has %d limits; give 1 to %d", len(limits), MaxLimits))
	}
	p := &policy{options: o, limits: slices.Clone(limits)}
	for i, l := range p.limits {
		full, _, err := l.prepare()
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("core: limit %d (%v): %w", i+1, l, err))
		}
		p.limits[i] = full
	}
	if mistakes != nil {
		return Policy{}, errors.Join(mistakes...)
	}
	// The order decides which segment of the stored state is whose. It follows
	// kind and period, so that writing the same limits in another order, or
	// changing a rate, keeps each limit's state.
	slices.SortStableFunc(p.limits, func(a, b Limit) int {
		return cmp.Or(cmp.Compare(a.Algorithm, b.Algorithm), cmp.Compare(a.Period, b.Period),
			cmp.Compare(a.Rate, b.Rate), cmp.Compare(a.Burst, b.Burst))
	})
	for i, l := range p.limits {
		if i > 0 && l == p.limits[i-1] {
			return Policy{}, fmt.Errorf("core: the limit %v stands twice; once is enough", l)
		}
		_, a, _ := l.prepare() // it was checked above
		p.algorithms = append(p.algorithms, a)
		p.words += a.Words()
		p.shape += string(kinds[l.Algorithm].letter)
	}
	return p.named(name), nil
}

// seeds make the in-process hash of keys unpredictable, so that nobody can choose
// keys that crowd one place.
var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func (p *policy) named(name string) Policy {
	q := *p
	q.name = name
	for i, seed := range seeds {
		q.id[i] = maphash.String(seed, q.name+":"+q.shape)
	}
	return Policy{&q}
}

func checkName(name string) error {
	ok := len(name) >= 1 && len(name) <= 64
	for i := range len(name) {
		ok = ok && isNameByte(name[i])
	}
	if !ok {
		return fmt.Errorf("core: policy name %.80q: give 1 to 64 letters, digits, \"_\", \".\" or \"-\"", name)
	}
	return nil
}

func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-'
}

// IsZero tells whether p is the zero Policy, which enforces nothing and is an
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

// Limits returns the policy's limits, the shortest period first: the order of
// [Result.Each].
func (p Policy) Limits() []Limit {
	if p.p == nil {
		return nil
	}
	return slices.Clone(p.p.limits)
}

// Options returns what holds for all limits of the policy.
func (p Policy) Options() Options {
	if p.p == nil {
		return Options{}
	}
	return p.p.options
}

// Shape tells which state the policy keeps: a letter for the algorithm of each
// limit, never a number. It is part of where state is kept, so that changed
// numbers keep the state and a changed algorithm starts afresh.
func (p Policy) Shape() string {
	if p.p == nil {
		return ""
	}
	return p.p.shape
}

// Params returns, for a charge of cost units, the exact integers that the scripts
// in package lua take: those of each limit in turn. A policy of one GCRA limit
// has seven of them; see lua/gcra.lua. It is for stores that decide in a script. cost
// is not negative.
func (p Policy) Params(cost int64) []int64 {
	if p.p == nil {
		return nil
	}
	b := make([]int64, 0, 7*len(p.p.limits))
	for _, a := range p.p.algorithms {
		b = a.AppendParams(b, cost)
	}
	return b
}
