package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/adminapi"
	"github.com/weir-go/weir/internal/hosttest"
)

// build makes weir-admin, and returns its path.
func build(tb testing.TB) string {
	path := filepath.Join(tb.TempDir(), "weir-admin")
	cmd := exec.CommandContext(tb.Context(), "go", "build", "-o", path, "github.com/weir-go/weir/admin/cmd/weir-admin")
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// server is a weir-admin.
type server struct {
	*adminapi.Client

	program, database, redis string

	mu      sync.Mutex
	cmd     *exec.Cmd
	address string // kept over restarts
	exited  chan struct{}
	log     strings.Builder
	rows    output // the lines of the audit
}

// output is the standard output of a program.
type output struct {
	mu   sync.Mutex
	text []byte
}

func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, text...)
	return len(text), nil
}

// String returns the text.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

// forget begins anew.
func (o *output) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = nil
}

func newServer(tb testing.TB, program, database, redisAddr string) *server {
	s := &server{program: program, database: database, redis: redisAddr}
	s.Client = &adminapi.Client{HTTP: &http.Client{
		Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 1000}, // connections of all writers
	}}
	if text, err := exec.CommandContext(tb.Context(), program, "migrate", "-db", database).CombinedOutput(); err != nil { //nolint:gosec // built by build
		tb.Fatalf("weir-admin migrate: %v\n%s", err, text)
	}
	s.enter(tb)
	s.address = "127.0.0.1:0"
	tb.Cleanup(s.kill)
	s.start(tb)
	return s
}

// enter takes a new token: the API admits 600 requests of each in a minute.
func (s *server) enter(tb testing.TB) {
	token, err := exec.CommandContext(tb.Context(), s.program, //nolint:gosec // built by build
		"token", "-db", s.database, "-role", "admin", "soak").Output()
	if err != nil {
		tb.Fatalf("weir-admin token: %v", err)
	}
	s.Token = strings.TrimSpace(string(token))
}

var serving = regexp.MustCompile(`weir-admin: serving"? address=(\S+)`)

// start starts the server and returns when it serves. Without a database it ends, and is started again.
func (s *server) start(tb testing.TB) {
	if err := until(tb.Context(), func() error { return s.launch(tb) }); err != nil {
		tb.Fatalf("%v:\n%s", err, s.text())
	}
}

func (s *server) launch(tb testing.TB) error {
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), s.program, //nolint:gosec // built above
		"-db", s.database, "-redis", "redis://"+s.redis, "-addr", s.address)
	hosttest.Tie(cmd)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	_, _ = s.rows.Write([]byte("\n")) // the last line may have been cut
	cmd.Stdout = &s.rows
	if err := cmd.Start(); err != nil {
		return err
	}
	served, exited := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(exited)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			s.mu.Lock()
			s.log.WriteString(lines.Text() + "\n")
			s.mu.Unlock()
			if m := serving.FindStringSubmatch(lines.Text()); m != nil {
				served <- m[1]
			}
		}
		_ = cmd.Wait() // killed
	}()
	s.mu.Lock()
	s.cmd, s.exited = cmd, exited
	s.mu.Unlock()
	select {
	case s.address = <-served:
		s.URL = "http://" + s.address
		return nil
	case <-exited:
		return errors.New("weir-admin has ended")
	case <-time.After(patience):
		return errors.New("weir-admin does not serve")
	}
}

func (s *server) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// kill kills it, also if it is stopped.
func (s *server) kill() {
	s.mu.Lock()
	cmd, exited := s.cmd, s.exited
	s.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill()
		<-exited
	}
}

func (s *server) stop()   { _ = s.cmd.Process.Signal(syscall.SIGSTOP) }
func (s *server) resume() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }

// follower is a service of an app.
type follower struct {
	settings settings
	process  *hosttest.Process
	seen     report // the last one
}

func (f *follower) start(tb testing.TB) { f.process = hosttest.Start(tb, serviceEnv, f.settings) }

func (f *follower) kill() {
	_ = f.process.Kill()
	_, _ = f.process.Wait()
}

// ask returns what the service goes by.
func (f *follower) ask() (report, error) {
	var r report
	if err := f.process.Ask("?", &r); err != nil {
		return r, err
	}
	if r.Fell != "" {
		return r, fmt.Errorf("service %s went back %s", f.settings.App, r.Fell)
	}
	return r, nil
}

// patience bounds what must come.
const patience = time.Minute

// until calls ok until it returns nil, and otherwise returns its last error.
func until(ctx context.Context, ok func() error) error {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil || errors.Is(err, errBroken) {
			return err
		}
		select {
		case <-within.Done():
			return err
		case <-tick.C:
		}
	}
}

// errBroken marks what does not get better by waiting.
var errBroken = errors.New("broken")

// pause waits, but not longer than the program runs.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
