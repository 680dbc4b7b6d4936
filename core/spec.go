package core

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-go/weir/core/internal/algo"
)

// Spec is a policy as a [Store] sees it: what it must decide, as a pure function on text
// ([Spec.Step]) or in the exact integers of the scripts of package lua ([Spec.TakeArgs],
// [Spec.Explain]). Applications have no use for it.
type Spec struct{ p *policy }

// Spec returns p for stores. That of the zero Policy is of no use.
func (p Policy) Spec() Spec { return Spec(p) }

// Shape says which state the policy keeps: a letter for the algorithm of each limit,
// and how its window is divided and aligned. It is part of where state is kept, so that
// changed numbers keep the state and a changed algorithm starts afresh.
//
// Limits that are alike in this are told apart by their periods in microseconds, and if
// these are the same, by all their numbers: "g" is the shape of 10/1s, and
// "g/1000000g/60000000" that of 10/1s and 100/1m, for which other rates keep the state
// and other periods start afresh. Permits are kept apart and are not in it.
func (s Spec) Shape() string {
	if s.p == nil {
		return ""
	}
	return s.p.shape
}

// Kinds returns a letter for what decides over each limit, as package lua takes them to
// compose a script: "gf" where Shape is "gfE", for a GCRA and an aligned FixedWindow. Rates
// that do not come out even in microseconds take other letters than those that do.
// Permits have scripts of their own and are not in it.
func (s Spec) Kinds() string {
	if s.p == nil {
		return ""
	}
	return s.p.kinds
}

// Calendar reports whether a limit is aligned to the calendar, so that what
// [Spec.TakeArgs] returns depends on the time.
func (s Spec) Calendar() bool { return s.p != nil && s.p.calendar }

// Step decides as one pure function on stored text: the whole specification of a
// store. A store that can compare and swap reads the key's text, calls Step, and
// swaps the new text in if ttl is not 0, or starts over if somebody else was
// faster.
//
// No text (nil) means unused, and so does text that Step did not write. t.Now
// must be the store's clock. The new text is to be stored for ttl, which is in
// whole milliseconds; a ttl of 0 means that there is nothing to store. Step
// panics if t.Validate fails, or if t.Now is 0.
//
// The text is that of the Redis scripts: a segment for each limit, joined by ";".
func (s Spec) Step(text []byte, t Take) (res Result, next []byte, ttl time.Duration) {
	t.Policy = Policy(s)
	if err := t.Validate(); err != nil {
		panic(err)
	}
	state, healed := s.parse(text, t.Now)
	if changed := s.p.decide(&res, state, &t, t.Now); changed || healed {
		next, ttl = s.p.text(state, t.Now)
	}
	return res, next, ttl
}

// StepRefund is to [Store.Refund] what [Spec.Step] is to Take. r.Policy is that of s, whatever
// it says. It panics if r.Validate fails, or if r.Now is 0.
func (s Spec) StepRefund(text []byte, r Refund) (next []byte, ttl time.Duration) {
	r.Policy = Policy(s)
	if err := r.Validate(); err != nil {
		panic(err)
	}
	state, healed := s.parse(text, r.Now)
	changed := s.p.load(state, r.Now) || healed
	if r.Units > 0 && (s.p.refund(state, r.Now, r.Units, &r.Receipt) || changed) {
		next, ttl = s.p.text(state, r.Now)
	}
	return next, ttl
}

// parse reads stored text. healed reports that it was not what a policy of this shape has written.
func (s Spec) parse(text []byte, now int64) (state []int64, healed bool) {
	if now == 0 {
		panic("core: Step without a clock; set Now to the store's time in microseconds")
	}
	segments := [][]byte{text}
	if len(s.p.algorithms) > 1 {
		segments = bytes.Split(text, []byte{';'})
	}
	whole := len(segments) == len(s.p.algorithms)
	healed = !whole && text != nil
	state = make([]int64, s.p.rows.Words())
	rest := state
	for i, a := range s.p.algorithms {
		own := rest[:a.Words()]
		rest = rest[len(own):]
		if whole && !a.ParseText(own, segments[i]) {
			healed = true
		}
	}
	return state, healed
}

// TakeArgs returns the exact integers that a script of package lua takes for t: those
// of each limit in turn, and with t.AtMost the cost. That is the script upto, and else
// the script take, or takes for many keys at once. It is for stores that decide in a script, after
// [Take.Validate]. guess is the caller's idea of the store's clock, in
// microseconds, which only limits that are aligned to the calendar look at; if it was
// wrong, [Spec.Explain] and [Spec.ExplainEach] say so.
func (s Spec) TakeArgs(t Take, guess int64) []int64 {
	if s.p == nil {
		return nil
	}
	b := make([]int64, 0, 1+8*len(s.p.limits))
	ahead := s.p.ahead(&t)
	for _, a := range s.p.algorithms {
		if t.AtMost {
			b = a.AppendUpTo(b, t.Debt, guess)
		} else {
			b = a.AppendTake(b, t.Cost, ahead, guess)
		}
	}
	if t.AtMost {
		b = append(b, t.Cost)
	}
	return b
}

// RefundArgs is like TakeArgs for the script refund: the arguments of each limit in turn, and the instant of the
// charge.
func (s Spec) RefundArgs(r Refund, guess int64) []int64 {
	if s.p == nil {
		return nil
	}
	b := make([]int64, 0, 1+8*len(s.p.limits))
	units := s.p.refundable(&r.Receipt, r.Units)
	for i, a := range s.p.algorithms {
		b = a.AppendRefund(b, units, s.p.receipt(&r.Receipt, i), guess)
	}
	return append(b, r.Receipt.At)
}

// Explain turns the reply of a script of package lua into the Result of t: the
// script decides, and Explain says what that means. reply is the server's time, with
// t.AtMost how many units were taken, and each limit's reply. With again, nothing was decided, because the server's clock is in another window
// of a calendar than the guess of TakeArgs: ask again with that clock, which is in
// Result.At. It fails if no script can have written reply, whatever it is; t must have passed [Take.Validate], as for
// TakeArgs.
func (s Spec) Explain(t Take, reply []int64) (res Result, again bool, err error) {
	if s.p == nil || len(reply) == 0 || reply[0] <= 0 || reply[0] > maxNow {
		return Result{}, false, s.malformed(reply)
	}
	d := decisions{p: s.p, t: t, now: reply[0], workspace: workspaces.Get().(*workspace)}
	defer workspaces.Put(d.workspace)
	switch rest := reply[1:]; {
	case len(rest) == 0 && s.p.calendar:
		return Result{At: d.now}, true, nil
	case t.AtMost:
		if len(rest) == 1+s.p.reply && rest[0] >= 0 && rest[0] <= t.Cost && d.read(rest[1:]) {
			ok := t.Cost == 0 || d.admitted == (rest[0] > 0)
			if ok && d.explain(&res, rest[0]) {
				return res, false, nil
			}
		}
	default:
		if len(rest) == s.p.reply && d.read(rest) && d.explain(&res, t.Cost) {
			return res, false, nil
		}
	}
	return Result{}, false, s.malformed(reply)
}

// undecided stands in a reply of the script takes for a key of which nothing was decided.
const undecided = -1 << 53

// maxCalls is how many calls the script takes decides for a key at once.
const maxCalls = 1 << 16

// ExplainEach is [Spec.Explain] for the script takes, of which t is every call, whatever
// its Key: it has no AtMost, and has passed [Take.Validate]. counts says how many calls there were for each of the keys,
// in their order, which is 1 to 65536.
//
// It calls visit for each call, with the number of its key and, of the calls for that key,
// its own; both in order, from 0. res is nil where the server did not decide for this key,
// and has changed nothing: ask for each of these calls by itself, which says why. said is the
// part of reply from which res was made for the latest of the calls for the key: together with the time it is what
// the script take would have replied to it. Both are good for the time of visit and may be copied.
//
// If again is not 0, nothing was decided, as in Explain, and it is the server's clock to ask
// again with. If no script can have written reply, it fails, and where it found that
// out late, visit was called for the keys before.
func (s Spec) ExplainEach(t Take, reply []int64, counts []int, visit func(key, call int, res *Result, said []int64)) (again int64, err error) {
	if t.AtMost {
		return 0, errors.New("core: ExplainEach of a Take with AtMost; the script takes has no such calls: use Explain")
	}
	for _, n := range counts {
		if n < 1 || n > maxCalls {
			return 0, fmt.Errorf("core: a key with %d calls; give 1 to %d", n, maxCalls)
		}
	}
	if s.p == nil || len(reply) == 0 || reply[0] <= 0 || reply[0] > maxNow {
		return 0, s.malformed(reply)
	}
	d := visits{rest: reply[1:], visit: visit}
	d.decisions = decisions{p: s.p, t: t, now: reply[0], workspace: workspaces.Get().(*workspace)}
	defer workspaces.Put(d.workspace)
	if len(d.rest) == 0 && s.p.calendar && len(counts) > 0 {
		return d.now, nil
	}
	for key, n := range counts {
		before := d.rest
		if !d.next(key, n) {
			return 0, s.malformed(before[:min(len(before), s.p.reply+1)])
		}
	}
	if len(d.rest) > 0 {
		return 0, s.malformed(d.rest[:min(len(d.rest), s.p.reply+1)])
	}
	return 0, nil
}

// decisions reads what a script has replied to equal takes.
type decisions struct {
	p   *policy
	t   Take
	now int64

	// Of the latest key.
	fit      [MaxLimits]bool
	admitted bool
	*workspace
}

// workspace is what reading a reply needs: the states of the limits, as far as they are in it, and one limit's part.
type workspace struct {
	states [MaxLimits][algo.MaxReplyState]int64
	own    [maxReply]int64
}

var workspaces = sync.Pool{New: func() any { return new(workspace) }}

func (s Spec) malformed(reply []int64) error {
	return fmt.Errorf("core: the reply %v is not one of a script for %q", reply, Policy(s))
}

// visits are the calls of a flight, one after the other.
type visits struct {
	decisions
	visit        func(key, call int, res *Result, said []int64)
	rest         []int64 // of the reply
	res, refused Result
	said         []int64 // of the key
}

// next visits the calls for one key, and reports whether a script can have written what was
// replied of them.
func (d *visits) next(key, n int) (ok bool) {
	if len(d.rest) > 0 && d.rest[0] == undecided {
		d.rest = d.rest[1:]
		for call := range n {
			d.visit(key, call, nil, nil)
		}
		return true
	}
	if len(d.rest) < d.p.reply || !d.read(d.rest[:d.p.reply]) {
		return false
	}
	d.said, d.rest = d.rest[:d.p.reply], d.rest[d.p.reply:]
	if n == 1 {
		if ok = d.explain(&d.res, d.t.Cost); ok {
			d.visit(key, 0, &d.res, d.said)
		}
		return ok
	}
	times := int64(n)
	if !d.admitted {
		if len(d.rest) == 0 || d.rest[0] < 0 || d.rest[0] >= int64(n) {
			return false
		}
		times, d.rest = d.rest[0], d.rest[1:]
	}
	return d.replay(key, n, int(times))
}

// replay visits n calls for one key, of which so many were admitted: it goes back to before
// the first, and from there to the last.
func (d *visits) replay(key, n, times int) (ok bool) {
	if times < n && !d.explain(&d.refused, 0) {
		return false
	}
	if d.t.Cost > 0 && times > 0 {
		if d.t.Cost > d.p.limits[0].Burst+d.p.limits[0].Debt {
			return false
		}
		for i, a := range d.p.algorithms {
			if !a.Rewind(d.states[i][:], d.now, int64(times)*d.t.Cost) {
				return false
			}
		}
	}
	if d.p.alone != nil && d.t.Cost > 0 && times > 0 { // and so the cost is one that fits
		d.charges(key, times)
	} else if !d.eachAdmitted(key, times) {
		return false
	}
	for call := times; call < n; call++ {
		d.visit(key, call, &d.refused, d.said)
	}
	return true
}

// eachAdmitted visits the calls for one key that were admitted.
func (d *visits) eachAdmitted(key, times int) (ok bool) {
	d.fit, d.admitted = [MaxLimits]bool{true, true, true, true}, true
	for call := range times {
		if d.t.Cost > 0 {
			for i, a := range d.p.algorithms {
				a.Charge(d.states[i][:], d.now, d.t.Cost)
			}
		}
		if !d.explain(&d.res, d.t.Cost) {
			return false
		}
		d.visit(key, call, &d.res, d.said)
	}
	return true
}

// charges is eachAdmitted for the only limit that most policies have, in a fifth of the time.
func (d *visits) charges(key, times int) {
	d.res = Result{At: d.now, Taken: d.t.Cost, policy: d.p}
	charges := d.p.alone.Charges(d.states[0][:], d.now, d.t.Cost)
	for call := range times {
		charges.Next(&d.res.each[0])
		d.p.summarize(&d.res, d.t.Cost, 1)
		d.visit(key, call, &d.res, d.said)
	}
}

// read reads what was replied of the limits, for one key.
func (d *decisions) read(reply []int64) (ok bool) {
	d.admitted = true
	for i, a := range d.p.algorithms {
		own := d.own[:copy(d.own[:], reply[:a.Reply()])]
		reply = reply[len(own):]
		if d.fit[i] = own[0] >= 0; !d.fit[i] {
			own[0], d.admitted = -1-own[0], false
		}
		cost, state := d.t.Cost, d.states[i][:]
		if d.t.AtMost {
			cost = d.p.least(&d.t, i)
		}
		if !a.ParseReply(state, own, d.now, cost) || !d.fit[i] && a.Admits(state, d.now, cost, d.p.ahead(&d.t)) {
			return false
		}
	}
	return true
}

// explain fills in res from the states, after the charge of taken units if all limits admitted.
func (d *decisions) explain(res *Result, taken int64) (ok bool) {
	if !d.admitted {
		taken = 0
	}
	*res = Result{At: d.now, Taken: taken, policy: d.p}
	if len(d.p.algorithms) > len(res.each) {
		res.more = new([MaxLimits - 2]entry)
	}
	for i, a := range d.p.algorithms {
		cost := d.t.Cost
		if d.t.AtMost {
			cost = d.p.least(&d.t, i)
		}
		if d.fit[i] && max(cost, taken) > d.p.limits[i].Burst+d.p.limits[i].Debt {
			return false
		}
		if d.fit[i] { // and if another refused, nothing was charged
			cost = taken
		}
		e := res.at(i)
		if *e = a.Explain(d.states[i][:], d.now, cost, d.p.ahead(&d.t), !d.fit[i]); e.Wait < 0 { // less in use than was taken
			return false
		}
	}
	d.p.summarize(res, d.t.Cost, len(d.p.algorithms))
	return true
}
