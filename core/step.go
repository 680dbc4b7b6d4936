package core

import (
	"bytes"
	"fmt"
	"time"
)

// Step decides as one pure function on stored text: the whole specification of a
// store. A store that can compare and swap reads the key's text, calls Step, and
// swaps the new text in if ttl is not 0, or starts over if somebody else was
// faster.
//
// No text (nil) means unused, and so does text that Step did not write. t.Now
// must be the store's clock. The new text is to be stored for ttl, which is in
// whole milliseconds; a ttl of 0 means that there is nothing to store. Step
// panics if t.Validate does, or if t.Now is 0.
//
// The text is that of the Redis scripts: a segment for each limit, joined by ";".
func (p Policy) Step(text []byte, t Take) (res Result, next []byte, ttl time.Duration) {
	s, healed := p.load(text, &t)
	charged := p.p.admits(s, t.Now, t.Cost)
	if charged && t.Cost > 0 {
		p.p.charge(s, t.Now, t.Cost)
		healed = true
	}
	res = p.p.explain(s, t.Now, t.Cost, charged)
	if healed {
		next, ttl = p.p.store(s, t.Now)
	}
	return res, next, ttl
}

// StepRefund is to Refund what [Policy.Step] is to Take: it gives back units of what
// r took. It panics if t.Validate or [ValidateRefund] has something to say.
func (p Policy) StepRefund(text []byte, t Take, r Result, units int64) (next []byte, ttl time.Duration) {
	s, changed := p.load(text, &t)
	if err := ValidateRefund(&t, r, units); err != nil {
		panic(err)
	}
	if p.p.refund(s, t.Now, r.At, units) || changed {
		next, ttl = p.p.store(s, t.Now)
	}
	return next, ttl
}

// load reads stored text and brings it to what the rules allow now.
func (p Policy) load(text []byte, t *Take) (state []int64, healed bool) {
	t.Policy = p
	if err := t.Validate(); err != nil {
		panic(err)
	}
	if t.Now == 0 {
		panic("core: Step without a clock; set Take.Now to the store's time in microseconds")
	}
	segments := [][]byte{text}
	if len(p.p.algorithms) > 1 {
		segments = bytes.Split(text, []byte{';'})
	}
	whole := len(segments) == len(p.p.algorithms)
	healed = !whole && text != nil
	state = make([]int64, p.p.words)
	rest := state
	for i, a := range p.p.algorithms {
		s := rest[:a.Words()]
		rest = rest[len(s):]
		if whole && !a.ParseText(s, segments[i]) {
			healed = true
		}
	}
	return state, p.p.load(state, t.Now) || healed
}

// store is the text of a state and how long to keep it.
func (p *policy) store(state []int64, now int64) ([]byte, time.Duration) {
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

// load brings the state of all limits to what the rules allow now.
func (p *policy) load(state []int64, now int64) (healed bool) {
	for _, a := range p.algorithms {
		healed = a.Load(state[:a.Words()], now) || healed
		state = state[a.Words():]
	}
	return healed
}

// admits tells whether all limits admit.
func (p *policy) admits(state []int64, now, cost int64) bool {
	for _, a := range p.algorithms {
		if !a.Admits(state, now, cost) {
			return false
		}
		state = state[a.Words():]
	}
	return true
}

// charge adds cost to all limits.
func (p *policy) charge(state []int64, now, cost int64) {
	for _, a := range p.algorithms {
		a.Charge(state, now, cost)
		state = state[a.Words():]
	}
}

// refund gives units back to all limits.
func (p *policy) refund(state []int64, now, at, units int64) (changed bool) {
	for _, a := range p.algorithms {
		changed = a.Refund(state[:a.Words()], now, at, units) || changed
		state = state[a.Words():]
	}
	return changed
}

// Explain turns the reply of a script of package lua into the Result of t: the
// script decides, Explain tells what that means. reply is the server's time and
// each limit's reply after it. The error says that no script can have written
// that reply. reply is used as working memory.
func (p Policy) Explain(t Take, reply []int64) (Result, error) {
	if err := t.Validate(); err != nil {
		return Result{}, err
	}
	if len(reply) != 1+p.p.words || reply[0] <= 0 || reply[0] > maxNow {
		return Result{}, fmt.Errorf("core: a reply of %d integers for shape %q; %d were expected, the time first", len(reply), p.Shape(), 1+p.p.words)
	}
	now, state := reply[0], reply[1:]
	admitted, rest := true, state
	for i, a := range p.p.algorithms {
		fits, ok := a.ParseReply(rest[:a.Words()], now)
		if !ok || !fits && a.Admits(rest[:a.Words()], now, t.Cost) {
			return Result{}, fmt.Errorf("core: the reply for limit %d of %q is out of range", i+1, p)
		}
		admitted = admitted && fits
		rest = rest[a.Words():]
	}
	return p.p.explain(state, now, t.Cost, admitted), nil
}
