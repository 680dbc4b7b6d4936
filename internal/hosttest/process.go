package hosttest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/pprof"
	"testing"
)

// Process is this program in a process of its own.
type Process struct {
	*os.Process

	In  io.Writer // the process ends when it is closed, which happens with tb
	Out *bufio.Reader
}

// Start starts this program with a value in its environment, by which it knows what to do.
func Start(tb testing.TB, name, value string) *Process {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), self) //nolint:gosec // this program
	cmd.Env = append(os.Environ(), name+"="+value)
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

// Profile calls f and writes a profile of the processor's time to a file, unless its name is empty.
func Profile(name string, f func() error) error {
	if name == "" {
		return f()
	}
	file, err := os.Create(name) //nolint:gosec // the user's
	if err != nil {
		return err
	}
	defer file.Close()
	if err := pprof.StartCPUProfile(file); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return f()
}
