package core

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakeRemote is a store whose calls can fail, hang or lose their reply, in front of one
// that does not.
type fakeRemote struct {
	memory *Memory

	mu       sync.Mutex
	fail     error         // of every call
	after    error         // of every call, once it was made
	delay    time.Duration // of every call, unless its context ends
	batches  []int         // sizes of the renewals
	acquired []string
	releases int
	panics   bool
}

func newRemote(t testing.TB) *fakeRemote { return &fakeRemote{memory: permitMemory(t)} }

func (f *fakeRemote) call(ctx context.Context, do func() error) error {
	f.mu.Lock()
	fail, after, delay, panics := f.fail, f.after, f.delay, f.panics
	f.mu.Unlock()
	if panics {
		panic("a hook")
	}
	if delay > 0 {
		if err := sleep(ctx, delay, nil); err != nil {
			return &StoreError{Class: ClassTimeout, Executed: true, Err: err}
		}
	}
	if fail != nil {
		return fail
	}
	if err := do(); err != nil {
		return err
	}
	return after
}

func (f *fakeRemote) set(change func(*fakeRemote)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fakeRemote) Acquire(ctx context.Context, p Permit) (res Result, err error) {
	f.set(func(f *fakeRemote) { f.acquired = append(f.acquired, p.ID) })
	err = f.call(ctx, func() error { res, err = f.memory.Acquire(ctx, p); return err })
	return res, err
}

func (f *fakeRemote) Renew(ctx context.Context, all []Permit) (lost []Permit, err error) {
	f.set(func(f *fakeRemote) { f.batches = append(f.batches, len(all)) })
	err = f.call(ctx, func() error { lost, err = f.memory.Renew(ctx, all); return err })
	return lost, err
}

func (f *fakeRemote) Release(ctx context.Context, p Permit) error {
	f.set(func(f *fakeRemote) { f.releases++ })
	return f.call(ctx, func() error { return f.memory.Release(ctx, p) })
}

// renewals are the sizes of the batches so far.
func (f *fakeRemote) renewals() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.batches)
}

// free is how many places of the key "k" are free.
func (f *fakeRemote) free(t *testing.T, p Policy) int64 {
	n, _, _ := p.Concurrent()
	res, err := f.memory.Acquire(t.Context(), Permit{Policy: p, Key: "k", ID: "probe", Weight: n + 1})
	require.NoError(t, err)
	return res.Remaining
}

var errDown = &StoreError{Class: ClassDown, Err: errors.New("down")}

// closeHolder does what Guard.Close does.
func closeHolder(h *holder) {
	ctx, cancel := context.WithTimeout(context.Background(), closingTime)
	defer cancel()
	h.close(ctx)
}

func hold1(t *testing.T, h *holder, s PermitStore, p Policy) (*hold, context.Context) {
	t.Helper()
	x, res, err := h.acquire(t.Context(), s, Permit{Policy: p, Key: "k"})
	require.NoError(t, err)
	require.True(t, res.Allowed())
	require.NotNil(t, x)
	return x, x.attach(t.Context())
}

// A permit is held for as long as the holder wants, and then given back.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h, p := newRemote(t), newHolder(), permitPolicy(2, 3*time.Second)
		a, ctx := hold1(t, h, s, p)
		b, _ := hold1(t, h, s, p)
		assert.NotEqual(t, a.permit.ID, b.permit.ID)
		x, res, err := h.acquire(t.Context(), s, Permit{Policy: p, Key: "k"})
		require.NoError(t, err)
		assert.Nil(t, x)
		assert.Equal(t, Refused, res.Outcome)
		for range 100 {
			advance(time.Second)
			synctest.Wait()
			assert.Zero(t, s.free(t, p))
			require.NoError(t, ctx.Err())
		}
		assert.LessOrEqual(t, len(s.renewals()), 101+10, "both in one batch, at a third of the lease")
		for _, n := range s.renewals() {
			assert.Equal(t, 2, n)
		}
		a.release()
		a.release()
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(ctx), context.Canceled)
		synctest.Wait()
		assert.EqualValues(t, 1, s.free(t, p))
		assert.Equal(t, 1, s.releases)
		late := a.attach(t.Context())
		require.ErrorIs(t, late.Err(), context.Canceled)
		b.release()
		synctest.Wait()
		assert.EqualValues(t, 2, s.free(t, p))

		renewals := len(s.renewals())
		advance(time.Minute)
		synctest.Wait()
		assert.Len(t, s.renewals(), renewals, "nothing is renewed that nobody holds")
		closeHolder(h)
	})
}

// Permits in use return to none after a thousand requests, and no goroutine is left.
func TestHoldNothingLeft(t *testing.T) {
	s, h, p := newRemote(t), newHolder(), permitPolicy(5, time.Hour)
	before := runtime.NumGoroutine()
	for range 1000 {
		x, _, err := h.acquire(t.Context(), s, Permit{Policy: p, Key: "k"})
		require.NoError(t, err)
		x.release() // nil if the releases before have not arrived
	}
	require.Eventually(t, func() bool { return s.free(t, p) == 5 && runtime.NumGoroutine() <= before+1 }, 5*time.Second, time.Millisecond)
	assert.Empty(t, h.held)
	closeHolder(h)
	local := permitMemory(t)
	for range 1000 {
		x, _, err := h.acquire(t.Context(), local, Permit{Policy: p, Key: "k", Weight: 5})
		require.NoError(t, err)
		require.NotNil(t, x, "in the process a permit is back at once")
		x.finish()
	}
}

func TestHoldNil(t *testing.T) {
	var x *hold
	x.release()
	x.finish()
	x.detach()
	assert.Equal(t, t.Context(), x.attach(t.Context()))
}

func TestHoldDetached(t *testing.T) {
	h, s, p := newHolder(), permitMemory(t), permitPolicy(1, time.Hour)
	x, ctx := hold1(t, h, s, p)
	x.detach()
	x.finish()
	require.NoError(t, ctx.Err())
	y, _, err := h.acquire(t.Context(), s, Permit{Policy: p, Key: "k"})
	require.NoError(t, err)
	require.Nil(t, y)
	x.release()
	require.Error(t, ctx.Err())
	hold1(t, h, s, p)
	closeHolder(h)
}

// A store that fails now and then costs nobody a permit; one that fails for a whole lease
// does, neither later nor much earlier.
func TestHoldWhileTheStoreFails(t *testing.T) {
	for name, change := range map[string]func(*fakeRemote){
		"down":   func(f *fakeRemote) { f.fail = errDown },
		"hangs":  func(f *fakeRemote) { f.delay = time.Hour },
		"panics": func(f *fakeRemote) { f.panics = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const lease = 30 * time.Second
				s, h, p := newRemote(t), newHolder(), permitPolicy(2, lease)
				x, ctx := hold1(t, h, s, p)
				local, stays := hold1(t, h, s.memory, permitPolicy(1, time.Second).Named("local"))
				for range 5 {
					s.set(change)
					<-time.After(lease / 3 * 2)
					s.set(func(f *fakeRemote) { f.fail, f.delay, f.panics = nil, 0, false })
					<-time.After(lease / 2)
				}
				synctest.Wait()
				require.NoError(t, ctx.Err())
				assert.EqualValues(t, 1, s.free(t, p))

				s.set(change)
				since := time.Now()
				tries := len(s.renewals())
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), ErrPermitLost)
				assert.LessOrEqual(t, time.Since(since), lease)
				assert.GreaterOrEqual(t, time.Since(since), lease/2)
				assert.InDelta(t, 6, len(s.renewals())-tries, 4, "it goes on trying, calmly")
				require.NoError(t, stays.Err(), "one store does not hold up another")
				require.ErrorIs(t, context.Cause(x.attach(t.Context())), ErrPermitLost)
				s.set(func(f *fakeRemote) { f.fail, f.delay, f.panics = nil, 0, false })
				x.release()
				synctest.Wait()
				assert.EqualValues(t, 2, s.free(t, p), "released after it was lost")
				local.release()
				closeHolder(h)
			})
		})
	}
}

// Who was given the place of another is not disturbed, and the other one learns of it.
func TestHoldLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h, p := newRemote(t), newHolder(), permitPolicy(1, 3*time.Second)
		x, ctx := hold1(t, h, s, p)
		require.NoError(t, s.memory.Release(t.Context(), x.permit)) // as if the store had forgotten it
		thief := Permit{Policy: p, Key: "k", ID: "thief"}
		res, err := s.memory.Acquire(t.Context(), thief)
		require.NoError(t, err)
		require.True(t, res.Allowed())
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), ErrPermitLost)
		x.release()
		synctest.Wait()
		assert.Zero(t, s.free(t, p), "a late release does nothing to its successor")

		// A store that forgets without giving the place away is told again.
		require.NoError(t, s.memory.Release(t.Context(), thief))
		y, ctx := hold1(t, h, s, p)
		require.NoError(t, s.memory.Release(t.Context(), y.permit))
		advance(2 * time.Second)
		synctest.Wait()
		require.NoError(t, ctx.Err())
		assert.Zero(t, s.free(t, p))
		y.release()
		closeHolder(h)
	})
}

// Some permits of a batch may fail without the others.
func TestHoldFailsInPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h, p := newRemote(t), newHolder(), permitPolicy(2, 3*time.Second)
		a, failing := hold1(t, h, s, p)
		_, fine := hold1(t, h, s, p)
		s.set(func(f *fakeRemote) { f.after = &RenewError{[]Permit{a.permit}, errDown} })
		<-failing.Done()
		require.ErrorIs(t, context.Cause(failing), ErrPermitLost)
		advance(time.Minute)
		require.NoError(t, fine.Err())
		s.set(func(f *fakeRemote) { f.after = nil })
		closeHolder(h)
		require.ErrorIs(t, context.Cause(fine), ErrPermitLost)
		assert.EqualValues(t, 2, s.free(t, p), "what is held is given back, and what was lost has ended")
	})
}

// If nobody knows whether a permit was granted, it is given back.
func TestHoldUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h, p := newRemote(t), newHolder(), permitPolicy(1, time.Hour)
		s.set(func(f *fakeRemote) { f.after = &StoreError{Class: ClassLost, Executed: true, Err: errors.New("lost")} })
		x, res, err := h.acquire(t.Context(), s, Permit{Policy: p, Key: "k"})
		require.Error(t, err)
		assert.Nil(t, x)
		assert.Zero(t, res)
		synctest.Wait()
		assert.EqualValues(t, 1, s.free(t, p))

		s.set(func(f *fakeRemote) { f.after = nil })
		advance(time.Minute) // the release seemed to fail, and was tried again
		ctx, cancel := context.WithCancel(t.Context())
		_, _, err = h.acquire(ctx, &leaver{s, cancel}, Permit{Policy: p, Key: "k"})
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		assert.EqualValues(t, 1, s.free(t, p), "who left meanwhile may have been granted one")
		released := s.releases
		_, _, err = h.acquire(ctx, s, Permit{Policy: p, Key: "k"})
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		assert.Equal(t, released, s.releases, "who left before has none")

		s.set(func(f *fakeRemote) { f.after, f.fail = nil, errDown })
		released = s.releases
		_, _, err = h.acquire(t.Context(), s, Permit{Policy: p, Key: "k"})
		require.ErrorIs(t, err, errDown)
		synctest.Wait()
		assert.Equal(t, released, s.releases, "surely not granted")
	})
}

// leaver is a store whose caller leaves while it grants.
type leaver struct {
	*fakeRemote
	leave func()
}

func (l *leaver) Acquire(ctx context.Context, p Permit) (Result, error) {
	_, _ = l.fakeRemote.Acquire(ctx, p)
	l.leave()
	return Result{}, ctx.Err()
}

// A release that fails is tried again a few times, in the background, by few
// goroutines, and then left to the lease.
func TestHoldReleaseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h, p := newRemote(t), newHolder(), permitPolicy(MaxPermits, time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		x, _, err := h.acquire(ctx, s, Permit{Policy: p, Key: "k"})
		require.NoError(t, err)
		cancel()
		s.set(func(f *fakeRemote) { f.fail = errDown })
		x.release()
		synctest.Wait()
		s.set(func(f *fakeRemote) { f.fail = nil })
		advance(time.Second)
		assert.EqualValues(t, MaxPermits, s.free(t, p), "at the second try, though the request was over")
		assert.Equal(t, 2, s.releases)

		var all []*hold
		for range maxReleases + 100 {
			x, _ := hold1(t, h, s, p)
			all = append(all, x)
		}
		before := runtime.NumGoroutine()
		s.set(func(f *fakeRemote) { f.fail, f.releases = errDown, 0 })
		for _, x := range all {
			x.release()
		}
		assert.LessOrEqual(t, runtime.NumGoroutine(), before+releaseWorkers)
		assert.LessOrEqual(t, len(h.queue), maxReleases)
		start := time.Now()
		closeHolder(h)
		assert.Equal(t, closingTime, time.Since(start), "closing does not wait for a store that is gone")
		advance(time.Minute)
		synctest.Wait()
		assert.Zero(t, h.workers)
		assert.EqualValues(t, MaxPermits, s.free(t, p), "the leases have ended")
		s.set(func(f *fakeRemote) { f.fail = nil })
		x, _ = hold1(t, h, s, p)
		x.release()
		synctest.Wait()
		assert.EqualValues(t, MaxPermits, s.free(t, p), "it works after close")
	})
}

// A permit that is released while it is being renewed stays released.
func TestHoldReleasedWhileRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h, p := newRemote(t), newHolder(), permitPolicy(1, 3*time.Second)
		x, _ := hold1(t, h, s, p)
		s.set(func(f *fakeRemote) { f.delay = 100 * time.Millisecond })
		advance(1050 * time.Millisecond) // it is under way
		s.set(func(f *fakeRemote) { f.delay = 0 })
		x.release() // which would be there first
		advance(time.Second)
		synctest.Wait()
		assert.EqualValues(t, 1, s.free(t, p))
		closeHolder(h)
	})
}

// Each permit is renewed in its own time.
func TestHoldLeasesDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := newRemote(t), newHolder()
		var all []context.Context
		for i, lease := range []time.Duration{time.Hour, time.Minute, 300 * time.Millisecond, time.Hour} {
			_, ctx := hold1(t, h, s, permitPolicy(1, lease).Named(fmt.Sprint("p", i)))
			all = append(all, ctx)
		}
		advance(time.Minute)
		synctest.Wait()
		for _, ctx := range all {
			require.NoError(t, ctx.Err())
		}
		renewed := 0
		for _, n := range s.renewals() {
			renewed += n
		}
		assert.InDelta(t, 600+3, renewed, 300)
		closeHolder(h)
	})
}
