package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

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
