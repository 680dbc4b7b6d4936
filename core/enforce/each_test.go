package enforce_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/internal/remotetest"
)

// many is a remote store that decides about many takes at once.
type many struct {
	*remotetest.Remote
	calls  [][]core.Take
	recall bool // it remembers all refusals
	late   bool // a failure may still be answered
}

func newMany(t *testing.T) *many { return &many{Remote: remotetest.New(newMemory(t, 0))} }

func (m *many) TakeMany(ctx context.Context, takes []core.Take) ([]core.Result, error) {
	m.calls = append(m.calls, slices.Clone(takes))
	results, errs, failed := make([]core.Result, len(takes)), make([]error, len(takes)), false
	for i, t := range takes {
		if results[i], errs[i] = m.Take(ctx, t); errs[i] != nil {
			if failed = true; m.late && t.Cost > 0 {
				late := &core.LateError{Err: errs[i]}
				errs[i] = late
				go func() {
					<-time.After(time.Second)
					late.Answer(m.Store.Take(context.WithoutCancel(ctx), t))
				}()
			}
		}
	}
	if failed {
		return results, &core.BatchError{Errs: errs}
	}
	return results, nil
}

func (m *many) Recall(t core.Take) (core.Result, bool) {
	if !m.recall {
		return core.Result{}, false
	}
	t.AtMost = true // which refuses if there is nothing
	t.Cost = 0
	res, err := m.Store.Take(context.Background(), t)
	return res, err == nil && !res.Allowed()
}

// with returns Limiters on one store.
func with(t *testing.T, s core.Store, texts ...string) []*enforce.Limiter {
	t.Helper()
	first, err := enforce.New(s, core.MustParse(texts[0]), enforce.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, first.Close()) })
	all := []*enforce.Limiter{first}
	for _, text := range texts[1:] {
		l, err := first.With(core.MustParse(text))
		require.NoError(t, err)
		all = append(all, l)
	}
	return all
}

// each asks for a unit of each of the Limiters.
func each(ls []*enforce.Limiter, keys ...string) (all []enforce.Each) {
	for i, l := range ls {
		all = append(all, enforce.Each{Limiter: l, Key: keys[i], Cost: 1})
	}
	return all
}

// All admit, or what was taken is given back: in the process, and on stores that can and cannot decide for many at once.
func TestAllowEach(t *testing.T) {
	for name, store := range map[string]func(t *testing.T) core.Store{
		"in process":    func(t *testing.T) core.Store { return newMemory(t, 0) },
		"one at a time": func(t *testing.T) core.Store { return remotetest.New(newMemory(t, 0)) },
		"at once":       func(t *testing.T) core.Store { return newMany(t) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := store(t)
				ls := with(t, s, "user: 2/1h fixed-window", "tenant: 9/1h fixed-window", "all: 100/1h fixed-window")
				remain := func(want ...int64) {
					t.Helper()
					synctest.Wait()
					for i, key := range []string{"alice", "acme", "*"} {
						assert.Equal(t, want[i], left(t, ls[i], key), "%v", ls[i])
					}
				}
				ask := func(all []enforce.Each) bool {
					t.Helper()
					admitted, err := enforce.AllowEach(t.Context(), all)
					require.NoError(t, err)
					return admitted
				}
				all := each(ls, "alice", "acme", "*")
				require.True(t, ask(all))
				for i, want := range []int64{1, 8, 99} {
					assert.Equal(t, want, all[i].Result.Remaining)
					assert.EqualValues(t, 1, all[i].Result.Taken)
				}
				require.True(t, ask(all))
				remain(0, 7, 98)
				require.False(t, ask(all), "by the first")
				assert.Equal(t, core.Refused, all[0].Result.Outcome)
				assert.Equal(t, time.Hour, all[0].Result.RetryAfter)
				for i, want := range []int64{0, 7, 98} {
					assert.Zero(t, all[i].Result.Taken)
					if all[i].Result.At > 0 { // it was asked
						assert.Equal(t, want, all[i].Result.Remaining, "what is left when that is given back")
						assert.Equal(t, want, all[i].Result.Each(0).Remaining)
					}
				}
				remain(0, 7, 98)

				last := []enforce.Each{all[2], all[1], all[0]}
				require.False(t, ask(last), "by the last")
				assert.Equal(t, core.Refused, last[2].Result.Outcome)
				remain(0, 7, 98)

				last[0].Keep, last[0].Cost, last[0].AtMost = true, 500, true
				require.False(t, ask(last), "but some is used already")
				assert.EqualValues(t, 98, last[0].Result.Taken)
				remain(0, 7, 0)

				// One key twice, of which there is one unit too few.
				twice := []enforce.Each{{Limiter: ls[1], Key: "acme", Cost: 4}, {Limiter: ls[1], Key: "acme", Cost: 4}}
				require.False(t, ask(twice))
				remain(0, 7, 0)
				twice[1].Cost = 3
				require.True(t, ask(twice))
				remain(0, 0, 0)
				require.True(t, ask(nil), "nobody refuses")

				// What was used already is refused unless all of it could be charged.
				require.NoError(t, ls[0].Reset(t.Context(), "alice"))
				used := []enforce.Each{{Limiter: ls[0], Key: "alice", Cost: 2, AtMost: true, Keep: true}, {Limiter: ls[1], Key: "globex", Cost: 9}}
				require.True(t, ask(used))
				assert.Equal(t, core.AtLimit, used[1].Result.Outcome)
				require.NoError(t, ls[1].Credit(t.Context(), "globex", 9))
				require.NoError(t, ls[0].Credit(t.Context(), "alice", 1))
				require.False(t, ask(used))
				assert.EqualValues(t, 1, used[0].Result.Taken)
				if used[1].Result.At > 0 {
					assert.Equal(t, core.Admitted, used[1].Result.Outcome, "no more at the limit")
					assert.EqualValues(t, 9, used[1].Result.Remaining)
				}
				synctest.Wait()
				assert.EqualValues(t, 9, left(t, ls[1], "globex"))

				// A limit on trial refuses nothing, and counts.
				trial := []enforce.Each{{Limiter: ls[0], Key: "alice", Cost: 1, Trial: true}, {Limiter: ls[1], Key: "globex", Cost: 8}}
				require.True(t, ask(trial))
				assert.Equal(t, core.Refused, trial[0].Result.Outcome)
				assert.EqualValues(t, 8, trial[1].Result.Taken)
				require.NoError(t, ls[0].Reset(t.Context(), "alice"))
				require.False(t, ask(trial))
				synctest.Wait()
				assert.EqualValues(t, 2, left(t, ls[0], "alice"), "another one has refused")
				trial[1].Cost = 1
				require.True(t, ask(trial))
				assert.EqualValues(t, 1, left(t, ls[0], "alice"))

				// A look is refused where there is nothing, a peek is not.
				look := []enforce.Each{{Limiter: ls[1], Key: "acme"}}
				require.True(t, ask(look))
				look[0].AtMost = true
				require.False(t, ask(look))
			})
		})
	}
}

// With a mistake nothing is asked.
func TestAllowEachMistakes(t *testing.T) {
	ls := with(t, newMemory(t, 0), "a: 2/1h", "b: 3 concurrent")
	good := enforce.Each{Limiter: ls[0], Key: "k", Cost: 1}
	for want, bad := range map[string]enforce.Each{
		"number 2: no Limiter; give one, or leave it out": {Key: "k"},
		"number 2: core: the key is empty":                {Limiter: ls[0], Cost: 1},
		"number 2: core: a cost of -1 units":              {Limiter: ls[0], Key: "k", Cost: -1},
		"has permits alone":                               {Limiter: ls[1], Key: "k", Cost: 1},
	} {
		admitted, err := enforce.AllowEach(t.Context(), []enforce.Each{good, bad})
		require.ErrorContains(t, err, want)
		require.False(t, admitted)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err := enforce.AllowEach(gone, []enforce.Each{good})
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 2, left(t, ls[0], "k"))
}

// A store that can is asked once for all, and not at all for those that are of no use beside a refusal that is known.
func TestAllowEachAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMany(t)
		ls := with(t, s, "user: 1/1h fixed-window", "tenant: 200/1h fixed-window")
		for range 2 {
			_, err := enforce.AllowEach(t.Context(), each(ls, "alice", "acme"))
			require.NoError(t, err)
		}
		require.Len(t, s.calls, 2)
		require.Len(t, s.calls[0], 2)
		s.recall, s.calls = true, nil
		for range 1000 { // the client that does not stop locks nobody out
			all := each(ls, "alice", "acme")
			admitted, err := enforce.AllowEach(t.Context(), all)
			require.NoError(t, err)
			require.False(t, admitted)
			assert.Zero(t, all[1].Result)
		}
		require.Empty(t, s.calls)
		all := each(ls, "alice", "acme")
		all[1].Keep = true
		_, err := enforce.AllowEach(t.Context(), all)
		require.NoError(t, err)
		require.Empty(t, s.calls, "one alone is asked for as ever")
		assert.EqualValues(t, 1, all[1].Result.Taken)
		synctest.Wait()
		require.EqualValues(t, 198, left(t, ls[1], "acme"), "one that was admitted, and one that is kept")

		var source atomic.Pointer[follow.Set]
		source.Store(&follow.Set{Keys: map[string]map[string]string{"a": {"bad": follow.Blocked, "free": follow.Unlimited}}})
		s.calls = nil
		a := following(t, s, "a: 1/1h", enforce.Options{Source: &source})
		b, err := a.With(core.MustParse("b: 5/1h"))
		require.NoError(t, err)
		all = each([]*enforce.Limiter{b, a}, "k", "bad")
		admitted, err := enforce.AllowEach(t.Context(), all)
		require.NoError(t, err)
		require.False(t, admitted)
		require.Empty(t, s.calls, "nor beside a key that is blocked")
		require.Equal(t, time.Minute, all[1].Result.RetryAfter)
		for range 3 {
			admitted, err = enforce.AllowEach(t.Context(), each([]*enforce.Limiter{a, b}, "free", "k"))
			require.NoError(t, err)
			require.True(t, admitted)
		}
		require.EqualValues(t, 2, left(t, b, "k"))
	})
}

// What a Source has blocked or made unlimited is decided as by Allow, without the store: alone and beside others.
func TestAllowEachFollows(t *testing.T) {
	var source atomic.Pointer[follow.Set]
	source.Store(set("", "bad", follow.Blocked, "free", follow.Unlimited))
	for name, store := range map[string]core.Store{"one at a time": unasked{t}, "at once": unaskedMany{unasked{t}}, "in process": newMemory(t, 0)} {
		t.Run(name, func(t *testing.T) {
			l := following(t, store, "job: 1/1h; wait 1h", enforce.Options{Source: &source})
			for _, keys := range [][]string{{"free"}, {"bad"}, {"free", "free"}, {"bad", "bad"}, {"free", "bad"}, {"bad", "free", "free"}} {
				var all []enforce.Each
				for _, key := range keys {
					all = append(all, enforce.Each{Limiter: l, Key: key, Cost: 3})
				}
				for range 2 { // the second call uses the memory of the first again
					admitted, err := enforce.AllowEach(t.Context(), all)
					require.NoError(t, err)
					assert.Equal(t, !slices.Contains(keys, "bad"), admitted, "%v", keys)
					for i, key := range keys {
						want, err := l.AllowN(t.Context(), key, 3)
						require.NoError(t, err)
						if !admitted {
							want.Taken = 0
						}
						assert.Equal(t, want, all[i].Result, "%v, number %d", keys, i)
					}
					for i := range all {
						all[i].Trial = true
					}
					admitted, err = enforce.AllowEach(t.Context(), all)
					require.NoError(t, err)
					assert.True(t, admitted, "%v on trial", keys)
					for i := range all {
						all[i].Trial = false
					}
				}
			}
		})
	}
}

// unaskedMany is a store that could decide about many takes at once, and must not be asked.
type unaskedMany struct{ unasked }

func (u unaskedMany) TakeMany(context.Context, []core.Take) ([]core.Result, error) {
	return nil, u.asked()
}

func (u unaskedMany) Recall(core.Take) (core.Result, bool) { return core.Result{}, u.asked() == nil }

// While the store fails, each goes by its fail word. An error gives back what the others have taken, and so does a
// refusal what the store has charged without an answer, when that is known.
func TestAllowEachWhileTheStoreFails(t *testing.T) {
	for _, c := range []struct {
		texts    []string
		admitted []bool // in turn
		closed   bool
		local    int64 // what is left of the first in the process
	}{
		{[]string{"a: 2/1h", "b: 9/1h"}, []bool{true, true, false}, false, 0},
		{[]string{"a: 2/1h", "b: 9/1h; fail open"}, []bool{true, true, false}, false, 0},
		{[]string{"a: 2/1h; fail open", "b: 1/1h"}, []bool{true, false, false}, false, 2},
		{[]string{"a: 2/1h", "b: 9/1h; fail closed"}, []bool{false, false}, true, 2},
	} {
		for _, late := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := newMany(t)
				s.late = late
				failure := down()
				if late {
					failure = unknown()
				}
				ls := with(t, s, c.texts...)
				s.Fail(failure)
				admitted := int64(0)
				for i, want := range c.admitted {
					all := each(ls, "k", "k")
					got, err := enforce.AllowEach(t.Context(), all)
					require.Equal(t, want, got, "%v, number %d", c.texts, i)
					if c.closed {
						var failed *core.StoreError
						require.ErrorAs(t, err, &failed)
					} else {
						require.NoError(t, err)
						assert.True(t, all[0].Result.Local)
					}
					if got {
						admitted++
					}
				}
				res, err := ls[0].Peek(t.Context(), "k")
				require.NoError(t, err)
				if res.At > 0 {
					assert.Equal(t, c.local, res.Remaining, "%v", c.texts)
				}
				s.Fail(nil)
				advance(time.Minute)
				for i, l := range ls { // what the fallback has admitted is handed back, and late charges that nobody uses
					if i == 1 && c.closed {
						continue
					}
					_, err = l.Peek(t.Context(), "k")
					require.NoError(t, err)
					advance(time.Second)
					most := l.Policy().Limits()[0].Burst
					if used := most - left(t, l, "k"); late {
						assert.LessOrEqual(t, used, admitted, "%v", l)
					} else if l.Policy().Options().Fail == core.FailLocal {
						assert.Equal(t, admitted, used, "%v", l)
					}
				}
			})
		}
	}
}

// A limit on trial is no reason to fail, and a caller that has left gets to know that.
func TestAllowEachOnTrialWhileTheStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMany(t)
		ls := with(t, s, "a: 2/1h; fail closed", "b: 9/1h")
		s.Fail(down())
		all := each(ls, "k", "k")
		all[0].Trial = true
		admitted, err := enforce.AllowEach(t.Context(), all)
		require.NoError(t, err)
		require.True(t, admitted)
		assert.Zero(t, all[0].Result)
		assert.True(t, all[1].Result.Local)
		s.Fail(context.Canceled)
		_, err = enforce.AllowEach(t.Context(), all[:1])
		require.ErrorIs(t, err, context.Canceled)
	})
}

// What is left of a debt is not known from a decision that was taken back.
func TestAllowEachTakesDebtBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := with(t, newMemory(t, 0), "a: 10/1h debt 5", "b: 1/1h")
		_, err := ls[0].AllowN(t.Context(), "k", 8)
		require.NoError(t, err)
		all := each(ls, "k", "k")
		all[0].Cost, all[1].Cost = 5, 2
		admitted, err := enforce.AllowEach(t.Context(), all)
		require.NoError(t, err)
		require.False(t, admitted)
		assert.Zero(t, all[0].Result.Remaining)
		require.EqualValues(t, 2, left(t, ls[0], "k"))
	})
}

// Callers of a leaky-bucket get their turns, and a turn that is of no use is given back.
func TestAllowEachInALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := with(t, newMany(t), "line: 1/1s leaky-bucket burst 3", "all: 2/1h")
		for i, delay := range []time.Duration{0, time.Second, 2 * time.Second, 1900 * time.Millisecond} {
			all := each(ls, "k", "k")
			admitted, err := enforce.AllowEach(t.Context(), all)
			require.NoError(t, err)
			require.Equal(t, i < 2, admitted)
			require.Equal(t, delay, all[0].Result.Delay)
			require.True(t, all[0].Result.Allowed())
			if i == 2 {
				advance(100 * time.Millisecond) // the turn goes back
			}
		}
	})
}

// A store that panics keeps nothing.
func TestAllowEachPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemory(t, 0)
		a, b := with(t, s, "a: 2/1h fixed-window")[0], with(t, panicking{newMemory(t, 0)}, "b: 2/1h")[0]
		require.PanicsWithValue(t, "oops", func() {
			_, _ = enforce.AllowEach(t.Context(), each([]*enforce.Limiter{a, b}, "k", "k"))
		})
		require.EqualValues(t, 2, left(t, a, "k"))
	})
}

type panicking struct{ core.Store }

func (panicking) Take(context.Context, core.Take) (core.Result, error) { panic("oops") }

// Several stores are asked, each once.
func TestAllowEachOfSeveralStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, o := newMany(t), newMany(t)
		a, b, c := with(t, s, "a: 5/1h fixed-window")[0], with(t, o, "b: 1/1h")[0], with(t, newMemory(t, 0), "c: 3/1h fixed-window")[0]
		for i, want := range []bool{true, false} {
			admitted, err := enforce.AllowEach(t.Context(), each([]*enforce.Limiter{a, b, c, a}, "k", "k", "k", "l"))
			require.NoError(t, err)
			require.Equal(t, want, admitted)
			require.Len(t, s.calls, i+1)
			require.Len(t, s.calls[i], 2)
		}
		synctest.Wait()
		require.EqualValues(t, 4, left(t, a, "k"))
		require.EqualValues(t, 2, left(t, c, "k"))
		s.Fail(errors.New("not a failure of a store"))
		_, err := enforce.AllowEach(t.Context(), each([]*enforce.Limiter{c, a}, "k", "k"))
		require.ErrorContains(t, err, "not a failure")
		require.EqualValues(t, 2, left(t, c, "k"))
	})
}
