package enforce

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/internal/later"
)

// Permits come back as fast as they go, however far the store is, and whoever they belonged to.
func TestReleasesKeepUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newRemote(t), permitPolicy(5, time.Minute)
		h := holderOf(s)
		s.set(func(f *fakeRemote) { f.delay = 10 * time.Millisecond })
		victim, refused := 0, 0
		for i := range 9000 { // 9000 a second, for a second
			go func() {
				x, _, err := h.acquire(t.Context(), core.Permit{Policy: p, Key: "another", Weight: 1}, inStore)
				assert.NoError(t, err)
				x.release()
			}()
			if i%300 == 0 { // one at a time, of five
				victim++
				x, _, err := h.acquire(t.Context(), core.Permit{Policy: p, Key: "k"}, inStore)
				require.NoError(t, err)
				if x == nil {
					refused++
				}
				x.release()
			}
			<-time.After(time.Second / 9000)
		}
		assert.Zero(t, refused, "of %d", victim)
		advance(50 * time.Millisecond)
		assert.EqualValues(t, 5, s.free(t, p))
		assert.Zero(t, inBackground(h.engine))
		closeHolder(h)
	})
}

// After an outage of a moment everything is back within 2 s.
func TestReleasesSurviveABlip(t *testing.T) {
	for name, change := range outages {
		for _, blip := range []time.Duration{200 * time.Millisecond, 700 * time.Millisecond, 1500 * time.Millisecond} {
			t.Run(name+" "+blip.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, p := newRemote(t), permitPolicy(20, time.Minute)
					h := holderOf(s)
					var all []*hold
					for range 15 {
						x, _ := hold1(t, h, p)
						all = append(all, x)
					}
					s.set(change)
					for _, x := range all {
						x.release()
					}
					advance(blip)
					s.set(restore)
					advance(2 * time.Second)
					assert.EqualValues(t, 20, s.free(t, p))
					closeHolder(h)
				})
			})
		}
	}
}

// A permit is released for as long as its lease lives, and no longer; closing does not wait for a store that is over.
func TestReleasesEndWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 5_000
		s, p := newRemote(t), permitPolicy(10_000, time.Minute)
		h := holderOf(s)
		var all []*hold
		for range many {
			x, _ := hold1(t, h, p)
			all = append(all, x)
		}
		s.set(outages["down"])
		for _, x := range all {
			x.release()
		}
		advance(30 * time.Second)
		assert.Equal(t, many, inBackground(h.engine), "none is dropped while its lease lives")
		start := time.Now()
		require.Error(t, h.engine.close())
		assert.Equal(t, closeTimeout, time.Since(start))
		advance(31 * time.Second)
		assert.Zero(t, inBackground(h.engine))
		assert.EqualValues(t, 10_000, s.free(t, p), "the leases have ended")
		s.set(restore)
		x, _ := hold1(t, h, p)
		x.release()
		synctest.Wait()
		assert.EqualValues(t, 10_000, s.free(t, p), "it works after close")
		closeHolder(h)
	})
}

// However many wait for a store that fails, it is asked for each of them a few times a second and not more.
func TestReleasesPauseTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 2000
		s, p := newRemote(t), permitPolicy(10_000, time.Hour)
		h := holderOf(s)
		s.set(outages["down"])
		for range many { // one after the other, and so in many batches
			h.giveBack(&hold{holder: h, permit: core.Permit{Policy: p, Key: "k", ID: "a"}, lease: time.Hour})
			<-time.After(time.Millisecond)
		}
		asked := func() (n int) {
			s.set(func(f *fakeRemote) { n = f.releases })
			return n
		}
		before := asked()
		advance(10 * time.Second)
		assert.InDelta(t, (many/batchSize+1)*10*time.Second/later.LastPause, asked()-before, 10)
		assert.Equal(t, many, inBackground(h.engine))
		s.set(restore)
		advance(time.Second)
		assert.Zero(t, inBackground(h.engine))
	})
}

// A log that blocks holds up nobody else, nor does one that asks the same Limiter.
func TestLogThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newRemote(t), permitPolicy(1, time.Minute)
		log := blockingLog{slog.DiscardHandler, make(chan struct{})}
		h := newEngine(s, slog.New(log)).holder
		units := func() *core.Refund {
			q := core.MustParse("count: 10/1h")
			res, err := s.memory.Take(t.Context(), core.Take{Policy: q, Key: "k", Cost: 1})
			require.NoError(t, err)
			return &core.Refund{Policy: q, Key: "k", Receipt: res, Units: 1}
		}
		s.set(func(f *fakeRemote) { f.fail = &core.StoreError{Class: core.ClassDenied, Err: errDown} })
		h.engine.giveBack(units()) // which is given up at once
		synctest.Wait()
		s.set(restore)
		h.engine.giveBack(units())
		x, _ := hold1(t, h, p)
		x.release()
		synctest.Wait()
		assert.Equal(t, 1, inBackground(h.engine), "it waits for the one that logs")
		assert.EqualValues(t, 1, s.free(t, p), "permits do not")
		close(log.over)
		synctest.Wait()
		assert.EqualValues(t, 1, s.free(t, p))
	})
}

// blockingLog is a log that blocks until over is closed.
type blockingLog struct {
	slog.Handler
	over chan struct{}
}

func (blockingLog) Enabled(context.Context, slog.Level) bool { return true }

func (b blockingLog) Handle(context.Context, slog.Record) error {
	<-b.over
	return nil
}

// Units come back in batches, too, in the order in which they were given, and at most once.
func TestRefunds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRemote(t)
		k := newEngine(s, nil)
		p := core.MustParse("count: 50000/1h fixed-window")
		take := func() *core.Refund {
			res, err := s.memory.Take(t.Context(), core.Take{Policy: p, Key: "k", Cost: 1})
			require.NoError(t, err)
			return &core.Refund{Policy: p, Key: "k", Receipt: res, Units: 1}
		}
		used := func() int64 {
			res, err := s.memory.Take(t.Context(), core.Take{Policy: p, Key: "k"})
			require.NoError(t, err)
			return 50000 - res.Remaining
		}
		s.set(func(f *fakeRemote) { f.delay = 10 * time.Millisecond })
		k.giveBack(take())
		synctest.Wait()
		for range 1000 {
			k.giveBack(take())
		}
		advance(50 * time.Millisecond)
		assert.Zero(t, used())
		assert.Equal(t, []int{1, 512, 488}, s.refunds, "the first at once, all others together")

		s.set(func(f *fakeRemote) { f.delay, f.fail = 0, errDown })
		k.giveBack(take())
		advance(time.Second)
		s.set(restore)
		advance(time.Second)
		assert.Zero(t, used(), "surely not executed, and so sent again")
		calls := len(s.refunds)
		s.set(func(f *fakeRemote) {
			f.after = &core.StoreError{Class: core.ClassLost, MaybeExecuted: true, Err: errDown}
		})
		k.giveBack(take())
		advance(time.Minute)
		assert.Equal(t, calls+1, len(s.refunds), "maybe executed, and so never sent again")
		assert.Error(t, k.close(), "it says so")
	})
}

// The error of Close counts all that the store may not have got, and nothing that it has got.
func TestCloseSaysWhatIsLeft(t *testing.T) {
	rates, permits := core.MustParse("count: 10/1h"), permitPolicy(10, time.Minute)
	take := func(key string) *core.Take { return &core.Take{Policy: rates, Key: key, Cost: 3} }
	owe := func(t *testing.T, s *fakeRemote, e *engine, keys ...string) { // units that the fallback has admitted
		s.set(outages["down"])
		for _, key := range keys {
			var res core.Result
			require.Error(t, e.decide(t.Context(), take(key), &res))
			require.EqualValues(t, 3, res.Taken)
		}
		s.set(restore)
	}
	for _, c := range []struct {
		name  string
		want  int
		leave func(t *testing.T, s *fakeRemote, e *engine)
	}{
		{"nothing", 0, func(t *testing.T, s *fakeRemote, e *engine) {
			owe(t, s, e, "a", "b")
			e.handBack(take("a"))
			hold1(t, e.holder, permits)
			e.charge(*take("c"), inStore, func() {})
		}},
		{"hand-backs", 2, func(t *testing.T, s *fakeRemote, e *engine) {
			owe(t, s, e, "a", "b", "c")
			e.handBack(take("a"))
			synctest.Wait()
			s.set(outages["hangs"])
			e.handBack(take("b"))
			e.handBack(take("c"))
		}},
		{"a hand-back that was lost before", 1, func(t *testing.T, s *fakeRemote, e *engine) {
			owe(t, s, e, "a")
			s.set(func(f *fakeRemote) {
				f.fail = &core.StoreError{Class: core.ClassLost, MaybeExecuted: true, Err: errDown}
			})
			e.handBack(take("a"))
			synctest.Wait()
			s.set(restore)
		}},
		{"a renewal", 1, func(t *testing.T, s *fakeRemote, e *engine) { // it may come after the release of its permit
			hold1(t, e.holder, permits)
			s.set(outages["hangs"])
			advance(time.Minute / renewals)
			s.set(restore)
		}},
		{"releases, a refund and a charge", 4, func(t *testing.T, s *fakeRemote, e *engine) {
			hold1(t, e.holder, permits)
			hold1(t, e.holder, permits)
			var res core.Result
			require.NoError(t, e.decide(t.Context(), take("k"), &res))
			s.set(outages["hangs"])
			e.giveBack(&core.Refund{Policy: rates, Key: "k", Receipt: res, Units: 3})
			e.charge(*take("c"), inStore, func() {})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newRemote(t)
				e := newEngine(s, slog.New(slog.DiscardHandler))
				c.leave(t, s, e)
				err := e.close()
				if c.want == 0 {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, fmt.Sprintf("enforce: Close: %d releases, refunds, charges and hand-backs may not", c.want))
				}
				s.set(restore)
				advance(time.Minute)
				if _ = e.close(); assert.NoError(t, e.close(), "said once") {
					assert.Zero(t, inBackground(e))
				}
			})
		})
	}
}
