//go:build !linux

package network

import "time"

// sleep sleeps as exactly as the runtime can, which is to a millisecond.
func sleep(d time.Duration) {
	<-time.After(d)
}
