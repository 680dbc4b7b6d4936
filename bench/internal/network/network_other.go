//go:build !linux || 386

package network

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"
)

// Network delays what is written to its connections; answers come at once.
//
// All writes of all connections wait in one queue, since all wait equally long, for one goroutine, which writes for the
// clients. Where it matters who pays for a write, measure on Linux.
type Network struct {
	delay time.Duration
	queue chan packet
}

// packet is one write to a connection.
type packet struct {
	due  time.Time
	conn net.Conn
	data []byte
}

// Child does nothing, as a network is no process here. On Linux a program that uses a network begins with it.
func Child() (isChild bool, err error) { return false, nil }

// Start starts a network, which ends with tb, for a program that begins with [Child].
func Start(tb testing.TB, delay time.Duration) *Network {
	tb.Helper()
	n := &Network{delay, make(chan packet, 1<<14)} // full, it slows the writers down, as a network does
	go n.deliver(tb.Context())
	return n
}

func (n *Network) deliver(ctx context.Context) {
	for {
		select {
		case p := <-n.queue:
			<-time.After(time.Until(p.due))
			_, _ = p.conn.Write(p.data) // of a broken connection the reader gets to know
		case <-ctx.Done():
			return
		}
	}
}

// Dial connects through the network.
func (n *Network) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, Network: n}, nil
}

// conn is a connection through a network.
type conn struct {
	net.Conn
	*Network
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	c.queue <- packet{time.Now().Add(c.delay), c.Conn, append(make([]byte, 0, len(b)), b...)}
	return len(b), nil
}

// SyscallConn lets go-redis look whether the connection is still there, as it does with any other.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	return c.Conn.(syscall.Conn).SyscallConn() //nolint:forcetypeassert // a TCP connection
}
