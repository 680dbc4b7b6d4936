package core

import "time"

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

// admits reports whether all limits admit.
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
	units = p.refundable(r, units)
	for i, a := range p.algorithms {
		changed = a.Refund(state[:a.Words()], now, units, p.receipt(r, i)) || changed
		state = state[a.Words():]
	}
	return changed
}
