// Package network delays connections on one machine, for programs and tests.
package network

import (
	"context"
	"net"
	"runtime"
	"syscall"
	"time"
)

// Network delays what is written to its connections; answers come at once,
// so that each round trip is that much longer. It costs no connection, no copy through a second socket and next to no
// processor time, which a proxy on the same machine would take from what is measured.
//
// All writes of all connections wait in one queue, since all wait equally long, for one thread that sleeps to the
// microsecond.
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

// New starts a network, which ends with ctx.
func New(ctx context.Context, delay time.Duration) *Network {
	n := &Network{delay, make(chan packet, 1<<14)} // full, it slows the writers down, as a network does
	go n.deliver(ctx)
	return n
}

func (n *Network) deliver(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		select {
		case p := <-n.queue:
			for d := time.Until(p.due); d > 0; d = time.Until(p.due) {
				sleep(d)
			}
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
	return &slowConn{Conn: c, Network: n}, nil
}

// slowConn is a connection through a network.
type slowConn struct {
	net.Conn
	*Network
}

func (c *slowConn) Write(b []byte) (int, error) {
	c.queue <- packet{time.Now().Add(c.delay), c.Conn, append(make([]byte, 0, len(b)), b...)}
	return len(b), nil
}

// SyscallConn lets go-redis look whether the connection is still there, as it does with any other.
func (c *slowConn) SyscallConn() (syscall.RawConn, error) {
	return c.Conn.(syscall.Conn).SyscallConn() //nolint:forcetypeassert // a TCP connection
}
