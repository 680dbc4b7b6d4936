package algo_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core/internal/algo"
)

// fixedWindow is the kind of that name.
var fixedWindow = algo.Kinds[slices.IndexFunc(algo.Kinds[:], func(k algo.Kind) bool { return k.Word == "fixed-window" })]

func newFixed(t require.TestingT, p algo.Params) algo.Algorithm {
	p.Burst = p.Rate
	a, err := fixedWindow.New(p)
	require.NoError(t, err)
	return a
}

// fixedKey is a key's state as a store keeps it: changed by a charge, a refund that
// gives something back, or a correction, and by nothing else.
type fixedKey struct {
	algo.Algorithm
	s []int64
}

func newFixedKey(t require.TestingT, p algo.Params) *fixedKey {
	return &fixedKey{newFixed(t, p), []int64{0, 0}}
}

// with is the same state under other parameters.
func (k *fixedKey) with(t require.TestingT, p algo.Params) *fixedKey {
	return &fixedKey{newFixed(t, p), slices.Clone(k.s)}
}

func (k *fixedKey) load(now int64) (s []int64, healed bool) {
	s = slices.Clone(k.s)
	if healed = k.Load(s, now); healed {
		copy(k.s, s)
	}
	return s, healed
}

func (k *fixedKey) take(now, cost int64) algo.Answer {
	s, _ := k.load(now)
	admitted := k.Admits(s, now, cost, 0)
	if admitted && cost > 0 {
		k.Charge(s, now, cost)
		copy(k.s, s)
	}
	return k.Explain(s, now, cost, 0, !admitted)
}

func (k *fixedKey) refund(now, units, at int64, charged [2]int64) bool {
	s, _ := k.load(now)
	if !k.Refund(s, now, units, algo.Receipt{At: at, Charged: charged}) {
		return false
	}
	copy(k.s, s)
	return true
}

func TestFixedWindowTraces(t *testing.T) {
	type step struct {
		at, cost                int64
		refused, never          bool
		remaining, retry, reset int64
	}
	for _, c := range []struct {
		name   string
		params algo.Params
		steps  []step
	}{
		{"2/10s", algo.Params{Rate: 2, Period: 10 * second}, []step{
			{0, 0, false, false, 2, 0, 0},
			{0, 1, false, false, 1, 0, 10000000},
			{4000000, 1, false, false, 0, 0, 6000000},
			{9000000, 1, true, false, 0, 1000000, 1000000},
			{9000000, 0, false, false, 0, 0, 1000000},
			{9000000, 3, true, true, 0, 0, 1000000},
			{9999999, 1, true, false, 0, 1, 1},
			{10000000, 1, false, false, 1, 0, 10000000},
			{15000000, 2, true, false, 1, 5000000, 5000000},
			{20000000, 0, false, false, 2, 0, 0},
			{20000000, math.MaxInt64, true, true, 2, 0, 0},
		}},
		{"2/10s aligned", algo.Params{Rate: 2, Period: 10 * second, Align: algo.AlignEpoch}, []step{
			{9000000, 1, false, false, 1, 0, 1000000},
			{9000000, 1, false, false, 0, 0, 1000000},
			{9000000, 1, true, false, 0, 1000000, 1000000},
			{10000000, 1, false, false, 1, 0, 10000000},
		}},
		// Time 0 is 13:45 in Kathmandu.
		{"2/1h calendar", algo.Params{Rate: 2, Period: 3600 * second, Align: "hour Asia/Kathmandu"}, []step{
			{0, 2, false, false, 0, 0, 900000000},
			{899999999, 1, true, false, 0, 1, 1},
			{900000000, 1, false, false, 1, 0, 3600000000},
		}},
	} {
		k := newFixedKey(t, c.params)
		for i, st := range c.steps {
			a := k.take(epoch+st.at, st.cost)
			assert.Equal(t, st, step{st.at, st.cost, a.Refused, a.Never, a.Remaining, a.Wait, a.Reset}, "%s, step %d", c.name, i)
		}
	}
}

// The known weakness: twice the rate within a period.
func TestFixedWindowArrivals(t *testing.T) {
	for _, c := range []struct {
		align    string
		arrivals []int64
		want     []int64
	}{
		{"", []int64{10, 10, 980, 900, 100, 0}, []int64{10, 10, 980, 900, 100, 0}},
		{algo.AlignEpoch, []int64{10, 10, 980, 900, 100, 0}, []int64{10, 10, 980, 900, 100, 0}},
		{"", []int64{1000, 5, 5, 5}, []int64{1000, 0, 0, 5}},
	} {
		k := newFixedKey(t, algo.Params{Rate: 1000, Period: 3 * second, Align: c.align})
		admitted := make([]int64, len(c.arrivals))
		for i, n := range c.arrivals {
			for range n {
				if !k.take(epoch+int64(i)*second, 1).Refused {
					admitted[i]++
				}
			}
		}
		assert.Equal(t, c.want, admitted, "%q", c.align)
	}
}

// fixedModel is the window as one would write it without a care for space: every charge
// of it, and the window found by going through all that there are.
type fixedModel struct {
	p       algo.Params
	end     int64
	charges []int64
}

func (m *fixedModel) bound(now int64) int64 {
	var first, length int64
	switch m.p.Align {
	case "":
		return now + m.p.Period
	case "week UTC":
		first, length = -3*day, 7*day // 1970 began on a Thursday
	case "day Asia/Kolkata":
		first, length = -5*3600*second-1800*second, day
	default:
		length = m.p.Period
	}
	n := int64(0)
	for step := int64(1) << 50; step > 0; step /= 2 {
		if (n+step)*length/length == n+step && first+(n+step)*length <= now {
			n += step
		}
	}
	return first + (n+1)*length
}

func (m *fixedModel) used(now int64) (n int64) {
	if m.end <= now { // whoever only looks does not begin another window
		return 0
	}
	for _, c := range m.charges {
		n += c
	}
	return n
}

func (m *fixedModel) look(now int64) {
	if m.end > now {
		m.end = min(m.end, m.bound(now))
	}
}

func (m *fixedModel) take(now, cost int64) (a algo.Answer) {
	m.look(now)
	a.Remaining = max(0, m.p.Rate-m.used(now))
	a.Refused, a.Never = cost > a.Remaining, cost > m.p.Rate
	if !a.Refused && cost > 0 {
		if m.used(now) == 0 {
			m.end, m.charges = m.bound(now), nil
		}
		m.charges = append(m.charges, cost)
		a.Remaining -= cost
		a.Charged[0] = m.end
	}
	if m.used(now) > 0 {
		a.Reset = m.end - now
	}
	switch {
	case !a.Refused:
		a.More = a.Reset
	case !a.Never:
		a.Wait = a.Reset
	}
	return a
}

// refund looks whether the window has the charge: it lies in it, and it ends no later than
// it did then.
func (m *fixedModel) refund(now, units, at, end int64) {
	m.look(now)
	if m.used(now) > 0 && at <= m.end && m.end <= m.bound(at) && m.end <= end {
		m.charges = []int64{max(0, m.used(now)-units)}
	}
}

// anyFixed are parameters of all sizes and alignments.
func anyFixed(t *rapid.T) algo.Params {
	p := algo.Params{
		Rate: rapid.OneOf(rapid.Int64Range(1, 10), rapid.Int64Range(1, 1<<31), rapid.Just(int64(1<<31))).Draw(t, "rate"),
		Period: rapid.OneOf(
			rapid.SampledFrom([]int64{1000, 1009, second, 60 * second, day, 366 * day}), rapid.Int64Range(1000, 366*day),
		).Draw(t, "period"),
		Align: rapid.SampledFrom([]string{"", "", algo.AlignEpoch, "minute UTC", "hour UTC", "day Asia/Kolkata", "week UTC"}).Draw(t, "align"),
	}
	if p.Align != "" && p.Align != algo.AlignEpoch {
		var err error
		p.Period, err = algo.CalendarPeriod(p.Align)
		require.NoError(t, err)
	}
	return p
}

func anyFixedCost(t *rapid.T, rate int64) int64 {
	return rapid.OneOf(
		rapid.Just(int64(1)), rapid.Int64Range(0, 3), rapid.Int64Range(0, rate),
		rapid.SampledFrom([]int64{rate, rate + 1, 1 << 31, math.MaxInt64}),
	).Draw(t, "cost")
}

// Every field of every answer is that of the model, whatever happens to the clock and to
// the limit. A refusal and a peek change nothing, and do not count.
func TestFixedWindowIsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyFixed(t)
		k, m := newFixedKey(t, p), &fixedModel{p: p}
		now, hint := int64(epoch), int64(0)
		type charge struct {
			units, at int64
			charged   [2]int64
		}
		var charges []charge
		for range rapid.IntRange(1, 40).Draw(t, "operations") {
			switch rapid.IntRange(0, 9).Draw(t, "operation") {
			case 0:
				now -= rapid.OneOf(rapid.Int64Range(0, 2*p.Period), rapid.Int64Range(0, 400*day)).Draw(t, "back")
			case 1, 2:
				if len(charges) > 0 {
					c := rapid.SampledFrom(charges).Draw(t, "charge")
					units := rapid.Int64Range(0, c.units).Draw(t, "units")
					k.refund(now, units, c.at, c.charged)
					m.refund(now, units, c.at, c.charged[0])
				}
			case 3:
				if p.Rate = max(1, p.Rate+rapid.Int64Range(-p.Rate, p.Rate).Draw(t, "raise")); p.Align == "" || p.Align == algo.AlignEpoch {
					p.Period = rapid.Int64Range(1000, 2*p.Period).Draw(t, "period")
				}
				p.Rate, p.Period = min(p.Rate, 1<<31), min(p.Period, 366*day)
				k, m.p = k.with(t, p), p
			default:
				now += rapid.OneOf(
					rapid.Just(int64(0)), rapid.Int64Range(max(0, hint-1), hint+1), rapid.Int64Range(0, 2*p.Period), rapid.Int64Range(0, 400*day),
				).Draw(t, "step")
			}
			cost := anyFixedCost(t, p.Rate)
			before := slices.Clone(k.s)
			want, got := m.take(now, cost), k.take(now, cost)
			require.Equal(t, want, got, "%d units at %d of %+v", cost, now, p)
			if hint = got.Reset; !got.Refused && cost > 0 {
				charges = append(charges, charge{cost, now, got.Charged})
			} else if _, healed := (&fixedKey{k.Algorithm, slices.Clone(before)}).load(now); !healed {
				require.Equal(t, before, k.s, "a refusal or a peek changes nothing")
			}
			s, _ := k.load(now)
			require.Equal(t, got.Remaining, k.Most(s, now, false))
			if expires := k.Expires(s); got.Reset == 0 {
				require.Zero(t, expires)
				require.Empty(t, k.AppendText(nil, s))
			} else {
				require.Equal(t, now+got.Reset, expires)
			}
		}
	})
}

// At most the rate in one window, and at most twice the rate in any stretch as long
// as one, not counting what was given back.
func TestFixedWindowBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyFixed(t)
		k := newFixedKey(t, p)
		now, hint := int64(epoch), int64(0)
		type charge struct {
			at, units int64
			charged   [2]int64
		}
		var charges []charge
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			if len(charges) > 0 && rapid.IntRange(0, 3).Draw(t, "operation") == 0 {
				c := &charges[rapid.IntRange(0, len(charges)-1).Draw(t, "charge")]
				units := rapid.Int64Range(0, c.units).Draw(t, "units")
				k.refund(now, units, c.at, c.charged)
				c.units -= units
				continue
			}
			now += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, hint+1), rapid.Int64Range(0, p.Period)).Draw(t, "step")
			cost := anyFixedCost(t, p.Rate)
			a := k.take(now, cost)
			if hint = a.Wait; !a.Refused && cost > 0 {
				charges = append(charges, charge{now, cost, a.Charged})
			}
		}
		for i, from := range charges {
			window, stretch := int64(0), int64(0)
			for _, to := range charges[i:] {
				if to.charged == from.charged {
					window += to.units
				}
				if to.at < from.at+p.Period {
					stretch += to.units
				}
			}
			require.LessOrEqual(t, window, p.Rate)
			require.LessOrEqual(t, stretch, 2*p.Rate)
		}
	})
}

// Waiting exactly the retry time admits, and 1 us less does not.
func TestFixedWindowRetryIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyFixed(t)
		k := newFixedKey(t, p)
		now := epoch + rapid.Int64Range(0, 400*day).Draw(t, "start")
		for range rapid.IntRange(1, 20).Draw(t, "operations") {
			cost := rapid.Int64Range(1, p.Rate).Draw(t, "cost")
			a := k.take(now, cost)
			if !a.Refused {
				continue
			}
			require.Positive(t, a.Wait)
			early := k.take(now+a.Wait-1, cost)
			require.True(t, early.Refused)
			require.Equal(t, int64(1), early.Wait)
			now += a.Wait
			require.False(t, k.take(now, cost).Refused)
		}
	})
}

// Refused hits do not count, so that raising a limit within a window helps at once.
func TestFixedWindowRefusalsDoNotCount(t *testing.T) {
	k := newFixedKey(t, algo.Params{Rate: 5, Period: 10 * second})
	for i := range 20 {
		assert.Equal(t, i >= 5, k.take(epoch, 1).Refused)
	}
	assert.Equal(t, "f5,1800000010000000", string(k.AppendText(nil, k.s)))
	raised := k.with(t, algo.Params{Rate: 7, Period: 10 * second})
	assert.Equal(t, algo.Answer{Remaining: 1, Reset: 9 * second, More: 9 * second, Charged: [2]int64{epoch + 10*second}}, raised.take(epoch+second, 1))
	lowered := raised.with(t, algo.Params{Rate: 2, Period: 10 * second})
	assert.Equal(t, algo.Answer{Refused: true, Wait: 9 * second, Reset: 9 * second}, lowered.take(epoch+second, 1))
	assert.Equal(t, "f6,1800000010000000", string(lowered.AppendText(nil, lowered.s)), "what the higher limit has counted stays counted")
}

// A state that was written under other parameters ends when the new ones allow at the
// latest, and never later than it would have.
func TestFixedWindowOtherPeriods(t *testing.T) {
	k := newFixedKey(t, algo.Params{Rate: 5, Period: 3600 * second})
	k.take(epoch, 5)
	for align, want := range map[string]int64{"": 60 * second, algo.AlignEpoch: 60 * second, "minute UTC": 60 * second} {
		short := k.with(t, algo.Params{Rate: 5, Period: 60 * second, Align: align})
		assert.Equal(t, want, short.take(epoch, 1).Wait, "%q", align)
		assert.Equal(t, epoch+want, short.s[0], "%q: healed", align)
		assert.False(t, short.take(epoch+want, 5).Refused, "%q", align)
	}
	long := k.with(t, algo.Params{Rate: 5, Period: day})
	assert.Equal(t, 3600*int64(second), long.take(epoch, 1).Wait)
	month := newFixedKey(t, algo.Params{Rate: 5, Period: 31 * day, Align: "month UTC"})
	month.take(epoch, 5)
	assert.Equal(t, microsAt(t, "2027-02-01T00:00:00Z"), month.s[0])
	assert.Equal(t, microsAt(t, "2027-01-16T00:00:00Z")-epoch, month.with(t, algo.Params{Rate: 5, Period: day, Align: "day UTC"}).take(epoch, 1).Wait)
}

// A full window whose clock steps back admits again within one window's time;
// it is enough that somebody looked once.
func TestFixedWindowClockStepsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyFixed(t)
		k := newFixedKey(t, p)
		k.take(epoch, p.Rate)
		now := epoch - rapid.SampledFrom([]int64{1, 3600 * second, 400 * day}).Draw(t, "step")
		k.take(now, rapid.Int64Range(0, 1).Draw(t, "cost"))
		require.LessOrEqual(t, k.take(now, 0).Reset, p.Period)
		require.False(t, k.take(now+p.Period, p.Rate).Refused)
	})
	k := newFixedKey(t, algo.Params{Rate: 10, Period: 10 * second})
	k.take(epoch, 10)
	const now = epoch - 3600*second
	assert.Equal(t, algo.Answer{Refused: true, Wait: 10 * second, Reset: 10 * second}, k.take(now, 1))
	assert.True(t, k.take(now+10*second-1, 1).Refused)
	assert.False(t, k.take(now+10*second, 1).Refused)
}

// Only the window that holds a charge gives it back.
func TestFixedWindowRefund(t *testing.T) {
	p := algo.Params{Rate: 10, Period: 10 * second}
	k := newFixedKey(t, p)
	first := k.take(epoch, 6)
	k.take(epoch+second, 4)
	assert.False(t, k.refund(epoch+second, 0, epoch, first.Charged), "no units")
	assert.False(t, k.refund(epoch+second, 6, epoch, [2]int64{}), "no charge")
	assert.True(t, k.refund(epoch+second, 5, epoch, first.Charged))
	assert.Equal(t, []int64{epoch + 10*second, 5}, k.s)

	unused := &fixedKey{k.Algorithm, slices.Clone(k.s)}
	assert.True(t, unused.refund(epoch+second, math.MaxInt64, epoch, first.Charged), "at most what is counted")
	assert.Equal(t, []int64{0, 0}, unused.s)
	assert.False(t, unused.refund(epoch+second, 1, epoch, first.Charged))
	assert.False(t, unused.refund(epoch+second, 1, epoch, [2]int64{}))

	assert.False(t, k.refund(epoch+10*second, 5, epoch, first.Charged), "the window is over")
	k.take(epoch+10*second, 10)
	assert.False(t, k.refund(epoch+10*second, 6, epoch, first.Charged), "another window")
	assert.True(t, k.take(epoch+10*second, 1).Refused)
}

// A window that was cut short, because the clock stepped back by less than its length, is
// still the window of the charge, also when the clock has gone on since.
func TestFixedWindowRefundAfterAStepBack(t *testing.T) {
	const start = epoch + 60*second // of all windows
	for _, p := range []algo.Params{
		{Rate: 10, Period: 60 * second}, {Rate: 10, Period: 60 * second, Align: algo.AlignEpoch}, {Rate: 10, Period: 60 * second, Align: "minute UTC"},
	} {
		for _, back := range []int64{1, second} {
			k := newFixedKey(t, p)
			charge := k.take(start, 10)
			require.True(t, k.take(start-back, 1).Refused)
			require.True(t, k.refund(start-back, 3, start, charge.Charged), "%+v", p)
			assert.Equal(t, int64(3), k.take(start-back, 0).Remaining)
			if p.Align == "" {
				require.True(t, k.refund(start+second, 7, start, charge.Charged))
				assert.Equal(t, int64(10), k.take(start+second, 0).Remaining)
			}
		}
		k := newFixedKey(t, p)
		charge := k.take(start, 10)
		k.take(start-3600*second, 1)
		assert.False(t, k.refund(start-3600*second, 10, start, charge.Charged), "the charge lies ahead of the window")
	}
	// A window under a lowered period that began after the charge does not have it.
	k := newFixedKey(t, algo.Params{Rate: 10, Period: 60 * second})
	charge := k.take(epoch, 10)
	k = k.with(t, algo.Params{Rate: 10, Period: 10 * second})
	k.take(epoch+second, 0)
	require.False(t, k.take(epoch+20*second, 10).Refused)
	assert.False(t, k.refund(epoch+20*second, 10, epoch, charge.Charged))
}

// What was stored by whomever becomes a state within the rules, and is corrected for good.
func TestFixedWindowLoad(t *testing.T) {
	k := newFixedKey(t, algo.Params{Rate: 5, Period: 10 * second})
	const end = epoch + 10*second
	for _, c := range []struct {
		s, want []int64
		healed  bool
	}{
		{[]int64{0, 0}, []int64{0, 0}, false},
		{[]int64{end, 5}, []int64{end, 5}, false},
		{[]int64{epoch + 1, 5}, []int64{epoch + 1, 5}, false},
		{[]int64{epoch, 5}, []int64{0, 0}, false},
		{[]int64{1, 1<<53 - 1}, []int64{0, 0}, false},
		{[]int64{end + 1, 5}, []int64{end, 5}, true},
		{[]int64{end, 6}, []int64{end, 6}, false}, // under a higher limit
		{[]int64{1<<53 - 1, 1<<53 - 1}, []int64{end, 1<<53 - 1}, true},
		{[]int64{end, 0}, []int64{0, 0}, true},
		{[]int64{0, 5}, []int64{0, 0}, true},
		{[]int64{math.MinInt64, 5}, []int64{0, 0}, true},
		{[]int64{end, math.MinInt64}, []int64{0, 0}, true},
	} {
		s := slices.Clone(c.s)
		assert.Equal(t, c.healed, k.Load(s, epoch), "%v", c.s)
		assert.Equal(t, c.want, s, "%v", c.s)
		assert.False(t, k.Load(s, epoch), "%v: healed", c.s)
	}
}

// The arguments of a script say what the methods do.
func TestFixedWindowParams(t *testing.T) {
	const now = epoch + 100*second
	for _, c := range []struct {
		params algo.Params
		want   []int64
	}{
		{algo.Params{Rate: 5, Period: 1000 * second}, []int64{1000 * second, 0, 0, 0, 0}},
		{algo.Params{Rate: 5, Period: 1000 * second, Align: algo.AlignEpoch}, []int64{0, 1000 * second, 0, 0, 0}},
		{algo.Params{Rate: 5, Period: 60 * second, Align: "minute UTC"}, []int64{0, 0, epoch + 60*second, epoch + 120*second, epoch + 180*second}},
	} {
		a := newFixed(t, c.params)
		assert.Equal(t, append([]int64{42, 3, 5}, c.want...), a.AppendTake([]int64{42}, 3, 0, now))
		assert.Equal(t, append([]int64{6, 5}, c.want...), a.AppendTake(nil, math.MaxInt64, 0, now), "never fits")
		assert.Equal(t, append([]int64{0, 5}, c.want...), a.AppendTake(nil, 0, 0, now))
		assert.Equal(t, append([]int64{5}, c.want...), a.AppendUpTo(nil, false, now))
		refund := a.AppendRefund(nil, math.MaxInt64, algo.Receipt{At: epoch, Charged: [2]int64{epoch + 7}}, now)
		assert.Equal(t, append(append([]int64{math.MaxInt64}, c.want...), epoch+7), refund)
		refund = a.AppendRefund(nil, 3, algo.Receipt{At: epoch, Charged: [2]int64{epoch + day}}, now)
		end := epoch + c.params.Period
		assert.Equal(t, append(append([]int64{3}, c.want...), end), refund, "no window that has the charge ends later")
	}
}

func TestFixedWindowReply(t *testing.T) {
	a := newFixed(t, algo.Params{Rate: 5, Period: 10 * second})
	for _, c := range []struct{ reply, want []int64 }{
		{[]int64{0, 0}, []int64{0, 0}},
		{[]int64{1, epoch + 1}, []int64{epoch + 1, 1}},
		{[]int64{5, epoch + 10*second}, []int64{epoch + 10*second, 5}},
		{[]int64{0, epoch + 1}, nil},
		{[]int64{1, 0}, nil},
		{[]int64{1, epoch}, nil},
		{[]int64{1, epoch + 10*second + 1}, nil},
		{[]int64{6, epoch + 1}, []int64{epoch + 1, 6}}, // under a higher limit
		{[]int64{1 << 40, epoch + 1}, nil},
		{[]int64{-1, epoch + 1}, nil},
		{[]int64{math.MaxInt64, math.MaxInt64}, nil},
		{[]int64{math.MinInt64, math.MinInt64}, nil},
	} {
		s := slices.Clone(c.reply)
		assert.Equal(t, c.want != nil, a.ParseReply(s, s, epoch, 1), "%v", c.reply)
		if c.want != nil {
			assert.Equal(t, c.want, s, "%v", c.reply)
		}
	}
}

func TestFixedWindowText(t *testing.T) {
	a := newFixed(t, algo.Params{Rate: 5, Period: 10 * second})
	for text, want := range map[string][]int64{
		"":                                {0, 0},
		"f12,1800003600000000":            {1800003600000000, 12},
		"f1,1":                            {1, 1},
		"f1099511627775,9007199254740991": {1<<53 - 1, 1<<40 - 1},
	} {
		s := []int64{7, 7}
		assert.True(t, algo.ParseText(a, s, []byte(text)), text)
		assert.Equal(t, want, s, text)
		assert.Equal(t, "k="+text, string(a.AppendText([]byte("k="), s)))
		assert.Equal(t, want[0], a.Expires(s))
	}
	for _, text := range []string{
		"f", "f1", "f1,", "f,1", "f,", "1,1", "g1,1", "F1,1", "f0,1800003600000000", "f1,0", "f-1,1", "f1,-1", "f+1,1", "f1,1,1", "f1,1 ",
		" f1,1", "f1 ,1", "f1, 1", "f1;1", "f1,1;", "f1,1\n", "f1,1\x00", "f1\x00,1", "f1.0,1", "f1e3,1", "f0x1,1", "fnan,1", "f1,inf", "f١,1",
		"f9007199254740992,1", "f1099511627776,1", "f1,9007199254740992", "f99999999999999999999999,1", "f1,99999999999999999999999", "1800000000000010",
	} {
		s := []int64{7, 7}
		assert.False(t, algo.ParseText(a, s, []byte(text)), "%q", text)
		assert.Equal(t, []int64{0, 0}, s, "%q: unused", text)
	}
}

// Whatever is stored under a key: reading it never panics, what was read is written in
// one form, and a decision on it stays within the rules.
func FuzzFixedWindowText(f *testing.F) {
	for _, text := range []string{"", "f12,1800003600000000", "f007,1800000000000010", "f1,9007199254740991", "f1", "x", "f0,5", "f1,2;"} {
		f.Add([]byte(text), int64(3), "day Europe/Berlin")
	}
	f.Add([]byte("f1,1800000000000010"), int64(3), "")
	f.Add([]byte("f1,1800000000000010"), int64(3), algo.AlignEpoch)
	f.Fuzz(func(t *testing.T, text []byte, rate int64, align string) {
		a, err := fixedWindow.New(algo.Params{Rate: 1 + rate&0xffff, Period: day, Align: align})
		if err != nil {
			return // there is no such calendar
		}
		k := &fixedKey{a, []int64{7, 7}}
		if !algo.ParseText(k, k.s, text) {
			require.Equal(t, []int64{0, 0}, k.s)
			return
		}
		once, again := k.AppendText(nil, k.s), []int64{7, 7}
		require.True(t, algo.ParseText(k, again, once))
		require.Equal(t, k.s, again)
		r := k.take(epoch, 1)
		require.LessOrEqual(t, r.Remaining, 1+rate&0xffff)
		require.GreaterOrEqual(t, r.Remaining, int64(0))
		require.LessOrEqual(t, r.Reset, 31*int64(day)+4*int64(time.Hour/time.Microsecond))
	})
}
