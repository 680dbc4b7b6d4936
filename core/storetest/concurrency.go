package storetest

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

func concurrency(s *subject) {
	const callers, each, burst = 64, 5, 300
	takes := map[string]core.Take{
		"own clock":          {Policy: policy("300/366d"), Key: s.prefix + "own", Cost: 1},
		"two limits":         s.of(policy("300/1h, 1000/1d"), "two", 0, 1),
		"cost":               s.of(policy("900/1h"), "cost", 0, 3),
		"four kinds":         s.of(policy("300/1h, 310/1h leaky-bucket, 320/1h fixed-window, 330/1h sliding-log"), "four", 0, 1),
		"reserved":           s.of(policy("100/1h; wait 2h"), "reserved", 0, 1),
		"reserved tokens":    s.of(policy("100/1h token-bucket; wait 2h"), "reserved tokens", 0, 1),
		"what there is":      s.of(policy("300/1h"), "what there is", 0, 7),
		"what there is, log": s.of(policy("300/1h sliding-log"), "what there is, log", 0, 7),
	}
	for _, text := range tens() {
		text = "300" + strings.TrimPrefix(text, "10")
		takes[text] = s.of(policy(text), text, 0, 1)
	}
	for name, t := range takes {
		t.AtMost = strings.HasPrefix(name, "what there is")
		if strings.HasPrefix(name, "reserved") {
			t.Wait = 2 * time.Hour
		}
		var admitted atomic.Int64
		var lowest sync.Map // every Remaining is answered once
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range each {
					res, err := s.store.Take(s.Context(), t)
					if !assert.NoError(s, err) {
						return
					}
					if admitted.Add(res.Taken); res.Allowed() && res.Delay == 0 {
						_, twice := lowest.LoadOrStore(res.Remaining, true)
						assert.False(s, twice, "%s: two callers have %d left", name, res.Remaining)
					}
				}
			})
		}
		wg.Wait()
		units := int64(burst)
		if name == "cost" {
			units *= t.Cost
		}
		assert.Equal(s, units, admitted.Load(), name)
		require.NoError(s, s.store.Reset(s.Context(), t.Policy, t.Key))
	}
}

// manyPermits acquires from many goroutines.
func manyPermits(s *permits) {
	const n, callers, rounds = 7, 32, 20
	p := permitPolicy(n, time.Hour)
	var held, most atomic.Int64
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for r := range rounds {
				x := core.Permit{Policy: p, Key: s.key, ID: fmt.Sprint(c, "-", r)}
				res, err := s.store.Acquire(s.Context(), x)
				if !assert.NoError(s, err) || !res.Allowed() {
					continue
				}
				now := held.Add(1)
				for raised := false; !raised; {
					m := most.Load()
					raised = now <= m || most.CompareAndSwap(m, now)
				}
				held.Add(-1)
				assert.NoError(s, s.store.Release(s.Context(), []core.Permit{x}))
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(s, most.Load(), int64(n))
	require.EqualValues(s, n-1, s.acquire(core.Permit{Policy: p, Key: s.key, ID: "last"}).Remaining, "all were given back")
	s.release(core.Permit{Policy: p, Key: s.key, ID: "last"})
}
