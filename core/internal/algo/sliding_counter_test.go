package algo_test

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core/internal/algo"
)

func TestSlidingCounterTraces(t *testing.T) {
	trace{"10/10s", algo.Params{Rate: 10, Period: 10 * second}, []step{
		{at: 0, cost: 10, remaining: 0, reset: 20 * second},
		{at: 10 * second, cost: 1, refused: true, retry: second, reset: 10 * second},
		{at: 11 * second, cost: 1, remaining: 0, reset: 19 * second},
		{at: 11 * second, cost: 1, refused: true, retry: second, reset: 19 * second},
		{at: 19_999_999, cost: 0, remaining: 8, reset: 10_000_001},
		{at: 19_999_999, cost: 10, refused: true, remaining: 8, retry: 10_000_001, reset: 10_000_001},
		{at: 19_999_999, cost: 11, refused: true, never: true, remaining: 8, reset: 10_000_001},
		{at: 30 * second, cost: 10, remaining: 0, reset: 20 * second},
	}}.check(t, 'd')
}

// counterModel is the definition, in rational numbers.
type counterModel struct {
	algo.Params
	start, length, current, previous int64
}

func (m *counterModel) become(p algo.Params) { m.Params = p }

// at returns the counts at now, if nobody comes until then. Each belongs to the window
// in which its own ends, or to that of now if that is earlier.
func (m *counterModel) at(now int64) (v counterModel, healed bool) {
	v = counterModel{Params: m.Params, start: now - now%m.Period, length: m.Period}
	count := func(units, end int64) {
		switch end = min(end, now); end - end%m.Period {
		case v.start:
			v.current += units
		case v.start - m.Period:
			v.previous += units
		}
	}
	if m.current > 0 {
		count(m.current, m.start+m.length-1)
	}
	if m.previous > 0 {
		count(m.previous, m.start-1)
	}
	healed = m.current+m.previous > 0 && m.start > now || m.current > 0 && m.start+m.length-1 >= v.start+m.Period
	return v, healed
}

// used is current + previous * (period - elapsed) / period, rounded up.
func (m *counterModel) used(now int64) int64 {
	share := big.NewRat(m.Period-now%m.Period, m.Period)
	return m.current + ceil(share.Mul(share, rat(m.previous)))
}

func (m *counterModel) take(now, cost int64) (a algo.Answer) {
	v, healed := m.at(now)
	a.Never = cost > m.Rate
	a.Refused = a.Never || cost > 0 && v.used(now)+cost > m.Rate
	if !a.Refused {
		v.current += cost
	}
	if healed || !a.Refused && cost > 0 {
		*m = v
	}
	a.Remaining = max(0, m.Rate-v.used(now))
	// Usage only falls, so the first instant at which something is true can be halved for.
	first := func(is func(at int64, then counterModel) bool) int64 {
		low, high := int64(-1), 2*m.Period // not, and surely
		for high-low > 1 {
			middle := (low + high) / 2
			if then, _ := v.at(now + middle); is(now+middle, then) {
				high = middle
			} else {
				low = middle
			}
		}
		return high
	}
	switch {
	case !a.Refused && a.Remaining < m.Rate:
		a.More = first(func(at int64, then counterModel) bool { return m.Rate-then.used(at) > a.Remaining })
	case a.Refused && !a.Never:
		a.Wait = first(func(at int64, then counterModel) bool { return then.used(at)+cost <= m.Rate })
	}
	a.Reset = first(func(_ int64, then counterModel) bool { return then.current+then.previous == 0 })
	return a
}

// refund goes through the windows from the oldest, to one that may hold the charge.
func (m *counterModel) refund(now, at, units, length int64) {
	v, healed := m.at(now)
	last := min((at/length+1)*length-1, now)
	may := func(start int64) bool {
		return min(at, now)/m.Period <= start/m.Period && start/m.Period <= last/m.Period
	}
	switch {
	case units == 0:
	case v.previous > 0 && may(v.start-m.Period):
		v.previous, healed = max(0, v.previous-units), true
	case v.current > 0 && may(v.start):
		v.current, healed = max(0, v.current-units), true
	}
	if healed {
		*m = v
	}
}

func (m *counterModel) forget(now int64) {
	if v, healed := m.at(now); healed || v.current+v.previous == 0 {
		*m = v
	}
}

func TestSlidingCounterIsTheModel(t *testing.T) {
	slidingIsTheModel(t, 'd', func() slidingModel { return new(counterModel) })
}

func TestSlidingCounterRetryIsExact(t *testing.T) { slidingRetryIsExact(t, 'd') }

// Whatever happens, the estimate is never above the limit after an admission.
func TestSlidingCounterEstimate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slidingHistory(t, 'd', true, func(b *bucket, now int64, _ []counted) {
			v := counterModel{Params: b.params, current: b.s[2], previous: b.s[3]}
			require.LessOrEqual(t, v.used(now), b.params.Rate)
		})
	})
}

// No time as long as the period holds more than twice the limit, the largest one if several have counted on the key: what
// a smaller one admits late in a window comes after what a larger one has admitted late in the window before.
func TestSlidingCounterBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		largest := int64(0)
		slidingHistory(t, 'd', false, func(b *bucket, now int64, admitted []counted) {
			largest = max(largest, b.params.Rate)
			require.LessOrEqual(t, within(admitted, now, b.params.Period), 2*largest)
		})
	})
}

// A caller that comes at the end of one window and all through the next gets nearly twice the
// limit, as the documentation says.
func TestSlidingCounterIsAnEstimate(t *testing.T) {
	b := newKind(t, 'd', algo.Params{Rate: 100, Period: 10 * second})
	require.False(t, b.take(epoch+10*second-1, 100).Refused)
	admitted := 100
	for now := int64(epoch + 10*second); now < epoch+20*second-1; now += 100 {
		if !b.take(now, 1).Refused {
			admitted++
		}
	}
	assert.Equal(t, 199, admitted)
}

// A small step back makes the window before weigh more than there is room for.
func TestSlidingCounterOverTheLimit(t *testing.T) {
	b := newKind(t, 'd', algo.Params{Rate: 10, Period: 10 * second})
	b.take(epoch, 10)
	require.False(t, b.take(epoch+15*second, 5).Refused)
	a := b.take(epoch+11*second, 1)
	assert.Equal(t, algo.Answer{Refused: true, Wait: 5 * second, Reset: 19 * second}, a)
	assert.Equal(t, int64(0), b.Most(b.s, epoch+11*second, false))
	assert.False(t, b.take(epoch+11*second, 0).Refused, "a peek fits always")
}

func TestSlidingCounterRefund(t *testing.T) {
	b := newKind(t, 'd', algo.Params{Rate: 10, Period: 10 * second})
	for _, c := range []struct {
		at, units  int64
		text, want string
	}{
		{20 * second, 2, "d1800000020000000,10000000,3,4", "d1800000020000000,10000000,1,4"},
		{29 * second, 9, "d1800000020000000,10000000,3,4", "d1800000020000000,10000000,0,4"},
		{20 * second, 3, "d1800000020000000,10000000,3,0", ""},
		{19 * second, 3, "d1800000020000000,10000000,3,4", "d1800000020000000,10000000,3,1"}, // still weighs
		{10 * second, 9, "d1800000020000000,10000000,3,4", "d1800000020000000,10000000,3,0"},
		{10 * second, 4, "d1800000020000000,10000000,0,4", ""},
		{10*second - 1, 3, "d1800000020000000,10000000,3,4", "d1800000020000000,10000000,3,4"},
		{19 * second, 3, "d1800000020000000,10000000,3,0", "d1800000020000000,10000000,3,0"},
		{30 * second, 3, "d1800000020000000,10000000,3,4", "d1800000020000000,10000000,0,4"}, // the clock has stepped back
		{20 * second, 0, "d1800000020000000,10000000,3,4", "d1800000020000000,10000000,3,4"},
		{20 * second, 1, "d1800000020000000,10000000,0,4", "d1800000020000000,10000000,0,4"},
	} {
		require.True(t, algo.ParseText(b, b.s, []byte(c.text)))
		b.Load(b.s, epoch+21*second)
		changed := b.Refund(b.s, epoch+21*second, c.units, algo.Receipt{At: epoch + c.at})
		assert.Equal(t, c.want, string(b.AppendText(nil, b.s)), "%d units at %d of %s", c.units, c.at, c.text)
		assert.Equal(t, c.want != c.text, changed)
	}
}

// Units that count as the window before give back what they still weigh.
func TestSlidingCounterRefundsTheWindowBefore(t *testing.T) {
	b := newKind(t, 'd', algo.Params{Rate: 10, Period: 10 * second})
	require.False(t, b.take(epoch+9*second, 8).Refused)
	assert.Equal(t, int64(6), b.take(epoch+15*second, 0).Remaining, "8 weigh 4")
	b.refund(epoch+15*second, 4, algo.Receipt{At: epoch + 9*second})
	assert.Equal(t, int64(8), b.take(epoch+15*second, 0).Remaining, "4 weigh 2")
}

// Counts keep their times when the period changes.
func TestSlidingCounterChangedPeriod(t *testing.T) {
	b := newKind(t, 'd', algo.Params{Rate: 4, Period: 10 * second})
	require.False(t, b.take(epoch, 2).Refused)
	require.False(t, b.take(epoch+15*second, 2).Refused)
	b.become(t, 'd', algo.Params{Rate: 4, Period: 20 * second})
	assert.Equal(t, int64(0), b.take(epoch+15*second, 0).Remaining, "all are of this window of 20 s")
	b.become(t, 'd', algo.Params{Rate: 4, Period: 5 * second})
	assert.Equal(t, "d1800000010000000,10000000,2,2", string(b.AppendText(nil, b.s)))
	assert.Equal(t, int64(2), b.take(epoch+19*second, 0).Remaining, "the first ended 10 s ago")
}

// What lies ahead after the period was changed is of now from the first look on.
func TestSlidingCounterShorterPeriod(t *testing.T) {
	b := newKind(t, 'd', algo.Params{Rate: 4, Period: 100 * second})
	require.False(t, b.take(epoch+second, 4).Refused)
	b.become(t, 'd', algo.Params{Rate: 4, Period: 10 * second})
	assert.Equal(t, int64(11_500_000), b.take(epoch+second, 1).Wait)
	assert.Equal(t, "d1800000000000000,10000000,4,0", string(b.AppendText(nil, b.s)), "healed")
	assert.False(t, b.take(epoch+12_500_000, 1).Refused)
}

func TestSlidingCounterLoads(t *testing.T) {
	b := newKind(t, 'd', algo.Params{Rate: 10, Period: 10 * second})
	checkLoads(t, b, epoch+25*second, []loads{
		{"", "", false},
		{"d1800000020000000,10000000,3,4", "d1800000020000000,10000000,3,4", false},
		{"d1800000024000000,4000000,3,4", "d1800000020000000,10000000,7,0", false}, // of other periods
		{"d1800000020000000,4000000,3,4", "d1800000020000000,10000000,3,4", false},
		{"d1800000020000000,20000000,3,4", "d1800000020000000,10000000,3,4", true},
		{"d1800000020000000,20000000,0,4", "d1800000020000000,10000000,0,4", false},
		{"d1800000016000000,4000000,3,4", "d1800000020000000,10000000,0,7", false},
		{"d1800000000000000,20000000,3,4", "d1800000020000000,10000000,0,3", false},
		{"d1800000010000000,10000000,3,4", "d1800000020000000,10000000,0,3", false},
		{"d1800000010000000,10000000,0,4", "", false},
		{"d1800000000000000,10000000,3,4", "", false},
		{"d1800000030000000,10000000,3,4", "d1800000020000000,10000000,7,0", true},
		{"d9007199254740991,1,0,4", "d1800000020000000,10000000,4,0", true},
		{"d9007199254740991,9007199254740991,1099511627775,1", "d1800000020000000,10000000,1099511627776,0", true},
		{"d1800000020000000,10000000,11,0", "d1800000020000000,10000000,11,0", false}, // under a higher limit
		{"d1800000020000000,10000000,3,11", "d1800000020000000,10000000,3,11", false},
		{"d1800000010000000,10000000,11,0", "d1800000020000000,10000000,0,11", false},
		{"d1800000010000000,10000000,3,11", "d1800000020000000,10000000,0,3", false},
		{"d0,1,11,0", "", false},
	})
}

func TestSlidingCounterText(t *testing.T) {
	b := newKind(t, 'd', algo.Params{Rate: 10, Period: 10 * second})
	for _, text := range []string{
		"d5", "d5,", "d5,5", "d5,5,1", "d5,5,1,", "d,5,1,1", "d5,,1,1", "d5,5,,1", "d5,5,0,0", "d5,5,1,1,", "d5,5,1,1,1", "d5,05,1,1", "d5,5,01,1", "d5,5,1,00",
		"d9007199254740992,1,1,1", "d5,9007199254740992,1,1", "d5,5,9007199254740992,1", "d5,5,1099511627776,1", "d5,5,1,1099511627776", "d5,5,1,9007199254740992", "d5,5,-1,1", "d5,5,1,1 ", "5,5,1,1", "c5,5,1,1",
		"D5,5,1,1", "d5,5,1,1;", "d5,0,1,1", "d5,2,1,1", "d5,6,1,1", "d0,5,1,1",
	} {
		assert.False(t, algo.ParseText(b, b.s, []byte(text)), text)
		assert.Equal(t, make([]int64, b.Words()), b.s, text)
	}
}

func TestSlidingCounterReply(t *testing.T) {
	b := newKind(t, 'd', algo.Params{Rate: 10, Period: 10 * second})
	checkReplies(t, b, epoch+21*second, []replies{
		{[]int64{0, 0}, 1, ""},
		{[]int64{3, 4}, 1, "d1800000020000000,10000000,3,4"},
		{[]int64{0, 10}, 1, "d1800000020000000,10000000,0,10"},
		{[]int64{11, 4}, 1, "d1800000020000000,10000000,11,4"}, // under a higher limit
		{[]int64{3, 11}, 1, "d1800000020000000,10000000,3,11"},
		{[]int64{1 << 53, 4}, 1, "-"},
		{[]int64{3, 1 << 53}, 1, "-"},
		{[]int64{-1, 4}, 1, "-"},
		{[]int64{3, math.MinInt64}, 1, "-"},
	})
}

func BenchmarkSlidingCounter(b *testing.B) {
	benchmark(b, newKind(b, 'd', algo.Params{Rate: 1000, Period: second}))
}
