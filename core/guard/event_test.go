package guard_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/internal/remotetest"
	"github.com/weir-go/weir/keyfunc"
)

// remembering is a store outside of the process that remembers its refusals.
type remembering struct{ core.Store }

func (s remembering) Take(ctx context.Context, t core.Take) (core.Result, error) {
	res, err := s.Store.Take(ctx, t)
	res.Remembered = !res.Allowed()
	return res, err
}

// lostPermits is a store outside of the process whose permits fail.
type lostPermits struct{ core.PermitStore }

func (lostPermits) Acquire(context.Context, core.Permit) (core.Result, error) {
	return core.Result{}, down()
}

// onlyPermits makes a PermitStore a Store again.
type onlyPermits struct {
	core.Store
	lostPermits
}

// Each Event says where it was decided, in the order of the requests.
func TestEventFrom(t *testing.T) {
	type request struct {
		peer string
		left bool // the client has left
		down bool // the store is
	}
	in := func(peers ...string) (all []request) {
		for _, peer := range peers {
			all = append(all, request{peer: peer})
		}
		return all
	}
	failing := []request{{peer: alice}, {peer: alice, down: true}, {peer: alice, down: true}, {peer: alice, down: true, left: true}}
	remote := func(t *testing.T) core.Store { return remotetest.New(newMemory(t)) }
	withoutPermits := func(t *testing.T) core.Store {
		m := newMemory(t)
		return onlyPermits{remotetest.New(m), lostPermits{m}}
	}
	keys := new(numbers)
	keys.Store(&guard.Set{Keys: map[string]map[string]string{"api": {"ip=" + alice: "blocked", "ip=" + bob: "unlimited"}}})
	for name, c := range map[string]struct {
		config   guard.Config
		store    func(t *testing.T) core.Store
		requests []request
		want     []guard.From
	}{
		"in process": {config: guard.Config{Rule: guard.Rule{Policy: "1/1h"}}, requests: in(alice, alice), want: []guard.From{guard.FromProcess, guard.FromProcess}},
		"permits in process": {
			config: guard.Config{Rule: guard.Rule{Policy: "1 concurrent"}}, requests: in(alice, alice), want: []guard.From{guard.FromProcess, guard.FromProcess},
		},
		"store": {
			config: guard.Config{Rule: guard.Rule{Policy: "1/1h"}}, store: remote, requests: in(alice, alice), want: []guard.From{guard.FromStore, guard.FromStore},
		},
		"deny cache": {
			config: guard.Config{Rule: guard.Rule{Policy: "1/1h"}}, requests: in(alice, alice), want: []guard.From{guard.FromStore, guard.FromDenyCache},
			store: func(t *testing.T) core.Store { return remembering{newMemory(t)} },
		},
		"circuit": {
			config: guard.Config{Rule: guard.Rule{Policy: "1/1h", OverLimit: guard.Break(guard.BreakOptions{Refusals: 1})}},
			store:  remote, requests: in(alice, alice, alice, bob), want: []guard.From{guard.FromStore, guard.FromStore, guard.FromCircuit, guard.FromStore},
		},
		"blocked and unlimited": { // the latter is no Event
			config: guard.Config{Rule: guard.Rule{Policy: "api: 1/1h"}, Source: keys}, store: remote,
			requests: in(alice, bob, "203.0.113.9"), want: []guard.From{guard.FromProcess, guard.FromStore},
		},
		"fail local": {
			config: guard.Config{Rule: guard.Rule{Policy: "2/1h"}}, store: remote, requests: failing,
			want: []guard.From{guard.FromStore, guard.FromFallback, guard.FromFallback, guard.FromFallback},
		},
		"fail open": {
			config: guard.Config{Rule: guard.Rule{Policy: "1/1h; fail open"}}, store: remote, requests: failing,
			want: []guard.From{guard.FromStore, guard.FromOpen, guard.FromOpen, guard.FromOpen},
		},
		"fail closed": {
			config: guard.Config{Rule: guard.Rule{Policy: "9/1h; fail closed"}}, store: remote, requests: failing,
			want: []guard.From{guard.FromStore, guard.FromClosed, guard.FromClosed, guard.FromClosed},
		},
		"a client that has left": {
			config: guard.Config{Rule: guard.Rule{Policy: "9/1h"}}, requests: []request{{peer: alice, left: true}}, want: []guard.From{guard.FromNone},
		},
		"no key": {config: guard.Config{Rule: guard.Rule{Policy: "9/1h"}}, store: remote, requests: in(""), want: []guard.From{guard.FromNone}},
		"no key passes": {
			config: guard.Config{Rule: guard.Rule{Policy: "9/1h", NoKey: guard.NoKeyPass}}, requests: in(""), want: []guard.From{guard.FromNone},
		},
		"a shared key": {
			config: guard.Config{Rule: guard.Rule{Policy: "1/1h", NoKey: guard.NoKeyShared}}, requests: in("", ""),
			want: []guard.From{guard.FromProcess, guard.FromProcess},
		},
		"permits fail local": {
			config: guard.Config{Rule: guard.Rule{Policy: "9/1h, 1 concurrent"}}, store: withoutPermits, requests: in(alice, alice),
			want: []guard.From{guard.FromFallback, guard.FromFallback},
		},
		"permits fail open": {
			config: guard.Config{Rule: guard.Rule{Policy: "9/1h, 1 concurrent; fail open"}}, store: withoutPermits, requests: in(alice, alice),
			want: []guard.From{guard.FromOpen, guard.FromOpen},
		},
		"permits fail closed": {
			config: guard.Config{Rule: guard.Rule{Policy: "9/1h, 1 concurrent; fail closed"}}, store: withoutPermits, requests: in(alice),
			want: []guard.From{guard.FromClosed},
		},
		"shadow": {
			config: guard.Config{Rule: guard.Rule{Policy: "1/1h; shadow"}}, requests: in(alice, alice), want: []guard.From{guard.FromProcess, guard.FromProcess},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []guard.From
			c.config.Log, c.config.Observe = slog.New(slog.DiscardHandler), func(e guard.Event) { got = append(got, e.From) }
			if c.store != nil {
				c.config.Store = c.store(t)
			}
			g := newGuard(t, c.config)
			for _, x := range c.requests {
				if remote, is := c.config.Store.(*remotetest.Remote); is && x.down {
					remote.Fail(down())
				}
				ctx, leave := context.WithCancel(t.Context())
				if x.left {
					leave()
				}
				r := from(x.peer)
				r.ctx = ctx //nolint:fatcontext // each request has another one
				v := g.Check(r)
				defer v.Finish(guard.Final{})
				leave()
			}
			assert.Equal(t, c.want, got)
		})
	}
}

// The texts are labels of metrics: they do not change.
func TestFromTexts(t *testing.T) {
	for from, want := range map[guard.From]string{
		guard.FromNone: "none", guard.FromStore: "store", guard.FromDenyCache: "deny-cache", guard.FromCircuit: "circuit", guard.FromProcess: "process",
		guard.FromFallback: "fallback", guard.FromOpen: "open", guard.FromClosed: "closed", 8: "From(8)",
	} {
		assert.Equal(t, want, from.String())
	}
}

// An Event has the instant at which its decision began, and the wait as it was: also of a client that has left before
// its turn, and of one that was still waiting when the Guard was closed.
func TestEventTimes(t *testing.T) {
	for name, store := range map[string]func(t *testing.T) core.Store{
		"in process": func(t *testing.T) core.Store { return newMemory(t) },
		"outside":    func(t *testing.T) core.Store { return slow{newMemory(t)} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var seen []guard.Event
				s := store(t)
				_, outside := s.(slow)
				took := time.Duration(0)
				if outside {
					took = 3 * time.Millisecond
				}
				g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "job: 1/1s burst 1; wait 1h"}, Store: s, Observe: func(e guard.Event) {
					mu.Lock()
					defer mu.Unlock()
					seen = append(seen, e)
				}})
				begun := []time.Time{}
				check := func(ctx context.Context) {
					begun = append(begun, time.Now())
					r := from(alice)
					r.ctx = ctx
					go g.Check(r)
					advance(10 * time.Millisecond)
				}
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				check(t.Context())
				check(t.Context())
				check(ctx)
				check(t.Context())
				advance(500 * time.Millisecond)
				leave() // 520 ms after it came
				synctest.Wait()
				advance(600 * time.Millisecond)
				require.NoError(t, g.Close())
				synctest.Wait()
				require.Len(t, seen, 4)
				order := []int{0, 2, 1, 3} // in which they were decided
				waited := []time.Duration{0, 520 * time.Millisecond, 990 * time.Millisecond, 1110 * time.Millisecond}
				for i, e := range seen {
					assert.Equal(t, begun[order[i]].UnixMicro(), e.At, "request %d", order[i])
					assert.Equal(t, took, e.Took)
					if i > 0 {
						assert.InDelta(t, waited[i], e.Waited+e.Took, float64(took)+1, "request %d", order[i])
					} else {
						assert.Zero(t, e.Waited)
					}
				}
				assert.ErrorIs(t, seen[1].Err, context.Canceled)
				assert.ErrorIs(t, seen[3].Err, enforce.ErrClosed)
				assert.Equal(t, guard.FromNone, seen[1].From)
				assert.Equal(t, guard.FromNone, seen[3].From)
			})
		})
	}
}

// In process one decision of 32 is measured, and outside each.
func TestEventTookOfSome(t *testing.T) {
	const n = 6400
	measured := 0
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "2147483648/1s"}, Observe: func(e guard.Event) {
		if e.Took > 0 {
			measured++
		}
	}})
	for range n {
		passes(g, alice)
	}
	assert.Greater(t, measured, n/100)
	assert.Less(t, measured, n/10)
}

// Of an Event that is kept, other goroutines find what its own request has, or nothing, whatever other requests come
// meanwhile and reuse its memory: the race detector watches.
func TestEventReadMeanwhile(t *testing.T) {
	type idKey struct{}
	const askers, requests = 4, 300
	kept := make(chan guard.Event, askers*requests)
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{
			Policy: "2147483648/1s", Key: keyfunc.Header("Caller"),
			Cost: func(r keyfunc.Request) int64 { id, _ := strconv.ParseInt(r.Route(), 10, 64); return id },
		},
		Observe: func(e guard.Event) {
			kept <- e
			runtime.Gosched()
		},
	})
	var asking, reading sync.WaitGroup
	for range 2 {
		reading.Go(func() {
			for e := range kept {
				id := strconv.FormatInt(e.Result.Taken, 10)
				for _, key := range []string{e.Key(), string(e.AppendKey(nil))} {
					assert.Contains(t, []string{"", "header.caller=" + id}, key)
				}
				assert.Contains(t, []string{"", id}, e.Route())
				assert.Contains(t, []any{nil, id}, e.Context().Value(idKey{}))
			}
		})
	}
	for asker := range askers {
		asking.Go(func() {
			for i := range requests {
				id := strconv.Itoa(1 + asker*requests + i)
				r := from(alice)
				r.route, r.lines, r.ctx = id, map[string][]string{"Caller": {id}}, context.WithValue(t.Context(), idKey{}, id)
				g.Check(r)
				r.route, r.lines, r.ctx = "reused", nil, nil // as frameworks do
			}
		})
	}
	asking.Wait()
	close(kept)
	reading.Wait()
}

// The text that Key returns stays, whatever uses its memory next.
func TestEventKeyStays(t *testing.T) {
	for _, config := range []guard.Config{
		{Rule: guard.Rule{Policy: "9/1h"}},
		{Rule: guard.Rule{Policy: "9/1h"}, Rules: []guard.Rule{{Policy: "all: 9/1h"}}},
		{Rule: guard.Rule{Policy: "9/1h, 9 concurrent"}},
	} {
		var keys []string
		config.Observe = func(e guard.Event) { keys = append(keys, e.Key()) }
		g := newGuard(t, config)
		x := &exchange{request: from(alice), header: header{}}
		for _, peer := range []string{alice, bob} {
			x.request = from(peer)
			require.NoError(t, g.Serve(x))
		}
		assert.Contains(t, keys[0], alice)
		assert.Contains(t, keys[len(keys)-1], bob)
	}
}

// Observe may ask the Guard about another request, or the same one again, without harm to its Event.
func TestEventWithin(t *testing.T) {
	var g *guard.Guard
	var keys []string
	g = newGuard(t, guard.Config{Rule: guard.Rule{Policy: "9/1h"}, Observe: func(e guard.Event) {
		if len(keys) == 0 {
			keys = append(keys, e.Key())
			g.Check(from(bob))
		}
		keys = append(keys, e.Key())
	}})
	g.Check(from(alice))
	assert.Equal(t, []string{"ip=" + alice, "ip=" + bob, "ip=" + alice}, keys)
}

// Events have the context of the request: with Settled, that of the handler.
func TestEventContext(t *testing.T) {
	type userKey struct{}
	var users []any
	var kept []guard.Event
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{Policy: "api: 9/1h", Settle: func(guard.Final, int64) int64 { return 0 }}, Store: remotetest.New(newMemory(t)),
		Observe: func(e guard.Event) {
			users = append(users, e.Context().Value(userKey{}))
			kept = append(kept, e)
		},
	})
	r := from(alice)
	r.ctx = context.WithValue(t.Context(), userKey{}, 7)
	x := &exchange{request: r, header: header{}}
	require.NoError(t, g.Serve(x))
	assert.Equal(t, []any{7, 7}, users)
	assert.Equal(t, []bool{false, true}, []bool{kept[0].Settled, kept[1].Settled})
	assert.Equal(t, guard.FromStore, kept[1].From)
	assert.GreaterOrEqual(t, kept[1].At, kept[0].At)
	v := g.Check(r)
	v.Finish(guard.Final{}) // without a handler
	assert.Equal(t, []any{7, 7, 7, nil}, users)
	for _, e := range append(kept, guard.Event{}) {
		assert.Equal(t, context.Background(), e.Context())
		assert.Empty(t, e.AppendKey(nil))
	}
}

// A Memo keeps a value for each observer, and the first one that comes stays. It is that of the rule: the same under other
// numbers, and another one for another rule.
func TestMemo(t *testing.T) {
	source := new(numbers)
	memos := map[*guard.Memo][]string{}
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{Policy: "api: 9/1h"}, Rules: []guard.Rule{{Policy: "all: 9/1h"}}, Source: source,
		Observe: func(e guard.Event) { memos[e.Memo()] = append(memos[e.Memo()], e.Policy+e.Revision) },
	})
	g.Check(from(alice))
	source.Store(&guard.Set{Revision: "2", Policies: map[string]string{"api": "7/1h"}})
	g.Check(from(alice))
	var all [][]string
	for _, texts := range memos {
		all = append(all, texts)
	}
	assert.ElementsMatch(t, [][]string{{"api", "api2"}, {"all", "all2"}}, all)

	m := guard.Event{}.Memo()
	owners := [2]any{new(int), new(int)}
	assert.Nil(t, m.Load(owners[0]))
	var made [2]sync.Map
	var storing sync.WaitGroup
	for i := range 64 {
		storing.Go(func() { made[i%2].Store(m.LoadOrStore(owners[i%2], new(int)), nil) })
	}
	storing.Wait()
	for i := range made {
		n := 0
		made[i].Range(func(value, _ any) bool {
			n++
			assert.Same(t, m.Load(owners[i]), value)
			return true
		})
		assert.Equal(t, 1, n)
	}
	assert.NotSame(t, m.Load(owners[0]), m.Load(owners[1]))
}

// An Event is a group in a log, with the names of the metrics, and without what may name a person.
func TestEventInLog(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	line := func(args ...any) map[string]any {
		out.Reset()
		log.Info("seen", args...)
		var fields map[string]any
		require.NoError(t, json.Unmarshal(out.Bytes(), &fields), out.String())
		for _, name := range []string{"time", "level", "msg"} {
			delete(fields, name)
		}
		return fields
	}
	e := guard.Event{
		Policy: "login", Rule: "Rule", Tier: "pro", Revision: "3.17", Outcome: core.AtLimit, From: guard.FromStore, Took: time.Millisecond, Waited: time.Second,
		Result: core.Result{Outcome: core.AtLimit, Limit: 9, Taken: 2, ResetAfter: time.Minute, Delay: 3 * time.Second},
	}
	want := map[string]any{
		"weir.policy": "login", "weir.rule": "Rule", "weir.tier": "pro", "weir.revision": "3.17", "weir.outcome": "at-limit", "weir.from": "store",
		"weir.units.taken": 2., "weir.limit": 9., "weir.remaining": 0., "weir.reset_after": 6e10, "weir.delay": 3e9,
		"weir.decision.duration": 1e6, "weir.request.time_in_queue": 1e9,
	}
	assert.Equal(t, want, line("", e))
	assert.Equal(t, map[string]any{"event": want}, line("event", e))
	assert.Equal(t, map[string]any{
		"weir.policy": "api", "weir.rule": "With", "weir.outcome": "refused", "weir.from": "closed", "weir.shadow": true,
		"error.type": "down", "error.message": down().Error(),
	}, line("", guard.Event{Policy: "api", Rule: "With", From: guard.FromClosed, Shadow: true, Err: down()}))
	assert.Equal(t, map[string]any{
		"weir.policy": "api", "weir.rule": "Rule", "weir.outcome": "admitted", "weir.from": "none", "weir.units.settled": 0., "error.message": "no key",
	}, line("", guard.Event{Policy: "api", Rule: "Rule", Outcome: core.Admitted, Settled: true, Err: errors.New("no key")}))
	failed := &core.StoreError{Class: core.ClassTimeout, Server: "10.0.0.7:6379", Err: errors.New("late")}
	assert.Equal(t, "10.0.0.7:6379", line("", guard.Event{Err: failed})["server.address"])
}
