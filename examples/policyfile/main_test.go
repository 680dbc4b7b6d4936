package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The program obeys its file while it runs, and keeps to what it had while there is a mistake in it.
func TestRun(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policies.yaml")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"-file", path, "-addr", "127.0.0.1:0"}, in)
		in.Close()
		ended <- err
	}()
	lines := bufio.NewScanner(out)
	until := func(text string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		require.Fail(t, "the program has ended before it printed "+text)
	}
	until("edit " + path)
	until(`200 OK, limit "20"`)
	for _, step := range []struct{ text, want string }{
		{"format: 1\npolicies:\n  hello:\n    text: 30/1m\n", `200 OK, limit "30"`},
		{"format: 1\npolicies:\n  hello:\n    text: 30 a minute\n", "cannot be used"},
		{"format: 1\npolicies:\n  hello:\n    text: 40/1m\n    keys: {ip=127.0.0.1: blocked}\n", "429 Too Many Requests"},
		{"format: 1\npolicies: {}\n", `200 OK, limit "10"`},
	} {
		require.NoError(t, os.WriteFile(path, []byte(step.text), 0o600))
		until(step.want)
	}
	cancel()
	_, _ = io.Copy(io.Discard, out)
	assert.NoError(t, <-ended)
}
