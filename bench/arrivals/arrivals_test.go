package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// The committed pictures are those that the program draws.
func TestPictures(t *testing.T) {
	for _, p := range patterns {
		t.Run(p.name, func(t *testing.T) {
			drawn, err := picture(t.Context(), p)
			require.NoError(t, err)
			committed, err := os.ReadFile(p.name + ".svg")
			require.NoError(t, err)
			assert.True(t, bytes.Equal(committed, drawn),
				"%s.svg is out of date: go run -C bench ./arrivals -out arrivals", p.name)
			assert.Less(t, len(drawn), 60_000, "a README has many readers")
		})
	}
}

// What each algorithm makes of two bursts around the end of a window, by hand.
func TestEdge(t *testing.T) {
	p := patterns[0]
	require.Equal(t, "edge", p.name)
	for words, want := range map[string][]float64{
		"gcra":                     {10, 10, 980, 353, 100, 0}, // 1000/3 units drain in each second
		"gcra debt 500":            {10, 10, 980, 354, 100, 0},
		"token-bucket":             {10, 10, 980, 900, 100, 0},
		"leaky-bucket":             {10, 10, 980, 353, 100, 0},
		"fixed-window":             {10, 10, 980, 900, 100, 0},
		"fixed-window aligned":     {10, 10, 980, 900, 100, 0},
		"sliding-window buckets 3": {10, 10, 980, 0, 10, 0},
		"sliding-window":           {10, 10, 980, 0, 10, 0},
		"sliding-counter":          {10, 10, 980, 0, 100, 0},
		"sliding-log":              {10, 10, 980, 10, 10, 0},
		"sliding-window buckets 1": {10, 10, 980, 0, 0, 0},
	} {
		t.Run(words, func(t *testing.T) {
			limit, err := core.Parse("1000/3s " + words)
			require.NoError(t, err)
			all, err := play(t.Context(), p, p.columns[0], limit)
			require.NoError(t, err)
			assert.Equal(t, want, count(p, p.columns[0], all).admitted)
		})
	}
}

// A client that waits as Retry-After says needs fewer tries than one that does not, and
// a greedy client costs its neighbour nothing.
func TestClients(t *testing.T) {
	byName := map[string]pattern{}
	for _, p := range patterns {
		byName[p.name] = p
	}
	for _, algorithm := range algorithms {
		t.Run(algorithm, func(t *testing.T) {
			played := func(p pattern, column int) (all []event) {
				limit, err := p.limit(algorithm)
				require.NoError(t, err)
				all, err = play(t.Context(), p, p.columns[column], limit)
				require.NoError(t, err)
				return all
			}
			p := byName["retries"]
			hasty, patient := played(p, 0), played(p, 1)
			assert.Len(t, times(hasty, false), 150, "all are served")
			assert.Len(t, times(patient, false), 150, "all are served")
			assert.Less(t, 2*len(patient), len(hasty)+150)
			p = byName["neighbours"]
			for _, e := range played(p, 0) {
				assert.True(t, e.admitted || e.who == "greedy", "the polite one is refused at %v", e.at)
			}
		})
	}
}
