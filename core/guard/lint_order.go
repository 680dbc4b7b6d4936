package guard

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir/core"
)

// order looks for rules of one request that are asked in an order in which one caller costs others what they share. Of
// those of an entry in the table, the first is the entry's own, and the others hold everywhere.
func (l *lint) order(rules []*rule, entry bool) {
	for i, a := range rules {
		for _, b := range rules[i+1:] {
			if a.shadow || b.shadow || entry && i > 0 {
				continue
			}
			if a.After == nil && a.widerThan(b) {
				how := "write that one first"
				if entry {
					how = "the rule of an entry comes first, so mount it by With inside of this Guard instead"
				}
				l.warn(codeWideFirst, a.place, "%q is asked before the narrower %q of %s, and so each request that the latter refuses has taken, until it is given back, what others share; %s",
					a.limiter.Policy(), b.limiter.Policy(), b.place, how)
			}
			if b.waits {
				l.heldPermits(a, b)
			}
		}
	}
	for _, wide := range rules {
		if !wide.shadow && wide.After == nil && wide.hasRate() {
			l.narrow(rules, wide, entry)
		}
	}
}

// heldPermits looks for permits of a that are too few for the requests that hold them while they wait in b.
func (l *lint) heldPermits(a, b *rule) {
	permits, _, ok := a.limiter.Policy().Concurrent()
	if wait := b.inLine(); ok && permits < wait {
		l.warn(codeHeldPermits, a.place, "its permits are held while requests wait in %q of %s, where up to %d of a key do, so that with %d a caller is refused for requests that only wait; write the permits in a rule after that one and a rate here, or give %d",
			b.limiter.Policy(), b.place, wait, permits, wait)
	}
}

// narrow looks for rules that are to keep one caller from using up what is shared with others, if none of them does.
func (l *lint) narrow(rules []*rule, wide *rule, entry bool) {
	narrower := slices.DeleteFunc(slices.Clone(rules), func(ru *rule) bool { return !wide.widerThan(ru) })
	if slices.ContainsFunc(narrower, func(ru *rule) bool { return !ru.shadow && ru.hasRate() }) {
		return
	}
	for _, ru := range narrower {
		if entry && wide != rules[0] && ru != rules[0] {
			continue // it is so everywhere
		}
		why := "is on trial, and refuses nothing"
		if permits, _, _ := ru.limiter.Policy().Concurrent(); !ru.shadow {
			why = "has permits alone, which do not bound how often requests come: " + perSecond(permits)
		}
		l.warn(codeNotNarrow, ru.place, "%q is all that keeps one caller from using up %q of %s, which others share, and it %s; give a rate beside it, as in \"20/1s\"",
			ru.limiter.Policy(), wide.limiter.Policy(), wide.place, why)
	}
}

// sharedKinds are the kinds of a key that say nothing of the caller.
var sharedKinds = []string{"const", "route", "method", "path"}

// widerThan reports whether ru counts more callers together than other does, as far as their keys and numbers show it:
// a key without anything of the caller, or with a part of what the other one has, and otherwise larger numbers.
func (ru *rule) widerThan(other *rule) bool {
	mine, others := ru.callers(), other.callers()
	switch {
	case slices.Equal(mine, others):
		return false
	case within(mine, others):
		return true
	case within(others, mine) || ru.Cost != nil || other.Cost != nil:
		return false
	}
	burst, rate := ru.most()
	otherBurst, otherRate := other.most()
	return burst > otherBurst && rate >= otherRate
}

// callers are the kinds in the rule's key that are of the caller, in order.
func (ru *rule) callers() []string {
	kinds := slices.DeleteFunc(ru.Key.Kinds(), func(kind string) bool { return slices.Contains(sharedKinds, kind) })
	slices.Sort(kinds)
	return kinds
}

func within(some, all []string) bool {
	return !slices.ContainsFunc(some, func(kind string) bool { return !slices.Contains(all, kind) })
}

// most returns the most that the rule admits: at once, and in a second in the long run. A rule of permits alone has no rate,
// and is taken to admit as many in a second as at once.
func (ru *rule) most() (burst int64, rate float64) {
	burst, rate = math.MaxInt64, math.Inf(1)
	for _, limit := range ru.limiter.Policy().Limits() {
		burst = min(burst, limit.Burst)
		if limit.Algorithm != core.Concurrent {
			rate = min(rate, float64(limit.Rate)/limit.Period.Seconds())
		}
	}
	if math.IsInf(rate, 1) {
		rate = float64(burst)
	}
	return burst, rate
}

func (ru *rule) hasRate() bool {
	return slices.ContainsFunc(ru.limiter.Policy().Limits(), func(limit core.Limit) bool { return limit.Algorithm != core.Concurrent })
}

// inLine returns how many requests of a key wait at most in a rule that lets them wait: rate times wait.
func (ru *rule) inLine() int64 {
	least := math.Inf(1)
	for _, limit := range ru.limiter.Policy().Limits() {
		switch {
		case limit.Algorithm == core.LeakyBucket:
			least = min(least, float64(limit.Burst))
		case limit.Algorithm != core.Concurrent && ru.wait > 0:
			least = min(least, math.Ceil(float64(limit.Rate)*(ru.wait.Seconds()/limit.Period.Seconds())))
		}
	}
	return int64(least)
}

// perSecond is an example of what permits admit.
func perSecond(permits int64) string {
	const takes = 5 * time.Millisecond
	return fmt.Sprintf("%d of a handler that takes %v are %d a second", permits, takes, permits*int64(time.Second/takes))
}
