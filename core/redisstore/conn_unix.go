//go:build unix

package redisstore

import "syscall"

// arrived reads what lies in the socket, without waiting, and whatever the deadline says.
func (c *conn) arrived(p []byte) (n int) {
	// Control does not look at the deadline, as Read of a RawConn would. Sockets of Go never block.
	_ = c.raw.Control(func(fd uintptr) { n, _ = syscall.Read(int(fd), p) })
	return max(n, 0)
}
