package enforce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/internal/remotetest"
	"github.com/weir-go/weir/core/stats"
)

// lane returns the state of one lane.
func lane(t *testing.T, l *Limiter, name string) stats.Lane {
	t.Helper()
	for _, lane := range l.Stats().Lanes {
		if lane.Name == name {
			return lane
		}
	}
	t.Fatalf("no lane %q", name)
	return stats.Lane{}
}

func statsLimiter(t *testing.T, s core.Store, policy string) *Limiter {
	t.Helper()
	l, err := New(s, core.MustParse(policy), Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return l
}

// Nothing waits, and nothing is held, where nothing was done. The lanes are there all the same, in their order.
func TestStatsOfNothing(t *testing.T) {
	t.Parallel()
	s := statsLimiter(t, nil, "10/1h").Stats()
	names := make([]string, len(s.Lanes))
	for i := range s.Lanes {
		names[i] = s.Lanes[i].Name
		s.Lanes[i] = stats.Lane{}
	}
	assert.Equal(t, []string{"renewals", "releases", "refunds", "charges", "hand-backs"}, names)
	s.Lanes = nil
	assert.Zero(t, s)
}

// Callers that wait and permits that are held are counted for each policy, whichever Limiter of the family they came
// through, and whether the store is in the process or not; and no more when they have gone, whatever ended the wait.
func TestStatsOfCallers(t *testing.T) {
	for name, store := range map[string]func() core.Store{
		"memory": func() core.Store { return nil },
		"remote": func() core.Store { return newRemote(t) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mail := statsLimiter(t, store(), "mail: 1/1h; wait 10h")
				files, err := mail.With(core.MustParse("files: 5 concurrent"))
				require.NoError(t, err)
				err = mail.Wait(t.Context(), "k", 1)
				require.NoError(t, err)
				ctx, leave := context.WithCancel(t.Context())
				for i := range 3 {
					go func() {
						if i == 0 {
							err := mail.Wait(ctx, "k", 1)
							assert.ErrorIs(t, err, context.Canceled)
							return
						}
						err := mail.Wait(t.Context(), "k", 1)
						assert.Equal(t, i == 2, err != nil, "the first turn comes, the second is cut short")
					}()
					synctest.Wait()
				}
				_, releaseTwo, err := files.AcquireN(t.Context(), "k", 2)
				require.NoError(t, err)
				_, release, err := files.Acquire(t.Context(), "another")
				require.NoError(t, err)
				want := []stats.Policy{{Name: "files", Permits: 3}, {Name: "mail", Waiting: 3}}
				for _, l := range []*Limiter{mail, files} {
					s := l.Stats()
					assert.Equal(t, want, s.Policies)
					assert.Equal(t, []int{3, 3}, []int{s.Waiting, s.Permits})
				}
				leave()
				releaseTwo()
				releaseTwo()
				synctest.Wait()
				assert.Equal(t, []stats.Policy{{Name: "files", Permits: 1}, {Name: "mail", Waiting: 2}}, mail.Stats().Policies)
				release()
				advance(time.Hour)
				assert.Equal(t, []stats.Policy{{Name: "mail", Waiting: 1}}, mail.Stats().Policies)
				require.NoError(t, mail.Close())
				synctest.Wait()
				assert.Empty(t, mail.Stats().Policies)
				assert.Zero(t, lane(t, mail, "renewals").Lost, "a permit that was given back is not lost")
			})
		})
	}
}

// A lane shows what waits in it, what is out, the age of the oldest, and in the end what is lost.
func TestStatsOfLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRemote(t)
		l := statsLimiter(t, s, "count: 100000/1h fixed-window")
		give := func(n int) {
			for range n {
				res, err := s.memory.Take(t.Context(), core.Take{Policy: l.Policy(), Key: "k", Cost: 1})
				require.NoError(t, err)
				l.engine.giveBack(&core.Refund{Policy: l.Policy(), Key: "k", Receipt: res, Units: 1})
			}
		}
		s.set(func(f *fakeRemote) { f.delay = 800 * time.Millisecond })
		give(1)
		advance(300 * time.Millisecond)
		give(700)
		advance(300 * time.Millisecond)
		assert.Equal(t, stats.Lane{Name: "refunds", Pending: 700, Out: 1, Oldest: 600 * time.Millisecond}, lane(t, l, "refunds"))
		advance(300 * time.Millisecond)
		assert.Equal(t, stats.Lane{Name: "refunds", Pending: 188, Out: 512, Oldest: 600 * time.Millisecond}, lane(t, l, "refunds"))
		advance(2 * time.Second)
		assert.Equal(t, stats.Lane{Name: "refunds"}, lane(t, l, "refunds"))

		// What fails waits to be sent again, until it is lost; and lost only grows.
		s.set(func(f *fakeRemote) { f.delay, f.fail = 0, errDown })
		give(3)
		advance(5 * time.Second)
		assert.Equal(t, stats.Lane{Name: "refunds", Pending: 3, Oldest: 5 * time.Second}, lane(t, l, "refunds"))
		advance(10 * time.Second)
		assert.Equal(t, stats.Lane{Name: "refunds", Lost: 3}, lane(t, l, "refunds"))
		s.set(func(f *fakeRemote) { f.fail = unsureOf(errDown) })
		give(2)
		advance(time.Millisecond)
		assert.Equal(t, stats.Lane{Name: "refunds", Lost: 5}, lane(t, l, "refunds"))
		require.Error(t, l.Close(), "it says so once")
		require.NoError(t, l.Close())
		assert.Equal(t, stats.Lane{Name: "refunds", Lost: 5}, lane(t, l, "refunds"))

		// More than may wait are lost at once.
		s.set(func(f *fakeRemote) { f.fail, f.delay = nil, 900*time.Millisecond })
		give(1)
		synctest.Wait()
		give(maxRefunds + 7)
		assert.EqualValues(t, 12, lane(t, l, "refunds").Lost)
		s.set(restore)
		advance(time.Minute)
		assert.Equal(t, stats.Lane{Name: "refunds", Lost: 12}, lane(t, l, "refunds"))
	})
}

func unsureOf(err error) error {
	return &core.StoreError{Class: core.ClassLost, MaybeExecuted: true, Err: err}
}

// Permits that are renewed, released and lost, and charges, each have a lane, which shows no other's work.
func TestStatsOfEachLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRemote(t)
		l := statsLimiter(t, s, "all: 10/10s debt 5, 1 concurrent lease 3s")
		_, release, err := l.Acquire(t.Context(), "k")
		require.NoError(t, err)
		s.set(func(f *fakeRemote) { f.delay = 500 * time.Millisecond })
		advance(1200 * time.Millisecond)
		assert.Equal(t, stats.Lane{Name: "renewals", Out: 1, Oldest: 200 * time.Millisecond}, lane(t, l, "renewals"))
		advance(time.Second / 2)
		release()
		var a Admission
		s.set(func(f *fakeRemote) { f.delay = 0 })
		require.NoError(t, l.Begin(t.Context(), Ask{Key: "k", Cost: 1}, &a))
		s.set(func(f *fakeRemote) { f.delay = 500 * time.Millisecond })
		a.Charge(2, nil)
		advance(100 * time.Millisecond)
		assert.Equal(t, 1, lane(t, l, "charges").Out)
		assert.Equal(t, stats.Lane{Name: "renewals"}, lane(t, l, "renewals"))
		assert.Positive(t, lane(t, l, "releases").Out)
		s.set(restore)
		advance(2 * time.Second)
		for _, lane := range l.Stats().Lanes {
			assert.Equal(t, stats.Lane{Name: lane.Name}, lane)
		}

		// A permit whose place somebody else has is lost.
		h := l.engine.holder
		x, ctx := hold1(t, h, l.Policy())
		require.NoError(t, s.memory.Release(t.Context(), []core.Permit{x.permit}))
		_, err = s.memory.Acquire(t.Context(), core.Permit{Policy: l.Policy(), Key: "k", ID: "thief"})
		require.NoError(t, err)
		<-ctx.Done()
		assert.EqualValues(t, 1, lane(t, l, "renewals").Lost)
		assert.Zero(t, l.Stats().Permits)
		x.release()
		advance(time.Second)
		assert.EqualValues(t, 1, lane(t, l, "renewals").Lost)
		require.NoError(t, l.Close())
	})
}

// The ledger has what the fallback admits, until it is handed back; what may not have arrived is lost.
func TestStatsOfTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := remotetest.New(permitMemory(t))
		l := statsLimiter(t, s, "count: 100/1h fixed-window")
		s.Fail(errDown)
		for i := range 7 {
			_, err := l.Allow(t.Context(), fmt.Sprint("k", i%2))
			require.NoError(t, err)
		}
		assert.Equal(t, stats.Ledger{Keys: 2, Units: 7}, l.Stats().Ledger)
		s.Fail(nil)
		_, err := l.Peek(t.Context(), "k0")
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, stats.Ledger{Keys: 1, Units: 3}, l.Stats().Ledger)
		assert.Equal(t, stats.Lane{Name: "hand-backs"}, lane(t, l, "hand-backs"))

		s.FailAfter(1, errDown)
		_, err = l.Peek(t.Context(), "k1")
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, stats.Ledger{Keys: 1, Units: 3}, l.Stats().Ledger, "surely not charged, and so owed again")
		assert.Equal(t, stats.Lane{Name: "hand-backs"}, lane(t, l, "hand-backs"))

		s.FailAfter(1, unsureOf(errDown)) // the charge that follows the look
		_, err = l.Peek(t.Context(), "k1")
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, stats.Ledger{}, l.Stats().Ledger)
		assert.Equal(t, stats.Lane{Name: "hand-backs", Lost: 1}, lane(t, l, "hand-backs"))
	})
}

// An outage has its cause, also when nobody is asked any more because of it, and what each fail word has decided. All
// Limiters on a store report it, and it ends when the store is back.
func TestStatsOfOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &serversStore{fakeRemote: newRemote(t), fallback: permitMemory(t)}
		local, open := statsLimiter(t, s, "a: 100/1h"), statsLimiter(t, s, "b: 100/1h; fail open")
		closed := statsLimiter(t, s, "c: 100/1h; fail closed")
		fail := func(server, class string) {
			s.set(func(f *fakeRemote) { f.fail = &core.StoreError{Class: class, Server: server, Err: errors.New("gone")} })
		}
		allow := func(l *Limiter, n int) {
			for range n {
				_, _ = l.Allow(t.Context(), "k")
			}
		}
		since := time.Now()
		fail("b:1", core.ClassBreaker)
		allow(local, 1)
		assert.Equal(t, core.ClassBreaker, local.Stats().Outages[0].Class)
		fail("b:1", core.ClassTimeout)
		allow(local, 2)
		advance(3 * time.Second)
		fail("b:1", core.ClassBusy)
		allow(open, 3)
		fail("b:1", core.ClassBreaker)
		allow(closed, 4)
		last := time.Now()
		fail("a:1", core.ClassDenied)
		allow(local, 1)
		want := []stats.Outage{
			{Server: "a:1", Class: core.ClassDenied, Since: last, Last: last, Local: 1},
			{Server: "b:1", Class: core.ClassTimeout, Since: since, Last: last, Local: 3, Open: 3, Closed: 4},
		}
		for _, l := range []*Limiter{local, open, closed} {
			assert.Equal(t, want, l.Stats().Outages)
		}
		s.set(restore)
		advance(2 * time.Second)
		allow(local, 1)
		assert.Empty(t, open.Stats().Outages)
	})
}

// serversStore has the health of its servers in common for all Limiters.
type serversStore struct {
	*fakeRemote
	fallback *core.Memory
}

func (s *serversStore) Fallback() *core.Memory { return s.fallback }

// Snapshots are taken while all goes on.
func TestStatsBeside(t *testing.T) {
	t.Parallel()
	l := chargeLimiter(t, newRemote(t), "10/10s, 5 concurrent", new(strings.Builder))
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				l.Stats()
			}
		}
	}()
	for range 200 {
		if _, release, err := l.Acquire(t.Context(), "k"); err == nil {
			release()
		}
		_, _ = l.Allow(t.Context(), "k")
	}
	close(stop)
	<-done
	require.NoError(t, l.Close())
}
