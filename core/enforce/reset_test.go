package enforce_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/internal/remotetest"
)

func variant(t *testing.T, l *enforce.Limiter, policy string) *enforce.Limiter {
	v, err := l.Variant(core.MustParse(policy))
	require.NoError(t, err)
	return v
}

func left(t *testing.T, l *enforce.Limiter, key string) int64 {
	res, err := l.Peek(t.Context(), key)
	require.NoError(t, err)
	return res.Remaining
}

// Numbers of the same algorithms are a variant, whether or not they share their states.
func TestVariantsCompareAlgorithms(t *testing.T) {
	for text, variants := range map[string][]string{
		"10/1m":                        {"1000/1h", "10/1m burst 3 debt 2", "7/1s"},
		"10/1m; wait 1s":               {"1000/1h; wait 1s"},
		"10/1m; fail local 1/4":        {"1000/1h", "1000/1h; fail local 1/7"},
		"10/1s, 100/1m":                {"20/1s, 5000/1h", "1/1m, 2/1m burst 7"},
		"10/1m leaky-bucket":           {"1000/1h leaky-bucket burst 3"},
		"10/1m token-bucket":           {"1000/1h token-bucket burst 3 debt 7"},
		"10/1m fixed-window":           {"1000/1h fixed-window"},
		"10/1m, 9/1h fixed-window":     {"99/1h fixed-window, 1000/1h"},
		"10/1m sliding-log, 3/1s":      {"3/1d, 9/1h sliding-log"},
		"10/1h fixed-window aligned":   {"10/1m fixed-window aligned"},
		"10/1h, 5 concurrent lease 1m": {"20/1m, 7 concurrent"},
	} {
		l := newLimiter(t, nil, text)
		for _, other := range variants {
			variant(t, l, other)
		}
		for _, other := range []string{"10/1m sliding-counter", "10/1m sliding-window buckets 3", "1/1s, 2/2s, 3/3s", "5 concurrent", "10/1h fixed-window calendar UTC"} {
			_, err := l.Variant(core.MustParse(other))
			require.ErrorContains(t, err, "differs in more than numbers", "%s, %s", text, other)
		}
	}
}

// A key is forgotten under all numbers that the Limiter knows, in the store and in what stands in for it.
func TestResetForgetsAllNumbers(t *testing.T) {
	remote := remotetest.New(newMemory(t, 0))
	l := newLimiter(t, remote, "api: 10/1m; fail local 1/2")
	all := []*enforce.Limiter{l}
	for _, numbers := range []string{"1000/1h; fail local 1/2", "20/1m; fail local 1/2", "10/1m burst 3; fail local 1/4", "1000/1h; fail local 1/7"} {
		all = append(all, variant(t, l, numbers))
	}
	use := func() {
		for _, each := range all {
			_, err := each.UpTo(t.Context(), "k", 1000)
			require.NoError(t, err)
			_, err = each.Allow(t.Context(), "other")
			require.NoError(t, err)
		}
	}
	use()
	remote.Fail(&core.StoreError{Class: core.ClassDown})
	use()
	remote.Fail(nil)
	require.NoError(t, all[2].Reset(t.Context(), "k"))
	assert.Equal(t, 3, remote.Resets, "one for each state")
	whole := []int64{10, 1000, 20, 3, 1000}
	for i, each := range all {
		assert.Equal(t, whole[i], left(t, each, "k"), "%v", each.Policy())
		assert.Less(t, left(t, each, "other"), whole[i], "%v", each.Policy())
	}
	remote.Fail(&core.StoreError{Class: core.ClassDown})
	for i, each := range all {
		shares := []int64{5, 500, 10, 1, 143}
		assert.Equal(t, shares[i], left(t, each, "k"), "%v, by itself", each.Policy())
	}
	require.Error(t, l.Reset(t.Context(), "k"))
}

// What is known of numbers is bounded.
func TestNumbersKnownAreBounded(t *testing.T) {
	remote := remotetest.New(newMemory(t, 0))
	l := newLimiter(t, remote, "api: 10/1m")
	for i := range 1000 {
		variant(t, l, fmt.Sprintf("10/1m burst %d", 11+i))
		variant(t, l, fmt.Sprintf("20/1m burst %d", 2*(11+i))) // of the same time
	}
	require.NoError(t, l.Reset(t.Context(), "k"))
	assert.Equal(t, 257, remote.Resets)

	// Those that are prepared again stay.
	first := variant(t, l, "10/1m burst 2000")
	for i := range 400 {
		variant(t, l, fmt.Sprintf("10/1m burst %d", 3000+i))
		if i == 200 {
			variant(t, l, "20/1m burst 4000") // of the same time as the first
		}
	}
	_, err := first.UpTo(t.Context(), "k", 2000)
	require.NoError(t, err)
	require.NoError(t, l.Reset(t.Context(), "k"))
	assert.EqualValues(t, 2000, left(t, first, "k"))
}

// A key that has other numbers of more than are known is forgotten under its own.
func TestResetForgetsTheNumbersOfTheKey(t *testing.T) {
	keys := []string{}
	for i := range 900 {
		keys = append(keys, fmt.Sprintf("user=%03d", i), fmt.Sprintf("10/1m burst %d", 11+i))
	}
	source := new(numbers)
	source.Store(set("", keys...))
	l := following(t, nil, "job: 10/1m", enforce.Options{Source: source})
	_, err := l.AllowN(t.Context(), "user=000", 11)
	require.NoError(t, err)
	require.NoError(t, l.Reset(t.Context(), "user=000"))
	assert.EqualValues(t, 11, left(t, l, "user=000"))
}

// Units come back where they were taken, whatever the numbers are now.
func TestRefundsGoWhereTheUnitsWereTaken(t *testing.T) {
	remote := remotetest.New(newMemory(t, 0))
	l := newLimiter(t, remote, "api: 10/1m; fail local 1/2")
	pro := variant(t, l, "1000/1h; fail local 1/3")
	for name, err := range map[string]error{"store": nil, "fallback": &core.StoreError{Class: core.ClassDown}} {
		remote.Fail(err)
		mine, problem := l.UpTo(t.Context(), name, 10)
		require.NoError(t, problem)
		theirs, problem := pro.UpTo(t.Context(), name, 1000)
		require.NoError(t, problem)
		require.NoError(t, l.Refund(t.Context(), name, theirs, theirs.Taken))
		assert.Zero(t, left(t, l, name))
		assert.Equal(t, theirs.Taken, left(t, pro, name))
		require.NoError(t, pro.Refund(t.Context(), name, mine, mine.Taken))
		assert.Equal(t, mine.Taken, left(t, l, name))
		assert.Equal(t, theirs.Taken, left(t, pro, name))
	}
}

// What was admitted while the store failed is charged to it where it was taken.
func TestOutagesAreChargedWhereTheUnitsWereTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := newMemory(t, 0)
		remote := remotetest.New(memory)
		l := newLimiter(t, remote, "api: 10/1h")
		pro := variant(t, l, "1000/1d")
		remote.Fail(&core.StoreError{Class: core.ClassDown})
		for n, each := range map[int64]*enforce.Limiter{4: l, 30: pro} {
			_, err := each.AllowN(t.Context(), "k", n)
			require.NoError(t, err)
		}
		remote.Fail(nil)
		for want, each := range map[int64]*enforce.Limiter{6: l, 970: pro} {
			left(t, each, "k") // the store answers for the key
			synctest.Wait()
			res, err := memory.Take(t.Context(), core.Take{Policy: each.Policy(), Key: "k"})
			require.NoError(t, err)
			assert.Equal(t, want, res.Remaining, "%v", each.Policy())
		}
		<-time.After(time.Second)
		require.NoError(t, l.Close())
	})
}

// A caller who alternates between two tiers gets no more than both, however often it does.
func TestAlternatingTiers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for text, c := range map[string]struct {
			other string
			most  int64
		}{
			"10/1m":                {"1000/1m", 1000},
			"10/1m burst 10":       {"10/1m burst 1000", 1010},
			"1000/1h":              {"1000/1m", 2016},
			"10/1m token-bucket":   {"1000/1m token-bucket", 1000},
			"10/1m fixed-window":   {"1000/1m fixed-window", 1000},
			"100/1h fixed-window":  {"5000/1h fixed-window", 5000},
			"10/1m sliding-log":    {"1000/1m sliding-log", 1000},
			"10/1m sliding-window": {"1000/1h sliding-window", 1000},
		} {
			small := newLimiter(t, nil, text)
			large, admitted := variant(t, small, c.other), int64(0)
			for range 10_000 {
				for _, l := range []*enforce.Limiter{small, large} {
					res, err := l.Allow(t.Context(), "k")
					require.NoError(t, err)
					admitted += res.Taken
				}
				<-time.After(100 * time.Microsecond)
			}
			assert.LessOrEqual(t, admitted, c.most, "%s beside %s", text, c.other)
		}
	})
}
