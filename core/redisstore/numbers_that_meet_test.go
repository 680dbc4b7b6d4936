package redisstore_test

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/core/storetest"
)

// Two sets of numbers that alternate on one key admit no more than the larger ones, or than both where they are apart.
// WEIR_MEETINGS in the environment is the number of requests that each pair makes.
func TestNumbersThatMeet(t *testing.T) {
	t.Parallel()
	s := newStore(t, sharedServer(t).Client(t), redisstore.Options{Deadline: patient, DenyCache: -1})
	storetest.NumbersThatMeet(t, s, ordered("WEIR_MEETINGS", 500))
}

// While a change is rolled out, one process has the old numbers, one the new ones, and one changes from the old to the
// new: together they admit at most the larger bound, or the sum where the numbers count apart, which are those of
// another epoch, and of meters whose full bucket takes another time.
func TestNumbersMeetInThreeProcesses(t *testing.T) { //nolint:paralleltest // it computes: what waits for a server beside it would wait for the processor
	if inFleet(t) {
		return
	}
	var before, after []string
	for i, pair := range [][2]string{
		{"30/366d", "20/366d"},
		{"20/366d", "30/366d"},
		{"30/366d", "20/183d"},
		{"20/366d burst 10", "30/366d burst 30"},
		{"30/366d", "30/366d; epoch 1"},
		{"20/366d; epoch 7", "30/366d; epoch 8"},
		{"30/366d", "20/366d; shadow"},
	} {
		for j, kind := range []string{
			"gcra", "token-bucket", "leaky-bucket", "fixed-window", "fixed-window aligned", "sliding-window", "sliding-counter", "sliding-log",
		} {
			name := fmt.Sprintf("meet-%d-%d: ", i, j)
			old, err := core.Parse(name + withKind(pair[0], kind))
			next, other := core.Parse(name + withKind(pair[1], kind))
			if err == nil && other == nil {
				before, after = append(before, old.String()), append(after, next.String())
			}
		}
	}
	j := job{Addrs: []string{sharedServer(t).Addr()}, Prefix: rand.Text(), Goroutines: 2, Calls: 20}
	old, next, changing := j, j, j
	old.Policies, next.Policies, changing.Policies, changing.Then = before, after, before, after
	var second, third []answer
	first := fleet(t, 1, old, func() {
		second = fleet(t, 1, next, func() { third = fleet(t, 1, changing, func() {}) })
	})
	admitted := map[string]int64{}
	for _, a := range slices.Concat(first, second, third) {
		admitted[core.MustParse(a.Policy).Name()] += a.Result.Taken
	}
	apart := 0
	for i := range before {
		old, next := core.MustParse(before[i]), core.MustParse(after[i])
		bursts := [2]int64{old.Limits()[0].Burst, next.Limits()[0].Burst}
		got, what := admitted[old.Name()], fmt.Sprintf("%v, then %v", old, next)
		switch one := old.Limits()[0].Algorithm; {
		case old.Spec().Shape() != next.Spec().Shape():
			apart++
			assert.Equal(t, bursts[0]+bursts[1], got, what)
		case one == core.GCRA || one == core.TokenBucket || one == core.LeakyBucket:
			assert.LessOrEqual(t, got, max(bursts[0], bursts[1]), what)
			assert.GreaterOrEqual(t, got, min(bursts[0], bursts[1]), what)
		default: // the larger one takes what there is
			assert.Equal(t, max(bursts[0], bursts[1]), got, what)
		}
	}
	require.Len(t, before, 8*6+3)
	assert.Equal(t, 2*8+2+2, apart)
}

// withKind writes the algorithm before the options.
func withKind(numbers, kind string) string {
	limit, options, found := strings.Cut(numbers, ";")
	if found {
		options = ";" + options
	}
	return limit + " " + kind + options
}

// What one epoch has refused is remembered for that one alone.
func TestEpochsAreRefusedApart(t *testing.T) {
	t.Parallel()
	s := newStore(t, sharedServer(t).Client(t), redisstore.Options{Deadline: patient})
	key := rand.Text()
	take := func(text string) core.Outcome {
		res, err := s.Take(t.Context(), core.Take{Policy: core.MustParse("epochs: " + text), Key: key, Cost: 1})
		require.NoError(t, err)
		return res.Outcome
	}
	for _, kind := range []string{"", " fixed-window", " sliding-log"} {
		for _, epoch := range []string{"", "; epoch 1", "; epoch 2"} {
			text := "1/366d" + kind + epoch
			assert.Equal(t, core.AtLimit, take(text), text)
			for range 3 {
				assert.Equal(t, core.Refused, take(text), text)
			}
		}
		assert.Equal(t, core.Refused, take("1/366d"+kind))
	}
}
