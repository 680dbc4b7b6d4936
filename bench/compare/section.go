package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/hosttest"
)

// A section is one comparison: contenders that do the same work and take turns.
type section struct {
	name  string // of the flag -sections, unique
	chart string // of the file that its chart is in, beside others of the same name
	title string // of the chart
	panel string // its title within the chart
	note  string // how it was measured, in a sentence or two
	unit  unit
	// baseline is the row that ratios refer to, and also has more of them, for the table.
	baseline string
	also     []string
	// subtract is the row whose time and allocations are taken off those of all others.
	subtract string
	rounds   int  // if not 0, so many are enough: the figure is not a time
	shorter  int  // if not 0, slices are so many times as short, and as many more
	isolated bool // each row in a process of its own
	rows     []row
}

// A row is one contender.
type row struct {
	name string
	kind kind
	// open prepares it, checks that it decides as it should, and returns what measures it. What it opens ends with the
	// cleanups of tb, and what fails ends tb.
	open func(tb testing.TB, s scale) slice
}

// slice runs a contender for about d, and returns its sample.
type slice func(ctx context.Context, d time.Duration) (sample, error)

// kind is the colour of a row.
type kind string

const (
	ours  kind = "weir"
	peer  kind = "peer"
	floor kind = "floor" // no library: what a program could do by hand, or without a limit
)

// unit is the unit of a section's figures.
type unit string

const (
	perSecond   unit = "per second"
	nanoseconds unit = "ns"
	halfOfThem  unit = "p50 in ns" // of single decisions
	bytesPerKey unit = "bytes per key"
)

// sample holds the measurements of one slice. Times are in nanoseconds.
type sample struct {
	Decisions int64
	Elapsed   time.Duration
	Admitted  int64 `json:",omitempty"`
	// Failed are decisions that the limiter could not make as it should: by an error, or by falling back.
	Failed int64         `json:",omitempty"`
	Allocs uint64        `json:",omitempty"` // allocations of the whole process
	Client time.Duration `json:",omitempty"` // its processor time
	Server time.Duration `json:",omitempty"` // that of Redis
	P50    time.Duration `json:",omitempty"`
	P99    time.Duration `json:",omitempty"`
	Bytes  float64       `json:",omitempty"` // per key
	Left   float64       `json:",omitempty"` // of these, after expiry
}

// scale is the size of a run.
type scale struct {
	quick  bool
	rounds int
	slice  time.Duration
}

// keys returns the number of keys for a section with n.
func (s scale) keys(n int) int {
	if s.quick {
		return max(1, n/100)
	}
	return n
}

// sections are all comparisons, in the order in which they run.
func sections() []section {
	return slices.Concat(redisSections(), processSections(), middlewareSections())
}

// outcome holds the samples of a section.
type outcome struct {
	Name    string
	Slice   time.Duration // of a contender in a round
	Rows    []rowOutcome
	section section
}

type rowOutcome struct {
	Name    string
	Kind    kind
	Samples []sample
}

// measure opens the rows of a section and runs them in turn, so that a machine whose speed wanders slows all. In each
// round another row is first.
func (s section) measure(ctx context.Context, progress io.Writer, size scale) (outcome, error) {
	rounds, each := size.rounds, size.slice
	if s.rounds > 0 {
		rounds = s.rounds
	}
	if s.shorter > 0 {
		rounds, each = rounds*s.shorter, each/time.Duration(s.shorter)
	}
	out := outcome{Name: s.name, Slice: each, section: s}
	current := ""
	err := hosttest.Run(ctx, "compare", func(tb testing.TB) {
		var turns []slice
		for _, r := range s.rows {
			open := r.open
			if s.isolated {
				open = s.apart(r)
			}
			current = r.name
			turns = append(turns, open(tb, size))
			out.Rows = append(out.Rows, rowOutcome{Name: r.name, Kind: r.kind})
		}
		for round := range rounds {
			fmt.Fprintf(progress, "%s: round %d of %d\n", s.name, round+1, rounds)
			for i := range turns {
				i = (i + round) % len(turns)
				current = out.Rows[i].Name
				runtime.GC() // what the one before has left is not this one's to clean up
				got, err := turns[i](ctx, each)
				if err == nil && got.Decisions == 0 {
					err = errors.New("no decision")
				}
				if err != nil {
					tb.Fatal(err)
				}
				out.Rows[i].Samples = append(out.Rows[i].Samples, got)
			}
		}
	})
	if err != nil {
		return out, fmt.Errorf("%s: %s: %w", s.name, current, err)
	}
	return out, nil
}
