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
		{"arrivals", arrivals},
		{"calendar", calendar},
		{"burst, refusal, exact retry", exactRetry},
		{"cost", cost},
		{"peek", peek},
		{"never", never},
		{"what there is", whatThereIs},
		{"reservations", reservations},
		{"cancelled reservations", cancelledReservations},
		{"queue", queue},
		{"invalid input", invalid},
		{"refund", refund},
		{"refund keeps the bound", refundBound},
		{"refund out of a window", refundWindow},
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

// atMost takes what there is.
func (s *subject) atMost(p core.Policy, key string, at, most int64) core.Result {
	s.Helper()
	t := s.of(p, key, at, most)
	t.AtMost = true
	res, err := s.store.Take(s.Context(), t)
	require.NoError(s, err)
	return res
}

// reserve takes ahead of time.
func (s *subject) reserve(p core.Policy, key string, at, cost int64, ahead time.Duration) core.Result {
	s.Helper()
	t := s.of(p, key, at, cost)
	t.Ahead = ahead
	res, err := s.store.Take(s.Context(), t)
	require.NoError(s, err)
	return res
}

// exhaust takes single units at Epoch, up to so far ahead, until one is refused.
func (s *subject) exhaust(p core.Policy, key string, ahead time.Duration) {
	s.Helper()
	for range 100 {
		if !s.reserve(p, key, 0, 1, ahead).Allowed() {
			return
		}
	}
	require.FailNow(s, "there is no end", "%v", p)
}

// remains demands what a peek tells.
func (s *subject) remains(want int64, p core.Policy, key string, at int64) {
	s.Helper()
	res := s.take(p, key, at, 0)
	require.Equal(s, core.Admitted, res.Outcome, "a peek is admitted")
	require.Equal(s, want, res.Remaining, "%v at %d", p, at)
}

func policy(text string) core.Policy { return core.MustParse("storetest: " + text) }

// tens are limits of every kind that admit ten at once.
func tens() []string {
	return withOthers([]string{
		"10/10s", "10/10s token-bucket", "10/10s leaky-bucket", "10/10s fixed-window", "10/10s fixed-window aligned",
		"10/1m fixed-window calendar Europe/Berlin", "10/10s sliding-window", "10/10s sliding-window buckets 3", "10/10s sliding-counter",
		"10/10s sliding-log",
	}, "10/10s")
}

// withOthers are the texts, and those numbers of every algorithm that the texts leave
// out: so the suite holds for one that it does not know by name.
func withOthers(texts []string, numbers ...string) []string {
	known := map[core.Algorithm]bool{}
	for _, text := range texts {
		for _, l := range policy(text).Limits() {
			known[l.Algorithm] = true
		}
	}
	for _, a := range Algorithms() {
		for i, n := range numbers {
			text := n + " " + a.String()
			if _, err := core.Parse(text); !known[a] && (err == nil || i == 0) { // one at least must be possible
				texts = append(texts, text)
			}
		}
	}
	return texts
}

// queues tells whether units that come at once leave one after another.
func queues(s *subject, p core.Policy) bool {
	ref, t := Reference(), s.of(p, "queues", 0, 1)
	_, err := ref.Take(s.Context(), t)
	require.NoError(s, err)
	second, err := ref.Take(s.Context(), t)
	require.NoError(s, err)
	return second.Delay > 0
}

// returnsByWindow tells whether a unit weighs in full for a period at least.
func returnsByWindow(s *subject, p core.Policy) bool {
	res, err := Reference().Take(s.Context(), s.of(p, "window", 0, 1))
	require.NoError(s, err)
	return res.ResetAfter >= p.Limits()[0].Period
}

// mix is one policy of three kinds, of which the last is the tightest.
const mix = "20/1s, 1000/1d fixed-window calendar Europe/Berlin, 5/1m sliding-log"

func traces(s *subject) {
	type step struct {
		at, cost                       int64
		outcome                        core.Outcome
		remaining, retry, reset, delay int64
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
			{0, 1, ok, 2, 0, 333334, 0},
			{0, 1, ok, 1, 0, 666667, 0},
			{0, 1, last, 0, 0, 1000000, 0},
			{0, 1, no, 0, 333334, 1000000, 0},
			{333333, 1, no, 0, 1, 666667, 0},
			{333334, 1, last, 0, 0, 1000000, 0},
			{2000000, 0, ok, 3, 0, 0, 0},
			{2000000, 4, never, 3, 0, 0, 0},
		}},
		{"30/1m burst 16", 16, []step{
			{0, 1, ok, 15, 0, 2000000, 0},
			{0, 15, last, 0, 0, 32000000, 0},
			{0, 2, no, 0, 4000000, 32000000, 0},
			{1999999, 1, no, 0, 1, 30000001, 0},
			{2000000, 1, last, 0, 0, 32000000, 0},
		}},
		{"1000/3s", 1000, []step{
			{0, 999, ok, 1, 0, 2997000, 0},
			{0, 2, no, 1, 3000, 2997000, 0},
			{3000, 2, last, 0, 0, 3000000, 0},
		}},
		{"2/1s debt 3", 2, []step{
			{0, 2, last, 0, 0, 1000000, 0},
			{0, 3, last, 0, 0, 2500000, 0},
			{0, 1, no, 0, 1500000, 2500000, 0},
			{1500000, 1, last, 0, 0, 1500000, 0},
			{1500000, 6, never, 0, 0, 1500000, 0},
		}},
		{"2/1s token-bucket burst 5", 5, []step{
			{0, 5, last, 0, 0, 3000000, 0},
			{500000, 1, no, 0, 500000, 2500000, 0},
			{1000000, 1, ok, 1, 0, 2000000, 0},
			{1200000, 1, last, 0, 0, 2800000, 0},
			{1200000, 1, no, 0, 800000, 2800000, 0},
			{10000000, 0, ok, 5, 0, 0, 0},
		}},
		{"2/1s token-bucket debt 3", 2, []step{
			{0, 5, last, 0, 0, 3000000, 0},
			{0, 1, no, 0, 2000000, 3000000, 0},
			{2000000, 1, last, 0, 0, 1000000, 0},
			{2000000, 6, never, 0, 0, 1000000, 0},
		}},
		{"5/1s leaky-bucket burst 3", 3, []step{
			{0, 1, ok, 2, 0, 200000, 0},
			{0, 1, ok, 1, 0, 400000, 200000},
			{0, 1, last, 0, 0, 600000, 400000},
			{0, 1, no, 0, 200000, 600000, 0},
			{200000, 1, last, 0, 0, 600000, 400000},
		}},
		{"2/10s fixed-window", 2, []step{
			{1, 1, ok, 1, 0, 10000000, 0},
			{4000001, 1, last, 0, 0, 6000000, 0},
			{9000001, 1, no, 0, 1000000, 1000000, 0},
			{10000001, 1, ok, 1, 0, 10000000, 0},
		}},
		{"2/10s fixed-window aligned", 2, []step{
			{9000000, 1, ok, 1, 0, 1000000, 0},
			{9000000, 1, last, 0, 0, 1000000, 0},
			{9000000, 1, no, 0, 1000000, 1000000, 0},
			{10000000, 1, ok, 1, 0, 10000000, 0},
		}},
		{"4/10s sliding-window buckets 5", 4, []step{
			{0, 2, ok, 2, 0, 12000000, 0},
			{3000000, 2, last, 0, 0, 11000000, 0},
			{3000000, 1, no, 0, 9000000, 11000000, 0},
			{11999999, 1, no, 0, 1, 2000001, 0},
			{12000000, 1, ok, 1, 0, 12000000, 0},
			{12000000, 2, no, 1, 2000000, 12000000, 0},
		}},
		{"10/10s sliding-counter", 10, []step{
			{0, 10, last, 0, 0, 20000000, 0},
			{10000000, 1, no, 0, 1000000, 10000000, 0},
			{11000000, 1, last, 0, 0, 19000000, 0},
			{11000000, 1, no, 0, 1000000, 19000000, 0},
			{19999999, 0, ok, 8, 0, 10000001, 0},
		}},
		{"2/10s sliding-log", 2, []step{
			{0, 1, ok, 1, 0, 10000000, 0},
			{4000000, 1, last, 0, 0, 10000000, 0},
			{9000000, 1, no, 0, 1000000, 5000000, 0},
			{10000000, 1, last, 0, 0, 10000000, 0},
		}},
	} {
		for _, st := range c.steps {
			res := s.take(policy(c.policy), fmt.Sprint("trace", i), st.at, st.cost)
			assert.Equal(s, st, step{
				st.at, st.cost, res.Outcome, res.Remaining,
				res.RetryAfter.Microseconds(), res.ResetAfter.Microseconds(), res.Delay.Microseconds(),
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

// arrivals tells windows from each other: how many of those who come in each second are
// admitted.
func arrivals(s *subject) {
	come := [6]int64{10, 10, 980, 900, 100, 0}
	for text, want := range map[string][6]int64{
		"1000/3s fixed-window":             {10, 10, 980, 900, 100, 0}, // 1980 within three seconds: the known weakness
		"1000/3s fixed-window aligned":     {10, 10, 980, 900, 100, 0},
		"1000/3s sliding-window buckets 3": {10, 10, 980, 0, 10, 0},
		"1000/3s sliding-window":           {10, 10, 980, 0, 10, 0},
		"1000/3s sliding-counter":          {10, 10, 980, 0, 100, 0},
		"1000/3s sliding-log":              {10, 10, 980, 10, 10, 0},
	} {
		var got [6]int64
		for i, n := range come {
			for range n {
				got[i] += s.take(policy(text), text, int64(i)*second, 1).Taken
			}
		}
		assert.Equal(s, want, got, text)
		for i, n := range come { // and all of a second at once
			got[i] = s.atMost(policy(text), text+" at once", int64(i)*second, n).Taken
		}
		assert.Equal(s, want, got, text)
	}
}

func calendar(s *subject) {
	for _, c := range []struct{ align, from, end string }{
		{"1d fixed-window calendar UTC", "2027-01-15T08:00:00Z", "2027-01-16T00:00:00Z"},
		{"1d fixed-window calendar Asia/Kolkata", "2027-01-15T18:29:59Z", "2027-01-15T18:30:00Z"},
		{"1d fixed-window calendar Europe/Berlin", "2027-03-28T00:00:00+01:00", "2027-03-29T00:00:00+02:00"},       // 23 hours
		{"1d fixed-window calendar Europe/Berlin", "2027-10-31T00:00:00+02:00", "2027-11-01T00:00:00+01:00"},       // 25 hours
		{"1d fixed-window calendar America/Havana", "2027-03-14T01:00:00-04:00", "2027-03-15T00:00:00-04:00"},      // a day without a midnight
		{"1d fixed-window calendar Australia/Lord_Howe", "2027-04-04T01:45:00+11:00", "2027-04-05T00:00:00+10:30"}, // half an hour longer
		{"7d fixed-window calendar Europe/Berlin", "2027-01-17T12:00:00+01:00", "2027-01-18T00:00:00+01:00"},       // from Monday
		{"1mo fixed-window calendar Europe/Berlin", "2028-02-29T23:59:59+01:00", "2028-03-01T00:00:00+01:00"},
		{"1h fixed-window calendar Asia/Kolkata", "2027-01-15T08:29:00Z", "2027-01-15T08:30:00Z"},
		{"1m fixed-window calendar UTC", "2027-01-15T08:00:01Z", "2027-01-15T08:01:00Z"},
	} {
		instant := func(text string) int64 {
			at, err := time.Parse(time.RFC3339, text)
			require.NoError(s, err)
			return at.UnixMicro() - Epoch
		}
		p, from, end := policy("2/"+c.align), instant(c.from), instant(c.end)
		key := c.align + c.from
		assert.Equal(s, end-from, s.admit(p, key, from, 2).ResetAfter.Microseconds(), key)
		assert.Equal(s, time.Microsecond, s.refuse(p, key, end-1, 1).RetryAfter, key)
		s.admit(p, key, end, 2)
		s.refuse(p, key, end, 1)
	}
}

func exactRetry(s *subject) {
	for _, text := range append(withOthers([]string{
		"3/1s", "7/1m burst 3", "1000003/1h burst 2", "1/1d", "2147483648/366d burst 1", "3/1s debt 2",
		"3/1s token-bucket burst 7", "1000003/1h token-bucket burst 2", "2147483648/366d token-bucket burst 1", "7/1m leaky-bucket burst 3",
		"3/1s fixed-window", "7/1m fixed-window aligned", "2147483648/366d fixed-window", "2/1mo fixed-window calendar Asia/Kolkata",
		"3/1s sliding-window", "7/10s sliding-window buckets 7", "2147483648/366d sliding-window buckets 60",
		"3/1s sliding-counter", "999983/1d sliding-counter", "2147483648/366d sliding-counter", "1000/1s sliding-log", "3/366d sliding-log",
	}, "3/1s", "7/1m", "1000/1s", "999983/1d", "2147483648/366d"), tens()...) {
		p := policy(text)
		burst := p.Limits()[0].Burst
		for i := range min(burst, 10) {
			if rest := burst - i; rest > 1 && i == 9 {
				s.admit(p, text, 0, rest)
			} else {
				s.admit(p, text, 0, 1)
			}
		}
		if debt := p.Limits()[0].Debt; debt > 0 {
			s.admit(p, text, 0, debt)
		}
		retry := s.refuse(p, text, 0, 1).RetryAfter.Microseconds()
		require.Positive(s, retry, text)
		early := s.refuse(p, text, retry-1, 1)
		assert.Equal(s, time.Microsecond, early.RetryAfter, "%s: 1 us too early", text)
		s.admit(p, text, retry, 1)
	}
}

func cost(s *subject) {
	for _, text := range tens() {
		p := policy(text)
		s.admit(p, text, 0, 6)
		res := s.refuse(p, text, 0, 5)
		assert.Equal(s, int64(4), res.Remaining, "%s: a refusal charges nothing", text)
		assert.Equal(s, core.AtLimit, s.admit(p, text, 0, 4).Outcome)
		res = s.refuse(p, text, 0, 3)
		s.refuse(p, text, res.RetryAfter.Microseconds()-1, 3)
		s.admit(p, text, res.RetryAfter.Microseconds(), 3)
	}
}

func peek(s *subject) {
	for _, text := range tens() {
		p := policy(text)
		s.remains(10, p, text, 0)
		full := s.admit(p, text, 0, 10)
		for range 20 {
			s.remains(0, p, text, 0)
		}
		// A peek that finds the key unused must not say so to the store: if the
		// clock steps back, the charge is still there.
		s.remains(10, p, text, full.ResetAfter.Microseconds())
		s.remains(0, p, text, 0)
	}
	p := policy("10/10s")
	s.admit(p, "drains", 0, 10)
	s.remains(1, p, "drains", 1*second)
	s.remains(10, p, "drains", 20*second)
	s.remains(3, p, "drains", 3*second)
}

func never(s *subject) {
	for _, text := range append([]string{"8/10s burst 6 debt 4", "8/10s token-bucket burst 6 debt 4"}, tens()...) {
		p := policy(text)
		free := p.Limits()[0].Burst
		for _, cost := range []int64{11, 1 << 31, 1<<63 - 1} {
			res := s.refuse(p, text, 0, cost)
			assert.Equal(s, core.Never, res.Outcome, text)
			assert.Zero(s, res.RetryAfter, "%s: waiting cannot help", text)
			assert.True(s, res.Each[0].Never, text)
			s.remains(free, p, text, 0)
		}
		s.admit(p, text, 0, 10)
	}
}

func whatThereIs(s *subject) {
	for _, text := range append([]string{"10/10s debt 5", "10/10s token-bucket debt 5", "10/10s; wait 1m", "10/10s token-bucket; wait 1m"}, tens()...) {
		p := policy(text)
		s.admit(p, text, 0, 7)
		res := s.atMost(p, text, 0, 5)
		assert.Equal(s, int64(3), res.Taken, text)
		assert.Equal(s, core.AtLimit, res.Outcome, text)
		assert.Zero(s, res.Remaining, text)
		if !queues(s, p) {
			assert.Zero(s, res.Delay, text)
		}
		empty := s.atMost(p, text, 0, 5)
		assert.Equal(s, core.Refused, empty.Outcome, "%s: there is nothing, and nothing is borrowed", text)
		assert.Zero(s, empty.Taken, text)
		retry := empty.RetryAfter.Microseconds()
		require.Positive(s, retry, text)
		assert.Equal(s, time.Microsecond, s.atMost(p, text, retry-1, 5).RetryAfter, text)
		assert.Positive(s, s.atMost(p, text, retry, 5).Taken, text)

		key := text + " all"
		assert.Equal(s, int64(10), s.atMost(p, key, 0, 0).Remaining, "%s: none at most is a peek", text)
		res = s.atMost(p, key, 0, 4)
		assert.Equal(s, [2]int64{4, 6}, [2]int64{res.Taken, res.Remaining}, text)
		res = s.atMost(p, key, 0, 1<<63-1)
		assert.Equal(s, int64(6), res.Taken, text)
		s.refund(p, key, 0, res, 6, 6)
		s.remains(6, p, key, 0)
	}
	p := policy(mix)
	res := s.atMost(p, "mix", 0, 12)
	assert.Equal(s, int64(5), res.Taken, "the least of all limits")
	assert.Equal(s, [3]int64{15, 995, 0}, remainings(res))
	assert.Equal(s, core.Refused, s.atMost(p, "mix", 0, 12).Outcome)
	s.remains(0, p, "mix", 0)
}

func remainings(res core.Result) [3]int64 {
	return [3]int64{res.Each[0].Remaining, res.Each[1].Remaining, res.Each[2].Remaining}
}

// Who reserves gets its turn in the order of arrival.
func reservations(s *subject) {
	wants := map[string][]int64{ // the turns of single units after a burst of two
		"2/1s; wait 3s":                      {500000, 1000000, 1500000, 2000000, 2500000, 3000000},
		"2/1s token-bucket; wait 3s":         {1000000, 1000000, 2000000, 2000000, 3000000, 3000000},
		"2/1s debt 1; wait 3s":               {0, 500000, 1000000, 1500000, 2000000, 2500000, 3000000},
		"2/1s, 2/3s token-bucket; wait 3s":   {3000000, 3000000},
		"2/1s, 100/1d token-bucket; wait 3s": {500000, 1000000, 1500000, 2000000, 2500000, 3000000},
	}
	for _, a := range Algorithms() {
		p, err := core.Parse("2/1s " + a.String() + "; wait 3s")
		if err != nil {
			continue
		}
		if _, ok := wants[p.String()]; !ok {
			wants[p.String()] = nil
		}
	}
	for text, want := range wants {
		p := policy(text)
		assert.Zero(s, s.reserve(p, text, 0, 2, time.Minute).Delay, text)
		var turns []int64
		res := s.reserve(p, text, 0, 1, time.Minute) // no more than the policy allows
		for ; res.Allowed(); res = s.reserve(p, text, 0, 1, time.Minute) {
			require.Equal(s, int64(1), res.Taken, text)
			require.Less(s, len(turns), 100, "%s: there is no end", text)
			turns = append(turns, res.Delay.Microseconds())
		}
		if want == nil { // in order, and as far ahead as the policy allows
			require.NotEmpty(s, turns, text)
			assert.IsNonDecreasing(s, turns, text)
			assert.LessOrEqual(s, turns[len(turns)-1], int64(3*second), text)
		} else {
			assert.Equal(s, want, turns, text)
		}
		assert.Equal(s, core.Refused, res.Outcome, text)

		// After RetryAfter the same take is admitted.
		for _, ahead := range []time.Duration{0, time.Second, 2500 * time.Millisecond, time.Minute} {
			key := fmt.Sprint(text, ahead)
			s.exhaust(p, key, time.Minute)
			refused := s.reserve(p, key, 0, 1, ahead)
			require.Positive(s, refused.RetryAfter, "%s: %v ahead", text, ahead)
			early := s.reserve(p, key, refused.RetryAfter.Microseconds()-1, 1, ahead)
			assert.Equal(s, time.Microsecond, early.RetryAfter, "%s: %v ahead, 1 us too early", text, ahead)
			again := s.reserve(p, key, refused.RetryAfter.Microseconds(), 1, ahead)
			require.True(s, again.Allowed(), "%s: %v ahead", text, ahead)
			assert.Equal(s, min(ahead, 3*time.Second), again.Delay, "%s: %v ahead", text, ahead)
		}
		assert.Equal(s, core.Never, s.reserve(p, text, 0, 4, time.Minute).Outcome, text)
	}
	// The numbers of a policy hold, whatever is asked.
	p := policy("2/1s")
	s.admit(p, "none", 0, 2)
	assert.Equal(s, 500*time.Millisecond, s.reserve(p, "none", 0, 1, time.Hour).RetryAfter)
}

// Who leaves gives its turn back if nobody is behind, and moves nobody.
func cancelledReservations(s *subject) {
	for text, step := range map[string]int64{
		"2/1s burst 1; wait 1m":                 500000,
		"1/500ms token-bucket burst 1; wait 1m": 500000,
	} {
		p := policy(text)
		s.admit(p, text, 0, 1)
		var queue []core.Result
		for i := range int64(4) {
			queue = append(queue, s.reserve(p, text, 0, 1, time.Minute))
			require.Equal(s, (i+1)*step, queue[i].Delay.Microseconds(), text)
		}
		s.refund(p, text, 100, queue[1], 1, 1) // two are behind
		next := s.reserve(p, text, 100, 1, time.Minute)
		assert.Equal(s, 5*step, 100+next.Delay.Microseconds(), "%s: whoever is behind keeps its turn", text)
		s.refund(p, text, 100, next, 1, 1)
		s.refund(p, text, 100, queue[3], 1, 1) // the last leaves, and then the one that is last now
		s.refund(p, text, 100, queue[2], 1, 1)
		next = s.reserve(p, text, 100, 1, time.Minute)
		assert.Equal(s, 3*step, 100+next.Delay.Microseconds(), text)
	}
}

// A queue drips at its rate, and who leaves it moves nobody.
func queue(s *subject) {
	p := policy("10/1s leaky-bucket burst 5")
	var line []core.Result
	for i := range int64(5) {
		line = append(line, s.admit(p, "a", 0, 1))
		assert.Equal(s, i*100_000, line[i].Delay.Microseconds())
	}
	s.refuse(p, "a", 0, 1)
	s.refund(p, "a", 0, line[1], 1, 1)
	s.refuse(p, "a", 0, 1) // three are behind the one who left
	s.refund(p, "a", 0, line[4], 1, 1)
	assert.Equal(s, 400*time.Millisecond, s.admit(p, "a", 0, 1).Delay)
	assert.Equal(s, 450*time.Millisecond, s.admit(p, "a", 150_000, 1).Delay+100*time.Millisecond, "the line has moved on")
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
		"negative ahead":   func(t *core.Take) { t.Ahead = -1 },
		"at most, ahead":   func(t *core.Take) { t.AtMost, t.Ahead = true, time.Second },
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
	var res core.Result
	for _, text := range tens() {
		p := policy(text)
		res = s.admit(p, text, 0, 10)
		s.refund(p, text, 0, res, 10, 0)
		s.remains(0, p, text, 0)
		if queues(s, p) {
			s.refund(p, text, 0, res, 10, 4) // a part of the line cannot leave
			s.remains(0, p, text, 0)
			s.refund(p, text, 0, res, 10, 10)
		} else {
			s.refund(p, text, 0, res, 10, 4)
			s.remains(4, p, text, 0)
			s.refund(p, text, 0, res, 10, 6)
		}
		s.remains(10, p, text, 0)
		assert.Zero(s, s.take(p, text, 0, 0).ResetAfter, "%s: it is as if unused", text)

		s.refund(p, text, 0, res, 10, 10)
		s.admit(p, text, 0, 10)
		s.refuse(p, text, 0, 1) // a refund never becomes a credit
		s.refund(p, text+" nobody", 0, res, 10, 10)
		s.admit(p, text+" nobody", 0, 10)
		s.refuse(p, text+" nobody", 0, 1)

		// What was counted later stays.
		key := text + " later"
		res = s.admit(p, key, 0, 4)
		s.admit(p, key, 1, 6)
		s.refund(p, key, 1, res, 4, 4)
		assert.LessOrEqual(s, s.take(p, key, 1, 0).Remaining, int64(4), text)
	}

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
	p := policy(mix)
	res = s.admit(p, "e", 0, 4)
	s.refund(p, "e", 100_000, res, 4, 3) // half of the four have drained from the meter
	assert.Equal(s, [3]int64{19, 999, 4}, remainings(s.take(p, "e", 100_000, 0)))
}

// refundBound: giving back "at most what is in use" would admit 20 at one instant.
func refundBound(s *subject) {
	for _, text := range tens() {
		p := policy(text)
		first := s.admit(p, text, 0, 10)
		later := first.ResetAfter.Microseconds()
		s.admit(p, text, later, 10)
		s.refund(p, text, later, first, 10, 10)
		s.refuse(p, text, later, 1)
	}
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

// refundWindow: what is given back while a window lasts is as if it had not been taken.
func refundWindow(s *subject) {
	for _, text := range tens() {
		p := policy(text)
		if !returnsByWindow(s, p) {
			continue
		}
		given := map[int64]core.Result{}
		for at := int64(0); at < 8*second; at += second {
			res := s.admit(p, text, at, 1)
			if i := at / second; i == 2 || i == 3 || i == 5 {
				given[i] = res
			} else {
				s.admit(p, text+" fewer", at, 1)
			}
		}
		for _, i := range []int64{3, 5, 2} {
			s.refund(p, text, 8*second, given[i], 1, 1)
		}
		for at := int64(8 * second); at < 30*second; at += second / 2 {
			want, got := s.take(p, text+" fewer", at, 0), s.take(p, text, at, 0)
			assert.Equal(s, want, got, "%s at %d", text, at)
		}
	}
}

func reset(s *subject) {
	for _, text := range append([]string{"10/10s, 100/1h", "10/10s sliding-log, 100/1d fixed-window calendar UTC"}, tens()...) {
		p, a, b := policy(text), text+" a", text+" b"
		s.admit(p, a, 0, 10)
		s.admit(p, b, 0, 10)
		require.NoError(s, s.store.Reset(s.Context(), p, s.prefix+a))
		require.NoError(s, s.store.Reset(s.Context(), p, s.prefix+text+" nobody"))
		res := s.take(p, a, 0, 0)
		assert.Equal(s, int64(10), res.Remaining)
		assert.Zero(s, res.ResetAfter)
		s.remains(0, p, b, 0)
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
	for _, text := range tens() {
		s.remains(10, policy(text), "shapes", 0)
		s.admit(policy(text), "shapes", 0, 10)
	}
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
	// A count stays a count, and is brought to the new maximum.
	for _, kind := range []string{
		"fixed-window", "fixed-window aligned", "sliding-window", "sliding-window buckets 60", "sliding-counter", "sliding-log",
	} {
		s.admit(policy("10/10s "+kind), kind, 0, 4)
		s.remains(16, policy("20/10s "+kind), kind, 0)
		s.remains(36, policy("40/20s "+kind), kind, 0)
		s.remains(0, policy("2/10s "+kind), kind, 0)
		s.remains(8, policy("10/10s "+kind), kind, 0)
	}
	// Whatever a state means under other numbers, what was full has no room under less.
	for _, a := range Algorithms() {
		key := "full " + a.String()
		s.admit(policy("10/10s "+a.String()), key, 0, 10)
		s.remains(0, policy("10/10s "+a.String()), key, 0)
		s.remains(0, policy("2/10s "+a.String()), key, 0)
	}
	// Tokens stay tokens.
	s.admit(policy("10/10s token-bucket"), "tokens", 0, 4)
	s.remains(6, policy("20/10s token-bucket"), "tokens", 0)
	s.remains(2, policy("2/10s token-bucket"), "tokens", 0)
	// Another zone, or another unit, brings the end of the window to its own.
	s.admit(policy("10/1d fixed-window calendar UTC"), "zone", 0, 4) // at 8 in the morning
	res = s.take(policy("10/1d fixed-window calendar Asia/Kolkata"), "zone", 0, 0)
	assert.Equal(s, int64(6), res.Remaining)
	assert.Equal(s, 10*time.Hour+30*time.Minute, res.ResetAfter)
	assert.Equal(s, time.Minute, s.take(policy("10/1m fixed-window calendar UTC"), "zone", 0, 0).ResetAfter)
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

	p = policy(mix)
	for range 5 {
		s.admit(p, "mix", 0, 1)
	}
	for range 5 {
		res := s.refuse(p, "mix", 0, 1)
		assert.Equal(s, [3]bool{false, false, true}, [3]bool{res.Each[0].Refused, res.Each[1].Refused, res.Each[2].Refused})
		assert.Equal(s, [3]int64{15, 995, 0}, remainings(res))
		assert.Equal(s, time.Minute, res.RetryAfter)
		assert.Equal(s, int64(5), res.Limit)
	}
	res = s.refuse(p, "mix", 0, 6)
	assert.Equal(s, core.Never, res.Outcome)
	s.refuse(p, "mix", 60*second-1, 1)
	assert.Equal(s, [3]int64{19, 994, 4}, remainings(s.admit(p, "mix", 60*second, 1)))
}

func clockSteps(s *subject) {
	for i, look := range []int64{0, 1} { // a peek heals as a refusal does
		for _, text := range append([]string{"3/1s", "10/10s, 10/10s burst 20", "10/10s, 10/20s fixed-window, 10/30s sliding-log"}, tens()...) {
			p, key := policy(text), fmt.Sprint("back", i, text)
			s.exhaust(p, key, 0)
			res := s.take(p, key, -hour, look)
			assert.Equal(s, look == 0, res.Allowed(), text)
			assert.Zero(s, res.Remaining, "%s: nothing is forgotten", text)
			whole, most := int64(0), int64(0)
			for j, l := range p.Limits() {
				whole, most = max(whole, res.Each[j].ResetAfter.Microseconds()), max(most, l.Period.Microseconds())
			}
			// A whole bucket or window: of a sliding one, with the part or the window
			// that came before.
			assert.LessOrEqual(s, whole, 2*most, text)
			s.admit(p, key, -hour+whole, p.Limits()[0].Burst)
			s.refuse(p, key, -hour+whole, 1)
		}
	}
	for _, text := range tens() {
		p := policy(text)
		s.admit(p, text, 0, 10)
		admitted := 0
		for range 30 {
			if s.take(p, text, hour, 1).Allowed() {
				admitted++
			}
		}
		assert.Equal(s, 10, admitted, "%s: a step forward admits one burst more", text)
	}
	// The clock of a server that starts anew far in the past or the future.
	for _, at := range []int64{1 - Epoch, lastNow - Epoch - 1} {
		for _, text := range tens() {
			p, key := policy(text), fmt.Sprint("far", at, text)
			s.admit(p, key, 0, 10)
			res := s.take(p, key, at, 1)
			s.admit(p, key, min(at+res.ResetAfter.Microseconds(), lastNow-Epoch), 0)
			assert.LessOrEqual(s, res.ResetAfter, 2*p.Limits()[0].Period, text)
		}
	}
}

func ownClock(s *subject) {
	for _, text := range withOthers([]string{
		"10/366d", "10/366d token-bucket", "10/366d leaky-bucket", "10/366d fixed-window", "10/366d fixed-window aligned",
		"10/1mo fixed-window calendar UTC", "10/366d sliding-window", "10/366d sliding-counter", "10/366d sliding-log",
		"10/366d, 10/366d sliding-log",
	}, "10/366d") {
		p := policy(text)
		t := core.Take{Policy: p, Key: s.prefix + text, Cost: 3}
		first, err := s.store.Take(s.Context(), t)
		require.NoError(s, err)
		assert.Equal(s, int64(7), first.Remaining, text)
		assert.Positive(s, first.At)
		require.NoError(s, s.store.Refund(s.Context(), t, first, 3))
		again, err := s.store.Take(s.Context(), t)
		require.NoError(s, err)
		assert.Equal(s, int64(7), again.Remaining, text)
		assert.GreaterOrEqual(s, again.At, first.At)
		most := t
		most.AtMost, most.Cost = true, 100
		rest, err := s.store.Take(s.Context(), most)
		require.NoError(s, err)
		assert.Equal(s, int64(7), rest.Taken, text)
		require.NoError(s, s.store.Reset(s.Context(), p, t.Key))
		t.Cost = 0
		res, err := s.store.Take(s.Context(), t)
		require.NoError(s, err)
		assert.Equal(s, int64(10), res.Remaining, text)
	}
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
			t.Ahead = 2 * time.Hour
		}
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
	for _, text := range withOthers([]string{
		"100/1s", "3/1s burst 7", "20/1s, 50/1m", "1/1ms burst 9", "100/100ms token-bucket burst 70", "100/1s leaky-bucket", "100/100ms fixed-window",
		"100/50ms fixed-window aligned", "100/100ms sliding-window buckets 7", "100/70ms sliding-counter", "100/100ms sliding-log", mix,
	}, "100/100ms") {
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
	for _, a := range Algorithms() {
		Compare(s, s.store, Reference(), 0, 500, a)
	}
}
