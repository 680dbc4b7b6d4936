package redisstore_test

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// stopped is the work of a process that is stopped while replies arrive: in each round it asks on every connection, and
// stops itself as soon as it waits for the replies.
type stopped struct {
	Addr                string
	CertFile            string // for TLS; "" for none
	Plain               bool   // with a dialer that does not know of this
	Rounds, Connections int
	Deadline            time.Duration
}

// reads are the ends of those of a round.
type reads struct {
	Total, Timeouts int
	Lost            int // in a timeout, while the reply lay in the socket
}

// asked has the ends of the times for which those of the next round wait.
type asked struct{ First, Last time.Time }

const stoppedVariable = "WEIR_TEST_STOPPED"

// stops does that work, which is in text, in the process that is stopped.
func stops(t *testing.T, text string) {
	t.Helper()
	var j stopped
	require.NoError(t, json.Unmarshal([]byte(text), &j))
	o := redisstore.ClientOptions(j.Addr)
	o.DialTimeout = patient
	if j.CertFile != "" {
		var err error
		o.TLSConfig, err = redistest.Trust(j.CertFile)
		require.NoError(t, err)
	}
	var all []net.Conn
	for range j.Connections {
		c, err := o.Dialer(t.Context(), "tcp", j.Addr)
		if j.Plain {
			c, err = net.Dial("tcp", j.Addr)
		}
		require.NoError(t, err)
		defer c.Close()
		all = append(all, c)
	}
	var mu sync.Mutex
	for range j.Rounds {
		var sum reads
		var until asked
		var round sync.WaitGroup
		for _, c := range all {
			_, err := c.Write([]byte("?"))
			assert.NoError(t, err)
			until.Last = time.Now().Add(j.Deadline)
			if until.First.IsZero() {
				until.First = until.Last
			}
			assert.NoError(t, c.SetReadDeadline(until.Last))
			round.Go(func() {
				_, err := io.ReadFull(c, make([]byte, 1))
				late := errors.Is(err, os.ErrDeadlineExceeded)
				lies := late && arrived(c)
				mu.Lock()
				defer mu.Unlock()
				sum.Total++
				switch {
				case lies:
					sum.Lost++
					fallthrough
				case late:
					sum.Timeouts++
					assert.NoError(t, c.SetReadDeadline(time.Now().Add(patient)))
					_, err = io.ReadFull(c, make([]byte, 1))
				}
				assert.NoError(t, err)
			})
		}
		require.NoError(t, json.NewEncoder(os.Stdout).Encode(until))
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		round.Wait()
		require.NoError(t, json.NewEncoder(os.Stdout).Encode(sum))
	}
}

// arrived reports whether something lies in the socket of a connection.
func arrived(c net.Conn) (lies bool) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		n, _, _ := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		lies = n > 0
	})
	return lies
}

// run does it, and lets the process go on when all has been answered and the deadlines have passed. A round in
// which one has passed before the process stood still does not count: on a busy machine there may be such.
func (j stopped) run(t *testing.T) (sum reads) {
	t.Helper()
	config := (*tls.Config)(nil)
	if j.CertFile != "" {
		cert := redistest.NewCertificate(t)
		pair, err := tls.LoadX509KeyPair(cert.CertFile, cert.KeyFile)
		require.NoError(t, err)
		j.CertFile, config = cert.CertFile, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	j.Addr = listener.Addr().String()
	if config != nil {
		listener = tls.NewListener(listener, config)
	}
	defer listener.Close()
	questions := make(chan net.Conn, j.Connections)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for {
					if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
						return
					}
					questions <- c
				}
			}()
		}
	}()

	text, err := json.Marshal(j)
	require.NoError(t, err)
	child, _, lines := startChild(t, "TestArrivedRepliesAreUsed", stoppedVariable, string(text))
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	next := func(v any) {
		t.Helper()
		require.True(t, lines.Scan(), "the process has ended")
		require.NoError(t, json.Unmarshal(lines.Bytes(), v), lines.Text())
	}
	for range j.Rounds {
		var until asked
		var round reads
		next(&until)
		require.Eventually(t, func() bool { return isStopped(child.Process.Pid) }, patient, time.Millisecond)
		inTime := time.Now().Before(until.First)
		for range j.Connections {
			_, err := (<-questions).Write([]byte("!"))
			require.NoError(t, err)
		}
		<-time.After(time.Until(until.Last))
		require.NoError(t, child.Process.Signal(syscall.SIGCONT))
		next(&round)
		assert.Equal(t, j.Connections, round.Total)
		if inTime {
			sum.Total += round.Total
			sum.Timeouts += round.Timeouts
			sum.Lost += round.Lost
		}
	}
	return sum
}

// startChild starts another process of this program, which runs a test with a variable, and returns it with its input and
// output.
func startChild(t *testing.T, test, variable, value string) (*exec.Cmd, io.Writer, *bufio.Scanner) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$") //nolint:gosec // this program
	child.Env = append(os.Environ(), variable+"="+value)
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	require.NoError(t, err)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	return child, in, bufio.NewScanner(out)
}

// stoppedStore returns a store for a process that is to be stopped, in which only its deadline bounds a call.
func stoppedStore(t *testing.T, addr string, deadline time.Duration) *redisstore.Store {
	t.Helper()
	o := redisstore.ClientOptions(addr)
	o.DialTimeout, o.ReadTimeout = patient, patient
	return newStore(t, closing(t, redis.NewUniversalClient(o)), redisstore.Options{Deadline: deadline, MaxKeys: 1})
}

// isStopped reports whether a process is stopped.
func isStopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "T")
}

// A reply that has arrived is used, however late the process looks at it.
func TestArrivedRepliesAreUsed(t *testing.T) {
	t.Parallel()
	if text, ok := os.LookupEnv(stoppedVariable); ok {
		stops(t, text)
		return
	}
	for name, cert := range map[string]string{"plain": "", "TLS": "some"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := stopped{CertFile: cert, Rounds: 20, Connections: 100, Deadline: 200 * time.Millisecond}
			sum := j.run(t)
			for ; sum.Total == 0; sum = j.run(t) { // the machine is slower than that
				j.Deadline *= 2
			}
			assert.Zero(t, sum.Lost, "of %+v", sum)
		})
	}
	t.Run("without the dialer", func(t *testing.T) {
		t.Parallel()
		j := stopped{Plain: true, Rounds: 3, Connections: 100, Deadline: 200 * time.Millisecond}
		sum := j.run(t)
		for n := 0; n < 20 && sum.Lost == 0; n++ { // it is a matter of who comes first
			if sum.Total == 0 {
				j.Deadline *= 2
			}
			sum = j.run(t)
		}
		t.Logf("%+v", sum)
		assert.NotZero(t, sum.Lost, "or the test above tests nothing")
	})
}
