package storetest

import (
	"fmt"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

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
				whole, most = max(whole, res.Each(j).ResetAfter.Microseconds()), max(most, l.Period.Microseconds())
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
		require.NoError(s, s.store.Refund(s.Context(), []core.Refund{{Policy: p, Key: t.Key, Receipt: first, Units: 3}}))
		again, err := s.store.Take(s.Context(), t)
		require.NoError(s, err)
		assert.Equal(s, int64(7), again.Remaining, text)
		assert.GreaterOrEqual(s, again.At, first.At)
		most := t
		most.AtMost, most.Cost = true, 100
		rest, err := s.store.Take(s.Context(), most)
		require.NoError(s, err)
		assert.Equal(s, int64(7), rest.Taken, text)
		most.Cost = 0
		none, err := s.store.Take(s.Context(), most)
		require.NoError(s, err)
		assert.Equal(s, core.Refused, none.Outcome, text)
		require.NoError(s, s.store.Reset(s.Context(), p, t.Key))
		t.Cost = 0
		res, err := s.store.Take(s.Context(), t)
		require.NoError(s, err)
		assert.Equal(s, int64(10), res.Remaining, text)
	}
}
