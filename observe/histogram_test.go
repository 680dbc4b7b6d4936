package observe_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/observe"
)

// Classic and native buckets are as if each duration had been put into them by itself, also where it lies on a bound.
func TestBucketsAreExact(t *testing.T) {
	var shortBounds []float64
	for _, m := range observe.Metrics() {
		if m.Name == "weir.decision.duration" {
			shortBounds = m.Bounds
		}
	}
	onBounds := []time.Duration{1, 60, time.Hour}
	for _, b := range shortBounds {
		ns := time.Duration(math.Round(b * 1e9))
		onBounds = append(onBounds, ns-1, ns, ns+1)
	}
	for i := -24 * 8; i <= 6*8; i++ {
		ns := time.Duration(math.Exp2(float64(i)/8) * 1e9)
		onBounds = append(onBounds, ns-1, ns, ns+1)
	}
	rapid.Check(t, func(r *rapid.T) {
		durations := rapid.SliceOfN(rapid.OneOf(
			rapid.SampledFrom(onBounds),
			rapid.Custom(func(r *rapid.T) time.Duration {
				return time.Duration(math.Exp2(rapid.Float64Range(0, 38).Draw(r, "bits")))
			}),
		), 1, 50).Draw(r, "durations")
		o := newObserver(t, observe.Options{})
		classic, native, zero, sum := make([]uint64, len(shortBounds)), map[int]int64{}, uint64(0), time.Duration(0)
		for _, d := range durations {
			o.Observe(guard.Event{Policy: "p", Outcome: core.Admitted, From: guard.FromStore, Took: d})
			sum += d
			for i, b := range shortBounds {
				if d.Seconds() <= b {
					classic[i]++
				}
			}
			// The bucket of the number whose logarithm it is, exactly: 2^(i/8) s is nearly never a whole number of
			// nanoseconds, and where it is, math.Exp2 is exact.
			switch i := sortBucket(d); {
			case d.Seconds() <= observe.NativeZero:
				zero++
			default:
				native[i]++
			}
		}
		h := o.Snapshot().Durations[0].Histogram
		assert.Equal(r, classic, h.Classic(shortBounds))
		gotZero, gotNative := h.Native()
		assert.Equal(r, zero, gotZero)
		assert.Equal(r, native, gotNative)
		assert.Equal(r, sum, h.Sum)
		assert.Equal(r, uint64(len(durations)), h.Count)
	})
}

// sortBucket returns the least i for which d is at most 2^(i/8) seconds, but not more than the first above a minute.
func sortBucket(d time.Duration) int {
	for i := -24 * 8; i <= 6*8; i++ {
		if d.Seconds() <= math.Exp2(float64(i)/8) {
			return i
		}
	}
	return 6*8 + 1
}

func TestQuantile(t *testing.T) {
	o := newObserver(t, observe.Options{})
	assert.Zero(t, observe.Histogram{}.Quantile(0.5))
	for i := range 1000 {
		o.Observe(guard.Event{Policy: "p", Outcome: core.Admitted, From: guard.FromStore, Took: time.Duration(i+1) * time.Millisecond})
	}
	h := o.Snapshot().Durations[0].Histogram
	for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 1} {
		want := max(q*1000, 1) * float64(time.Millisecond)
		assert.GreaterOrEqual(t, float64(h.Quantile(q)), want)
		assert.LessOrEqual(t, float64(h.Quantile(q)), want*1.1)
	}
	assert.Equal(t, time.Second, h.Quantile(1))
}
