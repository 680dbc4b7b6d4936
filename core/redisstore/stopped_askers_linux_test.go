package redisstore_test

import (
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

const (
	stoppedAskersVariable = "WEIR_TEST_STOPPED_ASKERS" // the address to ask
	stoppedAskersDeadline = time.Second
	stoppedAskers         = 300
)

var stoppedAskersPolicy = core.MustParse("stopped: 1000000/1h fixed-window")

// stopsAskers is the main function of the stopped process: it stops while its callers wait for a flight.
func stopsAskers(t *testing.T, addr string) {
	t.Helper()
	s := stoppedStore(t, addr, stoppedAskersDeadline)
	for n := 0; n < 2; { // it gets to know the script and how far away the server is
		if _, err := s.Take(t.Context(), core.Take{Policy: stoppedAskersPolicy, Key: "before", Cost: 1}); err == nil {
			n++
		}
	}
	take := core.Take{Policy: stoppedAskersPolicy, Key: "k", Cost: 1}
	answers := map[string]int{}
	askers := make([]*asker, stoppedAskers)
	for i := range askers {
		askers[i] = &asker{take: take}
	}
	ground(t, s, askers)
	s.LetGo(func() {
		start := time.Now()
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		for time.Since(start) < stoppedAskersDeadline { // it does not stop at once
			runtime.Gosched()
		}
	})
	for _, r := range askers {
		<-r.back
		var failed *core.StoreError
		ok := errors.As(r.err, &failed)
		switch {
		case r.err == nil:
			answers["ok"]++
		case ok && failed.MaybeExecuted:
			answers["perhaps charged"]++
		case ok:
			answers[failed.Class]++
		}
	}
	require.NoError(t, json.NewEncoder(os.Stdout).Encode(answers))
}

// After a pause of the process, nothing is asked of which nobody would wait for the answer.
func TestNothingIsAskedAfterAPause(t *testing.T) {
	t.Parallel()
	if addr, ok := os.LookupEnv(stoppedAskersVariable); ok {
		stopsAskers(t, addr)
		return
	}
	server := redistest.Single(t)
	proxy := redistest.NewProxy(t, server.Addr())
	proxy.Latency(50 * time.Millisecond)
	child, _, lines := startChild(t, "TestNothingIsAskedAfterAPause", stoppedAskersVariable, proxy.Addr())
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	require.Eventually(t, func() bool { return isStopped(child.Process.Pid) }, patient, time.Millisecond)
	<-time.After(stoppedAskersDeadline * 5 / 4)
	require.NoError(t, child.Process.Signal(syscall.SIGCONT))
	require.True(t, lines.Scan(), "the process has ended")
	answers := map[string]int64{}
	require.NoError(t, json.Unmarshal(lines.Bytes(), &answers), "%s", lines.Text())
	assert.Zero(t, answers["perhaps charged"], "%v", answers)
	direct := newStore(t, server.Client(t), redisstore.Options{Deadline: patient})
	assert.Equal(t, answers["ok"], used(t, direct, stoppedAskersPolicy, "k"), "%v", answers)
}
