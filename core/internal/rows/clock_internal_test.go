package rows

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// Small corrections of the system's clock do not reach the arithmetic.
func TestClockFollowsStepsOfASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		c.begin()
		assert.Equal(t, time.Now().UnixMicro(), c.now())
		advance(time.Minute + 5*time.Microsecond)
		assert.Equal(t, time.Now().UnixMicro(), c.now())
		for off, followed := range map[int64]bool{
			1: false, 999_999: false, 1_000_000: true, 3_600_000_000: true,
			-1: false, -999_999: false, -1_000_000: true, -3_600_000_000: true,
		} {
			c.offset.Store(off) // the system's clock stepped by -off
			c.adjust()
			if followed {
				assert.Zero(t, c.offset.Load(), "%d us", off)
			} else {
				assert.Equal(t, off, c.offset.Load(), "%d us", off)
			}
		}
		m := New(1000)
		put(m, plainPolicy("a", 1), "k", 0, m.Now()+1e9)
		m.clock.offset.Store(-5_000_000)
		advance(sweepEvery)
		assert.Zero(t, m.clock.offset.Load(), "a sweep looks at the clock")
	})
}
