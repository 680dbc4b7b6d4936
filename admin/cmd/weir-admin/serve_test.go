package main

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
	"github.com/weir-go/weir/internal/hosttest"
	"github.com/weir-go/weir/internal/redistest"
)

var serving = regexp.MustCompile(`weir-admin: serving"? address=(\S+)`)

// server is a weir-admin that runs, and what it has written before it served.
type server struct {
	cmd   *exec.Cmd
	url   string
	said  string
	ended chan struct{}
}

// startServer starts the program, and returns when it serves.
func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{cmd: exec.CommandContext(t.Context(), binary(t), append(args, "-addr", "127.0.0.1:0")...), ended: make(chan struct{})}
	hosttest.Tie(s.cmd)
	stderr, err := s.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	lines := bufio.NewScanner(stderr)
	for s.url == "" && lines.Scan() {
		s.said += lines.Text() + "\n"
		if m := serving.FindStringSubmatch(lines.Text()); m != nil {
			s.url = "http://" + m[1]
		}
	}
	go func() {
		defer close(s.ended)
		for lines.Scan() {
		}
		_ = s.cmd.Wait() // it is interrupted or killed
	}()
	t.Cleanup(s.end)
	require.NotEmpty(t, s.url, "it does not serve: %s", s.said)
	return s
}

// end interrupts the program, and waits until it has ended.
func (s *server) end() {
	_ = s.cmd.Process.Signal(os.Interrupt) // it may have ended
	<-s.ended
}

// The first start prints a link for an admin, and later ones do not. What link and token make is good for a server that
// runs, and adopt makes a document later than all.
func TestServe(t *testing.T) {
	redis := redistest.Single(t)
	at := []string{"-db", filepath.Join(t.TempDir(), "weir.db"), "-redis", "redis://" + redis.Addr()}
	first := startServer(t, at...)
	assert.Contains(t, first.said, "To log in as admin, once")
	assert.Contains(t, first.said, first.url+"/link#")
	command := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), binary(t), args...).Output()
		require.NoError(t, err, "%q", args)
		return strings.TrimSpace(string(out))
	}
	admin := &adminapi.Client{
		URL: first.url, HTTP: &http.Client{Timeout: patience},
		Token: command("token", at[0], at[1], "-role", "owner", "-app", "pay", "-for", "deploy", "anna"),
	}
	_, err := admin.Put(t.Context(), "shop", "login", policies.Policy{Text: "5/1m"}, adminapi.Write{Reason: "a test"})
	require.Equal(t, http.StatusNotFound, adminapi.StatusOf(err), "of another app: %v", err)
	admin.Token = command("token", at[0], at[1], "-role", "admin", "root")
	written, err := admin.Put(t.Context(), "pay", "login", policies.Policy{Text: "5/1m"}, adminapi.Write{Reason: "a test"})
	require.NoError(t, err)
	assert.True(t, written.Published)
	assert.Contains(t, command("link", at[0], at[1], "-role", "operator", "-app", "pay", "bob"), "To log in as bob, once")
	assert.Contains(t, command("audit", "verify", at[0], at[1]), "rows are as they were written")
	assert.Contains(t, command("adopt", at[0], at[1], at[2], at[3], "pay"), "pay 2.")
	first.end()

	second := startServer(t, at...)
	assert.NotContains(t, second.said, "To log in")
	admin.URL = second.url
	apps, err := admin.Apps(t.Context())
	require.NoError(t, err)
	require.Len(t, apps, 1)
	assert.Equal(t, int64(2), apps[0].Generation)
}
