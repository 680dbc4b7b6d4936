//go:build unix

package dial

import "syscall"

// arrived reads the bytes that lie in the socket, without waiting and whatever the deadline says.
func (c *conn) arrived(p []byte) (n int) {
	// Control does not look at the deadline, as Read of a RawConn would. Go's sockets never block.
	_ = c.raw.Control(func(fd uintptr) { n, _ = syscall.Read(int(fd), p) })
	return max(n, 0)
}
