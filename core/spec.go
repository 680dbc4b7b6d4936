package core

import (
	"bytes"
	"time"

	"github.com/weir-go/weir/core/internal/algo"
)

// Spec is a policy as a [Store] sees it: what it must decide, as a pure function on text
// ([Spec.Step]) or in the exact integers of the scripts of package lua ([Spec.TakeArgs],
// [Spec.Explain]). Applications have no use for it.
type Spec struct{ p *policy }

// Spec returns p as stores see it. The Spec of the zero Policy is of no use.
func (p Policy) Spec() Spec { return Spec(p) }

// Shape returns a text for the kind of state that the policy keeps: a letter for the algorithm of each limit,
// and how its window is divided and aligned. It is part of where state is kept, so that
// changed numbers keep the state and a changed algorithm starts afresh.
//
// For a GCRA and a LeakyBucket the time follows in which a full bucket with its debt drains, and after "+" how far
// ahead may be reserved: "g1s" is the shape of 10/1s and of 20/1s, and "g2s" that of 10/1s burst 20. Meters that
// differ in it cannot share a state, because the smaller one would forget what the larger one has counted. For a
// TokenBucket it is the most tokens below zero, if any. Windows share their state whatever their numbers
// are.
//
// Limits that are alike in this differ by their periods in microseconds, and if these are the same, by all
// their numbers: "f/1000000f/60000000" is the shape of 10/1s fixed-window and 100/1m fixed-window, for which other
// rates keep the state and other periods start afresh. An epoch stands at the end: "g1s@3" is the shape of
// 10/1s; epoch 3. Permits are kept apart and are not in it; see [Spec.PermitShape].
func (s Spec) Shape() string {
	if s.p == nil {
		return ""
	}
	return s.p.shape
}

// PermitShape is the [Spec.Shape] of the policy's permits, "p", or "p@3" in epoch 3. It is part of where they are kept.
func (s Spec) PermitShape() string {
	if s.p == nil {
		return ""
	}
	return s.p.permitShape
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
	if s.p.whole != nil {
		s.p.whole.ofShare(&res, t.Cost)
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
	if r.Units > 0 && (s.p.refund(state, r.Now, &r) || changed) {
		next, ttl = s.p.text(state, r.Now)
	}
	return next, ttl
}

// InUse returns how many units of each limit but permits are in use at now, in microseconds since the epoch, for stored
// text as in [Spec.Step]: with 10/1s burst 20, after 15 units at once, 15. A limit in debt has more in use than its burst,
// and what is reserved ahead is not counted.
func (s Spec) InUse(text []byte, now int64) []int64 {
	if s.p == nil {
		return nil
	}
	state, _ := s.parse(text, now)
	s.p.load(state, now)
	used := make([]int64, len(s.p.algorithms))
	for i, a := range s.p.algorithms {
		most := s.p.limits[i].Burst + s.p.limits[i].Debt
		used[i] = most - min(most, a.Most(state, now, true))
		state = state[a.Words():]
	}
	return used
}

// parse reads stored text. healed reports that no policy of this shape has written it.
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
		if whole && !algo.ParseText(a, own, segments[i]) {
			healed = true
		}
	}
	return state, healed
}

// text returns a state in the form in which it is stored, and how long to keep it.
func (p *policy) text(state []int64, now int64) ([]byte, time.Duration) {
	text, left := make([]byte, 0, 20*len(p.algorithms)), int64(0)
	for i, a := range p.algorithms {
		if i > 0 {
			text = append(text, ';')
		}
		text = a.AppendText(text, state)
		left = max(left, a.Expires(state)-now)
		state = state[a.Words():]
	}
	return text, time.Duration(max(1, (left+999)/1000)) * time.Millisecond
}
