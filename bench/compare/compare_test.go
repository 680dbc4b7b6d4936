package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/hosttest"
)

func TestMain(m *testing.M) {
	hosttest.Main(m, func() (bool, error) { return child(context.Background(), os.Stdin, os.Stdout) })
}

// The committed table and charts are those that the program makes of the committed samples.
func TestFiles(t *testing.T) {
	r, err := readReport(".")
	require.NoError(t, err)
	files, err := r.files()
	require.NoError(t, err)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	for name, want := range files {
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		assert.True(t, string(want) == string(got), "%s is out of date: go run -C bench ./compare -out compare", name)
		if strings.HasSuffix(name, ".svg") {
			assert.Less(t, len(want), 30_000, "a README has many readers")
		}
	}
	for _, shown := range regexp.MustCompile(`\(bench/compare/([^)]*)\)`).FindAllStringSubmatch(string(readme), -1) {
		_, err := os.Stat(shown[1])
		assert.NoError(t, err, "the README shows it")
	}
}

// No two sections have one name, and what they refer to exists.
func TestSections(t *testing.T) {
	names := map[string]bool{}
	for _, s := range sections() {
		assert.False(t, names[s.name], s.name)
		names[s.name] = true
		rows := map[string]bool{}
		for _, r := range s.rows {
			assert.False(t, rows[r.name], "%s, %s", s.name, r.name)
			rows[r.name] = true
		}
		for _, name := range s.baselines() {
			assert.True(t, rows[name], "%s refers to %s", s.name, name)
		}
		assert.True(t, s.subtract == "" || rows[s.subtract], "%s takes %s off", s.name, s.subtract)
		assert.True(t, rows["weir"], s.name)
	}
}

// In each round another row is first, and all run equally often.
func TestMeasureTakesTurns(t *testing.T) {
	var order []string
	s := section{name: "turns"}
	for _, name := range []string{"a", "b", "c"} {
		s.rows = append(s.rows, row{name: name, open: func(testing.TB, scale) slice {
			return func(_ context.Context, d time.Duration) (sample, error) {
				order = append(order, name)
				return sample{Decisions: 10, Elapsed: d}, nil
			}
		}})
	}
	got, err := s.measure(t.Context(), io.Discard, scale{rounds: 3, slice: time.Second})
	require.NoError(t, err)
	assert.Equal(t, "abcbcacab", strings.Join(order, ""))
	for _, r := range got.Rows {
		assert.Len(t, r.Samples, 3)
	}
}

// A contender that fails, decides nothing or does not admit its limit ends the run, by name, and all is cleaned up.
func TestMeasureFails(t *testing.T) {
	for name, open := range map[string]func(tb testing.TB, s scale) slice{
		"an error": func(testing.TB, scale) slice {
			return func(context.Context, time.Duration) (sample, error) { return sample{}, errors.New("broken") }
		},
		"no decision": func(testing.TB, scale) slice {
			return func(context.Context, time.Duration) (sample, error) { return sample{}, nil }
		},
		"one too many": func(tb testing.TB, _ scale) slice {
			n := 0
			checkExact(tb, func(context.Context, int) (bool, error) {
				n++
				return n <= few().rate+1, nil
			})
			return nil
		},
		"not asked": func(tb testing.TB, _ scale) slice {
			checkExact(tb, func(context.Context, int) (bool, error) { return false, errors.New("no") })
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			cleaned := false
			s := section{name: "s", rows: []row{{name: "the row", open: func(tb testing.TB, size scale) slice {
				tb.Cleanup(func() { cleaned = true })
				return open(tb, size)
			}}}}
			_, err := s.measure(t.Context(), io.Discard, scale{rounds: 1, slice: time.Millisecond})
			require.ErrorContains(t, err, "the row")
			assert.True(t, cleaned)
		})
	}
}

// The memory contenders and the middleware of all frameworks decide as they should; the rest, which needs servers, is
// for the quick run.
func TestQuick(t *testing.T) {
	for _, s := range slices.Concat(processSections(), middlewareSections()) {
		t.Run(s.name, func(t *testing.T) {
			got, err := s.measure(t.Context(), io.Discard, scale{quick: true, rounds: 1, slice: time.Millisecond})
			require.NoError(t, err)
			for _, r := range got.Rows {
				if r.Kind == ours { // some of the others give up when they are asked by two at once
					assert.Zero(t, r.Samples[0].Failed, r.Name)
				}
			}
		})
	}
}

// A load counts what is decided in its time, and nothing of the warm-up. It goes on until there is something to count.
func TestLoad(t *testing.T) {
	calls := 0
	l := load{goroutines: 1, batch: 1, work: func(int) work {
		return func(_ context.Context, i int) (bool, error) {
			calls++
			if i%4 == 0 {
				return false, errors.New("broken")
			}
			return i%4 == 1, nil
		}
	}}
	s, err := l.run(t.Context(), 20*time.Millisecond)
	require.NoError(t, err)
	assert.Positive(t, s.Decisions)
	assert.LessOrEqual(t, s.Decisions, int64(calls))
	assert.InDelta(t, s.Decisions, 4*s.Failed, 4)
	assert.InDelta(t, s.Decisions, 4*s.Admitted, 4)
	assert.GreaterOrEqual(t, s.Elapsed, 20*time.Millisecond)

	slow := load{goroutines: 1, batch: 1, work: func(int) work {
		return func(context.Context, int) (bool, error) {
			<-time.After(10 * time.Millisecond)
			return true, nil
		}
	}}
	s, err = slow.run(t.Context(), time.Microsecond)
	require.NoError(t, err)
	assert.Positive(t, s.Decisions)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = l.run(ctx, time.Hour)
	require.ErrorIs(t, err, context.Canceled)
}

func TestQuantile(t *testing.T) {
	assert.Zero(t, quantile(nil, 0.5))
	all := []time.Duration{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	assert.EqualValues(t, 1, quantile(all, 0))
	assert.EqualValues(t, 5, quantile(all, 0.5))
	assert.EqualValues(t, 10, quantile(all, 0.99))
	assert.EqualValues(t, 10, quantile(all, 1))
}

// Ratios and differences are taken within each round, and a table says what failed.
func TestLines(t *testing.T) {
	round := func(ns ...int) (all []sample) {
		for _, n := range ns {
			all = append(all, sample{Decisions: 10, Elapsed: time.Duration(10 * n), Allocs: 20})
		}
		return all
	}
	o := outcome{section: section{unit: nanoseconds, subtract: "bare", baseline: "b", note: "n"}, Rows: []rowOutcome{
		{"bare", floor, round(100, 1000, 100)},
		{"a", ours, round(300, 1200, 350)},
		{"b", peer, round(200, 1100, 300)},
	}}
	lines := o.lines()
	require.Len(t, lines, 2)
	assert.Equal(t, spread{200, 200, 250}, lines[0].value)
	assert.InDeltaSlice(t, []float64{2}, lines[0].ratios, 1e-9)
	assert.InDeltaSlice(t, []float64{1}, lines[1].ratios, 1e-9)
	assert.Zero(t, lines[0].allocs)

	o = outcome{section: section{unit: perSecond, title: "T"}, Rows: []rowOutcome{
		{"a", ours, []sample{{Decisions: 1000, Failed: 50, Elapsed: time.Second, Server: time.Millisecond}}},
	}}
	var table strings.Builder
	o.table(&table)
	assert.Contains(t, table.String(), "| **a** | 950 |", "what failed is no decision")
	assert.Contains(t, table.String(), "| 5.0\u00a0% |")
}

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{
		0.04: "0.0", 3.14159: "3.1", 42: "42", 999: "999", 1234: "1\u00a0230", 999_999: "1\u00a0000\u00a0000", 980_123: "980\u00a0000", -12.3: "-12",
	} {
		assert.Equal(t, want, figure(v))
	}
}

// A run of some sections keeps what an earlier one has of others, and forgets sections that are no more.
func TestWriteKeepsTheRest(t *testing.T) {
	dir := t.TempDir()
	_, err := readReport(dir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	all := sections()
	result := func(s section, n int64) outcome {
		return outcome{Name: s.name, section: s, Rows: []rowOutcome{{"weir", ours, []sample{{Decisions: n, Elapsed: time.Second}}}}}
	}
	first := report{Sections: []outcome{result(all[0], 1), {Name: "gone"}, result(all[1], 1)}}
	require.NoError(t, first.write(dir))
	second := report{Sections: []outcome{result(all[1], 2)}}
	require.NoError(t, second.write(dir))
	got, err := readReport(dir)
	require.NoError(t, err)
	require.Len(t, got.Sections, 2)
	assert.Equal(t, all[0].name, got.Sections[0].Name)
	assert.Equal(t, int64(2), got.Sections[1].Rows[0].Samples[0].Decisions)
}

func TestCommandRefuses(t *testing.T) {
	for _, args := range [][]string{{"-sections", "("}, {"-rounds", "0"}, {"-slice", "0s"}, {"-sections", "none such"}, {"-nonsense"}} {
		require.Error(t, command(t.Context(), args), "%v", args)
	}
}
