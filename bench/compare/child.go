package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// childEnv tells a process that it is a child, and what for, in JSON.
const childEnv = "WEIR_COMPARE_CHILD"

// task is what a child does: answer, line by line, with the samples of one row, or serve HTTP.
type task struct {
	Section, Row string
	Server       *serverTask
	Quick        bool
}

// child carries out a task if this process has one. It ends with its standard input.
func child(ctx context.Context, in io.Reader, out io.Writer) (isChild bool, _ error) {
	text, isChild := os.LookupEnv(childEnv)
	if !isChild {
		return false, nil
	}
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return true, err
	}
	var err error
	failed := run(ctx, func(tb testing.TB) {
		if t.Server != nil {
			err = t.Server.serve(tb, in, out)
			return
		}
		for _, s := range sections() {
			for _, r := range s.rows {
				if s.name == t.Section && r.name == t.Row {
					err = obey(ctx, r.open(tb, scale{quick: t.Quick}), in, out)
					return
				}
			}
		}
		err = errors.New("no such row")
	})
	return true, errors.Join(failed, err)
}

// obey measures for as long as each line says.
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

// process is a child of this one.
type process struct {
	in  io.Writer
	out *bufio.Reader
}

// begin starts a child, which ends with tb.
func begin(tb testing.TB, t task) *process {
	tb.Helper()
	text, err := json.Marshal(t)
	require.NoError(tb, err)
	self, err := os.Executable()
	require.NoError(tb, err)
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), self) // it ends with its standard input
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(tb, err)
	out, err := cmd.StdoutPipe()
	require.NoError(tb, err)
	require.NoError(tb, cmd.Start())
	tb.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return &process{in, bufio.NewReader(out)}
}

// read reads what the child has to say.
func (p *process) read(answer any) error {
	line, err := p.out.ReadString('\n')
	if err != nil {
		return fmt.Errorf("the child has ended: %w", err)
	}
	return json.Unmarshal([]byte(line), answer)
}

// ask sends a line and reads the answer to it.
func (p *process) ask(line string, answer any) error {
	if _, err := io.WriteString(p.in, strings.TrimSpace(line)+"\n"); err != nil {
		return fmt.Errorf("the child has ended: %w", err)
	}
	return p.read(answer)
}

// apart opens a row in a process of its own, so that nobody else's memory is in its collector's way.
func (s section) apart(r row) func(tb testing.TB, size scale) slice {
	return func(tb testing.TB, size scale) slice {
		tb.Helper()
		p := begin(tb, task{Section: s.name, Row: r.name, Quick: size.quick})
		var ready struct{}
		require.NoError(tb, p.read(&ready))
		return func(_ context.Context, d time.Duration) (got sample, err error) {
			return got, p.ask(d.String(), &got)
		}
	}
}
