//go:build !386

package network

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/hosttest"
)

// Network delays the answers on its connections. What is written goes straight to the server; what the server sends is
// read by a process of the network, which holds it for the delay and then writes it to a Unix socket from which the
// client reads. So a client pays for its own writes and reads, and its process has nothing to do with the delay.
type Network struct {
	relay *net.UnixConn // takes the descriptors of connections
}

// Start starts a network, which ends with tb, for a program that begins with [Child].
func Start(tb testing.TB, delay time.Duration) *Network {
	tb.Helper()
	if _, found := os.LookupEnv(childEnv); found {
		tb.Fatal("network: this process belongs to a network: call Child first in main or TestMain")
	}
	var addr string
	if err := hosttest.Start(tb, childEnv, delay).Read(&addr); err != nil {
		tb.Fatal(err)
	}
	relay, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: addr, Net: "unixgram"})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = relay.Close() })
	return &Network{relay}
}

// Dial connects through the network.
func (n *Network) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	server, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	defer server.Close() // descriptors of it remain
	requests, err := unpolled(server)
	if err != nil {
		return nil, err
	}
	answers, err := n.handOver(requests)
	if err != nil {
		_ = requests.Close()
		return nil, err
	}
	return &conn{Conn: answers, requests: requests, local: server.LocalAddr(), remote: server.RemoteAddr()}, nil
}

// unpolled returns the socket of a connection as a file that Go's poller does not watch: it would wake a thread of this
// process for each answer, which the relay reads.
func unpolled(server net.Conn) (file *os.File, err error) {
	raw, err := server.(syscall.Conn).SyscallConn() //nolint:forcetypeassert // all connections of a net.Dialer are
	if err != nil {
		return nil, err
	}
	failed := raw.Control(func(fd uintptr) {
		own, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_DUPFD_CLOEXEC, 0)
		if errno != 0 {
			err = os.NewSyscallError("fcntl", errno)
			return
		}
		_ = syscall.SetNonblock(int(own), false) // NewFile leaves one that does not block to the poller
		file = os.NewFile(own, "server")
	})
	return file, errors.Join(failed, err)
}

// handOver gives the relay a server's socket and one end of a pair, and returns the other end.
func (n *Network) handOver(server *os.File) (answers net.Conn, err error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	near, far := os.NewFile(uintptr(pair[0]), "near"), os.NewFile(uintptr(pair[1]), "far")
	defer near.Close() // FileConn duplicates it
	defer far.Close()
	from, err := server.SyscallConn()
	if err != nil {
		return nil, err
	}
	to, err := n.relay.SyscallConn()
	if err != nil {
		return nil, err
	}
	failed := from.Control(func(fd uintptr) {
		full := to.Write(func(relay uintptr) (done bool) { // WriteMsgUnix refuses a datagram socket that is connected
			err = syscall.Sendmsg(int(relay), nil, syscall.UnixRights(int(fd), pair[1]), nil, 0)
			return !errors.Is(err, syscall.EAGAIN)
		})
		err = errors.Join(full, os.NewSyscallError("sendmsg", err))
	})
	if err := errors.Join(failed, err); err != nil {
		return nil, err
	}
	return net.FileConn(near)
}

// conn is a connection through a network: it reads from the relay and writes to the server. A write has no deadline, and
// blocks while the server reads nothing, whoever closes the connection.
type conn struct {
	net.Conn // to the relay

	requests      *os.File
	local, remote net.Addr
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.requests.Write(b)
	if errors.Is(err, os.ErrClosed) {
		err = net.ErrClosed
	}
	if err != nil {
		err = &net.OpError{Op: "write", Net: c.remote.Network(), Source: c.local, Addr: c.remote, Err: err}
	}
	return n, err
}

// Close implements net.Conn. The server gets to know of it when the relay has closed its descriptor as well, which it
// does at once.
func (c *conn) Close() error { return errors.Join(c.requests.Close(), c.Conn.Close()) }

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SyscallConn lets go-redis look whether the connection is still there, as it does with any other: into the socket
// from which it reads.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	return c.Conn.(syscall.Conn).SyscallConn() //nolint:forcetypeassert // a unix connection
}
