package storetest

import (
	"fmt"
	"time"

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
