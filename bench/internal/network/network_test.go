package network_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bench/internal/network"
)

// A round trip through a network takes its delay, what is written stays in order, and a pipeline waits once.
func TestNetwork(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	const delay, pieces = 100 * time.Millisecond, 100
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	conn, err := network.New(ctx, delay).Dial(ctx, "tcp", listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
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
	_, err = io.ReadFull(conn, got)
	require.NoError(t, err)
	assert.Equal(t, want, string(got))
	assert.GreaterOrEqual(t, time.Since(start), delay)
	assert.Less(t, time.Since(start), pieces*delay, "each piece has waited for the one before")
}
