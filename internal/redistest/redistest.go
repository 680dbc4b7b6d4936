// Package redistest starts private redis-servers for tests: a single one, a Cluster, a master and
// a replica watched by Sentinel, and a Proxy that stands between a client and any of them and
// injects faults. Only tests import it.
//
// Every server listens on its own free port of 127.0.0.1, keeps its files in the test's temporary
// directory, and is killed when the test ends, so tests may run in parallel and need no setup. The
// topologies that take long to form (a Cluster needs more than two seconds, by a constant in
// redis-server) are best started once, in a test whose subtests share them or by [Share] for a
// whole package.
//
// Where redis-server is not installed, the tests are skipped; with WEIR_REQUIRE_REDIS=1 in the
// environment they fail instead, so that a build which believes to have tested Redis has.
//
// Functions that can fail take the [testing.TB] of their caller and end that test; they must be
// called from its goroutine.
package redistest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"
)

const (
	// requireEnv is the environment variable that turns a skipped test into a failed one.
	requireEnv = "WEIR_REQUIRE_REDIS"

	// patience bounds every wait for a server. It is generous because it is only ever used up by
	// a failure: a loaded machine under the race detector must not produce one.
	patience = time.Minute
)

// program finds redis-server, or ends the test.
func program(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err == nil {
		return path
	}
	const missing = "redistest: redis-server is not on PATH; install Debian's redis-server, " +
		"or build Redis 7 from source and put it there"
	if os.Getenv(requireEnv) == "1" {
		t.Fatalf("%s (%s=1 forbids skipping)", missing, requireEnv)
	}
	t.Skip(missing)
	return ""
}

// patient bounds a wait. The context outlives the test's own, because that one is already
// cancelled when a Cleanup runs.
func patient(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(t.Context()), patience)
}

// poll calls ok until it returns nil or errExited, after which nothing gets better, or until
// ctx ends. It returns the last error of ok.
func poll(ctx context.Context, every time.Duration, ok func() error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil || errors.Is(err, errExited) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
