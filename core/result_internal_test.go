package core

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

// A Result is copied in moves of 16 bytes. Where they do not come out even, the last two overlap, and the next copy has
// to wait until both have reached the cache, which took several nanoseconds of a decision in memory.
func TestResultIsCopiedInWholeMoves(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("only where a word has 64 bits")
	}
	assert.Zero(t, unsafe.Sizeof(Result{})%16, "%d bytes", unsafe.Sizeof(Result{}))
}
