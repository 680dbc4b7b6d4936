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

func TestTally(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		tally tally
		used  int64
		lost  bool
		holds bool
	}{
		"what was answered":                {tally: tally{Surely: 2}, used: 2, holds: true},
		"nothing may be lost":              {tally: tally{Surely: 2}, used: 1},
		"nor executed twice":               {tally: tally{Surely: 2}, used: 3},
		"what is unknown may be executed":  {tally: tally{Surely: 2, Perhaps: 1}, used: 3, holds: true},
		"but only once":                    {tally: tally{Surely: 2, Perhaps: 1}, used: 4},
		"what is given back":               {tally: tally{Surely: 4, Back: 2}, used: 2, holds: true},
		"or still to be":                   {tally: tally{Surely: 4, Back: 2}, used: 4, holds: true},
		"comes back once":                  {tally: tally{Surely: 4, Back: 2}, used: 1},
		"a server that came back is empty": {tally: tally{Surely: 4}, used: 0, lost: true, holds: true},
		"and charges nothing twice either": {tally: tally{Surely: 4}, used: 5, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tc.holds, tc.tally.check(tc.used, tc.lost) == nil)
		})
	}
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
