package redisstore_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// stumble is a hook that panics once, at a script that travels whole.
type stumble struct{ done atomic.Bool }

func (*stumble) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *stumble) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "eval" && h.done.CompareAndSwap(false, true) {
			panic("a hook")
		}
		return next(ctx, cmd)
	}
}

func (*stumble) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A flight whose second try ends in a panic of a hook has handed the next one over once: no caller of that one is
// charged twice.
func TestPanicAtTheSecondTry(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rdb := closing(t, redis.NewUniversalClient(unhurried(redisstore.ClientOptions(server.Addr()))))
	s := newStore(t, rdb, redisstore.Options{DenyCache: -1, Deadline: patient, Flights: 1})
	p := core.MustParse("stumble: 1000000/1h fixed-window")
	take := core.Take{Policy: p, Key: "k", Cost: 1}
	require.Eventually(t, func() bool { _, err := s.Take(t.Context(), take); return err == nil }, patient, time.Millisecond)
	before := used(t, s, p, "k")
	rdb.AddHook(new(stumble))
	require.NoError(t, server.Client(t).ScriptFlush(t.Context()).Err())

	waiting, letGo := s.Ground()
	const callers = 400 // several flights, of one entry each
	var served, panics atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			defer func() {
				if value := recover(); value != nil {
					panics.Add(1)
				}
			}()
			if _, err := s.Take(t.Context(), take); assert.NoError(t, err) {
				served.Add(1)
			}
		})
	}
	require.Eventually(t, func() bool { return waiting() == callers }, patient, time.Millisecond)
	letGo()
	wg.Wait()
	assert.Positive(t, panics.Load())
	assert.EqualValues(t, callers, served.Load()+panics.Load())
	assert.Equal(t, before+served.Load(), used(t, s, p, "k"))
}
