package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/keyfunc"
)

// A take that is given up while a flight is out with it answers later, as it would have answered.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]core.Take{
		"by itself":     {Policy: core.MustParse("alone: 5/1h fixed-window"), Cost: 5, AtMost: true},
		"with others":   {Policy: core.MustParse("shared: 5/1h fixed-window"), Cost: 1},
		"in a calendar": {Policy: core.MustParse("month: 5/1mo fixed-window calendar UTC"), Cost: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFar(t)
			s := f.patientStore(t)
			s.Join()
			_, err := s.Take(t.Context(), core.Take{Policy: take.Policy, Key: "warm", Cost: 1})
			require.NoError(t, err)
			for _, how := range []error{context.Canceled, context.DeadlineExceeded} {
				f.proxy.Latency(100 * time.Millisecond)
				key, late := f.leave(t, s, take, how, nil)
				f.proxy.Pass()
				answers := make(chan core.Result, 1)
				late.Then(func(res core.Result, err error) {
					assert.NoError(t, err)
					answers <- res
				})
				select {
				case res := <-answers:
					assert.Equal(t, take.Cost, res.Taken)
					assert.Equal(t, 5-take.Cost, res.Remaining)
				case <-time.After(patient):
					require.Fail(t, "no answer")
				}
				assert.Equal(t, take.Cost, used(t, s, take.Policy, key))
			}
		})
	}
}

// A caller that is over the limit and leaves before its answer is remembered all the same: the next is refused without
// asking.
func TestLateRefusalsAreRemembered(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]core.Take{
		"by itself":   {Policy: core.MustParse("alone: 5/1h fixed-window"), Cost: 5, AtMost: true},
		"with others": {Policy: core.MustParse("shared: 5/1h fixed-window"), Cost: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFar(t)
			s, other := f.patientStore(t), newStore(t, f.direct, redisstore.Options{Deadline: patient})
			s.Join()
			_, err := s.Take(t.Context(), core.Take{Policy: take.Policy, Key: "warm", Cost: 1})
			require.NoError(t, err)
			remembered := func() bool { // for a second
				f.proxy.Latency(50 * time.Millisecond)
				key, late := f.leave(t, s, take, context.Canceled, func(key string) {
					_, err := other.Take(t.Context(), core.Take{Policy: take.Policy, Key: key, Cost: 5})
					require.NoError(t, err)
				})
				f.proxy.Pass()
				answered := make(chan struct{})
				late.Then(func(res core.Result, err error) {
					assert.NoError(t, err)
					assert.Equal(t, core.Refused, res.Outcome)
					close(answered)
				})
				<-answered
				hits := s.Stats().DenyHits
				res, err := s.Take(t.Context(), core.Take{Policy: take.Policy, Key: key, Cost: take.Cost, AtMost: take.AtMost})
				require.NoError(t, err)
				require.Equal(t, core.Refused, res.Outcome)
				return s.Stats().DenyHits > hits
			}
			for tries := 0; !remembered(); tries++ {
				require.Less(t, tries, 10)
			}
		})
	}
}

// leave gives a take up while a flight is out with it. It has another key each time that it flies alone instead; before is called with each.
func (f far) leave(t *testing.T, s *redisstore.Store, take core.Take, how error, before func(key string)) (key string, _ *core.LateError) {
	t.Helper()
	var wg sync.WaitGroup
	defer wg.Wait()
	for n := range 100 {
		if take.Key = fmt.Sprint(how, n); before != nil {
			before(take.Key)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
		if errors.Is(how, context.Canceled) {
			ctx, cancel = context.WithCancel(t.Context())
			time.AfterFunc(30*time.Millisecond, cancel)
		}
		for i := range 3 { // so that it does not fly alone
			wg.Go(func() { _, _ = s.Take(ctx, core.Take{Policy: take.Policy, Key: fmt.Sprint("other", i), Cost: 1}) })
		}
		_, err := s.Take(ctx, take)
		cancel()
		var late *core.LateError
		if errors.As(err, &late) {
			require.ErrorIs(t, err, how)
			var failed *core.StoreError
			ok := errors.As(err, &failed)
			require.Equal(t, how == context.DeadlineExceeded, ok) //nolint:errorlint // it is one of two
			require.True(t, !ok || failed.MaybeExecuted && failed.Class == core.ClassTimeout)
			return take.Key, late
		}
	}
	require.Fail(t, "it never leaves a flight")
	return "", nil
}

// A user that never fails is not refused in the end, although most of its requests were answered too late, as those of
// 200 others, and so refused by the fail word.
func TestLateDecisionsAreSettled(t *testing.T) { //nolint:paralleltest // it leaves nothing for others
	for _, policy := range []string{"login: 3/1h; fail closed", "login: 3/1h fixed-window; fail closed", "login: 3/1h; fail open", "login: 3/1h; fail local"} {
		t.Run(policy, func(t *testing.T) { testLateDecisions(t, policy) })
	}
}

func testLateDecisions(t *testing.T, policy string) {
	f := newFar(t)
	store := f.patientStore(t)
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{
			Policy: policy, Key: keyfunc.User("user"),
			Settle: func(guard.Final, int64) int64 { return 0 },
		},
		Store: store,
	})
	require.NoError(t, err)
	late := func(user string) bool {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		v := g.Check(login{ctx: ctx, user: user})
		v.Finish(guard.Final{Status: 200})
		var failed *core.StoreError
		ok := errors.As(v.Err, &failed)
		return ok && failed.MaybeExecuted
	}
	require.Eventually(t, func() bool { return !late("first") }, patient, time.Millisecond)
	f.proxy.Latency(10 * time.Millisecond)
	var others sync.WaitGroup
	for i := range 200 {
		others.Go(func() {
			for range 5 {
				late(fmt.Sprint(i))
			}
		})
	}
	tooLate := 0
	for range 12 {
		if late("victim") {
			tooLate++
		}
		f.someTime(t)
	}
	others.Wait()
	f.proxy.Pass()
	t.Logf("%d of 12 answers came too late", tooLate)
	if !assert.GreaterOrEqual(t, tooLate, 3, "or nothing is tried") {
		return
	}
	key := func(user string) string {
		k := new(keyfunc.Key)
		require.NoError(t, keyfunc.User("user").AppendTo(k, login{ctx: t.Context(), user: user}))
		return k.String()
	}
	users := []string{"victim"}
	for i := range 200 {
		users = append(users, fmt.Sprint(i))
	}
	for _, user := range users {
		require.Eventually(t, func() bool { return used(t, store, g.Policies()[0], key(user)) == 0 }, patient, 5*time.Millisecond, user)
	}
	require.NoError(t, g.Close())
}

// However many leave, each answer, late or not, is that of the caller's own take; and who left before the flight did has
// taken nothing.
func TestLateAnswersAreOfTheirTakes(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	s := f.patientStore(t)
	s.Join()
	policies := []core.Policy{core.MustParse("own-a: 100/300d"), core.MustParse("own-b: 100/300d fixed-window"), core.MustParse("own-c: 100/300d token-bucket; wait 1s")}
	for _, p := range policies { // composes the scripts
		_, err := s.Take(t.Context(), core.Take{Policy: p, Key: "warm", Cost: 1})
		require.NoError(t, err)
	}
	f.proxy.Latency(2 * time.Millisecond)
	type given struct {
		take core.Take
		took int64
	}
	var mu sync.Mutex
	var all []given
	var callers, answers sync.WaitGroup
	var late atomic.Int32
	for g := range 60 {
		rng := rand.New(rand.NewPCG(1, uint64(g))) //nolint:gosec // the same numbers each time
		callers.Go(func() {
			for n := range 60 {
				take := core.Take{Policy: policies[rng.IntN(3)], Key: fmt.Sprint(g, "-", n), Cost: 1 + rng.Int64N(20), AtMost: rng.IntN(4) == 0}
				note := func(res core.Result, err error) {
					if err == nil {
						assert.Equal(t, take.Cost, res.Taken, take.Key)
						assert.Equal(t, 100-take.Cost, res.Remaining, take.Key)
					}
					mu.Lock()
					defer mu.Unlock()
					all = append(all, given{take, res.Taken})
				}
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Duration(rng.IntN(6000))*time.Microsecond, cancel)
				res, err := s.Take(ctx, take)
				cancel()
				var unanswered *core.LateError
				if !errors.As(err, &unanswered) {
					note(res, err)
					continue
				}
				late.Add(1)
				answers.Add(1)
				unanswered.Then(func(res core.Result, err error) {
					defer answers.Done()
					assert.NoError(t, err)
					note(res, err)
				})
			}
		})
	}
	callers.Wait()
	answers.Wait()
	f.proxy.Pass()
	assert.Positive(t, late.Load())
	t.Logf("%d of %d answers were late", late.Load(), len(all))
	for _, g := range all {
		assert.Equal(t, g.took, used(t, s, g.take.Policy, g.take.Key), g.take.Key)
	}
}
