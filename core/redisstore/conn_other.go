//go:build !unix

package redisstore

import "time"

// briefly is a time in which a reply that has arrived can be read.
const briefly = time.Millisecond

// arrived reads what lies in the socket. The client sets the deadline anew before its next read.
func (c *conn) arrived(p []byte) (n int) {
	if c.SetReadDeadline(time.Now().Add(briefly)) == nil {
		n, _ = c.Conn.Read(p)
	}
	return n
}
