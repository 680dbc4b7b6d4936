package rows

import (
	"sync/atomic"
	"time"
)

// clock is the system's clock, read so that small corrections do not reach the
// arithmetic: monotonic, and moved only when it is a second or more off.
type clock struct {
	base   time.Time
	start  int64        // base in microseconds since the epoch
	offset atomic.Int64 // microseconds
}

func (c *clock) begin() {
	c.base = time.Now()
	c.start = c.base.UnixMicro()
}

// now returns microseconds since the epoch.
func (c *clock) now() int64 {
	return c.start + int64(time.Since(c.base)/time.Microsecond) + c.offset.Load()
}

// adjust follows a step of the system's clock. The algorithms survive steps in
// either direction; this only keeps them rare.
func (c *clock) adjust() {
	if off := time.Now().UnixMicro() - c.now(); off <= -1e6 || off >= 1e6 {
		c.offset.Add(off)
	}
}
