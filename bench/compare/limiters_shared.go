package main

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/lua"
)

// sharedKeys is the number of callers that may share a script, as with weir.
const sharedKeys = redisstore.DefaultMaxKeys

// scriptShared decides for many callers by one script, as weir does, but without its deadlines, breaker, fairness between
// policies and cache of refusals. Beside weir it shows what those cost.
func scriptShared(tb testing.TB, b backend, limits ...limit) []decide {
	tb.Helper()
	rdb := b.client(tb, true)
	return one(limits, func(i int, l limit) decide {
		policy, err := core.NewPolicy("shared", core.PolicyOptions{}, core.Limit{Rate: int64(l.rate), Period: l.period})
		require.NoError(tb, err)
		text, err := lua.Takes(policy.Spec().Kinds())
		require.NoError(tb, err)
		s := &sharedScript{
			rdb: rdb, take: core.Take{Policy: policy, Cost: 1}, prefix: prefix("shared", i),
			arrived: make(chan struct{}, 1), stop: make(chan struct{}),
		}
		s.hash, err = rdb.ScriptLoad(tb.Context(), text).Result()
		require.NoError(tb, err)
		var flights sync.WaitGroup
		for range redisstore.DefaultFlights { // as many as weir may have out
			flights.Go(func() { s.fly(tb.Context()) })
		}
		tb.Cleanup(func() { close(s.stop); flights.Wait() })
		return s.decide
	})
}

// sharedScript decides for all callers that wait.
type sharedScript struct {
	rdb          redis.UniversalClient
	take         core.Take
	prefix, hash string
	arrived      chan struct{} // a signal that somebody waits
	stop         chan struct{} // closed when nobody comes any more
	mu           sync.Mutex
	waiting      []*waiter
}

// waiter is a call that waits for its verdict.
type waiter struct {
	key string
	verdict
	err  error
	done chan struct{}
}

var waiters = sync.Pool{New: func() any { return &waiter{done: make(chan struct{}, 1)} }}

func (s *sharedScript) decide(_ context.Context, key string) (verdict, error) {
	w := waiters.Get().(*waiter)
	w.key, w.err = s.prefix+key, errUndecided
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.mu.Unlock()
	s.signal()
	<-w.done
	v, err := w.verdict, w.err
	waiters.Put(w)
	return v, err
}

func (s *sharedScript) signal() {
	select {
	case s.arrived <- struct{}{}:
	default:
	}
}

var errUndecided = errors.New("the script has decided nothing")

// fly makes one round trip after the other, each for those who wait.
func (s *sharedScript) fly(ctx context.Context) {
	params := s.take.Policy.Spec().TakeArgs(s.take, 0)
	for {
		all := s.nextBatch()
		if len(all) == 0 {
			select {
			case <-s.arrived:
			case <-s.stop:
				return
			}
			runtime.Gosched() // more may come at the same time
			continue
		}
		args := make([]any, 0, 3+len(all)+len(params))
		args = append(args, "evalsha", s.hash, len(all))
		counts := make([]int, len(all))
		for i, w := range all {
			args, counts[i] = append(args, &w.key), 1 // a pointer takes no memory
		}
		for _, n := range params {
			args = append(args, n)
		}
		cmd := redis.NewIntSliceCmd(ctx, args...)
		err := s.rdb.Process(ctx, cmd)
		if err == nil {
			_, err = s.take.Policy.Spec().ExplainEach(s.take, cmd.Val(), counts, func(key, _ int, res *core.Result, _ []int64) {
				if res != nil {
					all[key].verdict, all[key].err = verdict{res.Allowed(), res.Remaining, res.ResetAfter}, nil
				}
			})
		}
		for _, w := range all {
			if err != nil {
				w.err = err
			}
			w.done <- struct{}{}
		}
		runtime.Gosched() // callers that ask again at once are in time for the next one
	}
}

// nextBatch takes waiters with different keys out of the queue, as the script takes each key once.
func (s *sharedScript) nextBatch() []*waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, keys := make([]*waiter, 0, len(s.waiting)), make(map[string]bool, len(s.waiting))
	rest := s.waiting[:0]
	for _, w := range s.waiting {
		if keys[w.key] || len(all) == sharedKeys {
			rest = append(rest, w)
			continue
		}
		keys[w.key] = true
		all = append(all, w)
	}
	clear(s.waiting[len(rest):])
	if s.waiting = rest; len(rest) > 0 {
		s.signal()
	}
	return all
}
