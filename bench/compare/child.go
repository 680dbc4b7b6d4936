package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/hosttest"
)

// childEnv makes a process a child. Its value is a task in JSON.
const childEnv = "WEIR_COMPARE_CHILD"

// task is the row that a child measures.
type task struct {
	Section, Row string
	Quick        bool
}

// child carries out a task if this process has one: it measures for as long as each line of in says, and answers with
// a sample. It ends with in.
func child(ctx context.Context, in io.Reader, out io.Writer) (isChild bool, _ error) {
	text, isChild := os.LookupEnv(childEnv)
	if !isChild {
		return false, nil
	}
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return true, err
	}
	err := errors.New("no such row")
	failed := hosttest.Run(ctx, "compare", func(tb testing.TB) {
		for _, s := range sections() {
			for _, r := range s.rows {
				if s.name == t.Section && r.name == t.Row {
					err = obey(ctx, r.open(tb, scale{quick: t.Quick}), in, out)
				}
			}
		}
	})
	return true, errors.Join(failed, err)
}

func obey(ctx context.Context, f slice, in io.Reader, out io.Writer) error {
	fmt.Fprintln(out, "{}")
	for lines := bufio.NewScanner(in); lines.Scan(); {
		d, err := time.ParseDuration(lines.Text())
		if err != nil {
			return err
		}
		got, err := f(ctx, d)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(out).Encode(got); err != nil {
			return err
		}
	}
	return nil
}

// apart opens a row in a child, so that nobody else's memory is in its collector's way.
func (s section) apart(r row) func(tb testing.TB, size scale) slice {
	return func(tb testing.TB, size scale) slice {
		tb.Helper()
		text, err := json.Marshal(task{s.name, r.name, size.quick})
		require.NoError(tb, err)
		p := hosttest.Start(tb, childEnv, string(text))
		var ready struct{}
		require.NoError(tb, p.Read(&ready))
		return func(_ context.Context, d time.Duration) (got sample, err error) {
			return got, p.Ask(d.String(), &got)
		}
	}
}
