package redisstore_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/internal/redistest"
)

const (
	stoppedPassengersVariable = "WEIR_TEST_STOPPED_PASSENGERS" // the address to ask
	stoppedPassengersDeadline = 2 * time.Second
	stoppedPassengersRounds   = 3
	stoppedPassengers         = 50
)

// stopsPassengers is the main function of the stopped process: flights of many.
func stopsPassengers(t *testing.T, addr string) {
	t.Helper()
	s := stoppedStore(t, addr, stoppedPassengersDeadline)
	policy := core.MustParse("1000000/1h")
	input := bufio.NewScanner(os.Stdin)
	failed := 0
	for round := range 1 + stoppedPassengersRounds { // the first is for the connection and the scripts
		if round > 0 {
			fmt.Println("ready")
			require.True(t, input.Scan())
		}
		askers := make([]*asker, stoppedPassengers)
		for i := range askers {
			askers[i] = &asker{take: core.Take{Policy: policy, Key: "k", Cost: 1}}
		}
		fly(t, s, askers, nothing)
		for _, r := range askers {
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
	if addr, ok := os.LookupEnv(stoppedPassengersVariable); ok {
		stopsPassengers(t, addr)
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

	child, in, lines := startChild(t, "TestArrivedRepliesAreUsedByAll", stoppedPassengersVariable, listener.Addr().String())
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	for range stoppedPassengersRounds {
		require.True(t, lines.Scan(), "the process has ended")
		require.Equal(t, "ready", lines.Text())
		watched.Store(true)
		_, err := fmt.Fprintln(in, "go")
		require.NoError(t, err)
		<-questions
		<-time.After(stoppedPassengersDeadline * 6 / 10) // half of it would be enough to wait in
		require.NoError(t, child.Process.Signal(syscall.SIGSTOP))
		require.Eventually(t, func() bool { return isStopped(child.Process.Pid) }, patient, time.Millisecond)
		answers <- struct{}{}
		<-time.After(stoppedPassengersDeadline * 6 / 10) // the time of all is over
		require.NoError(t, child.Process.Signal(syscall.SIGCONT))
	}
	require.True(t, lines.Scan())
	assert.Equal(t, "failed 0", lines.Text())
}
