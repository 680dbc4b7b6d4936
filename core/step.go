package core

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/core/internal/algo"
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
	taken, admitted := p.p.take(s, &t, t.Now)
	p.p.explain(&res, s, &t, t.Now, taken, admitted)
	if healed || taken > 0 {
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
	if units > 0 && (p.p.refund(s, t.Now, units, &r) || changed) {
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
	state = make([]int64, p.p.rows.Words())
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

// take decides and charges: all limits, or none.
func (p *policy) take(state []int64, t *Take, now int64) (taken int64, admitted bool) {
	taken = t.Cost
	if t.upTo() {
		taken = p.most(state, now, t.Cost)
		admitted = taken > 0
	} else {
		admitted = p.admits(state, now, t.Cost, p.ahead(t))
	}
	if !admitted {
		return 0, false
	}
	if taken > 0 {
		for _, a := range p.algorithms {
			a.Charge(state, now, taken)
			state = state[a.Words():]
		}
	}
	return taken, true
}

// admits tells whether all limits admit.
func (p *policy) admits(state []int64, now, cost, ahead int64) bool {
	for _, a := range p.algorithms {
		if !a.Admits(state, now, cost, ahead) {
			return false
		}
		state = state[a.Words():]
	}
	return true
}

// most is how many units, up to cost, all limits admit now.
func (p *policy) most(state []int64, now, cost int64) int64 {
	for _, a := range p.algorithms {
		cost = min(cost, a.Most(state, now))
		state = state[a.Words():]
	}
	return cost
}

// refund gives units back to all limits.
func (p *policy) refund(state []int64, now, units int64, r *Result) (changed bool) {
	for i, a := range p.algorithms {
		changed = a.Refund(state[:a.Words()], now, units, r.receipt(i)) || changed
		state = state[a.Words():]
	}
	return changed
}

// ErrOtherWindow is what [Policy.Explain] answers where the script found the guess of
// [Policy.Params] to be in another window than the server's clock, and so did nothing:
// ask again with the time that came along.
var ErrOtherWindow = errors.New("core: the store's clock is in another calendar window than the caller's")

// Explain turns the reply of a script of package lua into the Result of t: the
// script decides, Explain tells what that means. reply is the server's time, with
// t.AtMost how many units were taken, and each limit's reply. It is used as working
// memory. The error is [ErrOtherWindow], with the server's time in Result.At, or says
// that no script can have written that reply.
func (p Policy) Explain(t Take, reply []int64) (Result, error) {
	if err := t.Validate(); err != nil {
		return Result{}, err
	}
	malformed := func() (Result, error) {
		return Result{}, fmt.Errorf("core: the reply %v is none of a script for %q", reply, p)
	}
	if len(reply) == 0 || reply[0] <= 0 || reply[0] > maxNow {
		return malformed()
	}
	now, rest := reply[0], reply[1:]
	if len(rest) == 0 && p.p.calendar {
		return Result{At: now}, ErrOtherWindow
	}
	if len(rest) == 0 {
		return malformed()
	}
	taken := t.Cost
	if t.upTo() {
		taken, rest = rest[0], rest[1:]
		if taken < 0 || taken > t.Cost {
			return malformed()
		}
	}
	if len(rest) != p.p.reply {
		return malformed()
	}
	fits, admitted := [MaxLimits]bool{}, true
	signs := rest
	for i, a := range p.p.algorithms {
		if fits[i] = signs[0] >= 0; !fits[i] {
			signs[0], admitted = -1-signs[0], false
		}
		signs = signs[a.Reply():]
	}
	if t.upTo() && admitted != (taken > 0) {
		return malformed()
	}
	if !admitted {
		taken = 0
	}
	res := Result{At: now, Taken: taken}
	ahead := p.p.ahead(&t)
	for i, a := range p.p.algorithms {
		cost := p.p.cost(&t, i)
		own := rest[:a.Reply()]
		state := own
		if a.Words() > len(own) {
			state = make([]int64, min(a.Words(), algo.MaxReplyState))
		}
		if !a.ParseReply(state, own, now, cost) || !fits[i] && a.Admits(state, now, cost, ahead) {
			return malformed()
		}
		res.Each[i].explain(a, state, now, cost, taken, ahead, fits[i])
		rest = rest[len(own):]
	}
	p.p.summarize(&res, t.Cost, len(p.p.algorithms))
	return res, nil
}
