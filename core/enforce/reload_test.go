package enforce_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/internal/race"
)

// A configuration that is loaded again may give a name other numbers, another period and another algorithm. Where these
// share their counts they go on, and Limiters from before may still be used.
func TestReload(t *testing.T) {
	parse := core.MustParse
	root := newLimiter(t, nil, "api: 3/1h")
	take := func(l *enforce.Limiter) bool {
		res, err := l.Allow(t.Context(), "k")
		require.NoError(t, err)
		return res.Allowed()
	}
	before, err := root.WithAll(parse("api: 3/1h fixed-window"), parse("b: 2/1h"), parse("c: 1/1h"))
	require.NoError(t, err)
	require.Len(t, before, 3)
	require.Equal(t, "b", before[1].Policy().Name())
	for _, l := range before {
		require.True(t, take(l))
	}
	require.False(t, take(before[2]))
	after, err := root.WithAll(parse("c: 9/1h fixed-window"), parse("api: 2/1h fixed-window"), parse("b: 1/1m; fail open"))
	require.NoError(t, err)
	require.True(t, take(after[0]), "another algorithm starts afresh")
	require.True(t, take(after[1]), "other numbers count on")
	require.False(t, take(after[1]))
	require.True(t, take(before[0]), "of three")
	require.False(t, take(before[0]))
	require.True(t, take(after[2]))
	require.False(t, take(before[2]), "they do not know of others")

	// Of one configuration, a name stands for one policy.
	_, err = root.WithAll(parse("b: 1/1m"), parse("a: 1/1h"), parse("b: 1/1m"), parse("a: 1/1m"), parse("1/1s"), core.Policy{})
	require.EqualError(t, err, `enforce: the name "a" stands for both "a: 1/1h" and "a: 1/1m"; they would share one count: rename one
enforce: the policy "1/1s" has no name; give it one, as in "login: 1/1s"
enforce: a Limiter without a policy; give one, such as core.MustParse("100/1m")`)
	_, err = after[0].With(parse("b: 1/1s"))
	require.ErrorContains(t, err, `the name "b" stands for both "b: 1/1m; fail open" and "b: 1/1s"`)
	_, err = after[0].With(parse("d: 1/1s"))
	require.NoError(t, err)
	_, err = root.With(parse("d: 2/1s"))
	require.NoError(t, err)
	_, err = root.With(parse("api: 4/1h"))
	require.ErrorContains(t, err, `the name "api" stands for both "api: 3/1h" and "api: 4/1h"`)
	none, err := root.WithAll()
	require.NoError(t, err)
	require.Empty(t, none)

	// A key is forgotten under the numbers of now, those of Variants included.
	v, err := after[0].Variant(parse("c: 1/1h fixed-window; fail local"))
	require.NoError(t, err)
	require.False(t, take(v))
	require.NoError(t, after[0].Reset(t.Context(), "k"))
	require.True(t, take(v))
	x, err := after[0].Explain(t.Context(), "k", 1)
	require.NoError(t, err)
	assert.Equal(t, "code", x.Numbers)
}

// Each configuration follows the Source.
func TestReloadFollows(t *testing.T) {
	var source atomic.Pointer[follow.Set]
	root := following(t, newMemory(t, 0), "api: 3/1h", enforce.Options{Source: &source})
	for _, algorithm := range []string{"", " fixed-window"} {
		text := "rule: 1/1h" + algorithm
		all, err := root.WithAll(core.MustParse(text))
		require.NoError(t, err)
		source.Store(&follow.Set{Keys: map[string]map[string]string{"rule": {"k": "5/1d" + algorithm}}})
		res, err := all[0].Peek(t.Context(), "k")
		require.NoError(t, err)
		assert.EqualValues(t, 5, res.Limit, text)
	}
}

// What belongs to policies of which no Limiter is used any more is let go, whatever names and numbers came and went.
func TestReloadsLeaveTheHeapWhereItWas(t *testing.T) {
	reloads, rules := 1000, 10_000
	if testing.Short() || race.Enabled {
		reloads = 30
	}
	kinds := []core.Policy{ // algorithms and periods, in turn
		core.MustParse("10/1m"), core.MustParse("10/1m fixed-window"), core.MustParse("20/1h"), core.MustParse("5/1s, 100/1d sliding-window"),
	}
	policies := make([][]core.Policy, len(kinds))
	for k := range policies {
		for i := range rules {
			name := fmt.Sprint("rule.", i)
			if i%10 == 0 { // some go, and others come
				name = fmt.Sprint("rule.", k, ".", i)
			}
			policies[k] = append(policies[k], kinds[(i+k)%len(kinds)].Named(name))
		}
	}
	root := newLimiter(t, nil, "10/1s")
	var live []*enforce.Limiter
	reload := func(n int) {
		all, err := root.WithAll(policies[n%len(policies)]...)
		require.NoError(t, err)
		for i := range 10 { // in use
			_, err := all[i*rules/10].Allow(t.Context(), "k")
			require.NoError(t, err)
		}
		live = all
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) //nolint:gosec // it is below 2^63
	}
	for n := range 2 * len(policies) {
		reload(n)
	}
	before := heap()
	for n := range reloads {
		if reload(n); n%25 == 24 {
			require.Less(t, heap(), 2*before, "after %d reloads", n+1) // before the machine has no memory any more
		}
	}
	after := heap()
	t.Logf("%d reloads of %d rules: %d KiB before, %d KiB after", reloads, rules, before/1024, after/1024)
	assert.Less(t, after, before+before/20)
	runtime.KeepAlive(live)
	runtime.KeepAlive(policies)
}
