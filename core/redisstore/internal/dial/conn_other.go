//go:build !unix

package dial

import "time"

// briefly is long enough to read a reply that has arrived.
const briefly = time.Millisecond

// arrived reads the bytes that lie in the socket. The client sets the deadline anew before its next read.
func (c *conn) arrived(p []byte) (n int) {
	if c.SetReadDeadline(time.Now().Add(briefly)) == nil {
		n, _ = c.Conn.Read(p)
	}
	return n
}
