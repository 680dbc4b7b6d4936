package hrtimer_test

import (
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/redisstore/internal/hrtimer"
)

// Nobody who has slept has slept too short, however many others sleep and whatever the timer was used for before.
func TestSleep(t *testing.T) {
	t.Parallel()
	var slept atomic.Int32
	var wg sync.WaitGroup
	for range 2 * hrtimer.MaxSleeping {
		wg.Go(func() {
			for _, d := range []time.Duration{20 * time.Millisecond, time.Nanosecond, 50 * time.Microsecond, time.Millisecond} {
				start := time.Now()
				if hrtimer.Sleep(d) {
					assert.GreaterOrEqual(t, time.Since(start), d)
					slept.Add(1)
				}
			}
		})
	}
	wg.Wait()
	assert.Equal(t, runtime.GOOS == "linux", slept.Load() > 0)
}

// There is nothing to wait for: a timer that is set to zero never fires.
func TestNoTime(t *testing.T) {
	t.Parallel()
	assert.False(t, hrtimer.Sleep(0))
	assert.False(t, hrtimer.Sleep(-time.Hour))
}

// No more descriptors are open than goroutines have slept at a time, nor than MaxSleeping.
func TestDescriptors(t *testing.T) { //nolint:paralleltest // it counts the descriptors of the process
	if runtime.GOOS != "linux" {
		t.Skip("no descriptor is used")
	}
	timers := func() (n int) {
		all, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		for _, fd := range all {
			if name, _ := os.Readlink("/proc/self/fd/" + fd.Name()); name == "anon_inode:[timerfd]" {
				n++
			}
		}
		return n
	}
	assert.True(t, hrtimer.Sleep(time.Microsecond))
	before := timers()
	for range 10 * hrtimer.MaxSleeping {
		assert.True(t, hrtimer.Sleep(time.Microsecond))
	}
	assert.Equal(t, before, timers())
	var slept atomic.Int32
	var wg sync.WaitGroup
	for range 10 * hrtimer.MaxSleeping {
		wg.Go(func() {
			if hrtimer.Sleep(100 * time.Millisecond) {
				slept.Add(1)
			}
		})
	}
	wg.Wait()
	assert.GreaterOrEqual(t, slept.Load(), int32(hrtimer.MaxSleeping))
	assert.LessOrEqual(t, timers(), hrtimer.MaxSleeping)
}

// BenchmarkSleep measures how long a tenth of a millisecond is, in a process that is idle otherwise, and in one of which
// goroutines take turns on all processors.
func BenchmarkSleep(b *testing.B) {
	for _, busy := range []bool{false, true} {
		b.Run(map[bool]string{false: "idle", true: "busy"}[busy], func(b *testing.B) {
			var over atomic.Bool
			var wg sync.WaitGroup
			for range 2 * runtime.GOMAXPROCS(0) {
				wg.Go(func() {
					for start := time.Now(); busy && !over.Load(); {
						if time.Since(start) > 20*time.Microsecond {
							runtime.Gosched()
							start = time.Now()
						}
					}
				})
			}
			var took []time.Duration
			for b.Loop() {
				start := time.Now()
				hrtimer.Sleep(100 * time.Microsecond)
				took = append(took, time.Since(start))
			}
			over.Store(true)
			wg.Wait()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
		})
	}
}
