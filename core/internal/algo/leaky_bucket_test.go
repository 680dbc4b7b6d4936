package algo_test

import (
	"cmp"
	"math/big"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core/internal/algo"
)

func TestLeakyBucketTraces(t *testing.T) {
	trace{"5/1s burst 3", algo.Params{Rate: 5, Burst: 3, Period: second}, []step{
		{0, 1, false, false, 2, 0, 200000, 0},
		{0, 1, false, false, 1, 0, 400000, 200000},
		{0, 1, false, false, 0, 0, 600000, 400000},
		{0, 1, true, false, 0, 200000, 600000, 0},
		{200000, 1, false, false, 0, 0, 600000, 400000},
		{200000, 4, true, true, 0, 0, 600000, 0},
		{800000, 0, false, false, 3, 0, 0, 0},
		{800000, 3, false, false, 0, 0, 600000, 0},
	}}.check(t, 'l')
	trace{"3/1s", algo.Params{Rate: 3, Burst: 3, Period: second}, []step{
		{0, 1, false, false, 2, 0, 333334, 0},
		{0, 1, false, false, 1, 0, 666667, 333334},
		{0, 1, false, false, 0, 0, 1000000, 666667},
		{500000, 1, false, false, 0, 0, 833334, 500000},
	}}.check(t, 'l')
}

func TestLeakyBucketIsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { meterIsTheModel(t, 'l') })
}

func TestLeakyBucketRetryIsExact(t *testing.T) { retryIsExact(t, 'l') }

// Departures are spaced by the time of what left before, and no more than burst units
// are in the bucket: not even when somebody steps out of the queue.
func TestLeakyBucketSpacesDepartures(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history(t, 'l', anyOf(t, 'l', smallWaits(kind('l'))), func(b *bucket, charges []charge) {
			p := b.params
			stayed := slices.DeleteFunc(slices.Clone(charges), func(c charge) bool { return c.units == 0 })
			slices.SortStableFunc(stayed, func(a, b charge) int { return cmp.Compare(a.turn(), b.turn()) })
			for i, c := range stayed[min(1, len(stayed)):] {
				before := stayed[i]
				// A departure has whole microseconds, rounded up.
				d := times(c.turn()-before.turn()+1, p.Rate)
				require.Positive(t, d.Cmp(times(before.units, p.Period)), "%+v: %v leaves after %v", p, c, before)
			}
			for _, c := range stayed { // who is in it when c has just come
				in := new(big.Int)
				for _, other := range stayed {
					if other.At <= c.At && other.turn() > c.At {
						in.Add(in, big.NewInt(other.units))
					}
				}
				require.LessOrEqual(t, in.Cmp(big.NewInt(p.Burst)), 0, "%+v: %v units wait at %d", p, in, c.At)
			}
		})
	})
}

// 5/1s burst 3: three come at once, and the first, which has left, is given back. The
// next must leave 200 ms after the third all the same.
func TestLeakyBucketRefundCounterexample(t *testing.T) {
	p := algo.Params{Rate: 5, Burst: 3, Period: second}
	var charges []charge
	b := newKind(t, 'l', p)
	for range 3 {
		charges = append(charges, charge{Receipt: receipt(epoch, b.take(epoch, 1)), units: 1})
	}
	const now = epoch + 100_000
	b.refund(now, 1, charges[0].Receipt)
	require.True(t, b.take(now, 1).Refused)
	a := b.take(epoch+200_000, 1)
	assert.Equal(t, charges[2].turn()+200_000, receipt(epoch+200_000, a).At+a.Wait)

	// Three units give up with one behind them: a part of them, given back, would let
	// somebody leave together with the one.
	p.Burst = 5
	b = newKind(t, 'l', p)
	b.take(epoch, 1)
	three := receipt(epoch, b.take(epoch, 3))
	require.Equal(t, int64(800_000), b.take(epoch, 1).Wait)
	b.refund(epoch, 3, three)
	require.True(t, b.take(epoch, 1).Refused)
	assert.Equal(t, int64(800_000), b.take(epoch+200_000, 1).Wait)
}

// The last in the queue gives its place to the next.
func TestLeakyBucketRefundOfTheLast(t *testing.T) {
	b := newKind(t, 'l', algo.Params{Rate: 5, Burst: 3, Period: second})
	b.take(epoch, 1)
	last := receipt(epoch, b.take(epoch, 1))
	require.Equal(t, int64(200_000), last.Delay)
	b.refund(epoch+100_000, 1, last)
	assert.Equal(t, int64(100_000), b.take(epoch+100_000, 1).Wait, "at 200 ms, as the other would have")
}

// A queue does not look ahead of itself.
func TestLeakyBucketDoesNotReserve(t *testing.T) {
	b := newKind(t, 'l', algo.Params{Rate: 5, Burst: 1, Period: second})
	b.take(epoch, 1)
	assert.False(t, b.Admits(b.s, epoch, 1, second))
	assert.Equal(t, b.AppendTake(nil, 1, 0, 0), b.AppendTake(nil, 1, second, 0))
	assert.Equal(t, algo.Answer{Refused: true, Wait: 200_000, Reset: 200_000}, b.reserve(epoch, 1, second))
}
