package observe

import (
	"math/bits"
	"runtime"
	"unsafe"
)

// stripes is the number of parts in which counts are kept: as many as processors can write at a time, up to 4.
var stripes = 1 << bits.Len(uint(min(runtime.GOMAXPROCS(0), 1<<maxStripeBits)-1)) //nolint:gosec // it is positive

const maxStripeBits = 2

// stripeLen is the length of a stripe of counts, in whole lines of memory.
var stripeLen = (wordCells + len(grid.native) + 7) &^ 7

// stripe returns the part in which to count now. It goes by the place of the goroutine's stack, because goroutines that
// run at a time have different ones, and to look at it takes a nanosecond.
func stripe() int {
	var here byte
	at := uint64(uintptr(unsafe.Pointer(&here)) >> 11) //nolint:gosec // the least that a stack takes
	return int(at*0x9e3779b97f4a7c15>>(64-maxStripeBits)) & (stripes - 1)
}
