package network_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bench/internal/network"
	"github.com/weir-go/weir/internal/hosttest"
)

func TestMain(m *testing.M) { hosttest.Main(m, network.Child) }

// serve serves each connection to an address in a goroutine, and closes it then.
func serve(t *testing.T, f func(c net.Conn)) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				f(c)
			})
		}
	})
	return listener.Addr().String()
}

func echo(c net.Conn) { _, _ = io.Copy(c, c) }

func dial(t *testing.T, n *network.Network, addr string) net.Conn {
	t.Helper()
	c, err := n.Dial(t.Context(), "tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A round trip through a network takes its delay, what is written stays in order, and a pipeline waits once.
func TestNetwork(t *testing.T) {
	const delay, pieces = 100 * time.Millisecond, 100
	addr := serve(t, echo)
	conn := dial(t, network.Start(t, delay), addr)
	assert.Equal(t, addr, conn.RemoteAddr().String())
	for range 2 {
		start, want := time.Now(), ""
		for i := range pieces {
			text := fmt.Sprintf("%03d", i)
			want += text
			buf := []byte(text)
			_, err := conn.Write(buf)
			require.NoError(t, err)
			copy(buf, "...") // it is the caller's again
		}
		got := make([]byte, len(want))
		_, err := io.ReadFull(conn, got)
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
		assert.GreaterOrEqual(t, time.Since(start), delay)
		assert.Less(t, time.Since(start), pieces*delay, "each piece has waited for the one before")
	}
}

// Connections do not wait for one another, and each has its answers.
func TestConnectionsAtOnce(t *testing.T) {
	const delay, conns, trips = 20 * time.Millisecond, 20, 5
	n, addr := network.Start(t, delay), serve(t, echo)
	start := time.Now()
	var clients sync.WaitGroup
	for i := range conns {
		conn := dial(t, n, addr)
		clients.Go(func() {
			for trip := range trips {
				want := fmt.Sprintf("connection %2d, trip %d", i, trip)
				_, err := io.WriteString(conn, want)
				assert.NoError(t, err)
				got := make([]byte, len(want))
				_, err = io.ReadFull(conn, got)
				assert.NoError(t, err)
				assert.Equal(t, want, string(got))
			}
		})
	}
	clients.Wait()
	assert.Less(t, time.Since(start), conns*trips*delay, "they have waited for one another")
	assert.GreaterOrEqual(t, time.Since(start), trips*delay)
}

// A server that closes a connection does so after all that it has sent.
func TestServerCloses(t *testing.T) {
	addr := serve(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 5))
		_, _ = io.WriteString(c, "goodbye")
	})
	conn := dial(t, network.Start(t, 10*time.Millisecond), addr)
	_, err := io.WriteString(conn, "hello")
	require.NoError(t, err)
	got, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Equal(t, "goodbye", string(got))
}

// The server gets to know of a connection that the client closes, whatever is under way to it.
func TestClientCloses(t *testing.T) {
	texts := []string{"", "an answer on its way"}
	n, closed := network.Start(t, time.Hour), make(chan struct{}, len(texts))
	addr := serve(t, func(c net.Conn) {
		echo(c)
		closed <- struct{}{}
	})
	for _, text := range texts {
		conn := dial(t, n, addr)
		_, err := io.WriteString(conn, text)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		<-closed
		_, err = conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, net.ErrClosed)
	}
}

// A read ends with its deadline, and the connection is of use after it.
func TestReadDeadline(t *testing.T) {
	addr := serve(t, echo)
	far, near := dial(t, network.Start(t, time.Hour), addr), dial(t, network.Start(t, time.Millisecond), addr)
	_, err := io.WriteString(far, "hello")
	require.NoError(t, err)
	for _, conn := range []net.Conn{far, near} { // to near, nothing was written that it could read
		for _, set := range []func(time.Time) error{conn.SetReadDeadline, conn.SetDeadline} {
			require.NoError(t, set(time.Now().Add(time.Millisecond)))
			_, err := conn.Read(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.NoError(t, set(time.Time{}))
		}
	}
	_, err = io.WriteString(near, "hello")
	require.NoError(t, err)
	got := make([]byte, 5)
	_, err = io.ReadFull(near, got)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(got))
}

// A client that does not read holds up no other one, and finds everything when it reads.
func TestSlowReader(t *testing.T) {
	n, answer := network.Start(t, time.Millisecond), bytes.Repeat([]byte("0123456789"), 1<<19)
	sent := make(chan struct{})
	slow := dial(t, n, serve(t, func(c net.Conn) {
		_, _ = c.Write(answer)
		close(sent)
	}))
	quick := dial(t, n, serve(t, echo))
	for done := false; !done; {
		_, err := io.WriteString(quick, "hello")
		require.NoError(t, err)
		_, err = io.ReadFull(quick, make([]byte, 5))
		require.NoError(t, err)
		select {
		case <-sent:
			done = true
		default:
		}
	}
	got, err := io.ReadAll(slow)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(answer, got))
}
