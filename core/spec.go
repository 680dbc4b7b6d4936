package core

import (
	"bytes"
	"fmt"
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

// Kinds returns a letter for the algorithm of each limit, as package lua takes them to
// compose a script: "gf" where Shape is "gfE", for a GCRA and an aligned FixedWindow.
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
	state, healed := s.load(text, t.Now)
	taken, admitted := s.p.take(state, &t, t.Now)
	s.p.explain(&res, state, &t, t.Now, taken, admitted)
	if healed || taken > 0 {
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
	state, changed := s.load(text, r.Now)
	if r.Units > 0 && (s.p.refund(state, r.Now, r.Units, &r.Receipt) || changed) {
		next, ttl = s.p.text(state, r.Now)
	}
	return next, ttl
}

// load reads stored text and brings it to what the rules allow now.
func (s Spec) load(text []byte, now int64) (state []int64, healed bool) {
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
	return state, s.p.load(state, now) || healed
}

// TakeArgs returns the exact integers that a script of package lua takes for t: those
// of each limit in turn, and with t.AtMost the cost. That is the script upto, and else
// the script take. It is for stores that decide in a script, after
// [Take.Validate]. guess is the caller's idea of the store's clock, in
// microseconds, which only limits that are aligned to the calendar look at; if it was
// wrong, [Spec.Explain] says so.
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
// t.AtMost how many units were taken, and each limit's reply. It is used as working
// memory. With again, nothing was decided, because the server's clock is in another window
// of a calendar than the guess of TakeArgs: ask again with that clock, which is in
// Result.At. It fails if no script can have written reply, whatever it is; t must have passed [Take.Validate], as for
// TakeArgs.
func (s Spec) Explain(t Take, reply []int64) (res Result, again bool, err error) {
	malformed := func() (Result, bool, error) {
		return Result{}, false, fmt.Errorf("core: the reply %v is not one of a script for %q", reply, Policy(s))
	}
	if s.p == nil || len(reply) == 0 || reply[0] <= 0 || reply[0] > maxNow {
		return malformed()
	}
	now, rest := reply[0], reply[1:]
	if len(rest) == 0 && s.p.calendar {
		return Result{At: now}, true, nil
	}
	if len(rest) == 0 {
		return malformed()
	}
	taken := t.Cost
	if t.AtMost {
		taken, rest = rest[0], rest[1:]
		if taken < 0 || taken > t.Cost {
			return malformed()
		}
	}
	if len(rest) != s.p.reply {
		return malformed()
	}
	fit, admitted := [MaxLimits]bool{}, true
	signs := rest
	for i, a := range s.p.algorithms {
		if fit[i] = signs[0] >= 0; !fit[i] {
			signs[0], admitted = -1-signs[0], false
		}
		signs = signs[a.Reply():]
	}
	if t.AtMost && t.Cost > 0 && admitted != (taken > 0) {
		return malformed()
	}
	if !admitted {
		taken = 0
	}
	res.At, res.Taken, res.policy = now, taken, s.p
	if len(s.p.algorithms) > len(res.each) {
		res.more = new([MaxLimits - 2]entry)
	}
	ahead := s.p.ahead(&t)
	for i, a := range s.p.algorithms {
		cost := t.Cost
		if t.AtMost {
			cost = s.p.least(&t, i)
		}
		own := rest[:a.Reply()]
		state := own
		if a.Words() > len(own) {
			state = make([]int64, min(a.Words(), algo.MaxReplyState))
		}
		if fit[i] && max(cost, taken) > s.p.limits[i].Burst+s.p.limits[i].Debt ||
			!a.ParseReply(state, own, now, cost) || !fit[i] && a.Admits(state, now, cost, ahead) {
			return malformed()
		}
		if fit[i] { // and if another refused, nothing was charged
			cost = taken
		}
		e := res.at(i)
		if *e = a.Explain(state, now, cost, ahead, !fit[i]); e.Wait < 0 { // less in use than was taken
			return malformed()
		}
		rest = rest[len(own):]
	}
	s.p.summarize(&res, t.Cost, len(s.p.algorithms))
	return res, false, nil
}
