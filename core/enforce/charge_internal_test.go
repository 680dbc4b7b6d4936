package enforce

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

func chargeLimiter(t *testing.T, s core.Store, policy string, said *strings.Builder) *Limiter {
	t.Helper()
	l, err := New(s, core.MustParse(policy), Options{Log: slog.New(slog.NewTextHandler(said, nil))})
	require.NoError(t, err)
	return l
}

func chargeRemaining(t *testing.T, l *Limiter) int64 {
	t.Helper()
	res, err := l.Peek(t.Context(), "k")
	require.NoError(t, err)
	return res.Remaining
}

// What was used beyond what was taken is charged into debt, in the process at once and elsewhere behind the request.
func TestCharge(t *testing.T) {
	for name, store := range map[string]func() core.Store{
		"memory": func() core.Store { return permitMemory(t) },
		"remote": func() core.Store { return newRemote(t) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := chargeLimiter(t, store(), "10/10s debt 5", new(strings.Builder))
				var a Admission
				err := l.Begin(t.Context(), Ask{Key: "k", Cost: 2}, &a)
				require.NoError(t, err)
				seen := make(chan int64, 3)
				over := func() { seen <- chargeRemaining(t, l) }
				a.Charge(-1, over)
				a.Charge(0, over)
				a.Charge(3, over)
				synctest.Wait()
				assert.Equal(t, []int64{8, 8, 5}, []int64{<-seen, <-seen, <-seen}, "who asks then sees it")
				a.Charge(1000, nil)
				synctest.Wait()
				res, err := l.Allow(t.Context(), "k")
				require.NoError(t, err)
				assert.Equal(t, 5*time.Second, res.RetryAfter, "as far as debt goes, and no further")
				require.NoError(t, l.Close())
			})
		})
	}
}

// A look takes nothing, and what follows is charged.
func TestLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := chargeLimiter(t, newRemote(t), "2/10s", new(strings.Builder))
		look := func() Admission {
			var a Admission
			err := l.Begin(t.Context(), Ask{Key: "k", AtMost: true}, &a)
			require.NoError(t, err)
			return a
		}
		for range 2 {
			a := look()
			assert.Equal(t, core.Admitted, a.Result.Outcome)
			assert.Zero(t, a.Result.Taken)
			a.Charge(1, nil)
			synctest.Wait()
		}
		a := look()
		assert.Equal(t, core.Refused, a.Result.Outcome)
		assert.Equal(t, 5*time.Second, a.Result.RetryAfter)
	})
}

// There is nothing to charge where nothing is counted.
func TestChargeOfNothing(t *testing.T) {
	(&Admission{}).Charge(1, nil)
	l := chargeLimiter(t, permitMemory(t), "2 concurrent", new(strings.Builder))
	var a Admission
	err := l.Begin(t.Context(), Ask{Key: "k"}, &a)
	require.NoError(t, err)
	a.Charge(1, nil)
}

// What is charged is charged where the request was decided.
func TestChargeOfLocalResults(t *testing.T) {
	for word, want := range map[string]int64{"local": 5, "open": 10} {
		synctest.Test(t, func(t *testing.T) {
			s := newRemote(t)
			l := chargeLimiter(t, s, "10/10s; fail "+word, new(strings.Builder))
			s.set(outages["down"])
			var a Admission
			err := l.Begin(t.Context(), Ask{Key: "k", Cost: 2}, &a)
			require.NoError(t, err)
			s.set(restore)
			a.Charge(3, nil)
			synctest.Wait()
			assert.EqualValues(t, 10, chargeRemaining(t, l), "not in the store")
			res, err := l.engine.fallback().Take(t.Context(), core.Take{Policy: l.policy, Key: "k"})
			require.NoError(t, err)
			assert.Equal(t, want, res.Remaining, word)
		})
	}
}

// A charge survives an outage of some seconds, and is never made twice.
func TestChargesSurviveABlip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, said := newRemote(t), new(strings.Builder)
		l := chargeLimiter(t, s, "1000/1000h", said)
		var a Admission
		err := l.Begin(t.Context(), Ask{Key: "k"}, &a)
		require.NoError(t, err)
		s.set(outages["down"])
		for range 100 {
			a.Charge(1, nil)
		}
		advance(5 * time.Second)
		s.set(restore)
		advance(2 * time.Second)
		assert.EqualValues(t, 900, chargeRemaining(t, l))

		s.set(func(f *fakeRemote) {
			f.after = &core.StoreError{Class: core.ClassLost, MaybeExecuted: true, Err: errors.New("gone")}
		})
		a.Charge(1, nil)
		advance(5 * time.Second)
		s.set(func(f *fakeRemote) { f.after = nil })
		assert.EqualValues(t, 899, chargeRemaining(t, l), "the reply was lost, and it was made once")
		assert.Contains(t, said.String(), "could not be charged, and are not counted")
		s.set(func(f *fakeRemote) { f.panics = true })
		a.Charge(1, nil)
		advance(time.Second)
		s.set(restore)
		assert.EqualValues(t, 899, chargeRemaining(t, l), "a store that panics does not end the program")
		require.Error(t, l.Close(), "two are lost")
		require.NoError(t, l.Close())
	})
}

// However far the store is, charges keep up with a thousand a second, wait for each other, and are bounded.
func TestChargesKeepUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, said := newRemote(t), new(strings.Builder)
		l := chargeLimiter(t, s, "100000/1000h", said)
		var a Admission
		err := l.Begin(t.Context(), Ask{Key: "k"}, &a)
		require.NoError(t, err)
		s.set(func(f *fakeRemote) { f.delay = 10 * time.Millisecond })
		for range 1000 {
			a.Charge(1, nil)
			<-time.After(time.Millisecond)
		}
		advance(50 * time.Millisecond)
		assert.Zero(t, inBackground(l.engine))
		s.set(func(f *fakeRemote) { f.delay = 0 })
		assert.EqualValues(t, 99000, chargeRemaining(t, l))

		s.set(outages["down"])
		const many = maxRefunds + chargesAtOnce + 10
		var over atomic.Int64
		for range many {
			a.Charge(1, func() { over.Add(1) })
		}
		synctest.Wait()
		assert.LessOrEqual(t, inBackground(l.engine), maxRefunds+chargesAtOnce)
		assert.Contains(t, said.String(), "others wait for a store that does not answer")
		assert.LessOrEqual(t, over.Load(), int64(10+chargesAtOnce), "for the others there is a place")
		advance(refundLife + time.Second)
		assert.EqualValues(t, many, over.Load(), "once each")
		assert.Zero(t, inBackground(l.engine), "what is not charged within %v is left", refundLife)
		require.Error(t, l.Close())
	})
}

// inBackground returns how much there is to do in the background.
func inBackground(e *engine) int {
	b := e.background
	return b.renewals.Left() + b.releases.Left() + b.refunds.Left() + b.charges.Left() + b.handBacks.Left()
}
