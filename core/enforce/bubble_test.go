package enforce_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// advance lets time pass in a bubble, and what it wakes finish.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// In microseconds.
const (
	second = 1_000_000
	epoch  = int64(1_700_000_000 * second)
)

const day = 24 * time.Hour

func newMemory(t testing.TB, maxKeys int) *core.Memory {
	t.Helper()
	m, err := core.NewMemory(core.MemoryOptions{MaxKeys: maxKeys})
	require.NoError(t, err)
	return m
}

func down() error { return &core.StoreError{Class: core.ClassDown, Err: errors.New("gone")} }
