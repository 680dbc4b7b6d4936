package core_test

import (
	"testing/synctest"
	"time"
)

// advance lets time pass in a bubble, and what it wakes finish.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
