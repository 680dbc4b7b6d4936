package core_test

import (
	"errors"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/core"
)

// advance lets time pass in a bubble, and what it wakes finish.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func down() error { return &core.StoreError{Class: core.ClassDown, Err: errors.New("gone")} }
