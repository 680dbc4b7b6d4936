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
	}}.check(t, 'c')
}

// counterModel is the definition, in rational numbers.
type counterModel struct {
	algo.Params
	start, current, previous int64
}

func (m *counterModel) become(p algo.Params) { m.Params = p }

// at is what the counts are at now, if nobody comes until then.
func (m *counterModel) at(now int64) (v counterModel, healed bool) {
	v = *m
	v.start = now - now%m.Period
	switch age := now/m.Period - m.start/m.Period; {
	case m.current+m.previous == 0:
	case age < 0:
		v.current, v.previous, healed = m.current+m.previous, 0, true
	case age == 1:
		v.current, v.previous = 0, m.current
	case age > 1:
		v.current, v.previous = 0, 0
	}
	healed = healed || max(v.current, v.previous) > m.Rate
	v.current, v.previous = min(v.current, m.Rate), min(v.previous, m.Rate)
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
	if a.Refused && !a.Never {
		a.Retry = first(func(at int64, then counterModel) bool { return then.used(at)+cost <= m.Rate })
	}
	a.Reset = first(func(_ int64, then counterModel) bool { return then.current+then.previous == 0 })
	return a
}

func (m *counterModel) refund(now, at, units int64) {
	if v, healed := m.at(now); at-at%m.Period == v.start && v.current > 0 && units > 0 {
		v.current = max(0, v.current-units)
		*m = v
	} else if healed {
		*m = v
	}
}

func (m *counterModel) forget(now int64) {
	if v, healed := m.at(now); healed || v.current+v.previous == 0 {
		*m = v
	}
}

func TestSlidingCounterIsTheModel(t *testing.T) {
	slidingIsTheModel(t, 'c', func() slidingModel { return new(counterModel) })
}

func TestSlidingCounterRetryIsExact(t *testing.T) { slidingRetryIsExact(t, 'c') }

// Whatever happens, the estimate is never above the limit after an admission.
func TestSlidingCounterEstimate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slidingHistory(t, 'c', true, func(b *bucket, now int64, _ []counted) {
			v := counterModel{Params: b.params, current: b.s[1], previous: b.s[2]}
			require.LessOrEqual(t, v.used(now), b.params.Rate)
		})
	})
}

// No time as long as the period holds more than twice the limit.
func TestSlidingCounterBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slidingHistory(t, 'c', false, func(b *bucket, now int64, admitted []counted) {
			require.LessOrEqual(t, within(admitted, now, b.params.Period), 2*b.params.Rate)
		})
	})
}

// Whoever comes at the end of one window and all through the next gets nearly twice the
// limit, as the documentation says.
func TestSlidingCounterIsAnEstimate(t *testing.T) {
	b := newKind(t, 'c', algo.Params{Rate: 100, Period: 10 * second})
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
	b := newKind(t, 'c', algo.Params{Rate: 10, Period: 10 * second})
	b.take(epoch, 10)
	require.False(t, b.take(epoch+15*second, 5).Refused)
	a := b.take(epoch+11*second, 1)
	assert.Equal(t, algo.Answer{Refused: true, Retry: 5 * second, Reset: 19 * second}, a)
	assert.Equal(t, int64(0), b.Most(b.s, epoch+11*second))
	assert.False(t, b.take(epoch+11*second, 0).Refused, "a peek fits always")
}

func TestSlidingCounterRefund(t *testing.T) {
	b := newKind(t, 'c', algo.Params{Rate: 10, Period: 10 * second})
	for _, c := range []struct {
		at, units  int64
		text, want string
	}{
		{20 * second, 2, "c1800000020000000,3,4", "c1800000020000000,1,4"},
		{29 * second, 9, "c1800000020000000,3,4", "c1800000020000000,0,4"},
		{20 * second, 3, "c1800000020000000,3,0", ""},
		{19 * second, 3, "c1800000020000000,3,4", "c1800000020000000,3,4"},
		{30 * second, 3, "c1800000020000000,3,4", "c1800000020000000,3,4"},
		{20 * second, 0, "c1800000020000000,3,4", "c1800000020000000,3,4"},
		{20 * second, 1, "c1800000020000000,0,4", "c1800000020000000,0,4"},
	} {
		require.True(t, b.ParseText(b.s, []byte(c.text)))
		b.Load(b.s, epoch+21*second)
		changed := b.Refund(b.s, epoch+21*second, c.units, algo.Receipt{At: epoch + c.at})
		assert.Equal(t, c.want, string(b.AppendText(nil, b.s)), "%d units at %d of %s", c.units, c.at, c.text)
		assert.Equal(t, c.want != c.text, changed)
	}
}

func TestSlidingCounterLoads(t *testing.T) {
	b := newKind(t, 'c', algo.Params{Rate: 10, Period: 10 * second})
	checkLoads(t, b, epoch+25*second, []loads{
		{"", "", false},
		{"c1800000020000000,3,4", "c1800000020000000,3,4", false},
		{"c1800000029999999,3,4", "c1800000020000000,3,4", false}, // of another period
		{"c1800000010000000,3,4", "c1800000020000000,0,3", false},
		{"c1800000010000000,0,4", "", false},
		{"c1800000009999999,3,4", "", false},
		{"c1800000030000000,3,4", "c1800000020000000,7,0", true},
		{"c9007199254740991,0,4", "c1800000020000000,4,0", true},
		{"c9007199254740991,9007199254740991,9007199254740991", "c1800000020000000,10,0", true},
		{"c1800000020000000,11,0", "c1800000020000000,10,0", true},
		{"c1800000020000000,3,11", "c1800000020000000,3,10", true},
		{"c1800000010000000,11,0", "c1800000020000000,0,10", true},
		{"c1800000010000000,3,11", "c1800000020000000,0,3", false},
		{"c0,11,11", "", false},
	})
}

func TestSlidingCounterText(t *testing.T) {
	b := newKind(t, 'c', algo.Params{Rate: 10, Period: 10 * second})
	for _, text := range []string{"c5", "c5,", "c5,1", "c5,1,", "c,1,1", "c5,,1", "c5,0,0", "c5,1,1,", "c5,1,1,1", "c5,01,1", "c5,1,00", "c9007199254740992,1,1", "c5,9007199254740992,1", "c5,1,9007199254740992", "c5,-1,1", "c5,1,1 ", "5,1,1", "s5,1,1", "C5,1,1", "c5,1,1;"} {
		assert.False(t, b.ParseText(b.s, []byte(text)), text)
		assert.Equal(t, make([]int64, b.Words()), b.s, text)
	}
}

func TestSlidingCounterReply(t *testing.T) {
	b := newKind(t, 'c', algo.Params{Rate: 10, Period: 10 * second})
	checkReplies(t, b, epoch+21*second, []replies{
		{[]int64{0, 0, 0}, 1, ""},
		{[]int64{epoch + 20*second, 3, 4}, 1, "c1800000020000000,3,4"},
		{[]int64{epoch + 20*second, 0, 10}, 1, "c1800000020000000,0,10"},
		{[]int64{epoch + 20*second, 0, 0}, 1, "-"},
		{[]int64{0, 3, 4}, 1, "-"},
		{[]int64{epoch + 10*second, 3, 4}, 1, "-"},
		{[]int64{epoch + 21*second, 3, 4}, 1, "-"},
		{[]int64{epoch + 20*second, 11, 4}, 1, "-"},
		{[]int64{epoch + 20*second, 3, 11}, 1, "-"},
		{[]int64{epoch + 20*second, -1, 4}, 1, "-"},
		{[]int64{epoch + 20*second, 3, math.MinInt64}, 1, "-"},
	})
}

func BenchmarkSlidingCounter(b *testing.B) {
	benchmark(b, newKind(b, 'c', algo.Params{Rate: 1000, Period: second}))
}
