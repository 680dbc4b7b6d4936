package redistest

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// only restricts the ports that the kernel chooses for a socket to one.
func only(port int) func(string, string, syscall.RawConn) error {
	const localPortRange = 51 // IP_LOCAL_PORT_RANGE, since Linux 6.3
	return func(_, _ string, conn syscall.RawConn) error {
		var failed error
		err := conn.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, localPortRange, port|port<<16)
		})
		return errors.Join(err, failed)
	}
}

// A reserved port is given to nobody who asks for any: no listener and no connection. A server that asks
// for it by its number gets it, and has it again after it was gone.
func TestReserve(t *testing.T) {
	t.Parallel()
	port, free, err := reserve()
	require.NoError(t, err)
	defer free()
	other, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer other.Close()
	listen := func(addr string) error {
		l, err := (&net.ListenConfig{Control: only(port)}).Listen(t.Context(), "tcp4", addr)
		if err == nil {
			err = l.Close()
		}
		return err
	}
	connect := func(ctx context.Context) error {
		conn, err := (&net.Dialer{Control: only(port)}).DialContext(ctx, "tcp4", other.Addr().String())
		if err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0) // or the port would be taken for a minute
			err = conn.Close()
		}
		return err
	}
	if err := listen("127.0.0.1:0"); errors.Is(err, syscall.ENOPROTOOPT) {
		t.Skip("this kernel does not let a test choose the port")
	}
	addr := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}).String()
	taken := func() {
		t.Helper()
		require.ErrorIs(t, listen("127.0.0.1:0"), syscall.EADDRINUSE)
		require.ErrorIs(t, listen("0.0.0.0:0"), syscall.EADDRINUSE)
		require.ErrorIs(t, connect(t.Context()), syscall.EADDRNOTAVAIL)
	}
	for range 3 {
		taken()
		_, err := net.Dial("tcp", addr)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		l, err := net.Listen("tcp", addr)
		require.NoError(t, err)
		taken()
		conn, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		stopListening(l) // closing alone may leave it to a process that is just being started
		require.NoError(t, l.Close())
		taken()
		require.NoError(t, conn.Close())
	}

	// This test can fail: what is not reserved is given away, unless somebody else was quicker.
	var errs [10]error
	for i := range errs {
		port, free, err = reserve()
		require.NoError(t, err)
		taken()
		free()
		errs[i] = errors.Join(listen("127.0.0.1:0"), connect(t.Context()))
	}
	require.Contains(t, errs, error(nil))
}

// The ports of a server and of a proxy stay theirs while nobody listens there.
func TestPortsAreKept(t *testing.T) {
	t.Parallel()
	s := Single(t)
	p := NewProxy(t, s.Addr())
	chosen := func(addr string) error {
		at, err := net.ResolveTCPAddr("tcp", addr)
		require.NoError(t, err)
		l, err := (&net.ListenConfig{Control: only(at.Port)}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
		if err == nil {
			err = l.Close()
		}
		return err
	}
	if errors.Is(chosen(s.Addr()), syscall.ENOPROTOOPT) {
		t.Skip("this kernel does not let a test choose the port")
	}
	for range 3 {
		s.Kill()
		require.ErrorIs(t, chosen(s.Addr()), syscall.EADDRINUSE)
		s.Restart(t)
		p.Refuse()
		require.ErrorIs(t, chosen(p.Addr()), syscall.EADDRINUSE)
		p.Pass()
		require.NoError(t, dial(t, p).incr("k"))
	}
}
