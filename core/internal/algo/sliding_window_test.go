package algo_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core/internal/algo"
)

func TestSlidingWindowTraces(t *testing.T) {
	for _, c := range []trace{
		{"4/10s buckets 5", algo.Params{Rate: 4, Period: 10 * second, Buckets: 5}, []step{
			{at: 0, cost: 2, remaining: 2, reset: 12 * second},
			{at: 3 * second, cost: 2, remaining: 0, reset: 11 * second},
			{at: 3 * second, cost: 1, refused: true, retry: 9 * second, reset: 11 * second},
			{at: 11_999_999, cost: 1, refused: true, retry: 1, reset: 2_000_001},
			{at: 12 * second, cost: 1, remaining: 1, reset: 12 * second},
			{at: 12 * second, cost: 2, refused: true, remaining: 1, retry: 2 * second, reset: 12 * second},
			{at: 12 * second, cost: 0, remaining: 1, reset: 12 * second},
			{at: 12 * second, cost: 5, refused: true, never: true, remaining: 1, reset: 12 * second},
			{at: 24 * second, cost: 4, remaining: 0, reset: 12 * second},
		}},
		{"3/10s buckets 3: a width that is rounded up", algo.Params{Rate: 3, Period: 10 * second, Buckets: 3}, []step{
			{at: 0, cost: 3, remaining: 0, reset: 13_333_336 - epoch%3_333_334},
			{at: 0, cost: 3, refused: true, retry: 13_333_336 - epoch%3_333_334, reset: 13_333_336 - epoch%3_333_334},
		}},
		{"2/10s buckets 1", algo.Params{Rate: 2, Period: 10 * second, Buckets: 1}, []step{
			{at: 9 * second, cost: 1, remaining: 1, reset: 11 * second},
			{at: 10 * second, cost: 1, remaining: 0, reset: 20 * second},
			{at: 19_999_999, cost: 1, refused: true, retry: 1, reset: 10_000_001},
			{at: 20 * second, cost: 1, remaining: 0, reset: 20 * second},
		}},
	} {
		c.check(t, 'w')
	}
}

// arrivals asks for a unit at a time, so many in each second, of 1000/3s.
func arrivals(t *testing.T, letter byte, buckets int64) (admitted []int) {
	t.Helper()
	b := newKind(t, letter, algo.Params{Rate: 1000, Burst: 1000, Period: 3 * second, Buckets: buckets})
	for i, n := range []int{10, 10, 980, 900, 100, 0} {
		admitted = append(admitted, 0)
		for range n {
			if !b.take(epoch+int64(i)*second, 1).Refused {
				admitted[i]++
			}
		}
	}
	return admitted
}

func TestSlidingArrivals(t *testing.T) {
	assert.Equal(t, []int{10, 10, 980, 0, 10, 0}, arrivals(t, 'w', 3))
	assert.Equal(t, []int{10, 10, 980, 0, 10, 0}, arrivals(t, 'w', 10))
	assert.Equal(t, []int{10, 10, 980, 0, 100, 0}, arrivals(t, 'd', 0))
	assert.Equal(t, []int{10, 10, 980, 10, 10, 0}, arrivals(t, 'x', 0))
}

// slidingModel is the algorithm as one would write it without a care for speed or size.
type slidingModel interface {
	become(p algo.Params)
	take(now, cost int64) algo.Answer
	// refund gives back units of a charge that was counted in a part of that width.
	refund(now, at, units, width int64)
	// forget drops what is dead.
	forget(now int64)
}

// counted are units that were charged together.
type counted struct{ at, units int64 }

func total(list []counted) (sum int64) {
	for _, c := range list {
		sum += c.units
	}
	return sum
}

// listModel is a sliding window or a log as a list of charges.
type listModel struct {
	algo.Params
	stored []counted
	wrote  int64 // the width under which they were stored
	// index is the sub-window that a time belongs to; a log has one for each
	// microsecond. dies returns the time from which it counts no more.
	index, dies func(at int64) int64
}

func (m *listModel) width() int64 { return partOf(m.Params) }

// partOf is the width of a sub-window; a log tells microseconds apart.
func partOf(p algo.Params) int64 {
	if p.Buckets == 0 {
		return 1
	}
	return (p.Period + p.Buckets - 1) / p.Buckets
}

// become leaves what is stored as it is.
func (m *listModel) become(p algo.Params) {
	m.Params = p
	w := m.width()
	m.index = func(at int64) int64 { return at / w }
	m.dies = func(at int64) int64 { return (at/w + p.Buckets + 1) * w }
	if p.Buckets == 0 {
		m.dies = func(at int64) int64 { return at + p.Period }
	}
}

func (m *listModel) store(list []counted) {
	m.stored = slices.DeleteFunc(slices.Clone(list), func(c counted) bool { return c.units == 0 })
	m.wrote = m.width()
}

// view returns the charges that count now. Under another width than it was stored each charge is taken for
// one at the end of its sub-window, and for one of now if that is earlier.
func (m *listModel) view(now int64) (list []counted) {
	changed := false
	for _, c := range m.stored {
		start := c.at / m.wrote * m.wrote
		if m.wrote != m.width() {
			c.at = start + m.wrote - 1
		}
		changed = changed || start > now || m.index(c.at) > m.index(now)
		c.at = min(c.at, now)
		if m.dies(c.at) > now {
			list = append(list, c)
		}
	}
	if changed {
		m.store(list)
	}
	return list
}

func (m *listModel) take(now, cost int64) (a algo.Answer) {
	list := m.view(now)
	a.Refused, a.Never = cost > 0 && cost > m.Rate-total(list), cost > m.Rate
	if !a.Refused && cost > 0 {
		list = append(list, counted{now, cost})
		m.store(list)
	}
	a.Remaining = max(0, m.Rate-total(list))
	for _, c := range list {
		a.Reset = max(a.Reset, m.dies(c.at)-now)
	}
	if !a.Refused && total(list) <= m.Rate { // beyond, it is not known
		for i, c := range list {
			if dies := m.dies(c.at) - now; i == 0 || dies < a.More {
				a.More = dies
			}
		}
	}
	if !a.Refused || a.Never {
		return a
	}
	a.Wait = math.MaxInt64
	for _, c := range list { // one of the times when something dies
		at := m.dies(c.at)
		left := slices.DeleteFunc(slices.Clone(list), func(c counted) bool { return m.dies(c.at) <= at })
		if total(left)+cost <= m.Rate {
			a.Wait = min(a.Wait, at-now)
		}
	}
	return a
}

// refund looks for the oldest sub-window that may hold a charge of that time, or else, if
// all are older, takes the newest.
func (m *listModel) refund(now, at, units, width int64) {
	list := m.view(now)
	first, last := m.index(at), m.index((at/width+1)*width-1)
	from, newest := int64(math.MaxInt64), int64(-1)
	for _, c := range list {
		newest = max(newest, m.index(c.at))
		if j := m.index(c.at); first <= j && j <= last {
			from = min(from, j)
		}
	}
	if newest < first {
		from = newest
	}
	changed := false
	for i := range list {
		if back := min(units, list[i].units); back > 0 && m.index(list[i].at) == from {
			list[i].units -= back
			units -= back
			changed = true
		}
	}
	if changed {
		m.store(list)
	}
}

func (m *listModel) forget(now int64) {
	if len(m.view(now)) == 0 {
		m.store(nil)
	}
}

// slidingParams are small numbers, where things meet, and large ones.
func slidingParams(letter byte) func(*rapid.T) algo.Params {
	return func(t *rapid.T) algo.Params {
		p := algo.Params{
			Rate:   rapid.OneOf(rapid.Int64Range(1, 10), rapid.Int64Range(1, 1<<31), rapid.Just(int64(1<<31))).Draw(t, "rate"),
			Period: rapid.OneOf(rapid.SampledFrom([]int64{1000, 10 * second, 12 * second, 366 * day}), rapid.Int64Range(1000, 366*day)).Draw(t, "period"),
		}
		if letter == 'w' {
			p.Buckets = rapid.OneOf(rapid.Int64Range(1, 60), rapid.SampledFrom([]int64{1, 5, 10, 60})).Draw(t, "buckets")
		}
		if letter == 'x' {
			p.Rate = min(p.Rate, algo.MaxLog)
		}
		return p
	}
}

// slidingStep draws a step of the clock, mostly to where something happens.
func slidingStep(t *rapid.T, p algo.Params, hint int64) int64 {
	return rapid.OneOf(
		rapid.Just(int64(0)), rapid.Int64Range(max(0, hint-1), hint+1), rapid.Int64Range(0, p.Period/8), rapid.Int64Range(0, 3*p.Period),
	).Draw(t, "step")
}

// changed are other numbers for the same kind of state.
func changed(t *rapid.T, letter byte, p algo.Params, period bool) algo.Params {
	q := slidingParams(letter)(t)
	if !period {
		q.Period = p.Period
	}
	q.Buckets = p.Buckets
	return q
}

func (b *bucket) become(t require.TestingT, letter byte, p algo.Params) {
	next := newKind(t, letter, p)
	require.True(t, algo.ParseText(next, next.s, b.AppendText(nil, b.s)), "other numbers read the same text")
	*b = *next
}

// slidingIsTheModel compares every field of every answer with the model's, whatever
// happens to the clock and to the limit's numbers.
func slidingIsTheModel(t *testing.T, letter byte, newModel func() slidingModel) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		p := slidingParams(letter)(t)
		b, m := newKind(t, letter, p), newModel()
		m.become(p)
		now, hint := int64(epoch), int64(0)
		var charges []counted
		made := map[counted]charge{} // its receipt, and in what parts of a window it was counted
		for range rapid.IntRange(1, 40).Draw(t, "operations") {
			switch rapid.IntRange(0, 12).Draw(t, "operation") {
			case 0:
				now -= rapid.OneOf(rapid.Int64Range(0, p.Period), rapid.Int64Range(0, 400*day)).Draw(t, "back")
			case 1, 2, 3:
				if len(charges) > 0 {
					c := rapid.SampledFrom(charges).Draw(t, "charge")
					units := rapid.OneOf(rapid.Just(c.units), rapid.Int64Range(0, c.units)).Draw(t, "units")
					b.refund(now, units, made[c].Receipt)
					m.refund(now, c.at, units, made[c].units)
				}
			case 4:
				p = changed(t, letter, p, true)
				b.become(t, letter, p)
				m.become(p)
			case 5:
				require.True(t, algo.ParseText(b, b.s, b.AppendText(nil, b.s)))
				if s, _ := b.load(now); b.Expires(s) <= now {
					require.Zero(t, b.Expires(s))
					clear(b.s)
				}
				m.forget(now)
			default:
				now += slidingStep(t, p, hint)
			}
			cost := anyCost(t, p.Rate)
			before := b.AppendText(nil, b.s)
			again := newKind(t, letter, p)
			require.True(t, algo.ParseText(again, again.s, before))
			_, healed := again.load(now)
			want, got := m.take(now, cost), b.take(now, cost)
			require.Equal(t, want, got, "%d units at %d of %s under %+v", cost, now, before, p)
			if hint = max(got.Wait, got.Reset/rapid.Int64Range(1, 3).Draw(t, "part")); !got.Refused && cost > 0 {
				c := counted{now, cost}
				charges, made[c] = append(charges, c), charge{Receipt: algo.Receipt{At: now, Made: b.Algorithm}, units: partOf(p)}
				if letter == 'd' {
					made[c] = charge{Receipt: made[c].Receipt, units: p.Period}
				}
			} else if !healed {
				require.Equal(t, string(before), string(b.AppendText(nil, b.s)), "a refusal or a peek changes nothing")
			}
			require.True(t, 0 <= got.Remaining && got.Remaining <= p.Rate)
			_, healed = b.load(now)
			require.False(t, healed, "once is enough")
		}
	})
}

func TestSlidingWindowIsTheModel(t *testing.T) {
	slidingIsTheModel(t, 'w', func() slidingModel { return new(listModel) })
}

// slidingHistory takes and refunds at random, and calls check after each admission
// with what was admitted and not given back.
func slidingHistory(t *rapid.T, letter byte, back bool, check func(b *bucket, now int64, admitted []counted)) {
	p := slidingParams(letter)(t)
	b := newKind(t, letter, p)
	now, hint := int64(epoch), int64(0)
	var admitted []counted
	receipts := 0 // the last so many can be given back
	made := map[counted]algo.Receipt{}
	for range rapid.IntRange(1, 60).Draw(t, "operations") {
		switch rapid.IntRange(0, 12).Draw(t, "operation") {
		case 0:
			if !back {
				continue
			}
			now -= rapid.OneOf(rapid.Int64Range(0, p.Period), rapid.Int64Range(0, 400*day)).Draw(t, "back")
			b.load(now)
			for i := range admitted {
				if admitted[i].at > now {
					admitted[i].at, receipts = now, 0
				}
			}
		case 1, 2, 3:
			if receipts > 0 {
				c := &admitted[len(admitted)-1-rapid.IntRange(0, receipts-1).Draw(t, "charge")]
				units := rapid.OneOf(rapid.Just(c.units), rapid.Int64Range(0, c.units)).Draw(t, "units")
				b.refund(now, units, made[counted{at: c.at}])
				c.units -= units
			}
			continue
		case 4:
			q := changed(t, letter, p, rapid.Bool().Draw(t, "period"))
			p = q
			b.become(t, letter, p)
			b.load(now)
		case 5: // a store forgets what is dead
			if s, _ := b.load(now); b.Expires(s) <= now {
				clear(b.s)
			}
		default:
			now += slidingStep(t, p, hint)
		}
		// What has expired is forgotten, whatever the clock does next.
		admitted = slices.DeleteFunc(admitted, func(c counted) bool { return now-c.at >= p.Period })
		receipts = min(receipts, len(admitted))
		cost := anyCost(t, p.Rate)
		a := b.take(now, cost)
		if hint = a.Wait; !a.Refused && cost > 0 {
			admitted = append(admitted, counted{now, cost})
			made[counted{at: now}] = algo.Receipt{At: now, Made: b.Algorithm}
			receipts++
			check(b, now, admitted)
		}
	}
}

// within returns the units admitted in the last d microseconds.
func within(list []counted, now, d int64) (sum int64) {
	for _, c := range list {
		if now-c.at < d {
			sum += c.units
		}
	}
	return sum
}

// No time as long as the period ever holds more than the limit.
func slidingBound(t *testing.T, letter byte) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		slidingHistory(t, letter, true, func(b *bucket, now int64, admitted []counted) {
			require.LessOrEqual(t, within(admitted, now, b.params.Period), b.params.Rate, "%+v", b.params)
		})
	})
}

func TestSlidingWindowBound(t *testing.T) { slidingBound(t, 'w') }

// A unit comes back at most one sub-window after it is as old as the period.
func TestSlidingWindowIsNotLate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := slidingParams('w')(t)
		b := newKind(t, 'w', p)
		now := epoch + rapid.Int64Range(0, p.Period).Draw(t, "now")
		b.take(now, p.Rate)
		w := (p.Period + p.Buckets - 1) / p.Buckets
		retry := b.take(now, p.Rate).Wait
		require.GreaterOrEqual(t, retry, p.Period)
		require.LessOrEqual(t, retry, p.Period+w+p.Buckets-1)
	})
}

// Waiting exactly the retry time admits, and 1 us less does not.
func slidingRetryIsExact(t *testing.T, letter byte) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		p := slidingParams(letter)(t)
		b := newKind(t, letter, p)
		now := int64(epoch)
		for range rapid.IntRange(1, 30).Draw(t, "operations") {
			now += rapid.Int64Range(0, p.Period/4).Draw(t, "step")
			if rapid.IntRange(0, 9).Draw(t, "new numbers") == 0 {
				p = changed(t, letter, p, true)
				b.become(t, letter, p)
			}
			cost := rapid.OneOf(rapid.Int64Range(1, p.Rate), rapid.Int64Range(1, 1+p.Rate/5)).Draw(t, "cost")
			a := b.take(now, cost)
			if !a.Refused {
				continue
			}
			require.Positive(t, a.Wait)
			early := b.take(now+a.Wait-1, cost)
			require.True(t, early.Refused)
			require.Equal(t, int64(1), early.Wait)
			now += a.Wait
			require.False(t, b.take(now, cost).Refused)
		}
	})
}

func TestSlidingWindowRetryIsExact(t *testing.T) { slidingRetryIsExact(t, 'w') }

// What others got wrong: they looked whether one unit fits rather than the cost, counted
// what they had refused, so that a caller that keeps trying is never let in again, and let
// everybody wait for a whole window.
func TestSlidingOldMistakes(t *testing.T) {
	for _, letter := range []byte("wdx") {
		t.Run(kind(letter).Word, func(t *testing.T) {
			p := algo.Params{Rate: 10, Period: 10 * second, Buckets: 10}
			b := newKind(t, letter, p)
			assert.False(t, b.take(epoch, 9).Refused)
			a := b.take(epoch, 9)
			assert.True(t, a.Refused, "9 + 9 of 10")
			assert.Equal(t, int64(1), a.Remaining)
			assert.False(t, b.take(epoch, 1).Refused, "a refused request does not count")

			p.Rate = 5
			b = newKind(t, letter, p)
			admitted := 0
			for i := range int64(600) { // 1 a second against 5 in 10 seconds
				if !b.take(epoch+i*second, 1).Refused {
					admitted++
				}
			}
			assert.Greater(t, admitted, 200)

			b = newKind(t, letter, p)
			for i := range int64(5) {
				require.False(t, b.take(epoch+i*second, 1).Refused)
			}
			b.take(epoch+12*second, 1)
			assert.Less(t, b.take(epoch+9*second, 1).Wait, int64(5*second), "a step back brings all into one window")
		})
	}
}

// Remaining goes limit-1, ..., 0 from idle, and the next is refused.
func TestSlidingRemainingIsExact(t *testing.T) {
	for _, letter := range []byte("wdx") {
		for _, limit := range []int64{1, 2, 3, 10, 999, 1000} {
			b := newKind(t, letter, algo.Params{Rate: limit, Period: second, Buckets: 10})
			for left := limit - 1; left >= 0; left-- {
				if a := b.take(epoch, 1); a.Refused || a.Remaining != left {
					t.Fatalf("%s %d: %+v, want %d remaining", kind(letter).Word, limit, a, left)
				}
			}
			require.True(t, b.take(epoch, 1).Refused)
		}
	}
}

// After any step of the clock, a caller waits for one window at most.
func TestSlidingClockSteps(t *testing.T) {
	for _, letter := range []byte("wdx") {
		for _, by := range []int64{-400 * day, -3600 * second, -10 * second, -1, 1, 3600 * second, 400 * day} {
			b := newKind(t, letter, algo.Params{Rate: 10, Period: 10 * second, Buckets: 10})
			require.False(t, b.take(epoch+10*second, 10).Refused)
			now := epoch + 10*second + by
			name := fmt.Sprintf("%s by %d", kind(letter).Word, by)
			a := b.take(now, 0)
			assert.LessOrEqual(t, a.Reset, int64(20*second), name)
			if a = b.take(now, 10); a.Refused {
				assert.LessOrEqual(t, a.Wait, int64(20*second), name)
				now += a.Wait
				assert.False(t, b.take(now, 10).Refused, name)
			}
			assert.True(t, b.take(now, 1).Refused, name)
		}
	}
}

// 10/10s: take 10; later another takes 10; refund the first. Giving back "at most what
// is in use" would admit 20 within ten seconds.
func TestSlidingRefundCounterexample(t *testing.T) {
	for _, letter := range []byte("wdx") {
		b := newKind(t, letter, algo.Params{Rate: 10, Period: 10 * second, Buckets: 10})
		require.False(t, b.take(epoch, 10).Refused)
		require.False(t, b.take(epoch+20*second, 10).Refused)
		b.refund(epoch+20*second, 10, algo.Receipt{At: epoch})
		assert.True(t, b.take(epoch+20*second, 1).Refused, kind(letter).Word)
		b.refund(epoch+20*second, 10, algo.Receipt{At: epoch + 20*second})
		assert.Empty(t, b.AppendText(nil, b.s), "what counts nothing is absent")
		assert.Zero(t, b.Expires(b.s))
		b.refund(epoch+20*second, 10, algo.Receipt{At: epoch + 20*second})
		assert.Equal(t, int64(10), b.take(epoch+20*second, 0).Remaining, "never more than there are")
	}
}

// What a step back of the clock has moved comes back from where it is now.
func TestSlidingRefundAfterAStepBack(t *testing.T) {
	for _, letter := range []byte("wdx") {
		for _, back := range []int64{1, second, 60 * second} {
			b := newKind(t, letter, algo.Params{Rate: 10, Period: 10 * second, Buckets: 10})
			b.take(epoch, 10)
			r := algo.Receipt{At: epoch}
			require.True(t, b.take(epoch-back, 1).Refused)
			b.refund(epoch-back, 4, r)
			require.Equal(t, int64(4), b.take(epoch-back, 0).Remaining, kind(letter).Word)
			b.refund(epoch-back, 7, r)
			require.Equal(t, int64(10), b.take(epoch-back, 0).Remaining, kind(letter).Word)
		}
	}
}

// A charge is found where a change of the period has moved it.
func TestSlidingRefundUnderAnotherPeriod(t *testing.T) {
	for _, letter := range []byte("wd") {
		for _, period := range []int64{7 * second, 20 * second, 33 * second} {
			b := newKind(t, letter, algo.Params{Rate: 10, Period: 10 * second, Buckets: 5})
			require.False(t, b.take(epoch+5*second, 4).Refused)
			r := algo.Receipt{At: epoch + 5*second, Made: b.Algorithm}
			b.become(t, letter, algo.Params{Rate: 10, Period: period, Buckets: 5})
			b.refund(epoch+6*second, 3, r)
			require.Equal(t, int64(9), b.take(epoch+6*second, 0).Remaining, "%s of %d s", kind(letter).Word, period/second)
		}
	}
}

func TestSlidingWindowRefund(t *testing.T) {
	b := newKind(t, 'w', algo.Params{Rate: 10, Period: 10 * second, Buckets: 5})
	for _, c := range []struct {
		at, units  int64
		text, want string
	}{
		{0, 1, "w1800000004000000,2000000,2,0,3", "w1800000004000000,2000000,2,0,2"},
		{1_999_999, 5, "w1800000004000000,2000000,2,0,3", "w1800000004000000,2000000,2"},
		{4 * second, 2, "w1800000004000000,2000000,2,0,3", "w1800000000000000,2000000,3"},
		{4 * second, 2, "w1800000004000000,2000000,2,1,3", "w1800000002000000,2000000,1,3"},
		{2 * second, 9, "w1800000004000000,2000000,2,1,3", "w1800000004000000,2000000,2,0,3"},
		{4 * second, 9, "w1800000004000000,2000000,2", ""},
		{2 * second, 2, "w1800000004000000,2000000,2,0,3", "w1800000004000000,2000000,2,0,3"},
		{6 * second, 2, "w1800000004000000,2000000,2,0,3", "w1800000000000000,2000000,3"}, // the clock has stepped back
		{-100 * second, 2, "w1800000004000000,2000000,2,0,3", "w1800000004000000,2000000,2,0,3"},
		{4 * second, 0, "w1800000004000000,2000000,2,0,3", "w1800000004000000,2000000,2,0,3"},
	} {
		require.True(t, algo.ParseText(b, b.s, []byte(c.text)))
		b.Load(b.s, epoch+5*second)
		changed := b.Refund(b.s, epoch+5*second, c.units, algo.Receipt{At: epoch + c.at})
		got := string(b.AppendText(nil, b.s))
		assert.Equal(t, c.want, got, "%d units at %d of %s", c.units, c.at, c.text)
		assert.Equal(t, c.want != c.text, changed)
	}
}

// loads is a text, the text it becomes at an instant, and whether that is a correction.
type loads struct {
	text, want string
	healed     bool
}

func checkLoads(t *testing.T, b *bucket, now int64, cases []loads) {
	t.Helper()
	for _, c := range cases {
		require.True(t, algo.ParseText(b, b.s, []byte(c.text)), c.text)
		assert.Equal(t, c.healed, b.Load(b.s, now), c.text)
		assert.Equal(t, c.want, string(b.AppendText(nil, b.s)), c.text)
		assert.Equal(t, c.want != "", b.Expires(b.s) > now, c.text)
		assert.GreaterOrEqual(t, b.Most(b.s, now, false), int64(0))
	}
}

func TestSlidingWindowLoads(t *testing.T) {
	b := newKind(t, 'w', algo.Params{Rate: 10, Period: 10 * second, Buckets: 5})
	checkLoads(t, b, epoch+20*second, []loads{
		{"", "", false},
		{"w1800000020000000,2000000,3,0,2", "w1800000020000000,2000000,3,0,2", false},
		{"w1800000014000000,2000000,3,0,1,2", "w1800000014000000,2000000,3,0,1", false},
		{"w1800000010000000,2000000,3,2", "w1800000010000000,2000000,3", false},
		{"w1800000008000000,2000000,3,2", "", false},
		{"w0,2000000,3", "", false},
		{"w1800000022000000,2000000,3,2", "w1800000020000000,2000000,5", true},
		{"w1800000026000000,2000000,3,0,1,1,0,2", "w1800000020000000,2000000,5,0,2", true},
		{"w9007199254000000,2000000,3,1099511627775,1,0,1,1", "w1800000020000000,2000000,1099511627781", true},
		{"w1800000020000000,2000000,1099511627775,5", "w1800000020000000,2000000,1099511627775,5", false},
		{"w1800000020000000,2000000,3,4,4,4", "w1800000020000000,2000000,3,4,4,4", false},
		{"w1800000020000000,2000000,10,0,1", "w1800000020000000,2000000,10,0,1", false},
		{"w1800000014000000,2000000,10,0,0,1", "w1800000014000000,2000000,10", false},
		{"w1800000008000000,2000000,11", "", false},
		// Of another period: each where its end is, and of now at the latest.
		{"w1800000018000000,1000000,1,2,3", "w1800000018000000,2000000,1,5", false},
		{"w1800000019000000,1000000,1,2,3", "w1800000018000000,2000000,3,3", false},
		{"w1800000018000000,3000000,1,2,3", "w1800000020000000,2000000,1,0,2,3", false},
		{"w1800000020000000,4000000,1,2,3", "w1800000020000000,2000000,1,2,0,3", true},
		{"w1800000020000000,4000000,1,2,3,4", "w1800000020000000,2000000,1,2,0,3,0,4", true},
		{"w1800000020000000,4000000,1,2,3,4,5", "w1800000020000000,2000000,1,2,0,3,0,4", true},
		{"w1800000020000000,4000000,1,2,0,0,5", "w1800000020000000,2000000,1,2", true},
		{"w1800000000000000,30000000,5", "w1800000020000000,2000000,5", true},
		{"w1800000000000000,10000000,5", "", false},
		{"w1800000021000000,1000000,1,2,3", "w1800000020000000,2000000,3,3", true},
		{"w1800000020000000,1000000,9,9", "w1800000020000000,2000000,9,9", false},
	})
}

// Every count keeps its time when the period is raised.
func TestSlidingWindowRaisedPeriod(t *testing.T) {
	b := newKind(t, 'w', algo.Params{Rate: 4, Period: 10 * second, Buckets: 5})
	require.False(t, b.take(epoch, 2).Refused)
	require.False(t, b.take(epoch+9*second, 2).Refused)
	b.become(t, 'w', algo.Params{Rate: 4, Period: 20 * second, Buckets: 5})
	for now := int64(9 * second); now < 20*second; now += second {
		require.True(t, b.take(epoch+now, 1).Refused, "4 in less than 20 s")
	}
	a := b.take(epoch+20*second, 1)
	assert.Equal(t, int64(4*second), a.Wait, "at most one part late")
	assert.False(t, b.take(epoch+24*second, 2).Refused)
	assert.Equal(t, int64(8*second), b.take(epoch+24*second, 1).Wait)
}

// A count that lies ahead after the period was changed is of now from the first look on, so that whoever is refused
// comes back when there is room, even if nobody was admitted in between.
func TestSlidingWindowShorterParts(t *testing.T) {
	b := newKind(t, 'w', algo.Params{Rate: 2, Period: 100 * second, Buckets: 10})
	require.False(t, b.take(epoch+second, 2).Refused)
	b.become(t, 'w', algo.Params{Rate: 2, Period: 10 * second, Buckets: 10})
	assert.Equal(t, int64(11*second), b.take(epoch+second, 1).Wait)
	assert.Equal(t, "w1800000001000000,1000000,2", string(b.AppendText(nil, b.s)), "healed")
	assert.Equal(t, int64(1), b.take(epoch+12*second-1, 1).Wait)
	assert.False(t, b.take(epoch+12*second, 2).Refused)
}

func TestSlidingWindowText(t *testing.T) {
	b := newKind(t, 'w', algo.Params{Rate: 10, Period: 10 * second, Buckets: 5})
	for _, text := range []string{"", "w1800000000000000,5,1", "w9007199254740991,1,1099511627775,0,0,0,0,1", "w0,1,1", "w5,5,1,1"} {
		assert.True(t, algo.ParseText(b, b.s, []byte(text)), text)
		assert.Equal(t, text, string(b.AppendText(nil, b.s)))
	}
	for _, text := range []string{
		"w", "w5", "w5,", "w,1", "w,1,1", "w5,1", "w5,1,", "w5,1,0", "w5,1,0,1", "w5,1,1,0", "w5,1,1,", "w5,1,,1", "w5,1,01", "w5,1,1,00", "w5,1,1,01", "w5,01,1",
		"w50,1,1,1,1,1,1,1,0", "w50,1,1,1,1,1,1,1,1", "w9007199254740992,1,1", "w5,9007199254740992,1", "w0,9007199254740992,1",
		"w5,1,9007199254740992", "w5,1,1099511627776", "w5,1,1,1099511627776", "w5,1,1,99999999999999999999", "w-5,1,1", "w5,-1,1", "w5,1,-1", "w5,1,1 ", " w5,1,1", "w5,1,1;", "5,1,1", "s5,1,1", "x5,1", "W5,1,1", "w5,1,1e1", "w5,1,0x1",
		"w5,0,1", "w5,2,1", "w5,10,1", "w5,5,1,1,1", "w5,5,1,0,1", "w0,5,1,1",
	} {
		assert.False(t, algo.ParseText(b, b.s, []byte(text)), text)
		assert.Equal(t, make([]int64, b.Words()), b.s, text)
	}
}

// replies is a reply and whether it is accepted.
type replies struct {
	reply []int64
	cost  int64
	want  string // "-" if none can have written it
}

func checkReplies(t *testing.T, b *bucket, now int64, cases []replies) {
	t.Helper()
	for _, c := range cases {
		s := slices.Repeat([]int64{77}, 80)
		require.Len(t, c.reply, b.Reply())
		if !b.ParseReply(s, c.reply, now, c.cost) {
			assert.Equal(t, c.want, "-", "%v", c.reply)
			continue
		}
		assert.Equal(t, c.want, string(b.AppendText(nil, s)), "%v", c.reply)
		assert.False(t, b.Load(s, now), "%v needs no healing", c.reply)
	}
}

func TestSlidingWindowReply(t *testing.T) {
	b := newKind(t, 'w', algo.Params{Rate: 10, Period: 10 * second, Buckets: 5})
	checkReplies(t, b, epoch+21*second, []replies{
		{[]int64{0, 0, 0, 0}, 1, ""},
		{[]int64{epoch + 20*second, 10, 0, 0}, 3, "w1800000020000000,2000000,10"},
		{[]int64{epoch + 20*second, 10, 5, 5}, 3, "w1800000020000000,2000000,7,0,0,0,0,3"},
		{[]int64{epoch + 10*second, 10, 0, 0}, 3, "w1800000010000000,2000000,10"},
		{[]int64{epoch + 10*second, 10, 1, 1}, 3, "-"},
		{[]int64{epoch + 8*second, 10, 0, 0}, 3, "-"},
		{[]int64{epoch + 22*second, 10, 0, 0}, 3, "-"},
		{[]int64{epoch + 21*second, 10, 0, 0}, 3, "-"},
		{[]int64{epoch + 20*second, 11, 0, 0}, 3, "w1800000020000000,2000000,11"}, // under a higher limit
		{[]int64{epoch + 20*second, 11, 5, 5}, 3, "w1800000020000000,2000000,7,0,0,0,0,4"},
		{[]int64{epoch + 20*second, 1 << 53, 0, 0}, 3, "-"},
		{[]int64{epoch + 20*second, 0, 0, 0}, 3, "-"},
		{[]int64{epoch + 20*second, -1, 0, 0}, 3, "-"},
		{[]int64{epoch + 20*second, 7, 1, 1}, 3, "-"}, // it fits
		{[]int64{epoch + 20*second, 7, 1, 1}, 10, "-"},
		{[]int64{epoch + 20*second, 7, 1, 1}, 11, "-"},
		{[]int64{epoch + 20*second, 10, 6, 6}, 3, "-"},
		{[]int64{epoch + 20*second, 10, -1, 0}, 3, "-"},
		{[]int64{epoch + 20*second, 10, math.MinInt64, math.MinInt64}, 3, "-"},
		{[]int64{epoch + 20*second, 10, math.MaxInt64, math.MaxInt64}, 3, "-"},
		{[]int64{math.MaxInt64, 10, 0, 0}, 3, "-"},
		{[]int64{0, 0, 1, 1}, 3, "-"},
		{[]int64{0, 0, 0, 1}, 3, "-"},
		{[]int64{epoch + 20*second, 10, 3, 5}, 3, "w1800000020000000,2000000,7,0,0,2,0,1"}, // older ones must go as well
		{[]int64{epoch + 20*second, 8, 1, 5}, 3, "-"},
		{[]int64{epoch + 20*second, 5, 0, 5}, 3, "w1800000020000000,2000000,4,0,0,0,0,1"}, // it fits
		{[]int64{epoch + 20*second, 10, 5, 3}, 3, "-"},
		{[]int64{epoch + 20*second, 5, 0, 6}, 3, "-"},
		{[]int64{epoch + 20*second, 1, 0, 5}, 3, "-"},
		{[]int64{epoch + 20*second, 5, 0, math.MaxInt64}, 3, "-"},
	})
}

// slidings are the kinds of this file and its neighbours.
func slidings(t require.TestingT, rate int64) (out []*bucket) {
	for _, letter := range []byte("wdx") {
		out = append(out, newKind(t, letter, algo.Params{Rate: rate, Period: 60 * second, Buckets: 10}))
	}
	return out
}

// As [FuzzStateText], for the kinds that slide.
func FuzzSlidingText(f *testing.F) {
	for _, text := range []string{
		"", "w1800000000000000,6000000,1,0,2", "w1800000000000000,1000000,1,0,2,5", "w9007199254740991,1,9007199254740991,1,1", "w5,5,0", "w5,1,1,",
		"d1800000000000000,60000000,1,2", "d1799999940000000,20000000,9007199254740991,3", "d5,5,0,0", "d9007199254740991,1,9007199254740991,9007199254740991",
		"x1800000000000005,3,1800000000000000,2,5,1", "x9007199254740991,1000,1,999,9007199254740990,1", "x5,1,5,1", "x5,3,4,1", "x05,1",
	} {
		f.Add([]byte(text), int64(3), int64(0))
	}
	f.Fuzz(func(t *testing.T, text []byte, rate, cost int64) {
		for _, b := range slidings(t, 1+rate&0x1ff) {
			if !algo.ParseText(b, b.s, text) {
				require.Empty(t, b.AppendText(nil, b.s))
				continue
			}
			canonical := b.AppendText(nil, b.s)
			again := make([]int64, b.Words())
			require.True(t, algo.ParseText(b, again, canonical))
			require.Equal(t, canonical, b.AppendText(nil, again), "%q", text)
			a := b.take(epoch, cost&0x1ff)
			require.True(t, 0 <= a.Remaining && a.Remaining <= b.params.Rate)
			require.True(t, 0 <= a.Reset && a.Reset <= 2*b.params.Period)
			require.True(t, 0 <= a.Wait && a.Wait <= 2*b.params.Period)
			require.True(t, algo.ParseText(b, b.s, b.AppendText(nil, b.s)), "what was written can be read")
		}
	})
}

// As [FuzzReply], for the kinds that slide.
func FuzzSlidingReply(f *testing.F) {
	for _, x := range []int64{0, 5, 10, 11, epoch, epoch - 60*second, math.MaxInt64} {
		f.Add(x, int64(3), int64(0), int64(0), int64(8))
		f.Add(int64(epoch), x, int64(1), int64(1), int64(8))
		f.Add(int64(7), int64(epoch), x, x, int64(8))
		f.Add(int64(7), int64(epoch), int64(0), x, int64(2))
	}
	f.Fuzz(func(t *testing.T, x, y, z, oldest, cost int64) {
		for _, b := range slidings(t, 10) {
			s, cost := make([]int64, 80), max(0, cost)
			if !b.ParseReply(s, []int64{x & math.MaxInt64, y, z, oldest}, epoch, cost) {
				continue
			}
			a := b.Explain(s, epoch, cost, 0, !b.Admits(s, epoch, cost, 0))
			require.True(t, 0 <= a.Remaining && a.Remaining <= b.params.Rate)
			require.True(t, 0 <= a.Reset && a.Reset <= 2*b.params.Period)
			require.True(t, 0 <= a.Wait && a.Wait <= 2*b.params.Period)
			require.True(t, 0 <= a.More && a.More <= a.Reset)
			require.False(t, b.Load(s, epoch), "a reply needs no healing")
		}
	})
}

func BenchmarkSlidingWindow(b *testing.B) {
	benchmark(b, newKind(b, 'w', algo.Params{Rate: 1000, Period: second, Buckets: 10}))
}
