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
	"github.com/weir-go/weir/lua"
)

// sharedFlights is the number of round trips of scriptShared at a time, which was best for it in most runs.
const sharedFlights = 8

// scriptShared lets those who wait share one script, as weir does, and does nothing else: no caller has a deadline or
// leaves, nothing fails, no policy waits for another, and nothing is remembered. It shows what sharing can reach at best.
func scriptShared(tb testing.TB, b backend, limits ...limit) []decide {
	tb.Helper()
	rdb := b.client(tb, true)
	return one(limits, func(i int, l limit) decide {
		policy, err := core.NewPolicy("shared", core.PolicyOptions{}, core.Limit{Rate: int64(l.rate), Period: l.period})
		require.NoError(tb, err)
		text, err := lua.Takes(policy.Spec().Kinds())
		require.NoError(tb, err)
		s := &sharing{
			rdb: rdb, take: core.Take{Policy: policy, Cost: 1}, prefix: prefix("shared", i),
			some: make(chan struct{}, 1), left: make(chan struct{}),
		}
		s.hash, err = rdb.ScriptLoad(tb.Context(), text).Result()
		require.NoError(tb, err)
		var flights sync.WaitGroup
		for range sharedFlights {
			flights.Go(func() { s.fly(tb.Context()) })
		}
		tb.Cleanup(func() { close(s.left); flights.Wait() })
		return s.decide
	})
}

// sharing is a queue to a script.
type sharing struct {
	rdb          redis.UniversalClient
	take         core.Take
	prefix, hash string
	some         chan struct{} // a signal that somebody waits
	left         chan struct{} // closed when nobody comes any more
	mu           sync.Mutex
	waiting      []*sharer
}

// sharer is a caller.
type sharer struct {
	key  string
	said verdict
	err  error
	done chan struct{}
}

var sharers = sync.Pool{New: func() any { return &sharer{done: make(chan struct{}, 1)} }}

func (s *sharing) decide(_ context.Context, key string) (verdict, error) {
	w := sharers.Get().(*sharer)
	w.key, w.err = s.prefix+key, nil
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.mu.Unlock()
	s.signal()
	<-w.done
	said, err := w.said, w.err
	sharers.Put(w)
	return said, err
}

func (s *sharing) signal() {
	select {
	case s.some <- struct{}{}:
	default:
	}
}

var errUndecided = errors.New("the script has decided nothing")

// fly makes one round trip after the other, each for all who wait.
func (s *sharing) fly(ctx context.Context) {
	params := s.take.Policy.Spec().TakeArgs(s.take, 0)
	for {
		all := s.board()
		if len(all) == 0 {
			select {
			case <-s.some:
			case <-s.left:
				return
			}
			runtime.Gosched() // more may come at the same time
			continue
		}
		args := make([]any, 0, 3+len(all)+len(params))
		args = append(args, "evalsha", s.hash, len(all))
		counts := make([]int, len(all))
		for i, w := range all {
			args, counts[i] = append(args, &w.key), 1
		}
		for _, n := range params {
			args = append(args, n)
		}
		cmd := redis.NewIntSliceCmd(ctx, args...)
		err := s.rdb.Process(ctx, cmd)
		if err == nil {
			_, err = s.take.Policy.Spec().ExplainEach(s.take, cmd.Val(), counts, func(key, _ int, res *core.Result, _ []int64) {
				if res == nil {
					all[key].err = errUndecided
					return
				}
				all[key].said = verdict{res.Allowed(), res.Remaining, res.ResetAfter}
			})
		}
		for _, w := range all {
			if err != nil {
				w.err = err
			}
			w.done <- struct{}{}
		}
		runtime.Gosched()
	}
}

// board returns those who wait, but that the script takes each key once: the second of a key goes with the next.
func (s *sharing) board() []*sharer {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, keys := make([]*sharer, 0, len(s.waiting)), make(map[string]bool, len(s.waiting))
	rest := s.waiting[:0]
	for _, w := range s.waiting {
		if keys[w.key] || len(all) == 64 {
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
