// Package rediscell answers like redis-cell, for programs that move from it.
package rediscell

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/weir-go/weir/core"
)

// Throttle answers like the command CL.THROTTLE of redis-cell, for programs that move
// from it: the arguments are the command's, and so are the five integers.
//
//	0  0 if admitted, 1 if limited
//	1  the limit: maxBurst + 1
//	2  what remains of it
//	3  seconds until a retry may succeed; -1 if admitted, or if no retry ever will
//	4  seconds until the limit is as if unused
//
// Seconds are rounded up: redis-cell rounds down what is less than a millisecond over, so
// that a client which waits may come too early. Its period is in whole seconds; here it is
// any period of a [core.Limit]. A quantity of 0 peeks; a negative one, with which redis-cell
// gives back, is an error: see [core.Store].
//
// The state is that of the policy "throttle" with one GCRA limit: a change of the numbers
// keeps it if a full bucket takes the same time to drain, as 10 and 20 a minute do, and
// otherwise starts afresh, so that calls with different numbers for one key do not undo each
// other's counts. A store that fails is an error: there is no fail word.
func Throttle(ctx context.Context, s core.Store, key string, maxBurst, count int64, period time.Duration, quantity int64) ([5]int64, error) {
	if v := reflect.ValueOf(s); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return [5]int64{}, errNoStore
	}
	if maxBurst < 0 || maxBurst >= core.MaxRate {
		return [5]int64{}, fmt.Errorf("rediscell: Throttle with a maxBurst of %d; give 0 to %d: how many are admitted beyond the first",
			maxBurst, core.MaxRate-1)
	}
	p, err := throttles.policy(core.Limit{Rate: count, Burst: maxBurst + 1, Period: period})
	if err != nil {
		return [5]int64{}, err
	}
	res, err := s.Take(ctx, core.Take{Policy: p, Key: key, Cost: quantity})
	if err != nil {
		return [5]int64{}, err
	}
	out := [5]int64{0, res.Limit, res.Remaining, -1, ceilSeconds(res.ResetAfter.Microseconds())}
	if !res.Allowed() {
		out[0] = 1
		if res.Outcome == core.Refused {
			out[3] = ceilSeconds(res.RetryAfter.Microseconds())
		}
	}
	return out, nil
}

var errNoStore = errors.New("rediscell: Throttle without a Store; give one that is kept, such as that of NewMemory")

// throttles keeps the policies of Throttle, whose callers give numbers each time.
var throttles policyCache

// policyCache builds a policy of one limit once. It forgets all of them when they are too
// many, for callers that make up numbers as they go.
type policyCache struct {
	mu       sync.RWMutex
	policies map[core.Limit]core.Policy
}

const maxCachedPolicies = 4096

func (c *policyCache) policy(l core.Limit) (core.Policy, error) {
	c.mu.RLock()
	p, ok := c.policies[l]
	c.mu.RUnlock()
	if ok {
		return p, nil
	}
	p, err := core.NewPolicy("throttle", core.PolicyOptions{}, l)
	if err != nil {
		return core.Policy{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.policies) >= maxCachedPolicies || c.policies == nil {
		c.policies = map[core.Limit]core.Policy{}
	}
	c.policies[l] = p
	return p, nil
}

func ceilSeconds(micros int64) int64 { return (micros + 999_999) / 1_000_000 }
