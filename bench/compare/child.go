package main

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bench/internal/network"
	"github.com/weir-go/weir/internal/hosttest"
)

// childEnv names the task of a process that is a child.
const childEnv = "WEIR_COMPARE_CHILD"

// task is the row that a child measures.
type task struct {
	Section, Row string
	Quick        bool
}

// child carries out a task if this process has one: it measures for as long as each line of in says, and answers with
// a sample. It ends with in. The process may be the network of a child as well.
func child(ctx context.Context, in io.Reader, out io.Writer) (isChild bool, err error) {
	if isChild, err = network.Child(); isChild {
		return isChild, err
	}
	var t task
	if isChild, err = hosttest.Task(childEnv, &t); !isChild || err != nil {
		return isChild, err
	}
	err = errors.New("no such row")
	failed := hosttest.Run(ctx, "compare", func(tb testing.TB) {
		for _, s := range sections() {
			for _, r := range s.rows {
				if s.name == t.Section && r.name == t.Row {
					measure := r.open(tb, scale{quick: t.Quick})
					err = hosttest.Answer(in, out, func(line string) (any, error) {
						d, err := time.ParseDuration(line)
						if err != nil || d == 0 { // it has opened the row, and nothing is to be measured yet
							return sample{}, err
						}
						return measure(ctx, d)
					})
				}
			}
		}
	})
	return true, errors.Join(failed, err)
}

// apart opens a row in a child, so that nobody else's memory is in its collector's way.
func (s section) apart(r row) func(tb testing.TB, size scale) slice {
	return func(tb testing.TB, size scale) slice {
		tb.Helper()
		p := hosttest.Start(tb, childEnv, task{s.name, r.name, size.quick})
		measure := func(_ context.Context, d time.Duration) (got sample, err error) {
			return got, p.Ask(d.String(), &got)
		}
		_, err := measure(tb.Context(), 0)
		require.NoError(tb, err)
		return measure
	}
}
