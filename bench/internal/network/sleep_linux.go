package network

import (
	"syscall"
	"time"
)

// sleep sleeps as exactly as the kernel can, or less, if a signal comes. The runtime's timers are exact to a
// millisecond where nothing else runs.
func sleep(d time.Duration) {
	ts := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&ts, nil)
}
