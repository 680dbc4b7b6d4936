package dial

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
)

// Patient returns c, changed so that a reply which has arrived is used even if its deadline has passed meanwhile. On a
// machine that is short of processors, or after a process was stopped, Go's timers fire before it looks at the
// network: then a read fails with a timeout while the reply lies in the socket, a healthy server looks like one that is
// gone, and a decision that was made is lost.
//
// The error of a failed write says whether anything of the command was written, as one of which nothing was may be
// sent once more: see [Begun].
func Patient(c net.Conn) net.Conn {
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
	// begun is true if something was written, or a read brought nothing, since a reply, or a part of one, was last read.
	begun atomic.Bool
}

// Write implements net.Conn. TLS writes a command in several records.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.begun.Store(true)
	}
	if op, ok := err.(*net.OpError); ok { //nolint:errorlint // a socket returns it unwrapped, and so does this
		marked := *op
		marked.Err = &written{op.Err, c.begun.Load()}
		return n, &marked
	}
	return n, err
}

// Begun reports whether anything of the command was written before a write failed. It does not know that of a
// connection that this package did not make.
func Begun(op *net.OpError) (begun, known bool) {
	w, known := op.Err.(*written) //nolint:errorlint // it is never wrapped
	return known && w.begun, known
}

// written is the cause of a failed write, and whether anything of the command was written before.
type written struct {
	error
	begun bool
}

// Unwrap returns the socket's error.
func (w *written) Unwrap() error { return w.error }

// Timeout is called by net.OpError. A connection that the kernel has given up is broken, and another one may do.
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
	// After a read that brought nothing, as in a handshake, a write that fails did not come too late.
	c.begun.Store(n == 0)
	return n, err
}

// SyscallConn implements syscall.Conn: clients look into the socket of an idle connection before they use it.
func (c *conn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }
