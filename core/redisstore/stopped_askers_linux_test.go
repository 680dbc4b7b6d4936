package redisstore_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
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

// stopsAskers is what the stopped process does: it stops while its callers wait for a flight.
func stopsAskers(t *testing.T, addr string) {
	t.Helper()
	o := redisstore.ClientOptions(addr)
	o.DialTimeout, o.ReadTimeout = patient, patient // so that the store's deadline decides
	rdb := redis.NewUniversalClient(o)
	defer rdb.Close()
	s, err := redisstore.New(rdb, redisstore.Options{Deadline: stoppedAskersDeadline, MaxKeys: 1})
	require.NoError(t, err)
	for n := 0; n < 2; { // it gets to know the script and how far away the server is
		if _, err := s.Take(t.Context(), core.Take{Policy: stoppedAskersPolicy, Key: "before", Cost: 1}); err == nil {
			n++
		}
	}
	take := core.Take{Policy: stoppedAskersPolicy, Key: "k", Cost: 1}
	answers := map[string]int{}
	riders := make([]*rider, stoppedAskers)
	for i := range riders {
		riders[i] = &rider{take: take}
	}
	ground(t, s, riders)
	s.LetGo(func() {
		start := time.Now()
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		for time.Since(start) < stoppedAskersDeadline { // it does not stop at once
			runtime.Gosched()
		}
	})
	for _, r := range riders {
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
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNothingIsAskedAfterAPause$") //nolint:gosec // this program
	child.Env = append(os.Environ(), stoppedAskersVariable+"="+proxy.Addr())
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	require.Eventually(t, func() bool { return isStopped(child.Process.Pid) }, patient, time.Millisecond)
	<-time.After(stoppedAskersDeadline * 5 / 4)
	require.NoError(t, child.Process.Signal(syscall.SIGCONT))
	line, err := bufio.NewReader(out).ReadBytes('\n')
	require.NoError(t, err)
	answers := map[string]int64{}
	require.NoError(t, json.Unmarshal(line, &answers), "%s", line)
	assert.Zero(t, answers["perhaps charged"], "%v", answers)
	direct := newStore(t, server.Client(t), redisstore.Options{Deadline: patient})
	assert.Equal(t, answers["ok"], used(t, direct, stoppedAskersPolicy, "k"), "%v", answers)
}
