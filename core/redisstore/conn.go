package redisstore

import (
	"errors"
	"net"
	"os"
	"syscall"
)

// patient returns c, changed so that a reply which has arrived is used even if its deadline has passed meanwhile. On a
// machine that is short of processors, or after a process was stopped, Go's timers fire before it looks at the
// network: then a read fails with a timeout while the reply lies in the socket, a healthy server looks like one that is
// gone, and a decision that was made is lost.
func patient(c net.Conn) net.Conn {
	source, ok := c.(syscall.Conn)
	if !ok {
		return c
	}
	raw, err := source.SyscallConn()
	if err != nil {
		return c
	}
	return &conn{c, raw}
}

type conn struct {
	net.Conn
	raw syscall.RawConn
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n == 0 && len(p) > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		if n = c.arrived(p); n > 0 {
			return n, nil
		}
	}
	return n, err
}

// SyscallConn implements syscall.Conn: clients look into the socket of an idle connection before they use it.
func (c *conn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }
