package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// subject is a store under test.
type subject struct {
	*testing.T
	store  core.Store
	prefix string // of all keys
}

func (s *subject) of(p core.Policy, key string, at, cost int64) core.Take {
	return core.Take{Policy: p, Key: s.prefix + key, Cost: cost, Now: Epoch + at}
}

// do decides, and demands that the store does.
func (s *subject) do(t core.Take) core.Result {
	s.Helper()
	res, err := s.store.Take(s.Context(), t)
	require.NoError(s, err)
	return res
}

// take takes cost units at an instant after Epoch.
func (s *subject) take(p core.Policy, key string, at, cost int64) core.Result {
	s.Helper()
	res := s.do(s.of(p, key, at, cost))
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
	return s.do(t)
}

// afterwards takes what debt bears as well.
func (s *subject) afterwards(p core.Policy, key string, at, most int64) core.Result {
	s.Helper()
	t := s.of(p, key, at, most)
	t.AtMost, t.Debt = true, true
	return s.do(t)
}

// reserve takes ahead of time.
func (s *subject) reserve(p core.Policy, key string, at, cost int64, ahead time.Duration) core.Result {
	s.Helper()
	t := s.of(p, key, at, cost)
	t.Wait = ahead
	return s.do(t)
}

// exhaust takes single units at Epoch, as far ahead as ahead says, until one is refused.
func (s *subject) exhaust(p core.Policy, key string, ahead time.Duration) {
	s.Helper()
	for range 100 {
		if !s.reserve(p, key, 0, 1, ahead).Allowed() {
			return
		}
	}
	require.FailNow(s, "there is no end", "%v", p)
}

// remains demands that a peek finds want units.
func (s *subject) remains(want int64, p core.Policy, key string, at int64) {
	s.Helper()
	res := s.take(p, key, at, 0)
	require.Equal(s, core.Admitted, res.Outcome, "a peek is admitted")
	require.Equal(s, want, res.Remaining, "%v at %d", p, at)
}

func remainings(res core.Result) [3]int64 {
	return [3]int64{res.Each(0).Remaining, res.Each(1).Remaining, res.Each(2).Remaining}
}

func (s *subject) refundOf(p core.Policy, key string, at int64, r core.Result, units int64) core.Refund {
	t := s.of(p, key, at, 0)
	return core.Refund{Policy: p, Key: t.Key, Receipt: r, Units: units, Now: t.Now}
}

func (s *subject) refund(p core.Policy, key string, at int64, r core.Result, units int64) {
	s.Helper()
	require.NoError(s, s.store.Refund(s.Context(), []core.Refund{s.refundOf(p, key, at, r, units)}))
}

// credit gives back units without a receipt.
func (s *subject) credit(p core.Policy, key string, at, units int64) {
	s.Helper()
	r := s.refundOf(p, key, at, core.Result{}, units)
	r.Credit = true
	require.NoError(s, s.store.Refund(s.Context(), []core.Refund{r}))
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

// queues reports whether units that come at once leave one after another.
func queues(s *subject, p core.Policy) bool {
	ref, t := Reference(), s.of(p, "queues", 0, 1)
	_, err := ref.Take(s.Context(), t)
	require.NoError(s, err)
	second, err := ref.Take(s.Context(), t)
	require.NoError(s, err)
	return second.Delay > 0
}

// returnsByWindow reports whether a unit weighs in full for a period at least.
func returnsByWindow(s *subject, p core.Policy) bool {
	res, err := Reference().Take(s.Context(), s.of(p, "window", 0, 1))
	require.NoError(s, err)
	return res.ResetAfter >= p.Limits()[0].Period
}

// mix is one policy of three kinds, of which the last is the tightest.
const mix = "20/1s, 1000/1d fixed-window calendar Europe/Berlin, 5/1m sliding-log"
