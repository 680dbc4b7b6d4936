package enforce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

func permitPolicy(n int64, lease time.Duration) core.Policy {
	p, err := core.NewPolicy("permits", core.PolicyOptions{}, core.Limit{Algorithm: core.Concurrent, Burst: n, Lease: lease})
	if err != nil {
		panic(err)
	}
	return p
}

func permitMemory(t testing.TB) *core.Memory {
	t.Helper()
	m, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	return m
}

// advance lets time pass in a bubble, and what it wakes finish.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// fakeRemote is a store whose calls can fail, hang or lose their reply, in front of one
// that does not.
type fakeRemote struct {
	memory *core.Memory

	mu       sync.Mutex
	fail     error         // of every call
	after    error         // of every call, once it was made
	delay    time.Duration // of every call, unless its context ends
	batches  []int         // sizes of the renewals
	acquired []string
	refunds  []int // sizes of the batches
	releases int
	fails    string // the id of a permit whose renewals fail, once they were made
	panics   bool
	granted  func() // is called when a permit was granted, whose caller then leaves
}

func newRemote(t testing.TB) *fakeRemote { return &fakeRemote{memory: permitMemory(t)} }

func (f *fakeRemote) Take(ctx context.Context, t core.Take) (res core.Result, err error) {
	err = f.call(ctx, func() error { res, err = f.memory.Take(ctx, t); return err })
	return res, err
}

func (f *fakeRemote) Refund(ctx context.Context, all []core.Refund) error {
	f.set(func(f *fakeRemote) { f.refunds = append(f.refunds, len(all)) })
	return f.call(ctx, func() error { return f.memory.Refund(ctx, all) })
}

func (f *fakeRemote) Reset(ctx context.Context, p core.Policy, key string) error {
	return f.call(ctx, func() error { return f.memory.Reset(ctx, p, key) })
}

func (f *fakeRemote) call(ctx context.Context, do func() error) error {
	f.mu.Lock()
	fail, after, delay, panics := f.fail, f.after, f.delay, f.panics
	f.mu.Unlock()
	if panics {
		panic("a hook")
	}
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return &core.StoreError{Class: core.ClassTimeout, MaybeExecuted: true, Err: ctx.Err()}
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

func (f *fakeRemote) Acquire(ctx context.Context, p core.Permit) (res core.Result, err error) {
	f.set(func(f *fakeRemote) { f.acquired = append(f.acquired, p.ID) })
	err = f.call(ctx, func() error { res, err = f.memory.Acquire(ctx, p); return err })
	f.mu.Lock()
	granted := f.granted
	f.mu.Unlock()
	if granted != nil {
		granted()
		return core.Result{}, ctx.Err()
	}
	return res, err
}

func (f *fakeRemote) Renew(ctx context.Context, all []core.Permit) (lost []core.Permit, err error) {
	f.set(func(f *fakeRemote) { f.batches = append(f.batches, len(all)) })
	err = f.call(ctx, func() error { lost, err = f.memory.Renew(ctx, all); return err })
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := slices.IndexFunc(all, func(p core.Permit) bool { return p.ID == f.fails }); err == nil && i >= 0 {
		errs := make([]error, len(all))
		errs[i] = errDown
		return lost, &core.BatchError{Errs: errs}
	}
	return lost, err
}

func (f *fakeRemote) Release(ctx context.Context, permits []core.Permit) error {
	f.set(func(f *fakeRemote) { f.releases++ })
	return f.call(ctx, func() error { return f.memory.Release(ctx, permits) })
}

// renewals are the sizes of the batches so far.
func (f *fakeRemote) renewals() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.batches)
}

// free returns the number of places of the key "k" that are free.
func (f *fakeRemote) free(t *testing.T, p core.Policy) int64 {
	n, _, _ := p.Concurrent()
	res, err := f.memory.Acquire(t.Context(), core.Permit{Policy: p, Key: "k", ID: "probe", Weight: n + 1})
	require.NoError(t, err)
	return res.Remaining
}

var errDown = &core.StoreError{Class: core.ClassDown, Err: errors.New("down")}

// holderOf is the holder of an engine of its own. Under "fail local", s does not stand in for itself.
func holderOf(s core.Store) *holder { return newEngine(s, slog.New(slog.DiscardHandler)).holder }

func closeHolder(h *holder) { _ = h.engine.close() }

func hold1(t *testing.T, h *holder, p core.Policy) (*hold, context.Context) {
	t.Helper()
	x, res, err := h.acquire(t.Context(), core.Permit{Policy: p, Key: "k"}, inStore)
	require.NoError(t, err)
	require.True(t, res.Allowed())
	require.NotNil(t, x)
	return x, x.attach(t.Context())
}

// A permit is held for as long as the holder wants, and then given back.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newRemote(t), permitPolicy(2, 3*time.Second)
		h := holderOf(s)
		a, ctx := hold1(t, h, p)
		b, _ := hold1(t, h, p)
		assert.NotEqual(t, a.permit.ID, b.permit.ID)
		x, res, err := h.acquire(t.Context(), core.Permit{Policy: p, Key: "k"}, inStore)
		require.NoError(t, err)
		assert.Nil(t, x)
		assert.Equal(t, core.Refused, res.Outcome)
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
	for _, s := range []core.Store{newRemote(t), permitMemory(t)} {
		synctest.Test(t, func(t *testing.T) { // which fails if a goroutine is left
			h, p := holderOf(s), permitPolicy(5, time.Hour)
			for range 1000 {
				x, _, err := h.acquire(t.Context(), core.Permit{Policy: p, Key: "k", Weight: 5}, inStore)
				require.NoError(t, err)
				require.NotNil(t, x)
				x.finish(false)
				if h.engine.remote() { // in the process a permit is back at once
					synctest.Wait()
				}
			}
			assert.Empty(t, h.held)
			closeHolder(h)
		})
	}
}

func TestHoldNil(t *testing.T) {
	var x *hold
	x.release()
	x.finish(false)
	assert.Equal(t, t.Context(), x.attach(t.Context()))
}

// A detached permit outlives its request for as long as somebody takes care of it.
func TestHoldDetached(t *testing.T) {
	const lease = time.Minute
	begin := func(t *testing.T) (h *holder, s *fakeRemote, p core.Policy, x *hold) {
		s, p = newRemote(t), permitPolicy(1, lease)
		h = holderOf(s)
		x, _ = hold1(t, h, p)
		x.detach()
		return h, s, p, x
	}
	free := func(t *testing.T, s *fakeRemote, p core.Policy) int64 {
		synctest.Wait()
		return s.free(t, p)
	}
	for name, run := range map[string]func(*testing.T){
		"claimed in time": func(t *testing.T) {
			h, s, p, x := begin(t)
			x.finish(false)
			advance(lease / 2)
			held := x.claim(t.Context())
			advance(2 * lease)
			require.NoError(t, held.Err())
			assert.Zero(t, free(t, s, p))
			x.release()
			require.Error(t, held.Err())
			assert.EqualValues(t, 1, free(t, s, p))
			closeHolder(h)
		},
		"claimed before the handler panics": func(t *testing.T) {
			h, s, p, x := begin(t)
			held := x.claim(t.Context())
			x.finish(true)
			advance(2 * lease)
			require.NoError(t, held.Err())
			assert.Zero(t, free(t, s, p))
			closeHolder(h)
		},
		"never claimed": func(t *testing.T) {
			_, s, p, x := begin(t)
			advance(2 * lease) // the handler takes its time
			assert.Zero(t, free(t, s, p))
			x.finish(false)
			advance(lease - 1)
			assert.Zero(t, free(t, s, p))
			advance(1)
			assert.EqualValues(t, 1, free(t, s, p))
			require.ErrorIs(t, context.Cause(x.claim(t.Context())), ErrPermitLost, "too late")
		},
		"a panic": func(t *testing.T) {
			_, s, p, x := begin(t)
			x.finish(true)
			assert.EqualValues(t, 1, free(t, s, p))
		},
		"forgotten": func(t *testing.T) {
			_, s, p, x := begin(t)
			held := x.claim(t.Context())
			x.finish(false)
			advance(maxDetached - 1)
			require.NoError(t, held.Err())
			advance(1)
			require.ErrorIs(t, context.Cause(held), ErrPermitLost)
			assert.EqualValues(t, 1, free(t, s, p))
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, run) })
	}
}

// outages are the ways in which a store fails.
var outages = map[string]func(*fakeRemote){
	"down":   func(f *fakeRemote) { f.fail = errDown },
	"hangs":  func(f *fakeRemote) { f.delay = time.Hour },
	"panics": func(f *fakeRemote) { f.panics = true },
}

func restore(f *fakeRemote) { f.fail, f.delay, f.panics = nil, 0, false }

func failing(p core.Policy, word core.Failure) core.Policy {
	o := p.Options()
	o.Fail = word
	q, err := core.NewPolicy(p.Name(), o, p.Limits()...)
	if err != nil {
		panic(err)
	}
	return q
}

// A store that fails now and then costs nobody a permit; one that fails for a whole lease does where the policy fails
// closed, neither later nor much earlier.
func TestHoldWhileTheStoreFails(t *testing.T) {
	for name, change := range outages {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const lease = 30 * time.Second
				s, p := newRemote(t), failing(permitPolicy(2, lease), core.FailClosed)
				h := holderOf(s)
				x, ctx := hold1(t, h, p)
				for range 5 {
					s.set(change)
					<-time.After(lease / 3 * 2)
					s.set(restore)
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
				assert.InDelta(t, 6, len(s.renewals())-tries, 4, "it goes on trying, at intervals")
				require.ErrorIs(t, context.Cause(x.attach(t.Context())), ErrPermitLost)
				s.set(restore)
				x.release()
				advance(2 * time.Second)
				assert.EqualValues(t, 2, s.free(t, p), "released after it was lost")
				closeHolder(h)
			})
		})
	}
}

// An outage that is longer than a lease ends nothing that runs, unless the policy fails closed; and under
// "fail local" what runs counts in the process meanwhile.
func TestHoldOutlivesAnOutage(t *testing.T) {
	for name, change := range outages {
		for _, word := range []core.Failure{core.FailOpen, core.FailLocal} {
			t.Run(name+" "+word.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const lease = 30 * time.Second
					s, p := newRemote(t), failing(permitPolicy(3, lease), word)
					h := holderOf(s)
					_, first := hold1(t, h, p)
					_, second := hold1(t, h, p)
					s.set(change)
					advance(3 * lease)
					require.NoError(t, first.Err())
					if word == core.FailLocal {
						probe := core.Permit{Policy: p, Key: "k", ID: "probe", Weight: 2}
						res, err := h.engine.fallback().Acquire(t.Context(), probe)
						require.NoError(t, err)
						assert.Equal(t, core.Refused, res.Outcome)
						assert.EqualValues(t, 1, res.Remaining, "the two that are held have been adopted")
					}
					s.set(restore)
					taken := core.Permit{Policy: p, Key: "k", ID: "another process", Weight: 2}
					res, err := s.memory.Acquire(t.Context(), taken)
					require.NoError(t, err)
					require.True(t, res.Allowed(), "their leases have ended")
					advance(lease / 2)
					require.NoError(t, first.Err(), "nor does the return of the store end it")
					require.NoError(t, second.Err())
					require.NoError(t, s.memory.Release(t.Context(), []core.Permit{taken}))
					advance(lease)
					assert.EqualValues(t, 1, s.free(t, p), "both are held in the store again")
					closeHolder(h)
					assert.EqualValues(t, 3, s.free(t, p))
					res, err = h.engine.fallback().Acquire(t.Context(), core.Permit{Policy: p, Key: "k", ID: "all", Weight: 3})
					require.NoError(t, err)
					assert.True(t, res.Allowed(), "and nothing is left in the fallback")
				})
			})
		}
	}
}

// A holder whose place was given to another learns of it, and does not disturb its successor.
func TestHoldLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newRemote(t), permitPolicy(1, 3*time.Second)
		h := holderOf(s)
		x, ctx := hold1(t, h, p)
		require.NoError(t, s.memory.Release(t.Context(), []core.Permit{x.permit})) // as if the store had forgotten it
		thief := core.Permit{Policy: p, Key: "k", ID: "thief"}
		res, err := s.memory.Acquire(t.Context(), thief)
		require.NoError(t, err)
		require.True(t, res.Allowed())
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), ErrPermitLost)
		x.release()
		synctest.Wait()
		assert.Zero(t, s.free(t, p), "a late release does nothing to its successor")

		// A store that forgets without giving the place away is asked for it again.
		require.NoError(t, s.memory.Release(t.Context(), []core.Permit{thief}))
		y, ctx := hold1(t, h, p)
		require.NoError(t, s.memory.Release(t.Context(), []core.Permit{y.permit}))
		advance(2 * time.Second)
		require.NoError(t, ctx.Err())
		assert.Zero(t, s.free(t, p))
		y.release()
		closeHolder(h)
	})
}

// Some permits of a batch may fail without the others.
func TestHoldFailsInPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newRemote(t), failing(permitPolicy(2, 3*time.Second), core.FailClosed)
		h := holderOf(s)
		a, lost := hold1(t, h, p)
		_, fine := hold1(t, h, p)
		s.set(func(f *fakeRemote) { f.fails = a.permit.ID })
		<-lost.Done()
		require.ErrorIs(t, context.Cause(lost), ErrPermitLost)
		advance(time.Minute)
		require.NoError(t, fine.Err())
		s.set(func(f *fakeRemote) { f.fails = "" })
		closeHolder(h)
		require.ErrorIs(t, context.Cause(fine), ErrPermitLost)
		assert.EqualValues(t, 2, s.free(t, p), "what is held is given back, and what was lost has ended")
	})
}

// If nobody knows whether a permit was granted, it is given back.
func TestHoldUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newRemote(t), permitPolicy(1, time.Hour)
		h := holderOf(s)
		s.set(func(f *fakeRemote) {
			f.after = &core.StoreError{Class: core.ClassLost, MaybeExecuted: true, Err: errors.New("lost")}
		})
		x, res, err := h.acquire(t.Context(), core.Permit{Policy: p, Key: "k"}, inStore)
		require.Error(t, err)
		assert.Nil(t, x)
		assert.Zero(t, res)
		synctest.Wait()
		assert.EqualValues(t, 1, s.free(t, p))

		s.set(func(f *fakeRemote) { f.after = nil })
		advance(time.Minute) // the release seemed to fail, and was tried again
		ctx, leave := context.WithCancel(t.Context())
		s.set(func(f *fakeRemote) { f.granted = leave })
		_, _, err = h.acquire(ctx, core.Permit{Policy: p, Key: "k"}, inStore)
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		assert.EqualValues(t, 1, s.free(t, p), "a caller that left meanwhile may have been granted one")
		released := s.releases
		_, _, err = h.acquire(ctx, core.Permit{Policy: p, Key: "k"}, inStore)
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		assert.Equal(t, released, s.releases, "one that left before has none")

		s.set(func(f *fakeRemote) { f.granted, f.fail = nil, errDown })
		_, _, err = h.acquire(t.Context(), core.Permit{Policy: p, Key: "k"}, inStore)
		require.ErrorIs(t, err, errDown)
		synctest.Wait()
		assert.Equal(t, released, s.releases, "surely not granted")
		closeHolder(h)
	})
}

// lateRemote answers nobody who acquires, and grants all the same, but later.
type lateRemote struct {
	*fakeRemote
	late time.Duration
}

func (l *lateRemote) Acquire(ctx context.Context, p core.Permit) (core.Result, error) {
	time.AfterFunc(l.late, func() { _, _ = l.memory.Acquire(context.WithoutCancel(ctx), p) })
	return core.Result{}, &core.StoreError{Class: core.ClassTimeout, MaybeExecuted: true, Err: context.DeadlineExceeded}
}

// A question may arrive after the release that followed it: its packet was lost, and sent again.
func TestHoldUnknownOvertaken(t *testing.T) {
	for _, late := range []time.Duration{0, 300 * time.Millisecond, 1200 * time.Millisecond, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s, p := &lateRemote{newRemote(t), late}, failing(permitPolicy(1, time.Hour), core.FailClosed)
			h := holderOf(s)
			_, _, err := h.acquire(t.Context(), core.Permit{Policy: p, Key: "k"}, inStore)
			require.Error(t, err)
			advance(late + 2*time.Second)
			assert.EqualValues(t, 1, s.free(t, p), late)
			advance(time.Minute)
			closeHolder(h)
		})
	}
}

// A store that panics leaves no permit that nobody knows of.
func TestHoldPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newRemote(t), permitPolicy(1, time.Hour)
		h := holderOf(s)
		s.set(func(f *fakeRemote) { f.granted = func() { panic("a hook") } })
		assert.Panics(t, func() { _, _, _ = h.acquire(t.Context(), core.Permit{Policy: p, Key: "k"}, inStore) })
		synctest.Wait()
		assert.EqualValues(t, 1, s.free(t, p))
		advance(time.Minute)
		closeHolder(h)
	})
}

// A store may fail for some and not for others. A holder to which it still grants a permit counts in the fallback, too.
func TestHoldAdoptsLatecomers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newRemote(t), permitPolicy(3, time.Hour)
		h := holderOf(s)
		held := func(remote int) {
			t.Helper()
			res, err := h.engine.fallback().Acquire(t.Context(), core.Permit{Policy: p, Key: "k", ID: "probe", Weight: 4})
			require.NoError(t, err)
			assert.EqualValues(t, 3-remote, res.Remaining)
		}
		take := func(fail error) *hold {
			s.set(func(f *fakeRemote) { f.fail = fail })
			x, res, _ := h.engine.acquire(t.Context(), core.Permit{Policy: p, Key: "k"})
			require.True(t, res.Allowed())
			return x
		}
		first := take(nil)
		take(errDown).release()
		held(1)
		second := take(nil)
		held(2)
		first.release()
		second.release()
		held(0)
		advance(time.Minute)
		take(nil).release() // the store is back
		third := take(nil)
		held(0)
		third.release()
		synctest.Wait()
		assert.EqualValues(t, 3, s.free(t, p))
		closeHolder(h)
	})
}

// A permit that is released while it is being renewed stays released.
func TestHoldReleasedWhileRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newRemote(t), permitPolicy(1, 3*time.Second)
		h := holderOf(s)
		x, _ := hold1(t, h, p)
		s.set(func(f *fakeRemote) { f.delay = 100 * time.Millisecond })
		advance(1050 * time.Millisecond) // it is under way
		s.set(func(f *fakeRemote) { f.delay = 0 })
		x.release() // which would be there first
		advance(time.Second)
		assert.EqualValues(t, 1, s.free(t, p))
		closeHolder(h)
	})
}

// Each permit is renewed in its own time.
func TestHoldLeasesDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRemote(t)
		h := holderOf(s)
		var all []context.Context
		for i, lease := range []time.Duration{time.Hour, time.Minute, 300 * time.Millisecond, time.Hour} {
			_, ctx := hold1(t, h, permitPolicy(1, lease).Named(fmt.Sprint("p", i)))
			all = append(all, ctx)
		}
		advance(time.Minute)
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

// tardy is a store that renews for a process that stood still meanwhile: the answer is right, and late.
type tardy struct {
	*fakeRemote
	delay time.Duration
}

func (s tardy) Renew(ctx context.Context, all []core.Permit) ([]core.Permit, error) {
	lost, err := s.fakeRemote.Renew(ctx, all)
	<-time.After(s.delay)
	return lost, err
}

// What a store that works says is lost ends, however late it says so: only a failure excuses a lease that has ended.
func TestHoldLostWhileLate(t *testing.T) {
	for _, word := range []core.Failure{core.FailOpen, core.FailLocal, core.FailClosed} {
		t.Run(word.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const lease = 300 * time.Millisecond
				s, p := newRemote(t), failing(permitPolicy(1, lease), word)
				h := holderOf(tardy{s, 2 * lease})
				x, ctx := hold1(t, h, p)
				require.NoError(t, s.memory.Release(t.Context(), []core.Permit{x.permit}))
				other := core.Permit{Policy: p, Key: "k", ID: "another process"}
				res, err := s.memory.Acquire(t.Context(), other)
				require.NoError(t, err)
				require.True(t, res.Allowed())
				for range 20 {
					advance(lease / 3)
					lost, err := s.memory.Renew(t.Context(), []core.Permit{other})
					require.NoError(t, err)
					require.Empty(t, lost)
				}
				assert.ErrorIs(t, context.Cause(ctx), ErrPermitLost)
				closeHolder(h)
			})
		})
	}
}

// Renewing has a time of its own, whatever a decision may take.
func TestHoldWhileTheStoreIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newRemote(t), failing(permitPolicy(10, 3*time.Second), core.FailClosed)
		h := holderOf(s)
		var all []context.Context
		for range 10 {
			_, ctx := hold1(t, h, p)
			all = append(all, ctx)
		}
		s.set(func(f *fakeRemote) { f.delay = 80 * time.Millisecond })
		advance(time.Minute)
		for _, ctx := range all {
			require.NoError(t, ctx.Err())
		}
		closeHolder(h)
	})
}
