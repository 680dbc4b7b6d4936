package fleettest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/redissource"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/adminapi"
	"github.com/weir-go/weir/internal/redistest"
)

// patience bounds what must come: a loaded machine under the race detector is no failure.
const patience = time.Minute

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// program and command are weir-admin and weir, built once. They have no race detector, with which SQLite takes minutes
// to compile.
var (
	program = built(".", "./cmd/weir-admin")
	command = built("../cmd/weir", ".")
)

func built(module, path string) func(testing.TB) string {
	return redistest.Share(func(t testing.TB) string {
		out := filepath.Join(t.TempDir(), "program")
		build := exec.CommandContext(t.Context(), "go", "build", "-o", out, path)
		build.Dir = filepath.Join("..", module)
		text, err := build.CombinedOutput()
		require.NoError(t, err, "%s", text)
		return out
	})
}

// fleet is a Redis and a weir-admin with its record in a file.
type fleet struct {
	t     testing.TB
	redis *redistest.Server
	rdb   redis.UniversalClient // of everybody
	admin *adminapi.Client
	dir   string

	admins []*exec.Cmd
	ended  []chan struct{} // closed when their logs end
	mu     sync.Mutex
	log    strings.Builder
}

// startFleet starts one, which ends with the test.
func startFleet(t testing.TB) *fleet {
	t.Helper()
	f := &fleet{t: t, redis: redistest.Single(t), dir: t.TempDir()}
	f.rdb = f.client()
	f.setUser("weir-admin")
	f.admin = &adminapi.Client{}
	f.newToken()
	f.startAdmin()
	return f
}

// newToken makes a token of an admin in the database, which it makes if there is none, for f.admin and for f.weir.
func (f *fleet) newToken() {
	f.t.Helper()
	db := filepath.Join(f.dir, "weir.db")
	made, err := exec.CommandContext(f.t.Context(), program(f.t), "migrate", "-db", db).CombinedOutput()
	require.NoError(f.t, err, "%s", made)
	token, err := exec.CommandContext(f.t.Context(), program(f.t), "token", "-db", db, "-role", "admin", "anna").Output()
	require.NoError(f.t, err)
	f.admin.Token = strings.TrimSpace(string(token))
	require.NoError(f.t, os.WriteFile(filepath.Join(f.dir, "token"), token, 0o600))
}

// setUser makes a user of Redis by the line of docs/redis.md: no program of a fleet needs more rights.
func (f *fleet) setUser(name string) {
	f.t.Helper()
	text, err := os.ReadFile("../../docs/redis.md")
	require.NoError(f.t, err)
	var args []any
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "ACL SETUSER "+name+" ") {
			for word := range strings.FieldsSeq(line) {
				args = append(args, word)
			}
		}
	}
	require.NotEmpty(f.t, args, "no line for %s", name)
	require.NoError(f.t, f.rdb.Do(f.t.Context(), args...).Err())
}

// client returns one with the options of a program, but for times that a busy machine takes.
func (f *fleet) client(mods ...func(*redis.UniversalOptions)) redis.UniversalClient {
	o := redisstore.ClientOptions(f.redis.Addr())
	o.PoolTimeout, o.DialTimeout, o.ReadTimeout = patience, patience, patience
	for _, mod := range mods {
		mod(o)
	}
	rdb := redis.NewUniversalClient(o)
	f.t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

var serving = regexp.MustCompile(`weir-admin: serving"? address=(\S+)`)

// killAdmins kills all weir-admins at once, as the end of a machine does.
func (f *fleet) killAdmins() {
	for _, cmd := range f.admins {
		_ = cmd.Process.Kill() // fails only if it has ended
	}
	for _, ended := range f.ended {
		<-ended
	}
	f.admins, f.ended = nil, nil
}

// startAdmin starts a weir-admin, which f.admin calls from then on.
func (f *fleet) startAdmin() {
	t := f.t
	t.Helper()
	redisURL := filepath.Join(f.dir, "redis")
	require.NoError(t, os.WriteFile(redisURL, []byte("redis://weir-admin:secret@"+f.redis.Addr()), 0o600))
	cmd := exec.Command(program(t),
		"-db", filepath.Join(f.dir, "weir.db"), "-redis", "@"+redisURL,
		"-addr", "127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ended := make(chan struct{}) // when its log ends
	f.admins, f.ended = append(f.admins, cmd), append(f.ended, ended)
	address := make(chan string, 1)
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			f.mu.Lock()
			fmt.Fprintln(&f.log, lines.Text())
			f.mu.Unlock()
			if m := serving.FindStringSubmatch(lines.Text()); m != nil {
				address <- m[1]
			}
		}
		close(address)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		_ = cmd.Wait()
		if t.Failed() {
			f.mu.Lock()
			t.Logf("weir-admin:\n%s", f.log.String())
			f.mu.Unlock()
		}
	})
	select {
	case at, ok := <-address:
		require.True(t, ok, "weir-admin has ended")
		f.admin.URL = "http://" + at
	case <-time.After(patience):
		require.Fail(t, "weir-admin does not serve")
	}
}

// writeAnyway writes whatever there is.
var writeAnyway = adminapi.Write{Reason: "a test"}

// weir runs the command, and returns what it writes.
func (f *fleet) weir(t testing.TB, args ...string) ([]byte, error) {
	t.Helper()
	args = append([]string{"-server", f.admin.URL, "-token-file", filepath.Join(f.dir, "token")}, args...)
	return exec.CommandContext(t.Context(), command(t), args...).Output()
}

// put writes a policy whatever there is, and returns the answer.
func (f *fleet) put(t testing.TB, app, name string, p policies.Policy) adminapi.Written {
	t.Helper()
	w, err := f.admin.Put(t.Context(), app, name, p, writeAnyway)
	require.NoError(t, err)
	return w
}

// source returns a Source of an app that is closed with the test.
func (f *fleet) source(app string, o redissource.Options) *redissource.Source {
	f.t.Helper()
	return f.sourceOf(f.rdb, app, o)
}

func (f *fleet) sourceOf(rdb redis.UniversalClient, app string, o redissource.Options) *redissource.Source {
	f.t.Helper()
	s, err := redissource.New(rdb, app, o)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { assert.NoError(f.t, s.Close()) })
	return s
}

// serve serves a handler over a socket, and returns its URL.
func serve(t testing.TB, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// get sends a request, and returns what matters of the answer. The body is read, so that the connection is used again.
func get(ctx context.Context, url string) (status int, header http.Header, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header, err
}

// await sends requests until an answer is as ok expects, and returns how long that took.
func await(t testing.TB, url string, ok func(status int, header http.Header) bool, what string) time.Duration {
	t.Helper()
	begin := time.Now()
	for {
		status, header, err := get(t.Context(), url)
		require.NoError(t, err)
		took := time.Since(begin)
		if ok(status, header) {
			return took
		}
		require.Less(t, took, patience, "%s; the last answer: %d %v", what, status, header)
	}
}
