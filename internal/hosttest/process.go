package hosttest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
)

// Process is this program in a process of its own.
type Process struct {
	*os.Process

	In  io.Writer // the process ends when it is closed, which happens with tb
	Out *bufio.Reader
}

// Start starts this program with a task, which it finds by the same name. The task has to have a form in JSON.
func Start(tb testing.TB, name string, task any) *Process {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	value, err := json.Marshal(task)
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), self) //nolint:gosec // this program
	cmd.Env = append(os.Environ(), name+"="+string(value))
	cmd.Stderr = os.Stderr
	Tie(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return &Process{cmd.Process, in, bufio.NewReader(out)}
}

// Ask sends a line and reads the answer, one line of JSON.
func (p *Process) Ask(line string, answer any) error {
	if _, err := io.WriteString(p.In, line+"\n"); err != nil {
		return fmt.Errorf("the process has ended: %w", err)
	}
	return p.Read(answer)
}

// Read reads one line of JSON.
func (p *Process) Read(answer any) error {
	line, err := p.Out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the process has ended: %w", err)
	}
	return json.Unmarshal(line, answer)
}

// Task reads the task of that name into task, a pointer, if Start has started this process with one. It reports whether
// that is so. It does so once, and processes that this one starts do not find the task.
func Task(name string, task any) (found bool, _ error) {
	value, found := os.LookupEnv(name)
	if !found {
		return false, nil
	}
	return true, errors.Join(os.Unsetenv(name), json.Unmarshal([]byte(value), task))
}

// Main is the TestMain of a package whose processes may be children: it runs the tests, unless child reports that this
// process is one, and has done its work.
func Main(m *testing.M, child func() (isChild bool, err error)) {
	isChild, err := child()
	switch {
	case !isChild:
		os.Exit(m.Run())
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Answer answers each line of in with one of JSON, as Ask expects it of a process. It returns when in ends, or with the
// first error of answer.
func Answer(in io.Reader, out io.Writer, answer func(line string) (any, error)) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		a, err := answer(lines.Text())
		if err != nil {
			return err
		}
		if err := json.NewEncoder(out).Encode(a); err != nil {
			return err
		}
	}
	return lines.Err()
}
