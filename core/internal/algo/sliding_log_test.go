package algo_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/internal/algo"
)

func TestSlidingLogTraces(t *testing.T) {
	trace{"2/10s", algo.Params{Rate: 2, Period: 10 * second}, []step{
		{at: 0, cost: 1, remaining: 1, reset: 10 * second},
		{at: 4 * second, cost: 1, remaining: 0, reset: 10 * second},
		{at: 9 * second, cost: 1, refused: true, retry: second, reset: 5 * second},
		{at: 9 * second, cost: 2, refused: true, retry: 5 * second, reset: 5 * second},
		{at: 9 * second, cost: 3, refused: true, never: true, reset: 5 * second},
		{at: 10 * second, cost: 1, remaining: 0, reset: 10 * second},
	}}.check(t, 'x')
}

func TestSlidingLogIsTheModel(t *testing.T) {
	slidingIsTheModel(t, 'x', func() slidingModel { return new(listModel) })
}

func TestSlidingLogBound(t *testing.T) { slidingBound(t, 'x') }

func TestSlidingLogRetryIsExact(t *testing.T) { slidingRetryIsExact(t, 'x') }

func TestSlidingLogIsShort(t *testing.T) {
	_, err := kind('x').New(algo.Params{Rate: algo.MaxLog + 1, Period: second})
	require.EqualError(t, err, `a log remembers every unit, and a rate of 1001 is too much for it; give at most 1000, or use "sliding-window"`)
	b := newKind(t, 'x', algo.Params{Rate: algo.MaxLog, Period: second})
	assert.Equal(t, 2, b.Len(b.s), "unused")
	for i := range int64(algo.MaxLog) {
		require.False(t, b.take(epoch+i, 1).Refused)
	}
	assert.Equal(t, b.Words(), b.Len(b.s), "full")
	assert.Equal(t, algo.Answer{Refused: true, Wait: 1, Reset: 1000}, b.take(epoch+second-1, 1))
	assert.False(t, b.take(epoch+second, 1).Refused)
	text := b.AppendText(nil, b.s)
	assert.Equal(t, 4042, len(text), "little for each entry") //nolint:testifylint // Len would print it all

	// A lower limit waits for all but its own units, and changes nothing.
	b.become(t, 'x', algo.Params{Rate: 3, Period: second})
	assert.Equal(t, algo.Answer{Refused: true, Wait: 998, Reset: second}, b.take(epoch+second, 1))
	assert.Equal(t, string(text), string(b.AppendText(nil, b.s)))
}

func TestSlidingLogRefund(t *testing.T) {
	b := newKind(t, 'x', algo.Params{Rate: 10, Period: 10 * second})
	const three = "x1800000000000009,6,1800000000000000,1,5,3,4,2"
	for _, c := range []struct {
		at, units  int64
		text, want string
	}{
		{9, 1, three, "x1800000000000009,5,1800000000000000,1,5,3,4,1"},
		{9, 2, three, "x1800000000000005,4,1800000000000000,1,5,3"},
		{5, 1, three, "x1800000000000009,5,1800000000000000,1,5,2,4,2"},
		{5, 9, three, "x1800000000000009,3,1800000000000000,1,9,2"},
		{0, 9, three, "x1800000000000009,5,1800000000000005,3,4,2"},
		{9, 9, "x1800000000000009,2,1800000000000009,2", ""},
		{8, 1, three, three},
		{10, 1, three, "x1800000000000009,5,1800000000000000,1,5,3,4,1"}, // the clock has stepped back
		{-1, 1, three, three},
		{9, 0, three, three},
	} {
		require.True(t, algo.ParseText(b, b.s, []byte(c.text)))
		b.Load(b.s, epoch+10)
		changed := b.Refund(b.s, epoch+10, c.units, algo.Receipt{At: epoch + c.at})
		assert.Equal(t, c.want, string(b.AppendText(nil, b.s)), "%d units at %d of %s", c.units, c.at, c.text)
		assert.Equal(t, c.want != c.text, changed)
	}
}

func TestSlidingLogLoads(t *testing.T) {
	b := newKind(t, 'x', algo.Params{Rate: 10, Period: 10 * second})
	checkLoads(t, b, epoch+20*second, []loads{
		{"", "", false},
		{"x1800000020000000,5,1800000019999995,2,5,3", "x1800000020000000,5,1800000019999995,2,5,3", false},
		{"x1800000010000001,5,1800000010000000,2,1,3", "x1800000010000001,3,1800000010000001,3", false},
		{"x1800000010000000,5,1800000009999995,2,5,3", "", false},
		{"x1800000010000000,11,1800000010000000,11", "", false},
		{"x1800000020000001,5,1800000019999999,2,2,3", "x1800000020000000,5,1800000019999999,2,1,3", true},
		{"x1800000020000003,10,1800000019999993,4,7,1,2,2,1,3", "x1800000020000000,10,1800000019999993,4,7,6", true},
		{"x1800000020000003,10,1800000019999992,4,7,1,3,2,1,3", "x1800000020000000,10,1800000019999992,4,7,1,1,5", true},
		{"x9007199254740991,1000,9007199254740990,1,1,999", "x1800000020000000,1000,1800000020000000,1000", true},
		{"x1800000020000000,1000,1800000019999999,1,1,999", "x1800000020000000,1000,1800000019999999,1,1,999", false},
		{"x1800000020000000,11,1800000019999990,1,5,7,5,3", "x1800000020000000,11,1800000019999990,1,5,7,5,3", false},
		{"x1800000020000000,11,1800000009999995,1,10000000,7,5,3", "x1800000020000000,10,1800000019999995,7,5,3", false},
		{"x1800000020000001,12,1800000019999991,1,5,2,5,9", "x1800000020000000,12,1800000019999991,1,5,2,4,9", true},
	})
}

func TestSlidingLogText(t *testing.T) {
	b := newKind(t, 'x', algo.Params{Rate: 10, Period: 10 * second})
	long := "x1800000000000999,1000,1800000000000000,1" + strings.Repeat(",1,1", algo.MaxLog-1)
	for _, text := range []string{"", "x1800000000000000,1,1800000000000000,1", "x9007199254740991,1000,1,999,9007199254740990,1", "x1,1,1,1", long} {
		assert.True(t, algo.ParseText(b, b.s, []byte(text)), text)
		assert.Equal(t, text, string(b.AppendText(nil, b.s)))
	}
	for _, text := range []string{
		"x", "x5", "x5,", "x5,1", "x5,1,", "x5,1,5", "x5,1,5,", "x,1,5,1", "x5,,5,1", "x5,1,,1", "x5,1,5,1,", "5,1,5,1", "s5,1,5,1", "X5,1,5,1", "x5,1,5,1;", "x5,1,5,1 ",
		"x0,1,0,1", "x5,0,5,0", "x5,0", "x05,1,5,1", "x5,01,5,1", "x5,1,05,1", "x5,1,5,01", "x-5,1,5,1", "x5,-1,5,1", "x5,1,-5,1", "x5,1,5,-1",
		"x5,1,4,1", "x5,1,6,1", "x5,2,5,1", "x5,1,5,2", // nothing else follows
		"x5,3,4,1", "x5,3,4,1,", "x5,3,4,1,1", "x5,3,4,1,1,", "x5,3,4,1,0,2", "x5,3,4,1,1,0", "x5,3,4,1,01,2", "x5,3,4,1,1,02", "x5,3,4,1,-1,2", "x5,3,4,1,1,2,", "x5,3,4,1,1,2;",
		"x5,3,4,1,1,1", "x5,3,4,1,1,3", "x5,3,4,1,2,2", "x5,3,3,1,1,2", "x5,3,3,1,1,1,2,1", "x5,3,4,1,1,2,1,1", "x5,3,5,1,0,2",
		"x9007199254740992,1,9007199254740992,1", "x5,1,99999999999999999999,1", "x5,1001,5,1001", "x5,1001,4,1,1,1000", "x5,9007199254740992,5,9007199254740992",
		"x5,3,4,1,99999999999999999999,2", "x5,3,4,1,1,99999999999999999999",
		long + ",1,1", strings.Replace(long, "1000", "1001", 1) + ",1,1",
	} {
		assert.False(t, algo.ParseText(b, b.s, []byte(text)), text)
		assert.Empty(t, b.AppendText(nil, b.s), text)
	}
}

func TestSlidingLogReply(t *testing.T) {
	b := newKind(t, 'x', algo.Params{Rate: 10, Period: 10 * second})
	newest := int64(epoch + 20*second)
	checkReplies(t, b, epoch+21*second, []replies{
		{[]int64{0, 0, 0, 0}, 1, ""},
		{[]int64{10, newest, 0, newest}, 3, "x1800000020000000,10,1800000020000000,10"},
		{[]int64{10, newest, newest, newest}, 3, "x1800000020000000,10,1800000020000000,10"},
		{[]int64{10, newest, newest - 5, newest - 5}, 3, "x1800000020000000,10,1800000019999995,3,5,7"},
		{[]int64{10, newest, newest, newest}, 11, "x1800000020000000,10,1800000020000000,10"}, // never
		{[]int64{10, newest, newest - 5, newest - 5}, 10, "-"},
		{[]int64{10, newest, newest + 1, newest + 1}, 3, "-"},
		{[]int64{10, newest, epoch + 11*second, epoch + 11*second}, 3, "-"},
		{[]int64{10, newest, -1, -1}, 3, "-"},
		{[]int64{7, newest, newest - 5, newest - 5}, 3, "-"},                                            // it fits
		{[]int64{11, newest, newest - 5, newest - 5}, 3, "x1800000020000000,11,1800000019999995,4,5,7"}, // under a higher limit
		{[]int64{algo.MaxLog + 1, newest, 0, newest}, 3, "-"},
		{[]int64{0, newest, 0, newest}, 3, "-"},
		{[]int64{10, 0, 0, 0}, 3, "-"},
		{[]int64{10, epoch + 11*second, 0, epoch + 11*second}, 3, "-"},
		{[]int64{10, epoch + 22*second, 0, epoch + 22*second}, 3, "-"},
		{[]int64{10, newest, math.MinInt64, math.MinInt64}, 3, "-"},
		{[]int64{math.MaxInt64, newest, 0, newest}, 3, "-"},
		{[]int64{10, newest, newest - 5, newest - 7}, 3, "x1800000020000000,10,1800000019999993,1,2,2,5,7"}, // older ones must go as well
		{[]int64{8, newest, newest - 5, newest - 7}, 3, "-"},
		{[]int64{5, newest, 0, newest - 7}, 3, "x1800000020000000,5,1800000019999993,1,7,4"}, // it fits
		{[]int64{10, newest, newest - 5, newest - 4}, 3, "-"},
		{[]int64{5, newest, 0, newest + 1}, 3, "-"},
		{[]int64{5, newest, 0, 0}, 3, "-"},
		{[]int64{1, newest, 0, newest - 7}, 3, "-"},
		{[]int64{0, 0, 0, 1}, 3, "-"},
	})
}

func BenchmarkSlidingLog(b *testing.B) {
	for _, limit := range []int64{10, 100, 1000} {
		b.Run(fmt.Sprint(limit), func(b *testing.B) {
			benchmark(b, newKind(b, 'x', algo.Params{Rate: limit, Period: 500 * limit}))
		})
	}
}
