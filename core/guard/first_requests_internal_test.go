package guard

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Guards that are stacked on purpose stop costing anything after a while.
func TestRepeatsEnd(t *testing.T) {
	var r repeats
	assert.False(t, r.traces(), "no context is derived before an outer guard was seen")
	traced := 0
	for range 3 * tracedRequests {
		r.suspect()
		if r.traces() {
			traced++
		}
	}
	assert.Equal(t, tracedRequests, traced)
}
