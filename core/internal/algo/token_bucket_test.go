package algo_test

import (
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core/internal/algo"
)

func TestTokenBucketTraces(t *testing.T) {
	for _, c := range []trace{
		{"2/1s burst 5", algo.Params{Rate: 2, Burst: 5, Period: second}, []step{
			{0, 5, false, false, 0, 0, 3000000, 0},
			{500000, 1, true, false, 0, 500000, 2500000, 0},
			{1000000, 1, false, false, 1, 0, 2000000, 0},
			{1200000, 1, false, false, 0, 0, 2800000, 0},
			{1200000, 1, true, false, 0, 800000, 2800000, 0},
			{10000000, 0, false, false, 5, 0, 0, 0},
			{10000000, 6, true, true, 5, 0, 0, 0},
			{10000000, 1, false, false, 4, 0, 1000000, 0}, // the periods start again
			{10999999, 5, true, false, 4, 1, 1, 0},
			{11000000, 5, false, false, 0, 0, 3000000, 0},
		}},
		{"2/1s debt 3", algo.Params{Rate: 2, Burst: 2, Debt: 3, Period: second}, []step{
			{0, 2, false, false, 0, 0, 1000000, 0},
			{0, 3, false, false, 0, 0, 3000000, 0},
			{0, 1, true, false, 0, 2000000, 3000000, 0},
			{0, 5, true, false, 0, 3000000, 3000000, 0},
			{0, 6, true, true, 0, 0, 3000000, 0},
			{2000000, 5, true, false, 1, 1000000, 1000000, 0},
			{2000000, 4, false, false, 0, 0, 3000000, 0},
		}},
		{"5/1m wait 2m", algo.Params{Rate: 5, Burst: 5, Period: 60 * second, Wait: 120 * second}, []step{
			{0, 5, false, false, 0, 0, 60000000, 0},
			{10000000, 2, false, false, 0, 0, 110000000, 50000000},
			{10000000, 3, false, false, 0, 0, 110000000, 50000000},
			{10000000, 1, false, false, 0, 0, 170000000, 110000000},
			{10000000, 5, true, false, 0, 50000000, 170000000, 0},
			{60000000, 5, false, false, 0, 0, 180000000, 120000000},
			{120000000, 1, false, false, 0, 0, 120000000, 60000000},
		}},
	} {
		c.check(t, 'b')
	}
}

// tokens is a token bucket as one would write it without a care for speed: the tokens
// of the last write, and all refills since.
type tokens struct {
	algo.Params
	used  bool
	since int64 // a refill, or the first use
	had   *big.Int
	full  int64 // when it is full by all numbers that have charged it
}

func (m *tokens) low() *big.Int {
	refills := ceil(big.NewRat(m.Wait, m.Period))
	low := times(m.Rate, refills)
	return low.Neg(low.Add(low, big.NewInt(m.Debt)))
}

// at brings the bucket to now, and returns what there is and when the last refill came.
func (m *tokens) at(now int64) (has *big.Int, last int64) {
	whole := big.NewInt(m.Burst)
	if m.used && (m.since > now || m.had.Cmp(m.low()) < 0) { // beyond the rules: corrected for good
		if back := m.since - now; back > 0 {
			since := now
			if behind := m.since - 7; back >= m.Period { // the refills since must not be taken for those before
				since = behind - (behind-now+m.Period-1)/m.Period*m.Period
				if since < 1 {
					since = now
				}
			}
			m.full, m.since = m.full-(m.since-since), since
		}
		if m.had.Cmp(m.low()) < 0 {
			m.had = m.low()
		}
		if m.forget(now); m.used {
			m.write(m.refilled(now))
		}
	}
	if !m.used || m.full <= now {
		return whole, now
	}
	if has, last = m.refilled(now); has.Cmp(whole) >= 0 {
		return whole, now
	}
	return has, last
}

// forget drops a bucket that is full by all numbers.
func (m *tokens) forget(now int64) {
	if m.full <= now {
		m.used, m.full = false, 0
	}
}

// refilled returns the tokens with the refills since, of which there are none to a full bucket.
func (m *tokens) refilled(now int64) (has *big.Int, last int64) {
	whole := big.NewInt(m.Burst)
	if m.had.Cmp(whole) >= 0 {
		return m.had, m.since
	}
	refills := (now - m.since) / m.Period
	if has = times(refills, m.Rate); has.Add(has, m.had).Cmp(whole) > 0 {
		has = whole
	}
	return has, m.since + refills*m.Period
}

// write notes what there is: until the bucket is full by these numbers, and by those that have charged it before.
func (m *tokens) write(has *big.Int, last int64) {
	whole := big.NewInt(m.Burst)
	m.used, m.had, m.since = has.Cmp(whole) < 0 || m.full > 0, has, last
	if m.used {
		m.full = max(m.full, last+m.until(m.Burst, has, last, last))
	}
}

// until returns the time from now until need tokens are there.
func (m *tokens) until(need int64, has *big.Int, last, now int64) int64 {
	lacks := new(big.Int).Sub(big.NewInt(need), has)
	if lacks.Sign() <= 0 {
		return 0
	}
	return last + ceil(new(big.Rat).SetFrac(lacks, big.NewInt(m.Rate)))*m.Period - now
}

func (m *tokens) take(now, cost, ahead int64) algo.Answer {
	has, last := m.at(now)
	a := algo.Answer{Never: cost > m.Burst+m.Debt}
	if a.Refused = a.Never; !a.Never && cost > 0 {
		wait := m.until(max(0, cost-m.Debt), has, last, now)
		if a.Refused = wait > ahead; a.Refused {
			a.Wait = wait - ahead
		} else {
			a.Wait = wait
			has = new(big.Int).Sub(has, big.NewInt(cost))
			m.forget(now)
			m.write(has, last)
			a.Charged = [2]int64{last, has.Int64()}
		}
	}
	a.Remaining = max(0, has.Int64())
	a.Reset = m.until(m.Burst, has, last, now)
	if !a.Refused {
		a.More = m.until(min(a.Remaining+1, m.Burst), has, last, now)
	}
	return a
}

func (m *tokens) refund(now, units int64, c charge) {
	has, last := m.at(now)
	if has.Cmp(big.NewInt(m.Burst)) >= 0 {
		return // it is full
	}
	charged := c.Charged[0]
	if early := charged - last; 0 < early && early < m.Period && (early%7 > 0 || early > 112) {
		charged = last // the clock has stepped back by less than a period
	}
	// What the bucket would have if nobody had come behind.
	alone := new(big.Rat).SetFrac64(last-charged, m.Period)
	alone.Mul(alone, rat(m.Rate)).Add(alone, rat(c.Charged[1]))
	lastInLine := units >= c.Units && last >= charged && (last-charged)%m.Period == 0 && alone.Cmp(new(big.Rat).SetInt(has)) == 0
	switch waits := c.Delay > 0 && now < c.At+c.Delay; {
	case waits && !lastInLine:
		return
	case !waits && last != charged:
		return // a refill has come
	case !waits && m.Wait+c.params.Wait > 0 && has.Sign() < 0 && !lastInLine:
		return // somebody may wait
	}
	if units = min(units, c.params.Burst+c.params.Debt); units > 0 {
		if m.full <= last+m.until(m.Burst, has, last, last) {
			m.full = 0
		}
		if has = new(big.Int).Add(has, big.NewInt(units)); has.Cmp(big.NewInt(m.Burst)) > 0 {
			has = big.NewInt(m.Burst)
		}
		m.write(has, last)
	}
}

// Every field of every answer is that of the model, whatever happens to the clock and to
// the limit's numbers.
func TestTokenBucketIsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anyOf(t, 'b', smallWaits(kind('b')))
		m := &tokens{Params: b.params}
		now, hint := int64(epoch), int64(0)
		var charges []charge
		met := false // other numbers have charged it, which may need more time or less until it is full
		for range rapid.IntRange(1, 40).Draw(t, "operations") {
			switch rapid.IntRange(0, 11).Draw(t, "operation") {
			case 0:
				now -= rapid.Int64Range(0, 400*day).Draw(t, "back")
			case 1, 2:
				if len(charges) > 0 {
					c := charges[len(charges)-1-rapid.IntRange(0, len(charges)-1).Draw(t, "charge")]
					units := rapid.Int64Range(0, c.units).Draw(t, "units")
					b.refund(now, units, c.Receipt)
					m.refund(now, units, c)
				}
			case 3:
				if rapid.Bool().Draw(t, "other numbers") {
					s := b.s
					b = anyOf(t, 'b', smallWaits(kind('b')))
					copy(b.s, s)
					m.Params, met = b.params, true
				}
			case 4:
				b.forget(t, now) // which brings it to now
				m.at(now)
				if m.forget(now); m.used {
					m.write(m.refilled(now))
				}
			case 5: // garbage that can be read
				number := rapid.OneOf(rapid.Int64Range(-10, 10), rapid.Int64Range(1-1<<53, 1<<53-1), rapid.Just(b.params.Burst))
				m.used, m.since = true, rapid.OneOf(rapid.Int64Range(1, 1<<53-1), rapid.Int64Range(now-100*second, now+100*second)).Draw(t, "last")
				m.had = big.NewInt(number.Draw(t, "tokens"))
				m.full = min(1<<53-1, m.since+rapid.OneOf(rapid.Int64Range(0, 1<<51), rapid.Int64Range(0, 100*second)).Draw(t, "full"))
				b.s[0], b.s[1], b.s[2], met = m.since, m.had.Int64(), m.full, true
			default:
				now += anyStep(t, hint)
			}
			cost, ahead := anyCost(t, b.params.Burst+b.params.Debt), anyAhead(t, b.params.Wait)
			before := slices.Clone(b.s)
			want, got := m.take(now, cost, ahead), b.reserve(now, cost, ahead)
			require.Equal(t, want, got, "%d units at %d", cost, now)
			if got.Refused || cost == 0 {
				if _, healed := (&bucket{b.Algorithm, b.params, slices.Clone(before)}).load(now); !healed {
					require.Equal(t, before, b.s, "a refusal or a peek changes nothing")
				}
			} else {
				c := charge{Receipt: receipt(now, got), units: cost, params: b.params}
				c.Made = b.Algorithm
				charges = append(charges, c)
			}
			s, _ := b.load(now)
			require.Equal(t, got.Remaining, b.Most(s, now, false))
			require.True(t, got.Remaining == 0 || b.Admits(s, now, got.Remaining, 0))
			require.False(t, b.Admits(s, now, got.Remaining+1+b.params.Debt, 0))
			if !met {
				require.Equal(t, got.Reset, max(0, b.Expires(s)-now))
			}
			hint = max(got.Wait, got.Reset/rapid.Int64Range(1, 3).Draw(t, "part"))
		}
	})
}

// Between two refills there is a period, so that in any time d at most burst + debt +
// ceil(d/period)*rate units are admitted. What is reserved from a refill goes on together
// with it, so that of the turns it is one refill more: floor(d/period) + 1.
func TestTokenBucketBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history(t, 'b', anyOf(t, 'b', smallWaits(kind('b'))), func(b *bucket, charges []charge) {
			windows(charges, func(d int64, units *big.Int) {
				p := b.params
				refills := ceil(big.NewRat(d, p.Period))
				if p.Wait > 0 {
					refills = d/p.Period + 1
				}
				bound := times(refills, p.Rate)
				bound.Add(bound, big.NewInt(p.Burst+p.Debt))
				require.LessOrEqual(t, units.Cmp(bound), 0, "%+v: %v units within %d us", p, units, d)
			})
		})
	})
}

// The bound is tight: a burst just before the refill, and the refill.
func TestTokenBucketReachesItsBound(t *testing.T) {
	b := newKind(t, 'b', algo.Params{Rate: 5, Burst: 10, Debt: 3, Period: second})
	require.False(t, b.take(epoch, 1).Refused)
	require.False(t, b.take(epoch+second-1, 9).Refused)
	require.False(t, b.take(epoch+second, 5).Refused)
	require.False(t, b.take(epoch+second, 3).Refused)
	require.True(t, b.take(epoch+second, 1).Refused)
}

func TestTokenBucketRetryIsExact(t *testing.T) { retryIsExact(t, 'b') }

func TestTokenBucketRefundOfReservations(t *testing.T) { refundOfReservations(t, 'b') }

func TestTokenBucketRefundOfManyReserved(t *testing.T) { refundOfManyReserved(t, 'b') }

// 10/10s: take 10; ten seconds later another takes 10; refund the first.
func TestTokenBucketRefundCounterexample(t *testing.T) {
	b := newKind(t, 'b', algo.Params{Rate: 10, Burst: 10, Period: 10 * second})
	first := receipt(epoch, b.take(epoch, 10))
	require.False(t, b.take(epoch+10*second, 10).Refused)
	b.refund(epoch+10*second, 10, first)
	assert.True(t, b.take(epoch+10*second, 1).Refused)

	b = newKind(t, 'b', algo.Params{Rate: 10, Burst: 20, Period: 10 * second})
	first = receipt(epoch, b.take(epoch, 20))
	b.refund(epoch+9*second, 5, first)
	assert.Equal(t, int64(5), b.take(epoch+9*second, 0).Remaining, "before the refill")
	b.refund(epoch+10*second, 5, first)
	assert.Equal(t, int64(15), b.take(epoch+10*second, 0).Remaining, "after it nothing is given back")
}

func TestTokenBucketRefund(t *testing.T) {
	b := newKind(t, 'b', algo.Params{Rate: 3, Burst: 5, Period: second})
	r := receipt(epoch, b.take(epoch, 2))
	for name, changed := range map[string]bool{
		"no units":      b.Refund(b.s, epoch, 0, r),
		"no charge":     b.Refund(b.s, epoch, 1, algo.Receipt{At: epoch}),
		"another time":  b.Refund(b.s, epoch, 1, algo.Receipt{At: epoch, Charged: [2]int64{epoch - 1, 3}}),
		"a full bucket": b.Refund([]int64{0, 0, 0}, epoch, 1, algo.Receipt{At: epoch}),
	} {
		assert.False(t, changed, name)
	}
	assert.Equal(t, []int64{epoch, 3, epoch + second}, b.s)
	assert.True(t, b.Refund(b.s, epoch, 1, r))
	assert.Equal(t, []int64{epoch, 4, epoch + second}, b.s)
	assert.True(t, b.Refund(b.s, epoch, math.MaxInt64, r))
	assert.Equal(t, []int64{0, 0, 0}, b.s, "full is unused, and never more than full")
}

// A step back of the clock by less than a period takes the last refill along, and a
// charge is still given back, also when the clock has gone on since; but not from what
// was taken after another refill.
func TestTokenBucketRefundAfterAStepBack(t *testing.T) {
	for _, back := range []int64{1, second, 10*second - 1} {
		b := newKind(t, 'b', algo.Params{Rate: 10, Burst: 10, Period: 10 * second})
		r := receipt(epoch, b.take(epoch, 10))
		b.take(epoch-back, 0)
		b.refund(epoch-back, 4, r)
		assert.Equal(t, int64(4), b.take(epoch-back, 0).Remaining)
		b.refund(epoch-back+second, 6, r)
		assert.Equal(t, int64(10), b.take(epoch-back+second, 0).Remaining)

		b = newKind(t, 'b', algo.Params{Rate: 10, Burst: 10, Period: 10 * second})
		r = receipt(epoch, b.take(epoch, 10))
		b.take(epoch-back, 0)
		require.False(t, b.take(epoch-back+10*second, 10).Refused, "refilled")
		b.refund(epoch-back+10*second, 10, r)
		assert.True(t, b.take(epoch-back+10*second, 1).Refused)
	}
}

// After a step back by periods the refills come again, and the clock comes again to where it was: a charge from before is
// not given back beside them.
func TestTokenBucketRefundAfterAStepBackOverRefills(t *testing.T) {
	for _, back := range []int64{2*second + second/2, 2 * second, 3 * second, 2*second + 1, 3*second - 1} {
		b := newKind(t, 'b', algo.Params{Rate: 10, Burst: 30, Period: second})
		r := receipt(epoch, b.take(epoch, 30))
		now := epoch - back
		for n := int64(0); now <= epoch+second; n++ { // whenever it comes
			a := b.take(now, 10)
			if !a.Refused {
				b.refund(now, 30, r)
				require.True(t, b.take(now, 1).Refused, "10 and 30 at one instant, %d us after a step back by %d", now-epoch+back, back)
				now += second / 2
				continue
			}
			now += a.Wait
		}
	}
}

// Other numbers, with less tokens, neither forget that the bucket is not full, nor when it will be.
func TestTokenBucketOtherNumbers(t *testing.T) {
	large, small := algo.Params{Rate: 10, Burst: 1000, Period: second}, algo.Params{Rate: 10, Burst: 10, Period: second}
	b := newKind(t, 'b', large)
	b.take(epoch, 3)
	text := string(b.AppendText(nil, b.s))
	require.Equal(t, "b1800000000000000,997,1000000", text)
	b.become(t, 'b', small)
	assert.Equal(t, algo.Answer{Remaining: 10}, b.take(epoch, 0))
	assert.True(t, b.take(epoch, 11).Never)
	assert.Equal(t, text, string(b.AppendText(nil, b.s)), "a look and a refusal change nothing")
	charged := b.take(epoch+1, 1)
	assert.Equal(t, int64(9), charged.Remaining)
	assert.Equal(t, "b1800000000000001,9,1000000", string(b.AppendText(nil, b.s)))
	b.become(t, 'b', large)
	b.take(epoch+1, 9)
	text = string(b.AppendText(nil, b.s))
	require.Equal(t, "b1800000000000001,0,100000000", text)
	b.become(t, 'b', small)
	assert.Equal(t, int64(10), b.take(epoch+1+second, 0).Remaining)
	require.False(t, b.take(epoch+1+second, 1).Refused)
	assert.Equal(t, "b1800000001000001,9,99000000", string(b.AppendText(nil, b.s)), "it is kept for as long as the larger bucket needs")
	r := receipt(epoch+1+second, b.take(epoch+1+second, 1))
	b.refund(epoch+1+second, 1, r)
	assert.Equal(t, int64(9), b.take(epoch+1+second, 0).Remaining)
	b.become(t, 'b', large)
	assert.Equal(t, int64(9), b.take(epoch+1+second, 0).Remaining)
}

// A charge has the tokens that it took, whatever the burst is now.
func TestTokenBucketRefundUnderOtherNumbers(t *testing.T) {
	p := algo.Params{Rate: 10, Burst: 10, Debt: 4, Period: 10 * second}
	b := newKind(t, 'b', p)
	r := receipt(epoch, b.take(epoch, 10))
	r.Made = b.Algorithm
	b.take(epoch, 4) // borrowed
	b.become(t, 'b', algo.Params{Rate: 10, Burst: 6, Debt: 4, Period: 20 * second})
	b.refund(epoch, 10, r)
	assert.Equal(t, int64(6), b.take(epoch, 0).Remaining, "-4 and 10")
	b.refund(epoch, 10, r)
	assert.Equal(t, int64(6), b.take(epoch, 0).Remaining, "never more than full")
}

// After a step back of the clock nobody waits longer than a whole bucket.
func TestTokenBucketClockStepsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anyOf(t, 'b', anyParams)
		b.take(epoch, b.params.Burst)
		whole := b.take(epoch, 0).Reset
		now := epoch - rapid.SampledFrom([]int64{1, 3600 * second, 400 * day}).Draw(t, "step")
		b.take(now, rapid.Int64Range(0, 1).Draw(t, "cost"))
		require.LessOrEqual(t, b.take(now, 0).Reset, whole)
		require.False(t, b.take(now+whole, b.params.Burst).Refused)
	})
}

// From idle, remaining goes limit-1, ..., 0.
func TestTokenBucketRemainingIsExact(t *testing.T) {
	for _, limit := range []int64{1, 2, 3, 7, 10, 100, 999, 10_000} {
		b := newKind(t, 'b', algo.Params{Rate: limit, Burst: limit, Period: second})
		for left := limit - 1; left >= 0; left-- {
			if a := b.take(epoch, 1); a.Refused || a.Remaining != left {
				t.Fatalf("%d/1s: %+v, want %d remaining", limit, a, left)
			}
		}
		require.True(t, b.take(epoch, 1).Refused)
	}
}

// 3 a second stay 3 a second, whenever they are asked for: no time is lost between uses.
func TestTokenBucketDoesNotDrift(t *testing.T) {
	b := newKind(t, 'b', algo.Params{Rate: 3, Burst: 6, Period: second})
	b.take(epoch, 6)
	admitted := 0
	for now := int64(epoch); now <= epoch+60*second; now += 499_999 {
		for !b.take(now, 1).Refused {
			admitted++
		}
	}
	assert.Equal(t, 3*59, admitted) // the last look was before the minute was over
}

// Parameters are exact or refused, and none overflows.
func TestTokenBucketExtremes(t *testing.T) {
	const most, longest = 1 << 31, 366 * day
	const refill, reserve = "takes more than 71 years to refill", "reserves 2^51 units or more"
	for _, c := range []struct {
		p     algo.Params
		wrong string
	}{
		{algo.Params{Rate: 1, Burst: 1, Period: 1000}, ""},
		{algo.Params{Rate: most, Burst: most, Period: 1000}, ""},
		{algo.Params{Rate: most, Burst: most, Debt: most, Period: longest, Wait: longest}, ""},
		{algo.Params{Rate: 1, Burst: most, Period: 1 << 20}, ""}, // 2^51 us to the microsecond
		{algo.Params{Rate: 1, Burst: most, Period: 1<<20 + 1}, refill},
		{algo.Params{Rate: 1, Burst: most, Period: 1 << 20, Wait: 1}, refill},
		{algo.Params{Rate: 1, Burst: most, Debt: 1, Period: 1 << 20}, refill},
		{algo.Params{Rate: 1, Burst: 71, Period: longest}, ""},
		{algo.Params{Rate: 1, Burst: 72, Period: longest}, refill},
		{algo.Params{Rate: 1, Burst: 70, Period: longest, Wait: longest}, ""},
		{algo.Params{Rate: 1, Burst: 70, Debt: 1, Period: longest, Wait: longest}, refill},
		{algo.Params{Rate: most, Burst: 1, Period: 1000, Wait: 1000 * (1<<20 - 1)}, ""},
		{algo.Params{Rate: most, Burst: 1, Period: 1000, Wait: 1000 * (1 << 20)}, reserve},
		{algo.Params{Rate: most, Burst: most, Debt: most, Period: 1000, Wait: longest}, reserve},
	} {
		a, err := kind('b').New(c.p)
		if c.wrong != "" {
			require.ErrorContains(t, err, c.wrong, "%+v", c.p)
			continue
		}
		require.NoError(t, err, "%+v", c.p)
		for _, v := range a.AppendTake(nil, c.p.Burst, c.p.Wait, 0) {
			assert.Less(t, v, int64(1<<51), "%+v", c.p)
		}
		b, m := newKind(t, 'b', c.p), &tokens{Params: c.p}
		for _, cost := range []int64{1, c.p.Burst - 1, 1, c.p.Burst, c.p.Burst + c.p.Debt, math.MaxInt64} {
			assert.Equal(t, m.take(epoch, cost, c.p.Wait), b.reserve(epoch, cost, c.p.Wait), "%+v, cost %d", c.p, cost)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := anyWaits(kind('b'))(t)
		_, err := kind('b').New(p)
		whole := (&tokens{Params: p}).low()
		whole.Sub(big.NewInt(p.Burst), whole)
		ok := whole.Cmp(big.NewInt(1<<51)) < 0
		refills := ceil(new(big.Rat).SetFrac(whole, big.NewInt(p.Rate)))
		ok = ok && times(refills, p.Period).Cmp(big.NewInt(1<<51)) <= 0
		require.Equal(t, ok, err == nil, "%+v: %v", p, err)
	})
}

func TestTokenBucketLoads(t *testing.T) {
	b := newKind(t, 'b', algo.Params{Rate: 2, Burst: 5, Debt: 3, Period: second})
	unused := []int64{0, 0, 0}
	for _, c := range []struct {
		s, want []int64
		healed  bool
	}{
		{[]int64{0, 0, 0}, unused, false},
		{[]int64{epoch, 4, epoch + second}, []int64{epoch, 4, epoch + second}, false},
		{[]int64{epoch - second, 2, epoch + second}, []int64{epoch, 4, epoch + second}, false},
		{[]int64{epoch - second - 1, 2, epoch + second - 1}, []int64{epoch - 1, 4, epoch + second - 1}, false},
		{[]int64{epoch - second, 3, epoch}, unused, false},
		{[]int64{1, -3, 4*second + 1}, unused, false},
		// Full here, and not yet by other numbers, which have more tokens.
		{[]int64{epoch, 5, epoch + 9*second}, []int64{epoch, 5, epoch + 9*second}, false},
		{[]int64{epoch - 1, 600, epoch + 9*second}, []int64{epoch - 1, 600, epoch + 9*second}, false},
		{[]int64{epoch - 7*second, 1, epoch + 9*second}, []int64{epoch, 5, epoch + 9*second}, false},
		{[]int64{epoch - 1, 600, epoch}, unused, false},
		{[]int64{epoch, -3, epoch + 4*second}, []int64{epoch, -3, epoch + 4*second}, false},
		{[]int64{epoch, -4, epoch + 5*second}, []int64{epoch, -3, epoch + 5*second}, true},
		{[]int64{epoch - 3*second, -1000, epoch + 500*second}, []int64{epoch, 3, epoch + 500*second}, true},
		// The clock has stepped back.
		{[]int64{epoch + 1, 1, epoch + 2*second + 1}, []int64{epoch, 1, epoch + 2*second}, true},
		{[]int64{epoch + second - 1, 1, epoch + 3*second - 1}, []int64{epoch, 1, epoch + 2*second}, true},
		{[]int64{epoch + second, 1, epoch + 3*second}, []int64{epoch - 7, 1, epoch + 2*second - 7}, true},
		{[]int64{epoch + 3600*second + 5, 1, epoch + 3602*second + 5}, []int64{epoch - 2, 1, epoch + 2*second - 2}, true},
		{[]int64{epoch + 3600*second + 8, 1, epoch + 3602*second + 8}, []int64{epoch + 1 - second, 1, epoch + 1 + second}, true},
	} {
		s := slices.Clone(c.s)
		assert.Equal(t, c.healed, b.Load(s, epoch), "%v", c.s)
		assert.Equal(t, c.want, s, "%v", c.s)
	}
}

// The parameters of a script say what the methods do.
func TestTokenBucketParams(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anyOf(t, 'b', smallWaits(kind('b')))
		for range 10 {
			b.reserve(epoch, rapid.Int64Range(0, b.params.Burst).Draw(t, "used"), b.params.Wait)
		}
		cost, ahead := anyCost(t, b.params.Burst+b.params.Debt), anyAhead(t, b.params.Wait)
		p := b.AppendTake([]int64{42}, cost, ahead, 0)[1:]
		period, rate, burst, charge, need, low, wait := p[0], p[1], p[2], p[3], p[4], p[5], p[6]
		s, _ := b.load(epoch)
		has := burst
		if s[0] > 0 {
			has = s[1]
			require.GreaterOrEqual(t, has, -low)
		}
		fits := has >= need || wait > 0 && (need-has+rate-1)/rate*period <= wait
		require.Equal(t, b.Admits(s, epoch, cost, ahead), fits)
		if fits && cost > 0 {
			b.Charge(s, epoch, cost)
			require.Equal(t, has-charge, s[1])
		}
	})
}

func TestTokenBucketReply(t *testing.T) {
	b := newKind(t, 'b', algo.Params{Rate: 2, Burst: 5, Debt: 3, Period: second})
	for _, c := range []struct {
		reply, state []int64
	}{
		{[]int64{0, 0}, []int64{0, 0, 0}},
		{[]int64{epoch, 4}, []int64{epoch, 4, epoch + second}},
		{[]int64{epoch, -3}, []int64{epoch, -3, epoch + 4*second}},
		{[]int64{epoch - second + 1, 0}, []int64{epoch - second + 1, 0, epoch + 2*second + 1}},
		{[]int64{0, 1}, nil},
		{[]int64{epoch, 5}, nil},
		{[]int64{epoch, -4}, nil},
		{[]int64{epoch + 1, 4}, nil},
		{[]int64{epoch - second, 4}, nil},
		{[]int64{math.MaxInt64, 0}, nil},
		{[]int64{epoch, math.MinInt64}, nil},
	} {
		s := make([]int64, 3)
		assert.Equal(t, c.state != nil, b.ParseReply(s, c.reply, epoch, 1), "%v", c.reply)
		if c.state != nil {
			assert.Equal(t, c.state, s, "%v", c.reply)
			assert.False(t, b.Load(s, epoch))
			assert.Equal(t, c.state, s, "%v", c.reply)
		}
	}
}

func TestTokenBucketText(t *testing.T) {
	b := newKind(t, 'b', algo.Params{Rate: 2, Burst: 5, Period: second})
	for text, want := range map[string][]int64{
		"":                                      {0, 0, 0},
		"b1800000000000010,4,1000000":           {epoch + 10, 4, epoch + 10 + second},
		"b1800000000000010,-4,5000000":          {epoch + 10, -4, epoch + 10 + 5*second},
		"b1,0,0":                                {1, 0, 1},
		"b9007199254740991,9007199254740991,0":  {1<<53 - 1, 1<<53 - 1, 1<<53 - 1},
		"b1,-9007199254740991,2251799813685248": {1, 1 - 1<<53, 1<<51 + 1},
	} {
		s := []int64{7, 7, 7}
		assert.True(t, algo.ParseText(b, s, []byte(text)), text)
		assert.Equal(t, want, s, text)
		assert.Equal(t, "k="+text, string(b.AppendText([]byte("k="), s)))
	}
	for text, canonical := range map[string]string{"b007,-0,05": "b7,0,5", "b7,-03,5": "b7,-3,5"} {
		s := make([]int64, 3)
		assert.True(t, algo.ParseText(b, s, []byte(text)))
		assert.Equal(t, canonical, string(b.AppendText(nil, s)))
	}
	for _, text := range []string{
		"b", "b5", "b5,", "b,5", "b5,5", "b5,5,", "b,5,5", "b5,,5", "b0,5,5", "b000,5,5", "b-5,5,5", "b5,+5,5", "b5,--5,5", "b5,-,5", "b5, 5,5", "b5,5,5 ", "b5,5,-5",
		"b5,5,5,5", "b5;5;5", "B5,5,5", "t5,5", "t5,5,5", "5,5,5", "1800000000000010", "b1,1,2251799813685249", "b9007199254740991,1,1",
		"b9007199254740992,1,0", "b1,9007199254740992,1", "b1,-9007199254740992,1", "b1,99999999999999999999999,1", "b5,5,5\x00", "\x00", "b5.0,5,5", "b1e9,5,5",
	} {
		s := []int64{7, 7, 7}
		assert.False(t, algo.ParseText(b, s, []byte(text)), "%q", text)
		assert.Equal(t, []int64{0, 0, 0}, s, "%q: unused", text)
	}
}

func BenchmarkTokenBucket(b *testing.B) {
	benchmark(b, newKind(b, 'b', algo.Params{Rate: 1000, Burst: 1000, Period: second}))
}
