package main

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bucket and log are limits of 3 units: one comes back in 10 us, or all within 100.
var (
	bucket = limit{burst: 3, every: 10}
	log    = limit{burst: 3, window: 100}
)

func TestLedger(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		limit limit
		all   []admission
		lost  int64
		fits  bool
	}{
		"a burst":                      {limit: bucket, all: []admission{{1000, 1}, {1000, 1}, {1000, 1}}, fits: true},
		"a unit more":                  {limit: bucket, all: []admission{{1000, 3}, {1009, 1}}},
		"a unit that has come back":    {limit: bucket, all: []admission{{1000, 3}, {1010, 1}}, fits: true},
		"in another order":             {limit: bucket, all: []admission{{1010, 1}, {1000, 3}}, fits: true},
		"no more come back than burst": {limit: bucket, all: []admission{{1000, 1}, {9000, 4}}},
		"forgotten":                    {limit: bucket, all: []admission{{1000, 3}, {1002, 3}}, lost: 1001, fits: true},
		"forgotten too late":           {limit: bucket, all: []admission{{1000, 3}, {1002, 3}}, lost: 1003},
		"a full log":                   {limit: log, all: []admission{{1000, 1}, {1050, 2}, {1100, 1}}, fits: true},
		"a log that is too full":       {limit: log, all: []admission{{1000, 1}, {1050, 2}, {1099, 1}}},
		"a forgotten log":              {limit: log, all: []admission{{1000, 3}, {1002, 3}}, lost: 1001, fits: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := ledger{limit: tc.limit}
			assert.Equal(t, tc.fits, l.replay(tc.all, tc.lost) == nil)
		})
	}
	l := ledger{limit: bucket}
	require.NoError(t, l.replay([]admission{{1000, 3}}, 0))
	require.Error(t, l.replay([]admission{{1001, 1}}, 0), "what was before counts on")
	l = ledger{limit: bucket}
	require.NoError(t, l.replay([]admission{{1000, 3}}, 1001))
	require.NoError(t, l.replay([]admission{{1002, 3}}, 0), "unless it was forgotten")
}

func TestAccount(t *testing.T) {
	t.Parallel()
	var a account
	require.NoError(t, a.check(tally{Surely: 2, Perhaps: 1}, 2, false))
	require.NoError(t, a.check(tally{Surely: 2}, 5, false), "what is unknown may be executed late")
	require.Error(t, a.check(tally{Surely: 2}, 8, false), "but only once")
	require.Error(t, a.check(tally{Surely: 2}, 9, false), "nothing may be lost")
	require.NoError(t, a.check(tally{Surely: 2, Perhaps: 1}, 1, true), "unless the server has lost it")
	require.Error(t, a.check(tally{Surely: 2}, 5, true), "before which nothing counts")

	a = account{later: true}
	require.NoError(t, a.check(tally{Surely: 4, Back: 2}, 3, false))
	require.NoError(t, a.check(tally{}, 2, false), "the other comes back later")
	require.Error(t, a.check(tally{}, 1, false), "and only once")
	a = account{later: true}
	require.Error(t, a.check(tally{Surely: 4, Perhaps: 2}, 7, false))
	a = account{later: true}
	require.NoError(t, a.check(tally{Surely: 8, Back: 4}, 4, false))
	require.NoError(t, a.check(tally{Surely: 2, Perhaps: 2}, 2, true))
	require.NoError(t, a.check(tally{Surely: 2}, 4, false))
	require.Error(t, a.check(tally{}, 9, false))
}

func TestMost(t *testing.T) {
	t.Parallel()
	all := []held{{10, 20}, {15, 30}, {20, 25}, {40, 50}}
	assert.Equal(t, 2, most(all, 0), "one that ends when another begins is not held at the same time")
	assert.Equal(t, 1, most(all, 22), "what the server has forgotten does not count")
	assert.Zero(t, most(nil, 0))
}

// The same seed deals the same faults, and each kind comes in every round.
func TestDeck(t *testing.T) {
	t.Parallel()
	deal := func(seed uint64, short bool) (all []string) {
		d := newDeck(seed, short)
		for range 3 * len(kinds) {
			all = append(all, names(d.deal()))
		}
		return all
	}
	seed := rand.Uint64()
	assert.Equal(t, deal(seed, false), deal(seed, false))
	assert.NotEqual(t, deal(seed, false), deal(seed+1, false))
	d := newDeck(seed, true)
	n := len(d.deal())
	left := slices.Clone(d.left)
	assert.Len(t, left, len(kinds)-n)
	for len(d.left) > 0 {
		d.one()
	}
	slices.Sort(left)
	assert.Len(t, slices.Compact(left), len(kinds)-n)
}
