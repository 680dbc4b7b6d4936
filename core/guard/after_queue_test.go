package guard_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/internal/remotetest"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/keyfunc"
)

// afar is a store some way off.
type afar struct {
	core.Store
	core.PermitStore
	away time.Duration
}

func newAfar(t testing.TB, away time.Duration) core.Store {
	m := newMemory(t)
	return &afar{m, m, away}
}

func (s *afar) Take(ctx context.Context, t core.Take) (core.Result, error) {
	pause(s.away)
	res, err := s.Store.Take(ctx, t)
	pause(s.away)
	return res, err
}

// stores are in the process, and some way off.
var stores = map[string]func(t testing.TB) core.Store{
	"memory":    func(t testing.TB) core.Store { return newMemory(t) },
	"remote":    func(t testing.TB) core.Store { return newAfar(t, 0) },
	"5 ms away": func(t testing.TB) core.Store { return newAfar(t, 5*ms) },
}

// logins sends requests of one address to g, all at once, and returns how many got to try a password. Each takes
// a while, and ends with a status.
func logins(g *guard.Guard, n int, takes time.Duration, status int) (passed int) {
	var all sync.WaitGroup
	var tried atomic.Int64
	for range n {
		all.Go(func() {
			v := g.Check(from(alice))
			if v.Action == guard.Pass {
				tried.Add(1)
				pause(takes)
				v.Finish(guard.Final{Status: status})
			}
		})
	}
	all.Wait()
	return int(tried.Load())
}

// However many try passwords at once, no more do than the policy allows.
func TestAfterStopsBruteForce(t *testing.T) {
	for policy, want := range map[string]int{ // within six seconds
		"login: 3/3s":               9,
		"login: 3/3s debt 3":        9,
		"login: 3/3s, 3 concurrent": 9,
		"login: 3/3s fixed-window":  6,
		"login: 3/3s token-bucket":  6,
		"login: 5/1h, 3/3s":         5,
	} {
		for name, store := range stores {
			synctest.Test(t, func(t *testing.T) {
				g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: policy, After: failed}, Store: store(t)})
				parallel := 200
				if race.Enabled {
					parallel = 50
				}
				passed := 0
				for start := time.Now(); time.Since(start) < 5900*ms; {
					passed += logins(g, parallel, 10*ms, 401)
					<-time.After(90 * ms)
				}
				assert.LessOrEqual(t, passed, want, "%s, %s", policy, name)
				assert.GreaterOrEqual(t, passed, want-1, "%s, %s: they are not held back for nothing", policy, name)
				synctest.Wait()
				assert.Zero(t, g.AfterKeys())
			})
		}
	}
}

// Those who are refused because others take long, and not because anything was used, are not banned.
func TestAfterBansNobodyForOthers(t *testing.T) {
	for waiting, name := range map[int]string{0: "those who have waited for long", 1: "those for whom there is no place"} {
		synctest.Test(t, func(t *testing.T) {
			g := newGuard(t, guard.Config{Rule: guard.Rule{
				Policy: "login: 3/1h", After: failed, Waiting: waiting, OverLimit: guard.Break(guard.BreakOptions{Refusals: 5}),
			}})
			assert.Equal(t, 3, logins(g, 30, 2*time.Second, 200), name)
			assert.Equal(t, 3, logins(g, 3, 10*ms, 401), "%s: nobody is banned, and nothing was used", name)
			assert.Zero(t, logins(g, 5, 10*ms, 200), name)
			v := g.Check(from(alice))
			assert.Equal(t, time.Minute, v.Result.RetryAfter, "%s: those for whom nothing was left are", name)
		})
	}
}

// Those whose passwords are right take turns, and none is refused.
func TestAfterLetsSuccessesPass(t *testing.T) {
	for name, store := range stores {
		synctest.Test(t, func(t *testing.T) {
			g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "login: 3/3s", After: failed}, Store: store(t)})
			start := time.Now()
			assert.Equal(t, 100, logins(g, 100, 10*ms, 200), name)
			assert.LessOrEqual(t, time.Since(start), 34*10*ms+40*ms, "%s: one look each, all at once", name)
			synctest.Wait()
			assert.Zero(t, g.AfterKeys())
		})
	}
}

// Both hold with Redis, however far.
func TestAfterOverRedis(t *testing.T) {
	server := redistest.Single(t)
	for i, away := range []time.Duration{0, 5 * ms} {
		t.Run(fmt.Sprint(away, " away"), func(t *testing.T) {
			proxy := redistest.NewProxy(t, server.Addr())
			proxy.Latency(away)
			store := newRedis(t, proxy, fmt.Sprint("after-", i))
			attacked := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "login: 3/3s", After: failed}, Store: store})
			passed, start := 0, time.Now()
			for time.Since(start) < 2*time.Second {
				passed += logins(attacked, 200, 10*ms, 401)
				<-time.After(10 * ms)
			}
			assert.LessOrEqual(t, passed, 3+int(time.Since(start)/time.Second), "the policy's number")

			honest := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "honest: 3/3s", After: failed}, Store: store})
			served := logins(honest, 100, ms, 200)
			t.Logf("%d passwords tried in %v; %d of 100 successes served", passed, time.Since(start).Round(ms), served)
			if time.Since(start) < 3*time.Second { // else the machine stood still, and a second is over soon
				assert.Equal(t, 100, served)
			}
			require.Eventually(t, func() bool { return attacked.AfterKeys()+honest.AfterKeys() == 0 }, time.Minute, ms)
		})
	}
}

// Requests that wait are served first come first served, when those before them have used nothing.
func TestAfterInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecks(t, guard.Config{Rule: guard.Rule{Policy: "2/1h", After: failed}, Store: newAfar(t, 0)})
		for range 6 {
			c.join()
		}
		for i := range 4 {
			assert.Equal(t, 4-i, c.waiting())
			advance(10 * ms)
			c.each[i].verdict.Finish(guard.Final{Status: 200})
			synctest.Wait()
			next := c.each[i+2]
			assert.True(t, next.passed(), i)
			assert.Equal(t, time.Duration(i+1)*10*ms, next.at)
			assert.Equal(t, next.at, next.verdict.Result.Delay)
			assert.EqualValues(t, 2, next.verdict.Result.Remaining)
		}
		c.each[4].verdict.Finish(guard.Final{Status: 401})
		c.each[5].verdict.Finish(guard.Final{Status: 401})
		synctest.Wait()
		assert.Equal(t, 429, c.join().verdict.Status)
		assert.Zero(t, c.g.AfterKeys())
	})
}

// A unit that has come back meanwhile is for the first in line, and not for the one that finds it.
func TestAfterDoesNotOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecks(t, guard.Config{Rule: guard.Rule{Policy: "2/1s", After: failed}})
		c.join().verdict.Finish(guard.Final{Status: 401})
		c.join()
		first := c.join()
		advance(600 * ms)
		second := c.join()
		assert.Equal(t, 600*ms, first.at)
		assert.True(t, first.passed())
		advance(ms)
		assert.False(t, second.done.Load(), "it waits")
		first.verdict.Finish(guard.Final{Status: 200})
		synctest.Wait()
		assert.True(t, second.passed())
		c.each[1].verdict.Finish(guard.Final{})
		second.verdict.Finish(guard.Final{})
		assert.Zero(t, c.g.AfterKeys())
	})
}

// When nothing is left, those that wait are refused at once, with the time after which a unit is there.
func TestAfterNothingLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecks(t, guard.Config{Rule: guard.Rule{Policy: "2/1h", After: failed}, Store: newAfar(t, 5*ms)})
		for range 50 {
			c.join()
			advance(10 * ms) // its look
		}
		assert.Equal(t, 48, c.waiting())
		c.each[0].verdict.Finish(guard.Final{Status: 401})
		advance(100 * ms)
		assert.Equal(t, 48, c.waiting(), "the last unit may be used by the other one")
		c.each[1].verdict.Finish(guard.Final{Status: 401})
		advance(30 * ms) // the charge, the look of the first, that of all others
		assert.Zero(t, c.waiting())
		for _, x := range c.each[2:] {
			assert.Equal(t, 429, x.verdict.Status)
			assert.InDelta(t, 30*time.Minute, x.verdict.Result.RetryAfter, float64(time.Second))
		}
		assert.Zero(t, c.g.AfterKeys())
	})
}

// A request waits for a second at most, in one of the rule's places, and not when its client leaves or the guard is
// closed. What it finds there says nothing of others' passwords.
func TestAfterWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecks(t, guard.Config{Rule: guard.Rule{Policy: "1/1h", After: failed, Waiting: 3}})
		for range 5 {
			c.join()
		}
		assert.True(t, c.each[0].passed())
		over := c.each[4]
		assert.Zero(t, over.at, "there is no place")
		assert.Equal(t, 429, over.verdict.Status)
		assert.Equal(t, time.Second, over.verdict.Result.RetryAfter)
		assert.Zero(t, over.verdict.Result.Remaining)
		advance(100 * ms)
		c.each[2].leave()
		synctest.Wait()
		assert.Equal(t, 100*ms, c.each[2].at)
		assert.Equal(t, 503, c.each[2].verdict.Status)
		require.ErrorIs(t, c.each[2].verdict.Err, context.Canceled)
		advance(time.Second)
		for _, late := range []*check{c.each[1], c.each[3]} {
			assert.Equal(t, time.Second, late.at)
			assert.Equal(t, 429, late.verdict.Status)
			assert.Equal(t, time.Second, late.verdict.Result.RetryAfter)
		}
		sent := c.join()
		require.NoError(t, c.g.Close())
		synctest.Wait()
		assert.Equal(t, 503, sent.verdict.Status)
		require.ErrorIs(t, sent.verdict.Err, enforce.ErrClosed)
		assert.Equal(t, 503, c.join().verdict.Status, "nobody waits any more")
		c.each[0].verdict.Finish(guard.Final{Status: 200})
		assert.True(t, c.join().passed())
		c.each[len(c.each)-1].verdict.Finish(guard.Final{Status: 200})
		assert.Zero(t, c.g.AfterKeys())
	})
}

// Nothing that becomes of a request leaves anything behind: another rule refuses it, code of the program or the store
// panics, the store fails, it is detached.
func TestAfterLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newHalf(t)
		boom := false
		after := func(f guard.Final) int64 {
			if boom {
				panic("boom")
			}
			return failed(f)
		}
		g := newGuard(t, guard.Config{
			Rule:  guard.Rule{Policy: "1/1h; fail closed", After: after},
			Rules: []guard.Rule{{Policy: "all: 2/1h; fail closed", Key: keyfunc.Const("all")}},
			Store: store,
		})
		first := g.Check(from(alice))
		require.Equal(t, guard.Pass, first.Action)
		assert.Equal(t, 1, g.AfterKeys())
		boom = true
		assert.PanicsWithValue(t, "boom", func() { first.Finish(guard.Final{Status: 401}) })
		assert.Zero(t, g.AfterKeys())
		boom = false

		second := g.Check(from(alice))
		d := guard.Detach(second.Context(t.Context()))
		_, release := d.Claim(t.Context())
		second.Finish(guard.Final{Status: 200})
		assert.Equal(t, 1, g.AfterKeys(), "its work goes on")
		release()
		assert.Zero(t, g.AfterKeys())

		assert.Equal(t, "all", g.Check(from(alice)).Policy)
		assert.Zero(t, g.AfterKeys(), "the other rule has refused it")
		store.noTakes = true
		assert.Equal(t, 503, g.Check(from(alice)).Status)
		store.noTakes, store.panics = false, true
		assert.Panics(t, func() { g.Check(from(alice)) })
		assert.Zero(t, g.AfterKeys())
		store.panics = false
		synctest.Wait()
	})
}

// A charge that is on its way counts until the store has it, and one that is given up does not count for ever.
func TestAfterWhileTheStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := remotetest.New(newMemory(t))
		c := newChecks(t, guard.Config{Rule: guard.Rule{Policy: "1/1h; fail closed", After: failed}, Store: store})
		c.join()
		store.Fail(down())
		c.each[0].verdict.Finish(guard.Final{Status: 401})
		synctest.Wait()
		assert.Equal(t, 1, c.g.AfterKeys(), "it will be sent again")
		store.Fail(nil)
		late := c.join()
		assert.False(t, late.done.Load(), "the store does not know of it yet")
		advance(500 * ms)
		assert.Equal(t, 429, late.verdict.Status, "now it does")
		assert.Zero(t, c.g.AfterKeys())
	})
}

// Tiers of one key count together, whoever waits.
func TestAfterOfTiers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, guard.Config{Rule: guard.Rule{
			Policy: "1/1h", After: failed,
			Tier:  func(r keyfunc.Request) string { return r.Method() },
			Tiers: map[string]string{"POST": "2/1h"},
		}})
		ask := func(method string) (v guard.Verdict) {
			r := from(alice)
			r.method = method
			return g.Check(r)
		}
		first, second := ask("POST"), ask("POST")
		require.Equal(t, []guard.Action{guard.Pass, guard.Pass}, []guard.Action{first.Action, second.Action})
		start := time.Now()
		third := ask("GET")
		assert.Equal(t, 429, third.Status)
		assert.Equal(t, time.Second, time.Since(start), "there may be a unit for it")
		first.Finish(guard.Final{Status: 200})
		second.Finish(guard.Final{Status: 200})
		assert.True(t, passes(g, alice))
	})
}

// Whatever requests do, together they use no more than there is, and none is refused before its second is over while
// something is left.
func TestAfterProperties(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		units := rapid.Int64Range(1, 5).Draw(r, "units")
		away := time.Duration(rapid.IntRange(0, 20).Draw(r, "away")) * ms
		seed := rapid.Uint64().Draw(r, "seed")
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			g := newGuard(t, guard.Config{
				Rule:  guard.Rule{Policy: fmt.Sprintf("%d/1000h fixed-window", units), After: failed},
				Store: newAfar(t, away),
			})
			var used, under, most atomic.Int64
			var all sync.WaitGroup
			for range 60 {
				before, takes, leaves := random.IntN(30), random.IntN(60), random.IntN(200)
				status := []int{200, 200, 200, 401}[random.IntN(4)]
				all.Go(func() {
					pause(time.Duration(before) * ms)
					ctx, leave := context.WithTimeout(t.Context(), time.Duration(leaves)*20*ms)
					defer leave()
					r := from(alice)
					r.ctx = ctx
					start := time.Now()
					v := g.Check(r)
					if v.Action != guard.Pass {
						if v.Status == 429 && time.Since(start) < time.Second {
							assert.Equal(t, units, used.Load(), "refused while there was something left")
						}
						return
					}
					most.Store(max(most.Load(), under.Add(1)))
					pause(time.Duration(takes) * ms)
					if status == 401 {
						used.Add(1)
					}
					under.Add(-1)
					v.Finish(guard.Final{Status: status})
				})
			}
			all.Wait()
			<-time.After(time.Second)
			synctest.Wait()
			assert.LessOrEqual(t, used.Load(), units)
			assert.LessOrEqual(t, most.Load(), units)
			assert.Zero(t, g.AfterKeys())
		})
	})
}

// Each process of a fleet lets as many run as there are units left, so that n of them admit n times that at most.
// Permits bound how many run in all of them together.
func TestAfterInAFleet(t *testing.T) {
	for policy, most := range map[string]int{"login: 3/1h": 12, "login: 3/1h, 3 concurrent": 9} {
		synctest.Test(t, func(t *testing.T) {
			store := newAfar(t, 5*ms)
			var fleet [4]*guard.Guard
			for i := range fleet {
				fleet[i] = newGuard(t, guard.Config{Rule: guard.Rule{Policy: policy, After: failed}, Store: store})
			}
			var all sync.WaitGroup
			var passed atomic.Int64
			for _, g := range fleet {
				all.Go(func() {
					for range 20 {
						passed.Add(int64(logins(g, 50, 10*ms, 401)))
						<-time.After(ms)
					}
				})
			}
			all.Wait()
			assert.LessOrEqual(t, int(passed.Load()), most, policy)
		})
	}
}
