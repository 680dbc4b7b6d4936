package algo_test

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core/internal/algo"
	"github.com/weir-go/weir/internal/race"
)

// epoch is time 0 of the tests, in microseconds since the Unix epoch.
const epoch = 1_800_000_000_000_000

const (
	second = 1_000_000
	day    = 86_400 * second
)

// bucket is a key's state as a store keeps it: changed by a charge, a refund that
// gives something back, or a correction, and by nothing else.
type bucket struct {
	algo.Algorithm
	params algo.Params
	s      []int64
}

func newBucket(t require.TestingT, rate, period, burst int64) *bucket {
	params := algo.Params{Rate: rate, Burst: burst, Period: period}
	a, err := algo.New('g', params)
	require.NoError(t, err)
	return &bucket{a, params, make([]int64, a.Words())}
}

func (b *bucket) load(now int64) (s []int64, healed bool) {
	s = slices.Clone(b.s)
	if healed = b.Load(s, now); healed {
		copy(b.s, s)
	}
	return s, healed
}

func (b *bucket) take(now, cost int64) algo.Answer {
	s, _ := b.load(now)
	admitted := b.Admits(s, now, cost)
	if admitted && cost > 0 {
		b.Charge(s, now, cost)
		copy(b.s, s)
	}
	return b.Explain(s, now, cost, !admitted)
}

func (b *bucket) refund(now, at, units int64) {
	s, _ := b.load(now)
	if b.Refund(s, now, at, units) {
		copy(b.s, s)
	}
}

func TestNewRefusesUnknownLetters(t *testing.T) {
	_, err := algo.New('x', algo.Params{Rate: 1, Burst: 1, Period: 1000})
	require.EqualError(t, err, `algo: no algorithm has the letter 'x'`)
}

func TestGCRATraces(t *testing.T) {
	type step struct {
		at, cost                int64
		refused, never          bool
		remaining, retry, reset int64
	}
	for _, c := range []struct {
		name                string
		rate, period, burst int64
		steps               []step
	}{
		{"3/1s", 3, second, 3, []step{
			{0, 1, false, false, 2, 0, 333334},
			{0, 1, false, false, 1, 0, 666667},
			{0, 1, false, false, 0, 0, 1000000},
			{0, 1, true, false, 0, 333334, 1000000},
			{333333, 1, true, false, 0, 1, 666667},
			{333334, 1, false, false, 0, 0, 1000000},
			{2000000, 0, false, false, 3, 0, 0},
			{2000000, 4, true, true, 3, 0, 0},
		}},
		// CL.THROTTLE k 15 30 60: limit 16, remaining 15, reset 2.
		{"30/1m burst 16", 30, 60 * second, 16, []step{
			{0, 1, false, false, 15, 0, 2000000},
		}},
		{"2/1s burst 2", 2, second, 2, []step{
			{0, 2, false, false, 0, 0, 1000000},
			{0, 1, true, false, 0, 500000, 1000000},
			{0, 2, true, false, 0, 1000000, 1000000},
			{999999, 2, true, false, 1, 1, 1},
			{1000000, 2, false, false, 0, 0, 1000000},
		}},
	} {
		b := newBucket(t, c.rate, c.period, c.burst)
		for i, st := range c.steps {
			a := b.take(epoch+st.at, st.cost)
			assert.Equal(t, st, step{st.at, st.cost, a.Refused, a.Never, a.Remaining, a.Retry, a.Reset}, "%s, step %d", c.name, i)
		}
	}
	b, admitted := newBucket(t, 1, 2*second, 15), 0
	for range 20 {
		if !b.take(epoch, 1).Refused {
			admitted++
		}
	}
	assert.Equal(t, 15, admitted, "1/2s burst 15")
}

// model is GCRA as one would write it without a care for speed: rational numbers.
type model struct {
	burst     int64
	unit, max *big.Rat // bucket time in us
	empty     *big.Rat // when the bucket is empty again
}

func newModel(p algo.Params) *model {
	unit := big.NewRat(p.Period, p.Rate)
	return &model{p.Burst, unit, new(big.Rat).Mul(unit, rat(p.Burst)), new(big.Rat)}
}

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func (m *model) level(now int64) *big.Rat {
	level := new(big.Rat).Sub(m.empty, rat(now))
	if level.Sign() < 0 {
		return new(big.Rat)
	}
	if level.Cmp(m.max) > 0 { // from the future: brought to the maximum, for good
		m.setLevel(now, m.max)
		return new(big.Rat).Set(m.max)
	}
	return level
}

func (m *model) setLevel(now int64, level *big.Rat) {
	if m.empty = new(big.Rat); level.Sign() > 0 { // else unused, whatever the clock does next
		m.empty.Add(rat(now), level)
	}
}

func (m *model) take(now, cost int64) algo.Answer {
	level := m.level(now)
	after := new(big.Rat).Add(level, new(big.Rat).Mul(m.unit, rat(cost)))
	a := algo.Answer{Refused: cost > 0 && after.Cmp(m.max) > 0, Never: cost > m.burst}
	switch {
	case a.Refused && !a.Never:
		a.Retry = ceil(new(big.Rat).Sub(after, m.max))
	case !a.Refused && cost > 0:
		m.setLevel(now, after)
		level = after
	}
	free := new(big.Rat).Sub(m.max, level)
	a.Remaining = floor(free.Quo(free, m.unit))
	a.Reset = ceil(level)
	return a
}

func (m *model) refund(now, at, units int64) {
	level := m.level(now)
	back := new(big.Rat).Mul(m.unit, rat(min(units, m.burst)))
	back.Sub(back, rat(max(0, now-at)))
	if back.Sign() <= 0 || level.Sign() == 0 {
		return
	}
	if level.Sub(level, back); level.Sign() < 0 {
		level.SetInt64(0)
	}
	m.setLevel(now, level)
}

func floor(r *big.Rat) int64 { return new(big.Int).Div(r.Num(), r.Denom()).Int64() }

func ceil(r *big.Rat) int64 {
	n := new(big.Int).Neg(r.Num())
	return -n.Div(n, r.Denom()).Int64()
}

// anyParams are numbers of all sizes, those at the borders often.
func anyParams(t *rapid.T) algo.Params {
	const most, shortest, longest = 1 << 31, 1000, 366 * day
	units := rapid.OneOf(
		rapid.Int64Range(1, 20), rapid.Int64Range(1, 100_000), rapid.Int64Range(1, most),
		rapid.SampledFrom([]int64{1, 2, 3, 7, 104_251, 999_983, most - 1, most}),
	)
	period := rapid.OneOf(
		rapid.SampledFrom([]int64{shortest, 1 << 20, second, 10 * second, 60 * second, 3600 * second, day, longest}),
		rapid.Int64Range(shortest, 10*second), rapid.Int64Range(shortest, longest),
	)
	return algo.Params{Rate: units.Draw(t, "rate"), Burst: units.Draw(t, "burst"), Period: period.Draw(t, "period")}
}

// anyBucket is a bucket whose parameters are accepted.
func anyBucket(t *rapid.T) *bucket {
	p := rapid.Custom(anyParams).Filter(func(p algo.Params) bool {
		_, err := algo.New('g', p)
		return err == nil
	}).Draw(t, "params")
	return newBucket(t, p.Rate, p.Period, p.Burst)
}

func anyCost(t *rapid.T, burst int64) int64 {
	return rapid.OneOf(
		rapid.Just(int64(1)), rapid.Int64Range(0, 3), rapid.Int64Range(0, burst),
		rapid.SampledFrom([]int64{burst, burst + 1, 1 << 31, math.MaxInt64}),
	).Draw(t, "cost")
}

// anyStep is how far the clock goes on: mostly to where something happens.
func anyStep(t *rapid.T, hint int64) int64 {
	return rapid.OneOf(
		rapid.Just(int64(0)), rapid.Int64Range(max(0, hint-1), hint+1), rapid.Int64Range(0, second), rapid.Int64Range(0, 400*day),
	).Draw(t, "step")
}

// Every field of every answer is that of the model, whatever happens to the clock.
func TestGCRAIsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anyBucket(t)
		m := newModel(b.params)
		now, hint := int64(epoch), int64(0)
		type charge struct{ at, units int64 }
		var charges []charge
		for range rapid.IntRange(1, 40).Draw(t, "operations") {
			switch rapid.IntRange(0, 9).Draw(t, "operation") {
			case 0:
				now -= rapid.Int64Range(0, 400*day).Draw(t, "back")
			case 1, 2:
				if len(charges) > 0 {
					c := rapid.SampledFrom(charges).Draw(t, "charge")
					units := rapid.Int64Range(0, c.units).Draw(t, "units")
					b.refund(now, c.at, units)
					m.refund(now, c.at, units)
				}
			default:
				now += anyStep(t, hint)
			}
			cost := anyCost(t, b.params.Burst)
			before := slices.Clone(b.s)
			want, got := m.take(now, cost), b.take(now, cost)
			require.Equal(t, want, got, "%d units at %d", cost, now)
			if got.Refused || cost == 0 { // fault 38
				if _, healed := (&bucket{b.Algorithm, b.params, slices.Clone(before)}).load(now); !healed {
					require.Equal(t, before, b.s, "a refusal or a peek changes nothing")
				}
			} else {
				charges = append(charges, charge{now, cost})
			}
			require.GreaterOrEqual(t, got.Remaining, int64(0))
			require.LessOrEqual(t, got.Remaining, b.params.Burst)
			hint = max(got.Retry, got.Reset/rapid.Int64Range(1, 3).Draw(t, "part"))
		}
	})
}

// Faults 27 and 37, and refunds: in any time d at most burst + d*rate/period units
// are admitted, not counting those that were given back.
func TestGCRABound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anyBucket(t)
		now, hint := int64(epoch), int64(0)
		type charge struct{ at, units int64 }
		var charges []charge
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			if len(charges) > 0 && rapid.IntRange(0, 3).Draw(t, "operation") == 0 {
				c := &charges[rapid.IntRange(0, len(charges)-1).Draw(t, "charge")]
				units := rapid.Int64Range(0, c.units).Draw(t, "units")
				b.refund(now, c.at, units)
				c.units -= units
				continue
			}
			now += anyStep(t, hint)
			cost := anyCost(t, b.params.Burst)
			a := b.take(now, cost)
			if hint = a.Retry; !a.Refused && cost > 0 {
				charges = append(charges, charge{now, cost})
			}
		}
		for i, from := range charges {
			sum := new(big.Int)
			for _, to := range charges[i:] {
				sum.Add(sum, big.NewInt(to.units))
				parts := new(big.Int).Mul(sum, big.NewInt(b.params.Period))
				bound := new(big.Int).Mul(big.NewInt(b.params.Burst), big.NewInt(b.params.Period))
				bound.Add(bound, new(big.Int).Mul(big.NewInt(to.at-from.at), big.NewInt(b.params.Rate)))
				require.LessOrEqual(t, parts.Cmp(bound), 0, "%v: %v units within %d us", b.params, sum, to.at-from.at)
			}
		}
	})
}

// Fault 44: waiting exactly the retry time admits, and 1 us less does not.
func TestGCRARetryIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anyBucket(t)
		now := int64(epoch)
		for range rapid.IntRange(1, 20).Draw(t, "operations") {
			cost := rapid.Int64Range(1, b.params.Burst).Draw(t, "cost")
			a := b.take(now, cost)
			if !a.Refused {
				continue
			}
			require.Positive(t, a.Retry)
			early := b.take(now+a.Retry-1, cost)
			require.True(t, early.Refused)
			require.Equal(t, int64(1), early.Retry)
			now += a.Retry
			require.False(t, b.take(now, cost).Refused)
		}
	})
}

// 10/10s: take 10; ten seconds later another takes 10; refund the first. Giving
// back "at most what is in use" would admit 20 at one instant.
func TestGCRARefundCounterexample(t *testing.T) {
	b := newBucket(t, 10, 10*second, 10)
	require.False(t, b.take(epoch, 10).Refused)
	require.False(t, b.take(epoch+10*second, 10).Refused)
	b.refund(epoch+10*second, epoch, 10)
	assert.True(t, b.take(epoch+10*second, 1).Refused)
}

// Fault 8: a full bucket whose clock steps back one hour admits again within one
// bucket's time; it is enough that somebody looked once.
func TestGCRAClockStepsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anyBucket(t)
		b.take(epoch, b.params.Burst)
		whole := b.take(epoch, 0).Reset
		now := epoch - rapid.SampledFrom([]int64{1, 3600 * second, 400 * day}).Draw(t, "step")
		b.take(now, rapid.Int64Range(0, 1).Draw(t, "cost"))
		require.LessOrEqual(t, b.take(now, 0).Reset, whole)
		require.False(t, b.take(now+whole, b.params.Burst).Refused)
	})
	b := newBucket(t, 10, 10*second, 10)
	b.take(epoch, 10)
	const now = epoch - 3600*second
	assert.Equal(t, algo.Answer{Refused: true, Retry: second, Reset: 10 * second}, b.take(now, 1))
	assert.True(t, b.take(now+second-1, 1).Refused)
	assert.False(t, b.take(now+second, 1).Refused)
}

// Fault 9: a step forward admits at most one burst more.
func TestGCRAClockStepsForward(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anyBucket(t)
		b.take(epoch, b.params.Burst)
		now := epoch + rapid.Int64Range(0, 400*day).Draw(t, "step")
		rest := b.take(now, 0).Remaining
		require.LessOrEqual(t, rest, b.params.Burst)
		if rest > 0 {
			require.False(t, b.take(now, rest).Refused)
		}
		require.True(t, b.take(now, 1).Refused)
	})
}

// Fault 42: from idle, remaining goes limit-1, ..., 0 for every limit to 10^4.
func TestGCRARemainingIsExact(t *testing.T) {
	step := int64(1)
	if race.Enabled {
		step = 37
	}
	for limit := int64(1); limit <= 10_000; limit += step {
		b := newBucket(t, limit, second, limit)
		for left := limit - 1; left >= 0; left-- {
			if !b.Admits(b.s, epoch, 1) {
				t.Fatalf("%d/1s does not admit with %d left", limit, left+1)
			}
			b.Charge(b.s, epoch, 1)
			if a := b.Explain(b.s, epoch, 1, false); a.Remaining != left {
				t.Fatalf("%d/1s: %+v, want %d remaining", limit, a, left)
			}
		}
		if b.Admits(b.s, epoch, 1) {
			t.Fatalf("%d/1s admits one too many", limit)
		}
	}
}

// 3 a second stay 3 a second: the n-th admission comes when it must, to the
// microsecond, however long it goes on.
func TestGCRADoesNotDrift(t *testing.T) {
	for _, c := range []struct{ rate, period int64 }{
		{3, second}, {7, second}, {999_983, second}, {104_251, day}, {1 << 31, 366 * day}, {11, 1009},
	} {
		b := newBucket(t, c.rate, c.period, 2)
		now := int64(epoch)
		for n := range int64(100_000) {
			a := b.take(now, 1)
			if a.Refused {
				now += a.Retry
				a = b.take(now, 1)
			}
			if due := max(0, ((n-1)*c.period+c.rate-1)/c.rate); a.Refused || now != epoch+due {
				t.Fatalf("%d per %d us: admission %d is at %d, want %d", c.rate, c.period, n, now-epoch, due)
			}
		}
	}
}

// Faults 26 to 29: parameters are exact or refused, and none overflows.
func TestGCRAExtremes(t *testing.T) {
	const most, longest = 1 << 31, 366 * day
	for _, c := range []struct {
		rate, period, burst int64
		ok                  bool
	}{
		{1, 1000, 1, true},
		{most, 1000, most, true},
		{most, longest, most, true},
		{1, 1000, most, true}, // 25 days
		{1, longest, 71, true},
		{1, longest, 72, false},
		{1, 1 << 20, most, true}, // 2^51 us to the microsecond
		{1, 1<<20 + 1, most, false},
		{3, 3 << 20, most, true},
		{3, 3<<20 + 1, most, false},
		{most - 1, longest, most, true},
		{1, longest, most, false},
		{2, longest, most, false},
	} {
		p := algo.Params{Rate: c.rate, Burst: c.burst, Period: c.period}
		a, err := algo.New('g', p)
		if !c.ok {
			require.ErrorContains(t, err, fmt.Sprintf("a burst of %d at this rate takes more than 71 years to drain", c.burst), "%+v", p)
			continue
		}
		require.NoError(t, err, "%+v", p)
		for _, v := range a.AppendParams(nil, c.burst) {
			assert.LessOrEqual(t, v, int64(1<<51), "%+v", p)
		}
		b, m := newBucket(t, c.rate, c.period, c.burst), newModel(p)
		for _, cost := range []int64{1, c.burst - 1, 1, c.burst, math.MaxInt64} {
			assert.Equal(t, m.take(epoch, cost), b.take(epoch, cost), "%+v, cost %d", p, cost)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := anyParams(t)
		_, err := algo.New('g', p)
		whole := newModel(p).max
		require.Equal(t, whole.Cmp(rat(1<<51)) <= 0, err == nil, "%+v drains in %v", p, whole)
	})
}

// A remainder that was written under another rate counts as less than one us.
func TestGCRALoadsForeignRemainders(t *testing.T) {
	b := newBucket(t, 3, second, 3)
	for _, c := range []struct {
		s      []int64
		want   []int64
		healed bool
	}{
		{[]int64{epoch + 10, 2}, []int64{epoch + 10, 2}, false},
		{[]int64{epoch + 10, 3}, []int64{epoch + 11, 0}, false},
		{[]int64{epoch + 10, 1 << 53}, []int64{epoch + 11, 0}, false},
		{[]int64{epoch, 0}, []int64{0, 0}, false},
		{[]int64{epoch, 1}, []int64{epoch, 1}, false},
		{[]int64{epoch - 1, 2}, []int64{0, 0}, false},
		{[]int64{epoch + second, 0}, []int64{epoch + second, 0}, false},
		{[]int64{epoch + second, 1}, []int64{epoch + second, 0}, true},
		{[]int64{epoch + second - 1, 3}, []int64{epoch + second, 0}, false},
		{[]int64{1<<53 - 1, 1 << 53}, []int64{epoch + second, 0}, true},
	} {
		s := slices.Clone(c.s)
		assert.Equal(t, c.healed, b.Load(s, epoch), "%v", c.s)
		assert.Equal(t, c.want, s, "%v", c.s)
	}
}

func TestGCRARefundOfNothing(t *testing.T) {
	b := newBucket(t, 3, second, 3)
	s := []int64{epoch + 10, 2}
	for name, changed := range map[string]bool{
		"no units":        b.Refund(s, epoch, epoch, 0),
		"long ago":        b.Refund(s, epoch, epoch-second, 1),
		"just drained":    b.Refund(s, epoch, epoch-333_334, 1),
		"an empty bucket": b.Refund([]int64{0, 0}, epoch, epoch, 3),
	} {
		assert.False(t, changed, name)
	}
	assert.Equal(t, []int64{epoch + 10, 2}, s)
	assert.True(t, b.Refund(s, epoch, epoch-333_333, 1), "a third of a microsecond")
	assert.Equal(t, []int64{epoch + 10, 1}, s)
	assert.True(t, b.Refund(s, epoch, epoch+day, math.MaxInt64), "a charge from the future")
	assert.Equal(t, []int64{0, 0}, s)
}

// The parameters of a script say what the methods do.
func TestGCRAParams(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anyBucket(t)
		for range 10 {
			b.take(epoch, rapid.Int64Range(0, b.params.Burst).Draw(t, "used"))
		}
		cost := anyCost(t, b.params.Burst)
		p := b.AppendParams([]int64{42}, cost)[1:]
		l, charge, bound, most := p[6]+1, []int64{p[0], p[3]}, []int64{p[1], p[4]}, []int64{p[2], p[5]}
		s, _ := b.load(epoch)
		level := []int64{0, 0}
		if s[0] > 0 {
			level = []int64{s[0] - epoch, s[1]}
		}
		require.LessOrEqual(t, slices.Compare(level, most), 0)
		fits := slices.Compare(level, bound) <= 0
		require.Equal(t, b.Admits(s, epoch, cost), fits)
		if !fits || cost == 0 {
			return
		}
		b.Charge(s, epoch, cost)
		w, r := level[0]+charge[0], level[1]+charge[1]
		require.Equal(t, []int64{epoch + w + r/l, r % l}, s)
	})
}

func TestGCRAReply(t *testing.T) {
	b := newBucket(t, 3, second, 3)
	for _, c := range []struct {
		reply    []int64
		state    []int64
		fits, ok bool
	}{
		{[]int64{0, 0}, []int64{0, 0}, true, true},
		{[]int64{5, 2}, []int64{epoch + 5, 2}, true, true},
		{[]int64{second, 0}, []int64{epoch + second, 0}, true, true},
		{[]int64{-1 - second, 0}, []int64{epoch + second, 0}, false, true},
		{[]int64{-1, 1}, []int64{epoch, 1}, false, true},
		{[]int64{second, 1}, nil, false, false},
		{[]int64{5, 3}, nil, false, false},
		{[]int64{5, -1}, nil, false, false},
		{[]int64{math.MaxInt64, 0}, nil, false, false},
		{[]int64{math.MinInt64, 0}, nil, false, false},
	} {
		s := slices.Clone(c.reply)
		fits, ok := b.ParseReply(s, epoch)
		assert.Equal(t, c.ok, ok, "%v", c.reply)
		assert.Equal(t, c.fits, fits, "%v", c.reply)
		if c.ok {
			assert.Equal(t, c.state, s, "%v", c.reply)
		}
	}
}

func TestGCRAText(t *testing.T) {
	b := newBucket(t, 3, second, 3)
	for text, want := range map[string][]int64{
		"":                    {0, 0},
		"1800000000000010":    {epoch + 10, 0},
		"1800000000000010+2":  {epoch + 10, 2},
		"1800000000000010+99": {epoch + 10, 99},
		"9007199254740991":    {1<<53 - 1, 0},
		"0":                   {0, 0},
	} {
		s := []int64{7, 7}
		assert.True(t, b.ParseText(s, []byte(text)), text)
		assert.Equal(t, want, s, text)
		if text != "0" {
			assert.Equal(t, "k="+text, string(b.AppendText([]byte("k="), s)))
		}
	}
	for _, text := range []string{
		"x", "-5", "+5", " 5", "5 ", "5\n", "5.0", "5e3", "0x10", "nan", "inf", "5+-1", "5++1", "5+1+1", "5;6", "5\x00", "\x00",
		"9007199254740992", "99999999999999999999999", "١٢", "f1,2",
	} {
		s := []int64{7, 7}
		assert.False(t, b.ParseText(s, []byte(text)), "%q", text)
		assert.Equal(t, []int64{0, 0}, s, "%q: unused", text)
	}
}

func TestGCRAExpires(t *testing.T) {
	b := newBucket(t, 3, second, 3)
	for want, s := range map[int64][]int64{0: {0, 0}, epoch: {epoch, 0}, epoch + 6: {epoch + 5, 1}} {
		assert.Equal(t, want, b.Expires(s))
	}
}

// Whatever is stored under a key: reading it never panics, what was read is written
// in one form, and a decision on it stays within the rules.
func FuzzStateText(f *testing.F) {
	for _, text := range []string{"", "1800000000000010", "1800000000000010+2", "9007199254740991+99", "0+5", "12+", "007", "x", "-5", "5;6", "nan", "1e9"} {
		f.Add([]byte(text), int64(3))
	}
	f.Fuzz(func(t *testing.T, text []byte, rate int64) {
		b := newBucket(t, 1+rate&0xffff, 60*second, 5)
		s := b.s
		if !b.ParseText(s, text) {
			require.Equal(t, []int64{0, 0}, s)
			return
		}
		canonical := b.AppendText(nil, s)
		again := make([]int64, 2)
		require.True(t, b.ParseText(again, canonical))
		require.Equal(t, canonical, b.AppendText(nil, again), "%q", text)
		require.False(t, bytes.ContainsAny(canonical, ";-. "))
		a := b.take(epoch, 1)
		require.LessOrEqual(t, a.Reset, b.params.Period*b.params.Burst/b.params.Rate+1)
		require.True(t, b.ParseText(s, b.AppendText(nil, b.s)), "what was written can be read")
	})
}

// Whatever a server replies, reading it never panics, and what is accepted lies
// within the rules.
func FuzzReply(f *testing.F) {
	for _, w := range []int64{0, -1, 5, -6, second, second + 1, math.MaxInt64, math.MinInt64} {
		f.Add(w, int64(0), int64(epoch))
		f.Add(w, int64(2), int64(epoch))
		f.Add(w, int64(-1), int64(1))
	}
	f.Fuzz(func(t *testing.T, w, r, now int64) {
		b := newBucket(t, 3, second, 3)
		now &= 1<<52 - 1
		s := []int64{w, r}
		if _, ok := b.ParseReply(s, now); !ok {
			return
		}
		for _, refused := range []bool{false, true} {
			a := b.Explain(s, now, 1, refused)
			require.GreaterOrEqual(t, a.Remaining, int64(0))
			require.LessOrEqual(t, a.Remaining, int64(3))
			require.LessOrEqual(t, a.Reset, int64(second))
			require.LessOrEqual(t, a.Retry, int64(second))
		}
		require.False(t, b.Load(s, now), "a reply needs no healing")
	})
}

func BenchmarkGCRA(b *testing.B) {
	g := newBucket(b, 1000, second, 1000)
	now := int64(epoch)
	b.ReportAllocs()
	for b.Loop() {
		now += 500
		g.Load(g.s, now)
		admitted := g.Admits(g.s, now, 1)
		if admitted {
			g.Charge(g.s, now, 1)
		}
		g.Explain(g.s, now, 1, !admitted)
	}
}
