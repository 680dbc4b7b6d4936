package rows

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The timer exists while there are rows, and only then.
func TestMapSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, p := New(1000), plainPolicy("a", 1)
		in := func(d time.Duration) int64 { return m.Now() + d.Microseconds() }
		_, stored := get(m, p, "k")
		assert.False(t, stored)
		assert.False(t, m.sweeping.Load(), "looking stores nothing")
		for i := range 100 {
			put(m, p, fmt.Sprint(i), 0, in(time.Second))
		}
		put(m, p, "long", 0, in(25*time.Second))
		assert.Equal(t, 101, m.Len())
		assert.True(t, m.sweeping.Load())
		advance(sweepEvery - 1)
		assert.Equal(t, 101, m.Len())
		advance(1)
		assert.Equal(t, 1, m.Len(), "the dead are swept")
		assert.True(t, m.sweeping.Load())
		_, stored = get(m, p, "long")
		assert.True(t, stored, "the living are not")
		advance(sweepEvery)
		assert.Equal(t, 1, m.Len())
		advance(sweepEvery)
		assert.Zero(t, m.Len())
		assert.False(t, m.sweeping.Load(), "no timer without rows")
		advance(time.Hour)
		put(m, p, "k", 0, in(time.Second))
		assert.True(t, m.sweeping.Load())
		advance(sweepEvery)
		assert.Zero(t, m.Len())
		assert.False(t, m.sweeping.Load())
	})
}

// What was swept leaves no memory behind, neither in the rows nor beside them.
func TestMapGivesMemoryBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 2000
		m, p, v := New(1_000_000), plainPolicy("a", 1), varyingPolicy("b", 40)
		later := m.Now() + 1e6
		for i := range keys {
			put(m, p, fmt.Sprint(i), 0, later)
			put(m, v, fmt.Sprint(i), 0, 40, later)
		}
		require.Equal(t, 2*keys, m.Len())
		advance(2 * sweepEvery)
		assert.Zero(t, m.Len())
		for i := range m.shards {
			for tab := range m.shards[i].tables() {
				assert.LessOrEqual(t, tab.size(), minRows)
				assert.Empty(t, slices.Concat(tab.slots...), "what is left of a few rows is empty")
			}
		}
	})
}

// A Map that nobody uses any more needs no Close: its timer does not hold it.
func TestMapIsCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unused := func() weak.Pointer[Map] {
			m := New(1000)
			put(m, plainPolicy("a", 1), "k", 0, m.Now()+1e9)
			assert.True(t, m.sweeping.Load())
			return weak.Make(m)
		}()
		runtime.GC()
		assert.Nil(t, unused.Value())
		advance(sweepEvery) // the timer finds nothing
	})
}

// Forced times are no business of the system's clock: nothing is swept by it.
func TestMapDoesNotSweepForcedTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, p := New(64), plainPolicy("a", 1) // one shard
		for i := range 20 {                  // more than fit without a rebuild
			put(m, p, fmt.Sprint(i), 1_000_000, 2_000_000) // 1970
			put(m, p, fmt.Sprint(i), 1_000_000, 3_000_000)
		}
		advance(time.Hour)
		assert.False(t, m.sweeping.Load())
		assert.Equal(t, 20, m.Len())
	})
}
