// Package storetest is the contract of [core.Store] as a test suite: whatever
// passes [Exercise] may stand behind a Guard. [Compare] runs the same random
// operations against two stores and demands the same answers.
//
// The suite forces the clock with Take.Now nearly everywhere, so that it neither
// waits nor depends on how fast a machine is.
package storetest

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// Epoch is time 0 of the suite, in microseconds since the Unix epoch: all forced
// times lie around it.
const Epoch = 1_800_000_000_000_000

// The lengths of the suite, in microseconds.
const (
	second = 1_000_000
	hour   = 3600 * second
)

// Exercise demands of a store all that [core.Store] promises. newStore is called
// once for each part of the suite and should clean up after itself with
// t.Cleanup. It may return the same store each time, and one that others use: no
// key is used twice, not even by two runs.
func Exercise(t *testing.T, newStore func(*testing.T) core.Store) {
	for _, part := range []struct {
		name string
		run  func(*subject)
	}{
		{"traces", traces},
		{"burst, refusal, exact retry", exactRetry},
		{"cost", cost},
		{"peek", peek},
		{"never", never},
		{"invalid input", invalid},
		{"refund", refund},
		{"refund keeps the bound", refundBound},
		{"reset", reset},
		{"policies do not share keys", policies},
		{"changed numbers keep the state", changedNumbers},
		{"all limits or none", allOrNone},
		{"clock steps", clockSteps},
		{"the store's own clock", ownClock},
		{"a caller who left", cancelled},
		{"concurrency", concurrency},
		{"hostile keys", hostileKeys},
		{"invariants", invariants},
		{"agrees with Step", agrees},
	} {
		t.Run(part.name, func(t *testing.T) {
			part.run(&subject{T: t, store: newStore(t), prefix: rand.Text() + " "})
		})
	}
}

// subject is a store under test.
type subject struct {
	*testing.T
	store  core.Store
	prefix string // of all keys
}

func (s *subject) of(p core.Policy, key string, at, cost int64) core.Take {
	return core.Take{Policy: p, Key: s.prefix + key, Cost: cost, Now: Epoch + at}
}

// take takes cost units at an instant after Epoch.
func (s *subject) take(p core.Policy, key string, at, cost int64) core.Result {
	s.Helper()
	res, err := s.store.Take(s.Context(), s.of(p, key, at, cost))
	require.NoError(s, err)
	require.Equal(s, Epoch+at, res.At, "At is the instant of the decision")
	require.False(s, res.Local)
	return res
}

// admit is take where the cost must fit.
func (s *subject) admit(p core.Policy, key string, at, cost int64) core.Result {
	s.Helper()
	res := s.take(p, key, at, cost)
	require.True(s, res.Allowed(), "%v, %d units at %d: %+v", p, cost, at, res)
	return res
}

// refuse is take where the cost must not fit.
func (s *subject) refuse(p core.Policy, key string, at, cost int64) core.Result {
	s.Helper()
	res := s.take(p, key, at, cost)
	require.False(s, res.Allowed(), "%v, %d units at %d: %+v", p, cost, at, res)
	return res
}

// remains demands what a peek tells.
func (s *subject) remains(want int64, p core.Policy, key string, at int64) {
	s.Helper()
	res := s.take(p, key, at, 0)
	require.Equal(s, core.Admitted, res.Outcome, "a peek is admitted")
	require.Equal(s, want, res.Remaining, "%v at %d", p, at)
}

func policy(text string) core.Policy { return core.MustParse("storetest: " + text) }

func traces(s *subject) {
	type step struct {
		at, cost                int64
		outcome                 core.Outcome
		remaining, retry, reset int64
	}
	const (
		ok, last, no, never = core.Admitted, core.AtLimit, core.Refused, core.Never
	)
	for i, c := range []struct {
		policy string
		limit  int64
		steps  []step
	}{
		{"3/1s", 3, []step{
			{0, 1, ok, 2, 0, 333334},
			{0, 1, ok, 1, 0, 666667},
			{0, 1, last, 0, 0, 1000000},
			{0, 1, no, 0, 333334, 1000000},
			{333333, 1, no, 0, 1, 666667},
			{333334, 1, last, 0, 0, 1000000},
			{2000000, 0, ok, 3, 0, 0},
			{2000000, 4, never, 3, 0, 0},
		}},
		{"30/1m burst 16", 16, []step{
			{0, 1, ok, 15, 0, 2000000},
			{0, 15, last, 0, 0, 32000000},
			{0, 2, no, 0, 4000000, 32000000},
			{1999999, 1, no, 0, 1, 30000001},
			{2000000, 1, last, 0, 0, 32000000},
		}},
		{"1000/3s", 1000, []step{
			{0, 999, ok, 1, 0, 2997000},
			{0, 2, no, 1, 3000, 2997000},
			{3000, 2, last, 0, 0, 3000000},
		}},
	} {
		for _, st := range c.steps {
			res := s.take(policy(c.policy), fmt.Sprint("trace", i), st.at, st.cost)
			assert.Equal(s, st, step{
				st.at, st.cost, res.Outcome, res.Remaining,
				res.RetryAfter.Microseconds(), res.ResetAfter.Microseconds(),
			}, c.policy)
			assert.Equal(s, c.limit, res.Limit, c.policy)
		}
	}
	admitted := 0
	for range 20 {
		if s.take(policy("1/2s burst 15"), "of 20", 0, 1).Allowed() {
			admitted++
		}
	}
	assert.Equal(s, 15, admitted)
}

func exactRetry(s *subject) {
	for _, text := range []string{"3/1s", "10/10s", "7/1m burst 3", "1000003/1h burst 2", "1/1d", "2147483648/366d burst 1"} {
		p := policy(text)
		burst := p.Limits()[0].Burst
		for i := range min(burst, 10) {
			if rest := burst - i; rest > 1 && i == 9 {
				s.admit(p, text, 0, rest)
			} else {
				s.admit(p, text, 0, 1)
			}
		}
		retry := s.refuse(p, text, 0, 1).RetryAfter.Microseconds()
		require.Positive(s, retry, text)
		early := s.refuse(p, text, retry-1, 1)
		assert.Equal(s, time.Microsecond, early.RetryAfter, "%s: 1 us too early", text)
		s.admit(p, text, retry, 1)
	}
}

func cost(s *subject) {
	p := policy("10/10s")
	s.admit(p, "a", 0, 6)
	res := s.refuse(p, "a", 0, 5)
	assert.Equal(s, int64(4), res.Remaining, "a refusal charges nothing")
	assert.Equal(s, time.Second, res.RetryAfter)
	assert.Equal(s, core.AtLimit, s.admit(p, "a", 0, 4).Outcome)
	assert.Equal(s, 3*time.Second, s.refuse(p, "a", 0, 3).RetryAfter)
}

func peek(s *subject) {
	p := policy("10/10s")
	s.remains(10, p, "a", 0)
	s.admit(p, "a", 0, 10)
	for range 20 {
		s.remains(0, p, "a", 0)
	}
	s.remains(1, p, "a", 1*second)
	// A peek that finds the key unused must not say so to the store: if the
	// clock steps back, the charge is still there.
	s.remains(10, p, "a", 20*second)
	s.remains(3, p, "a", 3*second)
}

func never(s *subject) {
	p := policy("10/10s")
	for _, cost := range []int64{11, 1 << 31, 1<<63 - 1} {
		res := s.refuse(p, "a", 0, cost)
		assert.Equal(s, core.Never, res.Outcome)
		assert.Zero(s, res.RetryAfter, "waiting cannot help")
		assert.True(s, res.Each[0].Never)
		s.remains(10, p, "a", 0)
	}
}

func invalid(s *subject) {
	p := policy("10/10s")
	res := s.admit(p, "a", 0, 4)
	good := s.of(p, "a", 0, 4)
	for name, break1 := range map[string]func(*core.Take){
		"negative cost":    func(t *core.Take) { t.Cost = -5 },
		"empty key":        func(t *core.Take) { t.Key = "" },
		"zero policy":      func(t *core.Take) { t.Policy = core.Policy{} },
		"negative time":    func(t *core.Take) { t.Now = -1 },
		"impossible time":  func(t *core.Take) { t.Now = 1<<63 - 1 },
		"several mistakes": func(t *core.Take) { t.Cost, t.Key = -1, "" },
	} {
		bad := good
		break1(&bad)
		got, err := s.store.Take(s.Context(), bad)
		require.Error(s, err, name)
		assert.False(s, got.Allowed(), name)
		require.Error(s, s.store.Refund(s.Context(), bad, res, 0), name)
	}
	require.Error(s, s.store.Reset(s.Context(), core.Policy{}, good.Key))
	require.Error(s, s.store.Reset(s.Context(), p, ""))
	refused := s.refuse(p, "a", 0, 7)
	require.Error(s, s.store.Refund(s.Context(), good, refused, 1), "a refusal was not charged")
	require.Error(s, s.store.Refund(s.Context(), good, core.Result{}, 1), "not a receipt")
	require.Error(s, s.store.Refund(s.Context(), good, core.Result{Outcome: core.Admitted}, 1), "no instant")
	require.Error(s, s.store.Refund(s.Context(), good, res, -1))
	require.Error(s, s.store.Refund(s.Context(), good, res, 5), "more than was taken")
	s.remains(6, p, "a", 0)
}

func (s *subject) refund(p core.Policy, key string, at int64, r core.Result, cost, units int64) {
	s.Helper()
	require.NoError(s, s.store.Refund(s.Context(), s.of(p, key, at, cost), r, units))
}

func refund(s *subject) {
	p := policy("10/10s")
	res := s.admit(p, "a", 0, 10)
	s.refund(p, "a", 0, res, 10, 0)
	s.remains(0, p, "a", 0)
	s.refund(p, "a", 0, res, 10, 4)
	s.remains(4, p, "a", 0)
	s.refund(p, "a", 0, res, 10, 6)
	s.remains(10, p, "a", 0)

	s.refund(p, "a", 0, res, 10, 10)
	s.admit(p, "a", 0, 10)
	s.refuse(p, "a", 0, 1) // a refund never becomes a credit
	s.refund(p, "nobody", 0, res, 10, 10)
	s.admit(p, "nobody", 0, 10)
	s.refuse(p, "nobody", 0, 1)

	// Of 3/1s a unit drains in 333333 1/3 us: what is given back is exact.
	three := policy("3/1s")
	res = s.admit(three, "b", 0, 1)
	s.refund(three, "b", 333333, res, 1, 1)
	assert.Zero(s, s.take(three, "b", 333333, 0).ResetAfter)
	res = s.admit(three, "c", 0, 1)
	s.admit(three, "c", 0, 1)
	s.refund(three, "c", 0, res, 1, 1)
	assert.Equal(s, 333334*time.Microsecond, s.take(three, "c", 0, 0).ResetAfter)
	s.refund(three, "c", 333334, res, 1, 1) // weighs nothing any more
	assert.Zero(s, s.take(three, "c", 333334, 0).ResetAfter)

	// Each limit gets back what it still counts.
	two := policy("10/10s, 100/1000s")
	res = s.admit(two, "d", 0, 10)
	s.refund(two, "d", 5*second, res, 10, 10)
	after := s.take(two, "d", 5*second, 0)
	assert.Equal(s, [2]int64{10, 100}, [2]int64{after.Each[0].Remaining, after.Each[1].Remaining})
}

// refundBound: giving back "at most what is in use" would admit 20 at one instant.
func refundBound(s *subject) {
	p := policy("10/10s")
	first := s.admit(p, "a", 0, 10)
	s.admit(p, "a", 10*second, 10)
	s.refund(p, "a", 10*second, first, 10, 10)
	s.refuse(p, "a", 10*second, 1)

	first = s.admit(p, "b", 0, 10)
	s.admit(p, "b", 4*second, 4)
	s.refund(p, "b", 4*second, first, 10, 10)
	s.remains(6, p, "b", 4*second)
}

func reset(s *subject) {
	for _, text := range []string{"10/10s", "10/10s, 100/1h"} {
		p := policy(text)
		s.admit(p, "a", 0, 10)
		s.admit(p, "b", 0, 10)
		require.NoError(s, s.store.Reset(s.Context(), p, s.prefix+"a"))
		require.NoError(s, s.store.Reset(s.Context(), p, s.prefix+"nobody"))
		res := s.take(p, "a", 0, 0)
		assert.Equal(s, int64(10), res.Remaining)
		assert.Zero(s, res.ResetAfter)
		s.remains(0, p, "b", 0)
	}
}

func policies(s *subject) {
	p := policy("2/10s")
	for _, other := range []core.Policy{p.Named("Storetest"), p.Named("storetest.g"), p.Named("storetest-2"), p.Named("s")} {
		s.admit(p, other.Name(), 0, 2)
		s.remains(2, other, other.Name(), 0)
		s.admit(other, other.Name(), 0, 1)
		s.remains(1, other, other.Name(), 0)
		s.remains(0, p, other.Name(), 0)
		require.NoError(s, s.store.Reset(s.Context(), other, s.prefix+other.Name()))
		s.remains(0, p, other.Name(), 0)
	}
	// Another shape has a state of its own, under the same name too.
	s.admit(policy("2/10s, 5/1h"), "shape", 0, 1)
	s.remains(2, p, "shape", 0)
}

func changedNumbers(s *subject) {
	before, more, less := policy("10/10s"), policy("20/10s"), policy("2/10s")
	s.admit(before, "a", 0, 4) // unused again after 4 s
	s.remains(12, more, "a", 0)
	s.remains(1, less, "a", 0)
	s.remains(10, before, "a", 4*second)
	// A time beyond the new maximum is brought to it, and stays there.
	short := policy("2/1s")
	s.admit(before, "b", 0, 10)
	res := s.refuse(short, "b", 0, 1)
	assert.Equal(s, 500*time.Millisecond, res.RetryAfter)
	assert.Equal(s, time.Second, res.ResetAfter)
	s.admit(short, "b", second/2, 1)
	s.remains(9, before, "b", second/2) // what was clamped does not come back
	// A remainder in parts of another rate counts as less than a microsecond.
	s.admit(policy("7/1s"), "c", 0, 1) // 142857 1/7 us
	assert.Equal(s, 142858*time.Microsecond, s.take(policy("1/1s"), "c", 0, 0).ResetAfter)
}

func allOrNone(s *subject) {
	p := policy("2/1s, 3/1h, 100/1d")
	first := s.admit(p, "a", 0, 1)
	assert.Equal(s, [3]int64{1, 2, 99}, [3]int64{first.Each[0].Remaining, first.Each[1].Remaining, first.Each[2].Remaining})
	assert.Equal(s, int64(2), first.Limit)
	assert.Equal(s, int64(1), first.Remaining)
	assert.Equal(s, core.AtLimit, s.admit(p, "a", 0, 1).Outcome)
	for range 5 { // refused by the first, charged to none
		res := s.refuse(p, "a", 0, 1)
		assert.Equal(s, [3]bool{true, false, false}, [3]bool{res.Each[0].Refused, res.Each[1].Refused, res.Each[2].Refused})
		assert.Equal(s, [3]int64{0, 1, 98}, [3]int64{res.Each[0].Remaining, res.Each[1].Remaining, res.Each[2].Remaining})
		assert.Equal(s, 500*time.Millisecond, res.RetryAfter)
	}
	third := s.admit(p, "a", second/2, 1)
	assert.Equal(s, int64(3), third.Limit, "with as little remaining, the longer reset is tighter")
	res := s.refuse(p, "a", second/2, 1)
	assert.Equal(s, core.Refused, res.Outcome)
	assert.Equal(s, 1200*time.Second-500*time.Millisecond, res.RetryAfter, "the longest wait of those that refuse")
	assert.Equal(s, core.Never, s.refuse(p, "a", second/2, 3).Outcome, "never for one is never for all")
	s.admit(p, "a", 1200*second, 1)
}

func clockSteps(s *subject) {
	for i, look := range []int64{0, 1} { // a peek heals as a refusal does
		for _, text := range []string{"10/10s", "3/1s", "10/10s, 10/10s burst 20"} {
			p, key := policy(text), fmt.Sprint("back", i, text)
			for s.take(p, key, 0, 1).Allowed() {
			}
			whole := p.Limits()[0].Period.Microseconds()
			if i == 0 {
				s.remains(0, p, key, -hour)
			} else {
				s.refuse(p, key, -hour, look)
			}
			s.admit(p, key, -hour+whole, p.Limits()[0].Burst)
			s.refuse(p, key, -hour+whole, 1)
		}
	}
	p := policy("10/10s")
	s.admit(p, "forward", 0, 10)
	admitted := 0
	for range 30 {
		if s.take(p, "forward", hour, 1).Allowed() {
			admitted++
		}
	}
	assert.Equal(s, 10, admitted, "a step forward admits one burst more")
}

func ownClock(s *subject) {
	p := policy("10/366d")
	t := core.Take{Policy: p, Key: s.prefix + "own", Cost: 3}
	res, err := s.store.Take(s.Context(), t)
	require.NoError(s, err)
	assert.Equal(s, int64(7), res.Remaining)
	assert.Positive(s, res.At)
	require.NoError(s, s.store.Refund(s.Context(), t, res, 1))
	again, err := s.store.Take(s.Context(), t)
	require.NoError(s, err)
	assert.Equal(s, int64(5), again.Remaining)
	assert.GreaterOrEqual(s, again.At, res.At)
	require.NoError(s, s.store.Reset(s.Context(), p, t.Key))
	t.Cost = 0
	res, err = s.store.Take(s.Context(), t)
	require.NoError(s, err)
	assert.Equal(s, int64(10), res.Remaining)
}

func cancelled(s *subject) {
	p := policy("10/10s")
	res := s.admit(p, "a", 0, 4)
	gone, leave := context.WithCancel(s.Context())
	leave()
	late, stop := context.WithTimeout(s.Context(), -1)
	defer stop()
	for want, ctx := range map[error]context.Context{context.Canceled: gone, context.DeadlineExceeded: late} {
		got, err := s.store.Take(ctx, s.of(p, "a", 0, 1))
		require.ErrorIs(s, err, want)
		assert.False(s, got.Allowed())
		require.ErrorIs(s, s.store.Refund(ctx, s.of(p, "a", 0, 4), res, 4), want)
		require.ErrorIs(s, s.store.Reset(ctx, p, s.prefix+"a"), want)
	}
	s.remains(6, p, "a", 0)
}

func concurrency(s *subject) {
	const callers, each, burst = 64, 8, 300
	for name, t := range map[string]core.Take{
		"forced clock": s.of(policy("300/1h"), "forced", 0, 1),
		"own clock":    {Policy: policy("300/366d"), Key: s.prefix + "own", Cost: 1},
		"two limits":   s.of(policy("300/1h, 1000/1d"), "two", 0, 1),
		"cost":         s.of(policy("900/1h"), "cost", 0, 3),
	} {
		var admitted atomic.Int64
		var lowest sync.Map // every Remaining is told once
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range each {
					res, err := s.store.Take(s.Context(), t)
					if !assert.NoError(s, err) {
						return
					}
					if res.Allowed() {
						admitted.Add(1)
						_, twice := lowest.LoadOrStore(res.Remaining, true)
						assert.False(s, twice, "%s: two callers have %d left", name, res.Remaining)
					}
				}
			})
		}
		wg.Wait()
		assert.Equal(s, int64(burst), admitted.Load(), name)
		require.NoError(s, s.store.Reset(s.Context(), t.Policy, t.Key))
	}
}

func hostileKeys(s *subject) {
	long := strings.Repeat("x", 10<<20)
	keys := []string{
		"a", "A", "a ", " a", "a\x00", "a\x00b", "a\r\nb", "a\nb", "{a}", "{", "}", "{}", "a{", "a%7B", "a%7b", "a%257B",
		"~a", "%7Ea", "~", "\xff", "\xfe", "\xff\xfe", "\ufffd", "\u00e9", "e\u0301", "a:b", "a:b:", "a;b", "a&b=c", "a%26b%3Dc",
		"none", "*", "?", "[a]", "\\", "../a", "☃", strings.Repeat("k", 128), strings.Repeat("k", 129), strings.Repeat("k", 130),
		long + "1", long + "2",
	}
	p := policy("2/1h")
	for _, left := range []int64{1, 0} {
		for _, key := range keys {
			require.Equal(s, left, s.admit(p, key, 0, 1).Remaining, "%.20q of %d bytes shares its count with another key", key, len(key))
		}
	}
	for _, key := range keys {
		s.refuse(p, key, 0, 1)
		require.NoError(s, s.store.Reset(s.Context(), p, s.prefix+key))
	}
	for _, key := range keys { // a prefix is a key of its own, and so is no prefix
		s.remains(2, p, key, 0)
	}
	t := s.of(p, "", 0, 1)
	for _, key := range []string{"~x", "{", "\x00", "\xff", ":"} {
		t.Key = key + s.prefix
		res, err := s.store.Take(s.Context(), t)
		require.NoError(s, err)
		require.Equal(s, int64(1), res.Remaining, "%q", t.Key)
	}
}

func invariants(s *subject) {
	for _, text := range []string{"100/1s", "3/1s burst 7", "20/1s, 50/1m", "1/1ms burst 9"} {
		p := policy(text)
		limits := p.Limits()
		for at := int64(0); at < 300_000; at += 997 {
			cost := at % 5
			before := s.take(p, text, at, 0)
			after := s.take(p, text, at, cost)
			used := cost
			if !after.Allowed() {
				used = 0
			}
			for i, l := range limits {
				assert.GreaterOrEqual(s, after.Each[i].Remaining, int64(0), text)
				assert.LessOrEqual(s, after.Each[i].Remaining, l.Burst, text)
				assert.Equal(s, before.Each[i].Remaining-used, after.Each[i].Remaining, "remaining before minus after is the cost")
			}
			assert.LessOrEqual(s, after.Remaining, after.Limit)
			assert.Equal(s, after.Outcome == core.Refused, after.RetryAfter > 0)
		}
	}
}

func agrees(s *subject) {
	for seed := range uint64(4) {
		Compare(s, s.store, Reference(), seed, 500)
	}
}
