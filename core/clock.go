package core

import (
	"sync/atomic"
	"time"
)

// clock is the system's clock, read so that small corrections do not reach the
// arithmetic: monotonic, and moved only when it is a second or more off.
type clock struct {
	base   time.Time
	offset *atomic.Int64 // microseconds
}

func newClock() clock { return clock{time.Now(), new(atomic.Int64)} }

// now returns microseconds since the epoch.
func (c clock) now() int64 {
	return c.base.UnixMicro() + int64(time.Since(c.base)/time.Microsecond) + c.offset.Load()
}

// adjust follows a step of the system's clock. The algorithms survive steps in
// either direction; this only keeps them rare.
func (c clock) adjust() {
	if off := time.Now().UnixMicro() - c.now(); off <= -1e6 || off >= 1e6 {
		c.offset.Add(off)
	}
}
