package core

import (
	"fmt"
	"math/bits"
	"time"
)

// maxProcesses is the most processes that share a policy's limits under "fail local".
const maxProcesses = 1_000_000

// maxEpoch is the last epoch.
const maxEpoch = 999_999_999

// askAgain is the RetryAfter of a cost that fits the policy, but not one process's share of it: only the store can
// admit that, and a store that fails is asked about twice a second.
const askAgain = time.Second

// divided returns the policy by which one of p.options.Processes decides under "fail local". Its limits are in the
// order of p's, so that a part of a Result is of the same limit.
func (p *policy) divided() (*policy, error) {
	q := &policy{options: p.options, limits: make([]Limit, len(p.limits))}
	q.options.Processes = 0
	for i, whole := range p.limits {
		l, a, mistakes := whole.share(int64(p.options.Processes)).prepare(q.options)
		if mistakes != nil {
			return nil, fmt.Errorf("the share of %v cannot be counted (%w); give fewer processes, or leave the share out", whole, mistakes[0])
		}
		if q.limits[i] = l; l.Algorithm == Concurrent {
			q.permits = &q.limits[i]
		} else {
			q.add(l, a)
		}
	}
	q.finish()
	return q, nil
}

// share returns the part of l, which is prepared, that one of n processes admits: the rate exactly, where the algorithm
// can, and the next whole number of what is counted. So n processes together admit less than n units too many.
func (l Limit) share(n int64) Limit {
	part := func(units int64) int64 { return (units + n - 1) / n }
	rate, period := l.Rate, l.Period
	switch l.Algorithm {
	case Concurrent:
	case GCRA, LeakyBucket:
		g := gcd(rate, n)
		l.Rate, l.Period = rate/g, longer(period, n/g, 1)
	case TokenBucket: // tokens that come together must fit the bucket
		l.Rate = part(rate)
		l.Period = longer(period, l.Rate*n, rate)
	default:
		l.Rate = part(rate)
	}
	l.Burst, l.Debt = part(l.Burst), part(l.Debt)
	return l
}

// longer returns d*by/of in whole microseconds, rounded up, or more than MaxPeriod if that is too long. by/of must be
// at least 1.
func longer(d time.Duration, by, of int64) time.Duration {
	hi, lo := bits.Mul64(uint64(d.Microseconds()), uint64(by))
	if hi < uint64(of) {
		q, r := bits.Div64(hi, lo, uint64(of))
		if r > 0 {
			q++
		}
		if q <= uint64(MaxPeriod.Microseconds()) {
			return time.Duration(q) * time.Microsecond
		}
	}
	return MaxPeriod + time.Microsecond
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Local returns the policy by which the in-process store decides in place of p while the store fails, under "fail
// local": one process's share of p if it has PolicyOptions.Processes, else p itself. Its
// Results have the Limit of p.
func (p Policy) Local() Policy {
	if p.p != nil && p.p.share != nil {
		return Policy{p.p.share}
	}
	return p
}

// ofShare turns the Result of a process's share, for cost units, into one of the policy: Limit is the policy's, so that
// clients do not see another one while the store fails, and a cost that is too large for the share alone is not refused
// for ever.
func (p *policy) ofShare(res *Result, cost int64) {
	for i := range p.algorithms {
		if e := res.at(i); e.Never && cost <= p.limits[i].Burst+p.limits[i].Debt {
			e.Never, e.Wait = false, askAgain.Microseconds()
		}
	}
	p.summarize(res, cost, len(p.algorithms))
}

// permitsOfShare is ofShare for permits.
func (p *policy) permitsOfShare(res *Result, places int64) {
	res.Limit = p.permits.Burst
	if res.Outcome == Never && places <= p.permits.Burst {
		e := res.at(len(p.algorithms))
		e.Never, e.Wait = false, askAgain.Microseconds()
		res.Outcome, res.RetryAfter = Refused, askAgain
	}
}
