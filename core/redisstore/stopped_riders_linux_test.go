package redisstore_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
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
	stoppedRidersVariable = "WEIR_TEST_STOPPED_RIDERS" // the address to ask
	stoppedRidersDeadline = 2 * time.Second
	stoppedRidersRounds   = 3
	stoppedRiders         = 50
)

// stopsRiders is what the stopped process does: flights of many.
func stopsRiders(t *testing.T, addr string) {
	t.Helper()
	o := redisstore.ClientOptions(addr)
	o.DialTimeout, o.ReadTimeout = patient, patient // so that the store's deadline decides
	rdb := redis.NewUniversalClient(o)
	defer rdb.Close()
	s, err := redisstore.New(rdb, redisstore.Options{Deadline: stoppedRidersDeadline, MaxKeys: 1})
	require.NoError(t, err)
	policy := core.MustParse("1000000/1h")
	told := bufio.NewScanner(os.Stdin)
	failed := 0
	for round := range 1 + stoppedRidersRounds { // the first is for the connection and the scripts
		if round > 0 {
			fmt.Println("ready")
			require.True(t, told.Scan())
		}
		riders := make([]*rider, stoppedRiders)
		for i := range riders {
			riders[i] = &rider{take: core.Take{Policy: policy, Key: "k", Cost: 1}}
		}
		fly(t, s, riders, nothing)
		for _, r := range riders {
			if r.err != nil {
				failed++
			}
		}
	}
	fmt.Println("failed", failed)
}

// A reply that has arrived is used for all who share a flight, although their time is over when the process looks at
// its sockets again.
func TestArrivedRepliesAreUsedByAll(t *testing.T) {
	t.Parallel()
	if addr, ok := os.LookupEnv(stoppedRidersVariable); ok {
		stopsRiders(t, addr)
		return
	}
	backend := redistest.Single(t).Addr()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	var watched atomic.Bool
	questions, answers := make(chan struct{}), make(chan struct{}) // an answer waits until it is let through
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", backend)
			if err != nil {
				_ = near.Close()
				continue
			}
			go func() { _, _ = io.Copy(far, near); _ = far.Close() }()
			go func() {
				defer near.Close()
				for b := make([]byte, 64<<10); ; {
					n, err := far.Read(b)
					if err != nil {
						return
					}
					if watched.CompareAndSwap(true, false) {
						questions <- struct{}{}
						<-answers
					}
					_, _ = near.Write(b[:n])
				}
			}()
		}
	}()

	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestArrivedRepliesAreUsedByAll$") //nolint:gosec // this program
	child.Env = append(os.Environ(), stoppedRidersVariable+"="+listener.Addr().String())
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	require.NoError(t, err)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	lines := bufio.NewScanner(out)
	for range stoppedRidersRounds {
		require.True(t, lines.Scan(), "the process has ended")
		require.Equal(t, "ready", lines.Text())
		watched.Store(true)
		_, err := fmt.Fprintln(in, "go")
		require.NoError(t, err)
		<-questions
		<-time.After(stoppedRidersDeadline * 6 / 10) // half of it would be enough to wait in
		require.NoError(t, child.Process.Signal(syscall.SIGSTOP))
		require.Eventually(t, func() bool { return isStopped(child.Process.Pid) }, patient, time.Millisecond)
		answers <- struct{}{}
		<-time.After(stoppedRidersDeadline * 6 / 10) // the time of all is over
		require.NoError(t, child.Process.Signal(syscall.SIGCONT))
	}
	require.True(t, lines.Scan())
	assert.Equal(t, "failed 0", lines.Text())
}
