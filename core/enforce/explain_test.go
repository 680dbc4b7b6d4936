package enforce_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/explain"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/internal/remotetest"
	"github.com/weir-go/weir/internal/explaintest"
	"github.com/weir-go/weir/internal/race"
)

// statesToExplain is the number of random states that are explained: WEIR_EXPLAIN_STATES, or a few.
func statesToExplain(t *testing.T, few int) int {
	t.Helper()
	text := os.Getenv("WEIR_EXPLAIN_STATES")
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// Explain foretells the next decisions, for every algorithm.
func TestExplainAgreesInProcess(t *testing.T) {
	t.Parallel()
	m, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	few := 10_000
	if race.Enabled {
		few = 1000
	}
	explaintest.Check(t, m, 5, statesToExplain(t, few))
}

// While the store fails, the fail word decides: by a process's share of the limits, in the fallback, or not at all.
func TestExplainAgreesWhileTheStoreFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(2, 17))
		pick := func(of ...string) string { return of[random.IntN(len(of))] }
		from := map[string]int{}
		for range 600 {
			store := explaintest.NewRemote(newMemory(t, 0))
			text := "e: " + pick("6/1s", "9/2s burst 4", "5/1s token-bucket debt 2", "8/3s leaky-bucket", "7/2s fixed-window", "6/1s sliding-window", "6/1s sliding-counter", "5/1s sliding-log", "9/1s, 20/10s", "6/1s, 3 concurrent") +
				pick("", "", "; fail local 1/2", "; fail local 1/5", "; fail open", "; fail closed")
			l, err := enforce.New(store, core.MustParse(text), enforce.Options{Log: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			ctx, permits := t.Context(), strings.Contains(text, "concurrent")
			for range random.IntN(12) {
				pause(time.Duration(1 + random.Int64N(int64(time.Second))).Truncate(time.Microsecond))
				synctest.Wait()
				store.Break(random.IntN(3) > 0)
				if permits && random.IntN(2) == 0 {
					if _, release, err := l.Acquire(ctx, "k"); err == nil && random.IntN(3) == 0 {
						release()
					}
				} else {
					_, _ = l.AllowN(ctx, "k", 1+random.Int64N(4))
				}
			}
			pause(time.Duration(1 + random.Int64N(int64(time.Second))).Truncate(time.Microsecond))
			synctest.Wait()
			store.Break(random.IntN(4) > 0)
			cost := int64(1)
			if !permits {
				cost += random.Int64N(4)
			}
			x, err := l.Explain(ctx, "k", cost)
			require.NoError(t, err)
			from[x.From]++
			if permits {
				_, release, err := l.Acquire(ctx, "k")
				require.Equal(t, err == nil, x.Result.Allowed(), "%s\n%v", text, x)
				var over *enforce.OverLimitError
				if errors.As(err, &over) {
					require.Equal(t, over.Result.Outcome.String(), x.Outcome, "%s\n%v", text, x)
				} else if err == nil {
					release()
				}
				_ = l.Close() // which cannot give back to a store that fails
				continue
			}
			res, err := l.AllowN(ctx, "k", cost)
			if x.From == "closed" {
				require.Error(t, err)
				require.NotEmpty(t, x.Failure)
				require.Equal(t, "refused", x.Outcome)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, res.Outcome.String(), x.Outcome, "%s\n%v", text, x)
			require.Equal(t, [...]any{res.Local, res.Limit, res.Remaining, res.RetryAfter, res.Delay}, [...]any{x.Result.Local, x.Result.Limit, x.Result.Remaining, x.Result.RetryAfter, x.Result.Delay}, "%s\n%v", text, x)
			require.Equal(t, res.Local, x.Failure != "", "%v", x)
			if x.From == "open" || res.Outcome == core.Never {
				require.Empty(t, x.Next)
				continue
			}
			if len(x.Next) == 0 {
				require.Contains(t, x.Notes, "only the store could admit so many units at once, and it does not answer", "%v", x)
				require.True(t, res.Local)
				continue
			}
			require.Len(t, x.Next, 5)
			if x.Owed > 0 && x.From == "store" {
				continue // it is charged now
			}
			next := x.Next
			if res.Allowed() {
				next = next[1:]
			}
			for _, turn := range next {
				if d := time.Until(turn.At); d > 0 {
					pause(d - time.Microsecond)
					res, err := l.AllowN(ctx, "k", cost)
					require.NoError(t, err)
					require.False(t, res.Allowed(), "a microsecond early: %v\n%v", res, x)
					pause(time.Microsecond)
				}
				res, err := l.AllowN(ctx, "k", cost)
				require.NoError(t, err)
				require.True(t, res.Allowed(), "%v\n%v", res, x)
				require.Equal(t, turn.Delay, res.Delay, "%v", x)
			}
		}
		t.Log(from)
		for _, where := range []string{"store", "fallback", "open", "closed"} {
			assert.Positive(t, from[where], where)
		}
	})
}

// pause returns when d is over; it makes no timer for no time.
func pause(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}

// The numbers that hold for the key, and where they come from.
func TestExplainNumbers(t *testing.T) {
	t.Parallel()
	source := new(atomic.Pointer[follow.Set])
	l, err := enforce.New(nil, core.MustParse("api: 10/1h; epoch 3"), enforce.Options{Source: source, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	_, err = l.AllowN(t.Context(), "user=7", 4)
	require.NoError(t, err)
	explain := func(key string) explain.Explanation {
		t.Helper()
		x, err := l.Explain(t.Context(), key, 1)
		require.NoError(t, err)
		res, err := l.Allow(t.Context(), key)
		require.NoError(t, err)
		assert.Equal(t, res.Outcome.String(), x.Outcome)
		return x
	}
	x := explain("user=7")
	assert.Equal(t, "api: 10/1h; epoch 3", x.Policy)
	assert.Equal(t, [...]string{"code", ""}, [...]string{x.Numbers, x.Revision})
	assert.EqualValues(t, 4, x.Limits[0].Used)
	assert.EqualValues(t, 6, x.Limits[0].Left)

	source.Store(&follow.Set{
		Revision: "3.17",
		Policies: map[string]string{"api": "20/1h"},
		Keys:     map[string]map[string]string{"api": {"user=1": "unlimited", "user=2": "blocked", "user=3": "2/1h", "user=4": "2/1x"}},
	})
	for key, want := range map[string]struct{ policy, numbers, outcome string }{
		"user=7": {"api: 20/1h; epoch 3", `Policies["api"]`, "admitted"},
		"user=1": {"unlimited", `Keys["api"]["user=1"]`, "admitted"},
		"user=2": {"blocked", `Keys["api"]["user=2"]`, "refused"},
		"user=3": {"api: 2/1h; epoch 3", `Keys["api"]["user=3"]`, "admitted"},
		"user=4": {"api: 20/1h; epoch 3", `Policies["api"]`, "admitted"},
	} {
		x := explain(key)
		assert.Equal(t, want, struct{ policy, numbers, outcome string }{x.Policy, x.Numbers, x.Outcome}, key)
		assert.Equal(t, "3.17", x.Revision)
		assert.Equal(t, "process", x.From)
		assert.Contains(t, x.String(), want.numbers+", revision 3.17\n")
	}
	variant, err := l.Variant(core.MustParse("api: 2/1h; epoch 3"))
	require.NoError(t, err)
	x, err = variant.Explain(t.Context(), "user=9", 3)
	require.NoError(t, err)
	assert.Equal(t, [...]string{"tier", "never"}, [...]string{x.Numbers, x.Outcome})
	assert.Empty(t, x.Next)
	assert.Contains(t, x.String(), "refuses: the cost can never fit")
}

// ExplainAs has the counts of now under other numbers, and changes nothing.
func TestExplainAs(t *testing.T) {
	t.Parallel()
	l, err := enforce.New(nil, core.MustParse("api: 4/1h fixed-window, 2 concurrent"), enforce.Options{})
	require.NoError(t, err)
	_, err = l.AllowN(t.Context(), "k", 4)
	require.NoError(t, err)
	x, err := l.ExplainAs(t.Context(), core.MustParse("6/1h fixed-window, 5 concurrent"), "k", 1)
	require.NoError(t, err)
	assert.Equal(t, [...]string{"api: 6/1h fixed-window, 5 concurrent", "given", "admitted"}, [...]string{x.Policy, x.Numbers, x.Outcome})
	assert.EqualValues(t, 2, x.Limits[0].Left)
	assert.Empty(t, x.Notes)
	assert.Len(t, x.Next, 5)
	assert.Equal(t, "api: 4/1h fixed-window, 2 concurrent", l.Policy().String())
	x, err = l.ExplainAs(t.Context(), core.MustParse("api: 4/1h"), "k", 1)
	require.NoError(t, err)
	assert.EqualValues(t, 4, x.Limits[0].Left)
	require.Len(t, x.Notes, 1)
	assert.Contains(t, x.Notes[0], "count apart")
	x, err = l.ExplainAs(t.Context(), core.MustParse("6/1h fixed-window"), "another key", 1)
	require.NoError(t, err)
	require.Len(t, x.Notes, 1)
	assert.Contains(t, x.Notes[0], "nothing is counted for this key")
	for _, wrong := range []core.Policy{{}, core.MustParse("other: 4/1h")} {
		_, err = l.ExplainAs(t.Context(), wrong, "k", 1)
		require.Error(t, err)
	}
}

// Mistakes are errors, and so is a store that shows nothing of itself.
func TestExplainMistakes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"api: 4/1h", "api: 2 concurrent"} {
		l, err := enforce.New(nil, core.MustParse(text), enforce.Options{})
		require.NoError(t, err)
		_, err = l.Explain(t.Context(), "", 1)
		require.ErrorContains(t, err, "key is empty")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = l.Explain(ended, "k", 1)
		require.ErrorIs(t, err, context.Canceled)
	}
	l, err := enforce.New(nil, core.MustParse("api: 4/1h"), enforce.Options{})
	require.NoError(t, err)
	_, err = l.Explain(t.Context(), "k", -1)
	require.ErrorContains(t, err, "cost of -1")
	l, err = enforce.New(remotetest.New(newMemory(t, 0)), core.MustParse("api: 4/1h"), enforce.Options{})
	require.NoError(t, err)
	_, err = l.Explain(t.Context(), "k", 1)
	require.ErrorContains(t, err, "*remotetest.Remote does not show what it keeps; give a store that implements StateStore")
}

// What this process knows beside the store: callers that wait, permits that it holds, and units that it owes.
func TestExplainWhatTheProcessKnows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := explaintest.NewRemote(newMemory(t, 0))
		l, err := enforce.New(store, core.MustParse("api: 1/1s, 3 concurrent; wait 10s"), enforce.Options{Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		_, release, err := l.Acquire(t.Context(), "k")
		require.NoError(t, err)
		store.Break(true)
		pause(3 * time.Second)
		for range 2 {
			_, err = l.Allow(t.Context(), "owes")
			require.NoError(t, err)
		}
		store.Break(false)
		pause(3 * time.Second)
		x, err := l.Explain(t.Context(), "owes", 1)
		require.NoError(t, err)
		assert.EqualValues(t, 1, x.Owed, "%v", x)
		assert.Contains(t, x.String(), "owed      1 units\n")

		x, err = l.Explain(t.Context(), "k", 1)
		require.NoError(t, err)
		assert.Equal(t, [...]int64{1, 3, 1}, [...]int64{x.Permits.Held, x.Permits.Most, x.Permits.Here})
		assert.Equal(t, 24*time.Second, time.Until(x.Permits.LastEnds))

		_, err = l.Allow(t.Context(), "k")
		require.NoError(t, err)
		for range 2 {
			go func() { _ = l.Wait(t.Context(), "k", 1) }()
		}
		synctest.Wait()
		x, err = l.ExplainAsk(t.Context(), enforce.Ask{Key: "k", Cost: 1, Wait: time.Minute})
		require.NoError(t, err)
		assert.Equal(t, 2, x.Waiting)
		assert.Equal(t, "at-limit", x.Outcome)
		assert.Equal(t, 3*time.Second, x.Result.Delay)
		assert.Equal(t, 3*time.Second, x.Next[0].Delay)
		assert.Contains(t, x.String(), "waiting   2 callers of this process\n")
		// While the store fails, the fallback counts the permits that this process holds in it.
		store.Break(true)
		x, err = l.Explain(t.Context(), "k", 1)
		require.NoError(t, err)
		assert.Equal(t, "fallback", x.From)
		assert.Equal(t, [...]int64{1, 3, 1}, [...]int64{x.Permits.Held, x.Permits.Most, x.Permits.Here}, "%v", x)
		assert.EqualValues(t, 2, x.Limits[1].Left)
		release()
		_ = l.Close()
	})
}

// Units of a leaky bucket have their turn at one instant whenever they are asked for, until the bucket is empty: a permit
// that comes back a little later is not waited for in as many steps as fit in between.
func TestExplainPermitAfterTheTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, m := core.MustParse("api: 7/1s leaky-bucket, 1 concurrent lease 1s"), newMemory(t, 0)
		l, err := enforce.New(m, p, enforce.Options{})
		require.NoError(t, err)
		_, err = l.AllowN(t.Context(), "k", 7)
		require.NoError(t, err)
		pause(30 * time.Millisecond)
		_, err = m.Acquire(t.Context(), core.Permit{Policy: p, Key: "k", ID: "gone"})
		require.NoError(t, err)
		x, err := l.Explain(t.Context(), "k", 2)
		require.NoError(t, err)
		require.Len(t, x.Next, 5)
		assert.Equal(t, time.Second, x.Next[0].At.Sub(x.At))
		assert.Zero(t, x.Next[0].Delay)
	})
}
