//go:build !386

package network_test

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bench/internal/network"
)

// The process of a network ends with it, whatever connections there are.
func TestProcessEnds(t *testing.T) {
	children := func() error {
		_, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		return err
	}
	addr := serve(t, echo)
	require.ErrorIs(t, children(), syscall.ECHILD)
	var conn net.Conn
	t.Run("a network", func(t *testing.T) {
		n := network.Start(t, time.Hour)
		require.NoError(t, children())
		var err error
		conn, err = n.Dial(t.Context(), "tcp", addr)
		require.NoError(t, err)
		_, err = io.WriteString(conn, "hello")
		require.NoError(t, err)
	})
	require.ErrorIs(t, children(), syscall.ECHILD)
	defer conn.Close()
	_, err := conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

// A write to a connection that is closed says so, as that of package net does.
func TestWriteAfterClose(t *testing.T) {
	conn := dial(t, network.Start(t, time.Millisecond), serve(t, echo))
	require.NoError(t, conn.Close())
	_, err := conn.Write([]byte("more"))
	require.ErrorIs(t, err, net.ErrClosed)
}

// A look into the socket, with which go-redis begins to use a connection again, finds out whether it is there.
func TestSyscallConn(t *testing.T) {
	conn := dial(t, network.Start(t, time.Millisecond), serve(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }))
	look := func() (n int, err error) {
		raw, failed := conn.(syscall.Conn).SyscallConn()
		require.NoError(t, failed)
		require.NoError(t, raw.Read(func(fd uintptr) bool {
			n, _, err = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			return true
		}))
		return n, err
	}
	_, err := look()
	require.ErrorIs(t, err, syscall.EAGAIN)
	_, err = io.WriteString(conn, ".")
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	n, err := look()
	require.NoError(t, err)
	assert.Zero(t, n)
}
