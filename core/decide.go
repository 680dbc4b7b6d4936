package core

import (
	"math"
	"time"

	"github.com/weir-go/weir/core/internal/algo"
)

// load brings the state of all limits to what the rules allow now.
func (p *policy) load(state []int64, now int64) (healed bool) {
	for _, a := range p.algorithms {
		healed = a.Load(state[:a.Words()], now) || healed
		state = state[a.Words():]
	}
	return healed
}

// simple reports whether decideAlone can decide t.
func (p *policy) simple(t *Take) bool { return p.alone != nil && !t.AtMost }

// decideAlone is decide for a single GCRA limit, without a call through an interface. It changes state only if it is
// to be stored.
func (p *policy) decideAlone(res *Result, state []int64, t *Take, now int64) (changed bool) {
	next, changed := p.alone.Decide(&res.each[0], algo.Meter{Empty: state[0], Parts: state[1]}, now, t.Cost, p.ahead(t))
	if changed {
		state[0], state[1] = next.Empty, next.Parts
	}
	p.explainAlone(res, t.Cost, now)
	return changed
}

// explainAlone fills in res from the answer of the one limit that decided, which took all of the cost or nothing.
func (p *policy) explainAlone(res *Result, cost, now int64) {
	e := &res.each[0]
	res.At, res.policy = now, p
	res.Limit, res.Remaining, res.ResetAfter = p.limits[0].Burst, e.Remaining, time.Duration(e.Reset)*time.Microsecond
	wait := time.Duration(e.Wait) * time.Microsecond
	switch {
	case !e.Refused:
		if res.Taken, res.Delay, res.Outcome = cost, wait, Admitted; cost > 0 && e.Remaining == 0 {
			res.Outcome = AtLimit
		}
	case e.Never:
		res.Outcome = Never
	default:
		res.Outcome, res.RetryAfter = Refused, wait
	}
}

// decide brings state to what the rules allow now, takes what fits, and fills in res, which must be zero. It reports
// whether state is to be stored.
func (p *policy) decide(res *Result, state []int64, t *Take, now int64) (changed bool) {
	if p.simple(t) {
		return p.decideAlone(res, state, t, now)
	}
	healed := p.load(state, now)
	taken, admitted := p.charge(state, t, now)
	p.explain(res, state, t, now, taken, admitted)
	return healed || taken > 0
}

// charge takes what fits from all limits, or nothing from any.
func (p *policy) charge(state []int64, t *Take, now int64) (taken int64, admitted bool) {
	taken = t.Cost
	if t.AtMost {
		most := p.most(state, now, t.Debt)
		taken, admitted = min(t.Cost, most), most > 0
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

// most returns how many units all limits admit now.
func (p *policy) most(state []int64, now int64, owing bool) int64 {
	units := int64(math.MaxInt64)
	for _, a := range p.algorithms {
		units = min(units, a.Most(state, now, owing))
		state = state[a.Words():]
	}
	return units
}

// refund gives units back to all limits.
func (p *policy) refund(state []int64, now int64, r *Refund) (changed bool) {
	units := p.refundable(&r.Receipt, r.Units)
	for i, a := range p.algorithms {
		if own := state[:a.Words()]; r.Credit {
			changed = a.Credit(own, now, units) || changed
		} else {
			changed = a.Refund(own, now, units, p.receipt(&r.Receipt, i)) || changed
		}
		state = state[a.Words():]
	}
	return changed
}

// refundable returns how many of the units of r may be in the state of p: none if r was made
// under another shape, and so charged another state.
func (p *policy) refundable(r *Result, units int64) int64 {
	if r.policy != nil && r.policy.shape != p.shape {
		return 0
	}
	return units
}

// receipt returns the charge that is refunded as limit i needs it.
func (p *policy) receipt(r *Result, i int) algo.Receipt {
	made, e := p, r.at(i)
	if r.policy != nil && r.policy.shape == p.shape { // then the limits are in the same order
		made = r.policy
	}
	return algo.Receipt{At: r.At, Units: r.Taken, Delay: e.Delay(), Charged: e.Charged, Made: made.algorithms[i]}
}

// explain fills in res from the state of each limit, after the charge of taken units if all admitted, and
// before it if not.
func (p *policy) explain(res *Result, state []int64, t *Take, now, taken int64, admitted bool) {
	res.At, res.Taken, res.policy = now, taken, p
	if len(p.algorithms) > len(res.each) {
		res.more = new(more)
	}
	ahead := p.ahead(t)
	for i, a := range p.algorithms {
		cost := t.Cost
		if t.AtMost {
			cost = p.least(t, i)
		}
		fits := admitted || a.Admits(state, now, cost, ahead)
		if fits { // and if another refused, nothing was charged
			cost = taken
		}
		*res.at(i) = a.Explain(state, now, cost, ahead, !fits)
		state = state[a.Words():]
	}
	p.summarize(res, t.Cost, len(p.algorithms))
}

// least returns the cost that must fit limit i if t, which has AtMost, is to be admitted. A unit must be there without
// debt, unless t counts debt too: that is so if one unit more than can be borrowed fits.
func (p *policy) least(t *Take, i int) int64 {
	debt := p.limits[i].Debt
	if t.Debt && debt > 0 {
		return algo.OneOwed
	}
	return 1 + debt
}

// ahead returns the time by which t may reserve ahead, in microseconds.
func (p *policy) ahead(t *Take) int64 { return min(t.Wait, p.options.Wait).Microseconds() }
