package main

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/hosttest"
	"github.com/weir-go/weir/internal/redistest"
)

// binary is the program, built without the race detector, with which there is no SQLite.
var binary = redistest.Share(func(t testing.TB) string {
	program := filepath.Join(t.TempDir(), "weir-admin")
	text, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", text)
	return program
})

// patience bounds what must come.
const patience = time.Minute

var linked = regexp.MustCompile(`^  (http://\S+)/link#\S+$`)

// The demo is a program that needs nothing: it prints a link, answers at once, and leaves nothing behind when it is
// interrupted.
func TestDemoBinary(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a program cannot be interrupted there")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	temporary := t.TempDir()
	cmd := exec.CommandContext(ctx, binary(t), "demo")
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary)
	hosttest.Tie(cmd)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	began := time.Now()
	require.NoError(t, cmd.Start())
	var url string
	lines := bufio.NewScanner(out)
	for url == "" && lines.Scan() {
		if m := linked.FindStringSubmatch(lines.Text()); m != nil {
			url = m[1]
		}
	}
	require.NotEmpty(t, url, "no link: %v", lines.Err())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/link", http.NoBody)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	assert.Equal(t, http.StatusOK, res.StatusCode)
	t.Logf("it answers after %v", time.Since(began).Round(time.Millisecond))

	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	for lines.Scan() { // its output ends with it
	}
	require.NoError(t, cmd.Wait())
	// Two seconds on any machine that does little else: the time that processors took is not that of others.
	assert.Less(t, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime(), 2*time.Second)
	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	assert.Empty(t, left)
}
