package observe

import (
	"math/bits"
	"math/rand/v2"
	"runtime"
)

// stripes is the number of parts in which counts are kept: as many as processors can write at a time, up to 4.
var stripes = 1 << bits.Len(uint(min(runtime.GOMAXPROCS(0), 4)-1)) //nolint:gosec // it is positive

// stripeLen is the length of a stripe of counts, in whole lines of memory.
var stripeLen = (wordCells + len(grid.native) + 7) &^ 7

// stripe returns the part in which to count now.
func stripe() int {
	if stripes == 1 {
		return 0
	}
	return int(rand.Uint32()) & (stripes - 1) //nolint:gosec // it chooses a counter
}
