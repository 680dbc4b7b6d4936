package redisstore

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
)

// patient returns c, changed so that a reply which has arrived is used even if its deadline has passed meanwhile. On a
// machine that is short of processors, or after a process was stopped, Go's timers fire before it looks at the
// network: then a read fails with a timeout while the reply lies in the socket, a healthy server looks like one that is
// gone, and a decision that was made is lost.
//
// The error of a write that failed says whether anything of the question has gone, as what was not even begun may be
// asked once more: see written.
func patient(c net.Conn) net.Conn {
	source, ok := c.(syscall.Conn)
	if !ok {
		return c
	}
	raw, err := source.SyscallConn()
	if err != nil {
		return c
	}
	return &conn{Conn: c, raw: raw}
}

type conn struct {
	net.Conn
	raw syscall.RawConn
	// begun: something was written, or a read brought nothing, since an answer, or a part of one, was last read.
	begun atomic.Bool
}

// Write implements net.Conn. TLS writes a question in several records.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.begun.Store(true)
	}
	if op, ok := err.(*net.OpError); ok { //nolint:errorlint // that is what a socket returns, and what is returned here
		marked := *op
		marked.Err = &written{op.Err, c.begun.Load()}
		return n, &marked
	}
	return n, err
}

// written is the cause of a failed write that knows whether anything of the question has gone.
type written struct {
	error
	begun bool
}

// Unwrap returns what it was for the socket.
func (w *written) Unwrap() error { return w.error }

// Timeout is asked by net.OpError. A connection that the kernel has given up is broken, and another one may do.
func (w *written) Timeout() bool {
	return errors.Is(w.error, os.ErrDeadlineExceeded)
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n == 0 && len(p) > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		if n = c.arrived(p); n > 0 {
			err = nil
		}
	}
	// A caller that has waited for an answer in vain, as while a server is greeted, did not come too late.
	c.begun.Store(n == 0)
	return n, err
}

// SyscallConn implements syscall.Conn: clients look into the socket of an idle connection before they use it.
func (c *conn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }
