package guard

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Two guards that only look alike stop costing anything after a while.
func TestWatchEnds(t *testing.T) {
	var w watch
	assert.False(t, w.next(), "nothing is marked before an outer guard was seen")
	marked := 0
	for range 3 * watches * watched {
		w.outer(true)
		if w.next() {
			marked++
		}
	}
	assert.Equal(t, watches*watched, marked)

	var unlike watch
	marked = 0
	for range 3 * watched {
		unlike.outer(false)
		if unlike.next() {
			marked++
		}
	}
	assert.Equal(t, watched, marked)

	var found watch
	found.outer(true)
	assert.True(t, found.next())
	assert.True(t, found.found())
	assert.False(t, found.found(), "it is said once")
	found.outer(true)
	assert.False(t, found.next())
}
