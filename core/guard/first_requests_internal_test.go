package guard

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Guards that are stacked on purpose cost less and less, and the search never ends.
func TestRepeatsCostLess(t *testing.T) {
	var r repeats
	assert.False(t, r.traces(), "no context is derived before an outer guard was seen")
	traced := map[bool]int{} // by whether it was in the second half of the requests
	const requests = 1 << 16
	for n := range requests {
		r.suspect()
		if r.traces() {
			traced[n >= requests/2-1]++
		}
	}
	assert.Less(t, traced[false], 16*tracedRequests)
	assert.Equal(t, tracedRequests+1, traced[true], "one more after the very last")
	r.end()
	r.suspect()
	assert.False(t, r.traces(), "it was found")
}
