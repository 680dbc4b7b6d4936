package algo_test

import (
	"bytes"
	"cmp"
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

// charge is one that was admitted, as its receipt has it.
type charge struct {
	algo.Receipt
	units    int64 // without what was given back
	params   algo.Params
	refunded bool
}

// turn is the instant when the caller that was charged may go on.
func (c charge) turn() int64 { return c.At + c.Delay }

func newBucket(t require.TestingT, rate, period, burst int64) *bucket {
	return newKind(t, 'g', algo.Params{Rate: rate, Burst: burst, Period: period})
}

func newKind(t require.TestingT, letter byte, p algo.Params) *bucket {
	a, err := kind(letter).New(p)
	require.NoError(t, err)
	return &bucket{a, p, make([]int64, a.Words())}
}

func kind(letter byte) algo.Kind {
	i := slices.IndexFunc(algo.Kinds[:], func(k algo.Kind) bool { return k.Letter == letter })
	return algo.Kinds[i]
}

func (b *bucket) load(now int64) (s []int64, healed bool) {
	s = slices.Clone(b.s)
	if healed = b.Load(s, now); healed {
		copy(b.s, s)
	}
	return s, healed
}

func (b *bucket) take(now, cost int64) algo.Answer { return b.reserve(now, cost, 0) }

func (b *bucket) reserve(now, cost, ahead int64) algo.Answer {
	s, _ := b.load(now)
	admitted := b.Admits(s, now, cost, ahead)
	if admitted && cost > 0 {
		b.Charge(s, now, cost)
		copy(b.s, s)
	}
	return b.Explain(s, now, cost, ahead, !admitted)
}

func (b *bucket) refund(now, units int64, r algo.Receipt) {
	s, _ := b.load(now)
	if b.Refund(s, now, units, r) {
		copy(b.s, s)
	}
}

// forget does what a store may do at any time: it reads back what it wrote, and drops a
// state that is dead.
func (b *bucket) forget(t require.TestingT, now int64) {
	require.True(t, algo.ParseText(b, b.s, b.AppendText(nil, b.s)))
	if b.Load(b.s, now); b.Expires(b.s) <= now {
		clear(b.s)
	}
}

func receipt(now int64, a algo.Answer) algo.Receipt {
	return algo.Receipt{At: now, Delay: a.Wait, Charged: a.Charged}
}

// step is one call of a trace and its answer.
type step struct {
	at, cost                       int64
	refused, never                 bool
	remaining, retry, reset, delay int64
}

type trace struct {
	name   string
	params algo.Params
	steps  []step
}

func (c trace) check(t *testing.T, letter byte) {
	t.Helper()
	b := newKind(t, letter, c.params)
	for i, st := range c.steps {
		a := b.reserve(epoch+st.at, st.cost, c.params.Wait)
		assert.Equal(t, st, step{st.at, st.cost, a.Refused, a.Never, a.Remaining, a.Retry(), a.Reset, a.Delay()}, "%s, step %d", c.name, i)
	}
}

func TestGCRATraces(t *testing.T) {
	for _, c := range []trace{
		{"3/1s", algo.Params{Rate: 3, Burst: 3, Period: second}, []step{
			{0, 1, false, false, 2, 0, 333334, 0},
			{0, 1, false, false, 1, 0, 666667, 0},
			{0, 1, false, false, 0, 0, 1000000, 0},
			{0, 1, true, false, 0, 333334, 1000000, 0},
			{333333, 1, true, false, 0, 1, 666667, 0},
			{333334, 1, false, false, 0, 0, 1000000, 0},
			{2000000, 0, false, false, 3, 0, 0, 0},
			{2000000, 4, true, true, 3, 0, 0, 0},
		}},
		// CL.THROTTLE k 15 30 60: limit 16, remaining 15, reset 2.
		{"30/1m burst 16", algo.Params{Rate: 30, Burst: 16, Period: 60 * second}, []step{
			{0, 1, false, false, 15, 0, 2000000, 0},
		}},
		{"2/1s burst 2", algo.Params{Rate: 2, Burst: 2, Period: second}, []step{
			{0, 2, false, false, 0, 0, 1000000, 0},
			{0, 1, true, false, 0, 500000, 1000000, 0},
			{0, 2, true, false, 0, 1000000, 1000000, 0},
			{999999, 2, true, false, 1, 1, 1, 0},
			{1000000, 2, false, false, 0, 0, 1000000, 0},
		}},
		{"2/1s burst 2 debt 3", algo.Params{Rate: 2, Burst: 2, Debt: 3, Period: second}, []step{
			{0, 2, false, false, 0, 0, 1000000, 0},
			{0, 3, false, false, 0, 0, 2500000, 0},
			{0, 1, true, false, 0, 1500000, 2500000, 0},
			{1500000, 1, false, false, 0, 0, 1500000, 0},
			{1500000, 6, true, true, 0, 0, 1500000, 0},
		}},
		{"1/10s wait 1m", algo.Params{Rate: 1, Burst: 1, Period: 10 * second, Wait: 60 * second}, []step{
			{0, 1, false, false, 0, 0, 10000000, 0},
			{1000000, 1, false, false, 0, 0, 19000000, 9000000},
			{1000000, 1, false, false, 0, 0, 29000000, 19000000},
			{1000000, 2, true, true, 0, 0, 29000000, 0},
			{5000000, 1, false, false, 0, 0, 35000000, 25000000},
			{5000000, 1, false, false, 0, 0, 45000000, 35000000},
			{5000000, 1, false, false, 0, 0, 55000000, 45000000},
			{5000000, 1, false, false, 0, 0, 65000000, 55000000},
			{5000000, 1, true, false, 0, 5000000, 65000000, 0},
			{10000000, 1, false, false, 0, 0, 70000000, 60000000},
		}},
	} {
		c.check(t, 'g')
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
	algo.Params
	queue     bool     // a leaky bucket
	unit      *big.Rat // bucket time in us
	full, max *big.Rat
	empty     *big.Rat // when the bucket is empty again
}

func newModel(p algo.Params) *model {
	unit := big.NewRat(p.Period, p.Rate)
	m := &model{Params: p, unit: unit, full: new(big.Rat).Mul(unit, rat(p.Burst)), empty: new(big.Rat)}
	m.max = new(big.Rat).Mul(unit, rat(p.Burst+p.Debt))
	m.max.Add(m.max, rat(p.Wait))
	return m
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

// take leaves out what only a receipt has.
func (m *model) take(now, cost, ahead int64) algo.Answer {
	level := m.level(now)
	a := algo.Answer{Never: cost > m.Burst+m.Debt}
	if !a.Never && cost > 0 {
		bound := new(big.Rat).Mul(m.unit, rat(max(0, cost-m.Debt)))
		wait := ceil(bound.Add(bound, level).Sub(bound, m.full))
		if m.queue {
			ahead = 0
		}
		if a.Refused = wait > ahead; a.Refused {
			a.Wait = wait - ahead
		} else {
			a.Wait = max(0, wait)
			if m.queue {
				a.Wait = ceil(level)
			}
			level.Add(level, new(big.Rat).Mul(m.unit, rat(cost)))
			m.setLevel(now, level)
		}
	}
	a.Refused = a.Refused || a.Never
	if free := new(big.Rat).Sub(m.full, level); free.Sign() > 0 { // below, it may be more than an integer holds
		a.Remaining = floor(free.Quo(free, m.unit))
	}
	a.Reset = ceil(level)
	if !a.Refused && a.Remaining < m.Burst {
		more := new(big.Rat).Mul(m.unit, rat(a.Remaining+1))
		a.More = ceil(more.Add(more, level).Sub(more, m.full))
	}
	return a
}

// emptyOf is the instant of a state under the model's rate.
func (m *model) emptyOf(s [2]int64) *big.Rat {
	l := m.unit.Denom().Int64()
	if s[1] >= l {
		return rat(s[0] + 1)
	}
	return new(big.Rat).Add(rat(s[0]), big.NewRat(s[1], l))
}

// whole is a length under another rate, which is taken for whole microseconds.
func (m *model) whole(r *big.Rat, of *model) *big.Rat {
	if m.unit.Denom().Cmp(of.unit.Denom()) != 0 {
		return rat(floor(r))
	}
	return r
}

func (m *model) refund(now, units int64, c charge) {
	level, made := m.level(now), newModel(c.params)
	waits := c.Delay > 0 && now < c.turn() // the caller itself; and maybe somebody else:
	full := m.whole(made.full, made)
	if m.full.Cmp(full) < 0 {
		full = m.full
	}
	lined := waits || m.queue || m.Wait+made.Wait > 0 && level.Cmp(full) > 0
	if lined && m.empty.Cmp(m.emptyOf(c.Charged)) != 0 {
		return
	}
	back := m.whole(new(big.Rat).Mul(made.unit, rat(min(units, made.Burst+made.Debt))), made)
	if !waits {
		back = new(big.Rat).Sub(back, rat(max(0, now-c.At)))
	}
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

// anyWaits are [anyParams] with debt and reservations, where the kind has them.
func anyWaits(k algo.Kind) func(*rapid.T) algo.Params {
	return func(t *rapid.T) algo.Params {
		p := anyParams(t)
		if k.Debt {
			p.Debt = rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 10), rapid.Int64Range(0, 1<<31)).Draw(t, "debt")
		}
		if k.Wait {
			some := p.Period / p.Rate
			p.Wait = rapid.OneOf(
				rapid.Just(int64(0)), rapid.Int64Range(0, min(366*day, 10*(some+1))), rapid.Int64Range(0, min(366*day, 10*p.Period)),
				rapid.Int64Range(0, 366*day),
			).Draw(t, "ahead")
		}
		return p
	}
}

// anyBucket is a bucket whose parameters are accepted.
func anyBucket(t *rapid.T) *bucket { return anyOf(t, 'g', anyParams) }

func anyOf(t *rapid.T, letter byte, params func(*rapid.T) algo.Params) *bucket {
	return newKind(t, letter, rapid.Custom(params).Filter(func(p algo.Params) bool {
		_, err := kind(letter).New(p)
		return err == nil
	}).Draw(t, "params"))
}

func anyCost(t *rapid.T, burst int64) int64 {
	return rapid.OneOf(
		rapid.Just(int64(1)), rapid.Int64Range(0, 3), rapid.Int64Range(0, burst),
		rapid.SampledFrom([]int64{burst, burst + 1, 1 << 31, math.MaxInt64}),
	).Draw(t, "cost")
}

// anyStep draws a step of the clock: mostly to where something happens.
func anyStep(t *rapid.T, hint int64) int64 {
	return rapid.OneOf(
		rapid.Just(int64(0)), rapid.Int64Range(max(0, hint-1), hint+1), rapid.Int64Range(0, second), rapid.Int64Range(0, 400*day),
	).Draw(t, "step")
}

// Every field of every answer is that of the model, whatever happens to the clock and to
// the limit's numbers.
func TestGCRAIsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { meterIsTheModel(t, 'g') })
}

func meterIsTheModel(t *rapid.T, letter byte) {
	b := anyOf(t, letter, anyWaits(kind(letter)))
	m := newModel(b.params)
	m.queue = letter == 'l'
	now, hint := int64(epoch), int64(0)
	var charges []charge
	for range rapid.IntRange(1, 40).Draw(t, "operations") {
		switch rapid.IntRange(0, 11).Draw(t, "operation") {
		case 0:
			now -= rapid.Int64Range(0, 400*day).Draw(t, "back")
		case 1, 2:
			if len(charges) > 0 {
				i := rapid.IntRange(0, len(charges)-1).Draw(t, "charge")
				units := rapid.Int64Range(0, charges[i].units).Draw(t, "units")
				b.refund(now, units, charges[i].Receipt)
				m.refund(now, units, charges[i])
			}
		case 3:
			if rapid.Bool().Draw(t, "other numbers") {
				s := b.s
				b = anyOf(t, letter, anyWaits(kind(letter)))
				copy(b.s, s)
				m = newModel(b.params)
				m.queue = letter == 'l'
				m.empty = m.emptyOf([2]int64(s))
			}
		case 4:
			b.forget(t, now)
			m.setLevel(now, m.level(now))
		default:
			now += anyStep(t, hint)
		}
		cost, ahead := anyCost(t, b.params.Burst+b.params.Debt), anyAhead(t, b.params.Wait)
		before := slices.Clone(b.s)
		want, got := m.take(now, cost, ahead), b.reserve(now, cost, ahead)
		if got.Refused || cost == 0 {
			if _, healed := (&bucket{b.Algorithm, b.params, slices.Clone(before)}).load(now); !healed {
				require.Equal(t, before, b.s, "a refusal or a peek changes nothing")
			}
		} else {
			c := charge{Receipt: receipt(now, got), units: cost, params: b.params}
			c.Made = b.Algorithm
			charges = append(charges, c)
			got.Charged = [2]int64{}
		}
		require.Equal(t, want, got, "%d units at %d", cost, now)
		s, _ := b.load(now)
		require.Equal(t, got.Remaining, b.Most(s, now, false))
		require.True(t, got.Remaining == 0 || b.Admits(s, now, got.Remaining, 0))
		require.False(t, b.Admits(s, now, got.Remaining+1+b.params.Debt, 0))
		hint = max(got.Wait, got.Reset/rapid.Int64Range(1, 3).Draw(t, "part"))
	}
}

// anyAhead draws the time by which a caller reserves ahead.
func anyAhead(t *rapid.T, most int64) int64 {
	if most == 0 {
		return 0
	}
	return rapid.OneOf(rapid.Just(most), rapid.Just(int64(0)), rapid.Int64Range(0, most)).Draw(t, "reserve")
}

// history draws the admissions of a bucket, with all that may come between. The clock's steps and
// changed numbers begin it anew: from there on the bound holds again.
func history(t *rapid.T, letter byte, b *bucket, check func(*bucket, []charge)) {
	now, hint := int64(epoch), int64(0)
	var charges []charge
	for range rapid.IntRange(1, 60).Draw(t, "operations") {
		switch rapid.IntRange(0, 15).Draw(t, "operation") {
		case 0, 1, 2, 3:
			if len(charges) > 0 {
				c := &charges[len(charges)-1-rapid.IntRange(0, len(charges)-1).Draw(t, "charge")]
				units := c.units
				if rapid.Bool().Draw(t, "some") && (c.Delay == 0 || letter == 'l') { // a reservation is given up as a whole
					units = rapid.Int64Range(0, c.units).Draw(t, "units")
				}
				if !c.refunded {
					b.refund(now, units, c.Receipt)
					c.units, c.refunded = c.units-units, true
				}
			}
			continue
		case 4:
			if rapid.IntRange(0, 3).Draw(t, "the clock steps") == 0 {
				check(b, charges)
				charges, now = nil, now+rapid.SampledFrom([]int64{-400 * day, -3600 * second, -second, -1, second, 400 * day}).Draw(t, "by")
			}
		case 5:
			if rapid.IntRange(0, 3).Draw(t, "other numbers") == 0 {
				check(b, charges)
				s := b.s
				b = anyOf(t, letter, smallWaits(kind(letter)))
				copy(b.s, s)
				charges = nil
			}
		case 6:
			b.forget(t, now)
		default:
			now += anyStep(t, hint)
		}
		cost, ahead := anyCost(t, b.params.Burst+b.params.Debt), anyAhead(t, b.params.Wait)
		a := b.reserve(now, cost, ahead)
		if hint = max(a.Wait, a.Wait); a.Refused || cost == 0 {
			continue
		}
		c := charge{Receipt: receipt(now, a), units: cost}
		for _, before := range charges {
			if before.units > 0 {
				require.GreaterOrEqual(t, c.turn(), before.turn(), "turns come in the order of arrival")
			}
		}
		charges = append(charges, c)
	}
	check(b, charges)
}

// smallWaits has numbers with which calls get into each other's way, as often as not.
func smallWaits(k algo.Kind) func(*rapid.T) algo.Params {
	return func(t *rapid.T) algo.Params {
		if rapid.Bool().Draw(t, "any") {
			return anyWaits(k)(t)
		}
		p := algo.Params{
			Rate: rapid.Int64Range(1, 4).Draw(t, "rate"), Burst: rapid.Int64Range(1, 6).Draw(t, "burst"),
			Period: rapid.SampledFrom([]int64{second, 10 * second}).Draw(t, "period"),
		}
		if k.Debt {
			p.Debt = max(0, rapid.Int64Range(-3, 3).Draw(t, "debt"))
		}
		if k.Wait {
			p.Wait = max(0, rapid.Int64Range(-3, 10).Draw(t, "ahead")) * second
		}
		return p
	}
}

// windows calls f with every stretch of time between two turns, and what was admitted in
// it: not counting what was given back.
func windows(charges []charge, f func(d int64, units *big.Int)) {
	charges = slices.DeleteFunc(slices.Clone(charges), func(c charge) bool { return c.units == 0 })
	slices.SortStableFunc(charges, func(a, b charge) int { return cmp.Compare(a.turn(), b.turn()) })
	for i, from := range charges {
		sum := new(big.Int)
		for _, to := range charges[i:] {
			f(to.turn()-from.turn(), sum.Add(sum, big.NewInt(to.units)))
		}
	}
}

// times is a product that may be large.
func times(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }

// In any time d at most burst + debt + d*rate/period units are admitted, refunds or not;
// of what was reserved, the turns count. Turns come in order.
func TestGCRABound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history(t, 'g', anyOf(t, 'g', smallWaits(kind('g'))), func(b *bucket, charges []charge) {
			windows(charges, func(d int64, units *big.Int) {
				if b.params.Wait > 0 {
					d++ // a turn has whole microseconds, rounded up
				}
				p := b.params
				bound := times(p.Burst+p.Debt, p.Period)
				bound.Add(bound, times(d, p.Rate))
				require.LessOrEqual(t, new(big.Int).Mul(units, big.NewInt(p.Period)).Cmp(bound), 0,
					"%+v: %v units within %d us", p, units, d)
			})
		})
	})
}

// 1/10s wait 1m: a caller that gives up leaves a gap if somebody has queued behind. Nobody
// moves up, and nobody else gets a turn that is taken.
func TestGCRARefundOfReservations(t *testing.T) { refundOfReservations(t, 'g') }

func refundOfReservations(t *testing.T, letter byte) {
	p := algo.Params{Rate: 1, Burst: 1, Period: 10 * second, Wait: 60 * second}
	take := func(b *bucket, at int64) charge {
		a := b.reserve(epoch+at*second, 1, p.Wait)
		require.False(t, a.Refused)
		return charge{Receipt: receipt(epoch+at*second, a), units: 1}
	}
	turn := func(c charge) int64 { return (c.turn() - epoch) / second }

	b := newKind(t, letter, p)
	first := take(b, 0)
	require.Equal(t, int64(10), turn(take(b, 1)))
	b.refund(epoch+2*second, 1, first.Receipt)
	assert.Equal(t, int64(20), turn(take(b, 3)), "not the turn of the second")

	b = newKind(t, letter, p)
	take(b, 0)
	queued := take(b, 1)
	require.Equal(t, int64(20), turn(take(b, 2)))
	b.refund(epoch+3*second, 1, queued.Receipt)
	assert.Equal(t, int64(30), turn(take(b, 4)), "not the turn of the third")

	b = newKind(t, letter, p)
	take(b, 0)
	queued = take(b, 1)
	third := take(b, 2)
	b.refund(epoch+3*second, 1, third.Receipt)
	again := take(b, 4)
	assert.Equal(t, int64(20), turn(again), "the last in line gives its turn back")
	b.refund(epoch+5*second, 1, again.Receipt)
	b.refund(epoch+5*second, 1, queued.Receipt)
	assert.Equal(t, int64(10), turn(take(b, 6)), "and so does the one before, which is the last then")

	b = newKind(t, letter, p)
	take(b, 0)
	take(b, 1)
	third = take(b, 2)
	b.refund(epoch+12*second, 1, third.Receipt)
	assert.Equal(t, int64(20), turn(take(b, 13)), "also after the turn of one before")
	units := third.Receipt
	units.Units = 2
	before := slices.Clone(b.s)
	b.refund(epoch+14*second, 1, units)
	assert.Equal(t, before, b.s, "all or nothing")
}

// A caller that gives up a part is no longer sure to be the last in line, though the level is low.
func TestGCRARefundOfReservationsInParts(t *testing.T) {
	p := algo.Params{Rate: 1, Burst: 3, Period: second, Wait: 60 * second}
	b := newKind(t, 'g', p)
	b.take(epoch, 1)
	three := receipt(epoch, b.reserve(epoch, 3, p.Wait))
	require.Equal(t, int64(second), three.Delay)
	b.refund(epoch, 2, three)
	require.False(t, b.take(epoch, 1).Refused)
	b.refund(epoch, 1, three)
	assert.True(t, b.take(epoch, 1).Refused)
}

// Five units in line and one behind them: if the five give up, some of them given back
// would put somebody else on the turn of the one.
func TestGCRARefundOfManyReserved(t *testing.T) { refundOfManyReserved(t, 'g') }

func refundOfManyReserved(t *testing.T, letter byte) {
	p := algo.Params{Rate: 1, Burst: 5, Period: second, Wait: 60 * second}
	b := newKind(t, letter, p)
	b.reserve(epoch, 5, p.Wait)
	five := charge{Receipt: receipt(epoch, b.reserve(epoch, 5, p.Wait)), units: 5}
	require.Equal(t, int64(5*second), five.Delay)
	one := b.reserve(epoch, 1, p.Wait)
	require.Equal(t, int64(6*second), one.Wait)
	b.refund(epoch, 5, five.Receipt)
	for i := range int64(8) {
		assert.Equal(t, (7+i)*second, b.reserve(epoch, 1, p.Wait).Wait)
	}
}

// Waiting exactly the retry time admits, and 1 us less does not.
func TestGCRARetryIsExact(t *testing.T) { retryIsExact(t, 'g') }

func retryIsExact(t *testing.T, letter byte) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		b := anyOf(t, letter, smallWaits(kind(letter)))
		now := int64(epoch)
		for range rapid.IntRange(1, 20).Draw(t, "operations") {
			cost := rapid.Int64Range(1, b.params.Burst+b.params.Debt).Draw(t, "cost")
			ahead := anyAhead(t, b.params.Wait)
			a := b.reserve(now, cost, ahead)
			if !a.Refused {
				continue
			}
			require.Positive(t, a.Wait)
			early := b.reserve(now+a.Wait-1, cost, ahead)
			require.True(t, early.Refused)
			require.Equal(t, int64(1), early.Wait)
			now += a.Wait
			require.False(t, b.reserve(now, cost, ahead).Refused)
		}
	})
}

// 10/10s: take 10; ten seconds later another takes 10; refund the first. Giving
// back "at most what is in use" would admit 20 at one instant.
func TestGCRARefundCounterexample(t *testing.T) {
	b := newBucket(t, 10, 10*second, 10)
	require.False(t, b.take(epoch, 10).Refused)
	require.False(t, b.take(epoch+10*second, 10).Refused)
	b.refund(epoch+10*second, 10, algo.Receipt{At: epoch})
	assert.True(t, b.take(epoch+10*second, 1).Refused)
}

// A full bucket whose clock steps back one hour admits again within one
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
	assert.Equal(t, algo.Answer{Refused: true, Wait: second, Reset: 10 * second}, b.take(now, 1))
	assert.True(t, b.take(now+second-1, 1).Refused)
	assert.False(t, b.take(now+second, 1).Refused)
}

// A step forward admits at most one burst more.
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

// From idle, remaining goes limit-1, ..., 0 for every limit to 10^4.
func TestGCRARemainingIsExact(t *testing.T) {
	step := int64(1)
	if race.Enabled {
		step = 37
	}
	for limit := int64(1); limit <= 10_000; limit += step {
		b := newBucket(t, limit, second, limit)
		for left := limit - 1; left >= 0; left-- {
			if !b.Admits(b.s, epoch, 1, 0) {
				t.Fatalf("%d/1s does not admit with %d left", limit, left+1)
			}
			b.Charge(b.s, epoch, 1)
			if a := b.Explain(b.s, epoch, 1, 0, false); a.Remaining != left {
				t.Fatalf("%d/1s: %+v, want %d remaining", limit, a, left)
			}
		}
		if b.Admits(b.s, epoch, 1, 0) {
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
				now += a.Wait
				a = b.take(now, 1)
			}
			if due := max(0, ((n-1)*c.period+c.rate-1)/c.rate); a.Refused || now != epoch+due {
				t.Fatalf("%d per %d us: admission %d is at %d, want %d", c.rate, c.period, n, now-epoch, due)
			}
		}
	}
}

// Parameters are exact or refused, and none overflows.
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
		a, err := kind('g').New(p)
		if !c.ok {
			require.ErrorContains(t, err, fmt.Sprintf("a burst of %d at this rate takes more than 71 years to drain", c.burst), "%+v", p)
			continue
		}
		require.NoError(t, err, "%+v", p)
		for _, v := range a.AppendTake(nil, c.burst, 0, 0) {
			assert.LessOrEqual(t, v, int64(1<<51), "%+v", p)
		}
		b, m := newBucket(t, c.rate, c.period, c.burst), newModel(p)
		for _, cost := range []int64{1, c.burst - 1, 1, c.burst, math.MaxInt64} {
			a := b.take(epoch, cost)
			a.Charged = [2]int64{}
			assert.Equal(t, m.take(epoch, cost, 0), a, "%+v, cost %d", p, cost)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := anyWaits(kind('g'))(t)
		_, err := kind('g').New(p)
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

// A charge weighs by the numbers under which it was made: neither more, when time has
// become dearer, nor less, when the bucket has become smaller; and what has drained since
// is gone.
func TestRefundUnderOtherNumbers(t *testing.T) {
	for _, letter := range []byte("gl") {
		was := algo.Params{Rate: 10, Burst: 10, Period: second}
		charged := func() (*bucket, algo.Receipt) {
			b := newKind(t, letter, was)
			r := receipt(epoch, b.take(epoch, 10))
			r.Made, r.Units = b.Algorithm, 10
			return b, r
		}

		b, r := charged()
		b.become(t, letter, algo.Params{Rate: 10, Burst: 10, Period: 100 * second})
		if letter == 'g' {
			require.False(t, b.take(epoch, 9).Refused)
			b.refund(epoch, 10, r)
			a := b.take(epoch, 2)
			assert.True(t, a.Refused, "9 + 2 of 10")
			assert.Equal(t, int64(1), a.Remaining)
		} else {
			b.refund(epoch, 10, r)
			assert.Equal(t, int64(10), b.take(epoch, 0).Remaining, "the last in line")
		}

		b, r = charged()
		b.become(t, letter, algo.Params{Rate: 10, Burst: 5, Period: second})
		b.refund(epoch, 10, r)
		a := b.take(epoch, 0)
		if letter == 'g' {
			assert.Equal(t, int64(5), a.Remaining, "all of it")
			b, r = charged()
			b.become(t, letter, algo.Params{Rate: 10, Burst: 5, Period: second})
			b.refund(epoch+500_000, 10, r)
			assert.Equal(t, int64(5), b.take(epoch+500_000, 0).Remaining, "half has drained, half comes back")
		} else {
			assert.Equal(t, int64(0), a.Remaining, "the line was cut: nobody knows who is last")
		}
	}
	// Parts of a microsecond are other ones: what comes back is rounded down.
	b := newBucket(t, 3, second, 3)
	r := receipt(epoch, b.take(epoch, 1)) // 333 333 and a third
	r.Made, r.Units = b.Algorithm, 1
	b.become(t, 'g', algo.Params{Rate: 7, Burst: 7, Period: second})
	require.False(t, b.take(epoch, 1).Refused)
	b.refund(epoch, 1, r)
	assert.Equal(t, []int64{epoch + 142_857, 2}, b.s, "1/7 s, and parts of 1/7 us: 1 of then, 1 of now")
	// Callers that could wait by the numbers of then may be waiting still.
	waits := newKind(t, 'g', algo.Params{Rate: 10, Burst: 10, Period: second, Wait: second})
	r = receipt(epoch, waits.take(epoch, 10))
	r.Made, r.Units = waits.Algorithm, 10
	require.Positive(t, waits.reserve(epoch, 5, second).Wait)
	waits.become(t, 'g', algo.Params{Rate: 10, Burst: 10, Debt: 10, Period: second})
	waits.refund(epoch, 10, r)
	assert.Equal(t, []int64{epoch + 1_500_000, 0}, waits.s)
}

func TestGCRARefundOfNothing(t *testing.T) {
	b := newBucket(t, 3, second, 3)
	s := []int64{epoch + 10, 2}
	at := func(at int64) algo.Receipt { return algo.Receipt{At: at} }
	for name, changed := range map[string]bool{
		"no units":        b.Refund(s, epoch, 0, at(epoch)),
		"long ago":        b.Refund(s, epoch, 1, at(epoch-second)),
		"just drained":    b.Refund(s, epoch, 1, at(epoch-333_334)),
		"an empty bucket": b.Refund([]int64{0, 0}, epoch, 3, at(epoch)),
	} {
		assert.False(t, changed, name)
	}
	assert.Equal(t, []int64{epoch + 10, 2}, s)
	assert.True(t, b.Refund(s, epoch, 1, at(epoch-333_333)), "a third of a microsecond")
	assert.Equal(t, []int64{epoch + 10, 1}, s)
	assert.True(t, b.Refund(s, epoch, math.MaxInt64, at(epoch+day)), "a charge from the future")
	assert.Equal(t, []int64{0, 0}, s)
}

// The parameters of a script say what the methods do.
func TestGCRAParams(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anyOf(t, 'g', anyWaits(kind('g')))
		for range 10 {
			b.reserve(epoch, rapid.Int64Range(0, b.params.Burst).Draw(t, "used"), b.params.Wait)
		}
		cost, ahead := anyCost(t, b.params.Burst+b.params.Debt), anyAhead(t, b.params.Wait)
		p := append(b.AppendTake([]int64{42}, cost, ahead, 0)[1:], 0, 0, 0, 0) // parts, unless there are any
		l, charge, bound, most := p[6]+1, []int64{p[0], p[3]}, []int64{p[1], p[4]}, []int64{p[2], p[5]}
		s, _ := b.load(epoch)
		level := []int64{0, 0}
		if s[0] > 0 {
			level = []int64{s[0] - epoch, s[1]}
		}
		require.LessOrEqual(t, slices.Compare(level, most), 0)
		fits := slices.Compare(level, bound) <= 0
		require.Equal(t, b.Admits(s, epoch, cost, ahead), fits)
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
		reply, state []int64
		ok           bool
	}{
		{[]int64{0, 0}, []int64{epoch, 0}, true}, // as good as unused
		{[]int64{5, 2}, []int64{epoch + 5, 2}, true},
		{[]int64{0, 1}, []int64{epoch, 1}, true},
		{[]int64{second, 0}, []int64{epoch + second, 0}, true},
		{[]int64{second, 1}, nil, false},
		{[]int64{5, 3}, nil, false},
		{[]int64{5, -1}, nil, false},
		{[]int64{math.MaxInt64, 0}, nil, false},
	} {
		s := slices.Clone(c.reply)
		assert.Equal(t, c.ok, b.ParseReply(s, s, epoch, 1), "%v", c.reply)
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
		assert.True(t, algo.ParseText(b, s, []byte(text)), text)
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
		assert.False(t, algo.ParseText(b, s, []byte(text)), "%q", text)
		assert.Equal(t, []int64{0, 0}, s, "%q: unused", text)
	}
}

func TestGCRAExpires(t *testing.T) {
	b := newBucket(t, 3, second, 3)
	for want, s := range map[int64][]int64{0: {0, 0}, epoch: {epoch, 0}, epoch + 6: {epoch + 5, 1}} {
		assert.Equal(t, want, b.Expires(s))
	}
}

// meters are those kinds whose state this file and its neighbours fuzz.
func meters(t require.TestingT, rate int64) []*bucket {
	p := algo.Params{Rate: 1 + rate&0xffff, Burst: 5, Period: 60 * second}
	wait := p
	wait.Debt, wait.Wait = 3, 100*second
	return []*bucket{newKind(t, 'g', p), newKind(t, 'g', wait), newKind(t, 'l', p), newKind(t, 'b', p), newKind(t, 'b', wait)}
}

// Whatever is stored under a key: reading it never panics, what was read is written
// in one form, and a decision on it stays within the rules.
func FuzzStateText(f *testing.F) {
	for _, text := range []string{
		"", "1800000000000010", "1800000000000010+2", "9007199254740991+99", "0+5", "12+", "007", "x", "-5", "5;6", "nan", "1e9",
		"b1800000000000000,3,1000000", "b1800000000000000,-3,9", "b1,-9007199254740991,5", "b9007199254740990,9007199254740991,1", "b0,1,1", "b007,-0,01", "b5,", "b,5", "b5,--5,1", "b5,5", "b1,1,2251799813685249",
	} {
		f.Add([]byte(text), int64(3))
	}
	f.Fuzz(func(t *testing.T, text []byte, rate int64) {
		for _, b := range meters(t, rate) {
			s := b.s
			if !algo.ParseText(b, s, text) {
				require.Equal(t, make([]int64, b.Words()), s)
				continue
			}
			canonical := b.AppendText(nil, s)
			again := make([]int64, b.Words())
			require.True(t, algo.ParseText(b, again, canonical))
			require.Equal(t, canonical, b.AppendText(nil, again), "%q", text)
			require.False(t, bytes.ContainsAny(canonical, ";. "))
			a := b.take(epoch, 1)
			p := b.params
			require.LessOrEqual(t, a.Reset, (p.Burst+p.Debt+p.Rate-1)/p.Rate*p.Period+p.Wait+p.Period)
			require.True(t, algo.ParseText(b, s, b.AppendText(nil, b.s)), "what was written can be read")
		}
	})
}

// Whatever a server replies, reading it never panics, and what is accepted lies
// within the rules.
func FuzzReply(f *testing.F) {
	for _, w := range []int64{0, 5, second, second + 1, math.MaxInt64, epoch, epoch - 1, epoch - 60*second} {
		f.Add(w, int64(0), int64(epoch))
		f.Add(w, int64(2), int64(epoch))
		f.Add(w, int64(-1), int64(1))
		f.Add(w, int64(math.MinInt64), int64(epoch))
	}
	f.Fuzz(func(t *testing.T, w, r, now int64) {
		now = 1 + now&(1<<52-1)
		for _, b := range meters(t, 3) {
			s := make([]int64, 3)
			s[0], s[1] = w&math.MaxInt64, r // the sign is decoded by then
			if !b.ParseReply(s, s[:2], now, 1) {
				continue
			}
			for _, refused := range []bool{false, true} {
				a := b.Explain(s, now, 1, 0, refused)
				p := b.params
				most := (p.Burst+p.Debt+p.Rate-1)/p.Rate*p.Period + p.Wait + p.Period
				require.GreaterOrEqual(t, a.Remaining, int64(0))
				require.LessOrEqual(t, a.Remaining, p.Burst)
				require.LessOrEqual(t, a.Reset, most)
				require.LessOrEqual(t, a.Wait, most)
			}
			require.False(t, b.Load(s[:b.Words()], now), "a reply needs no healing")
		}
	})
}

func BenchmarkGCRA(b *testing.B) { benchmark(b, newBucket(b, 1000, second, 1000)) }

func benchmark(b *testing.B, g *bucket) {
	b.Helper()
	now := int64(epoch)
	b.ReportAllocs()
	for b.Loop() {
		now += 500
		g.Load(g.s, now)
		admitted := g.Admits(g.s, now, 1, 0)
		if admitted {
			g.Charge(g.s, now, 1)
		}
		g.Explain(g.s, now, 1, 0, !admitted)
	}
}

// Decide answers and leaves behind what the four steps of a decision do.
func TestGCRADecides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := anyOf(t, 'g', anyWaits(kind('g')))
		whole, isGCRA := steps.Algorithm.(*algo.GCRA)
		require.True(t, isGCRA)
		now := int64(epoch)
		for range rapid.IntRange(1, 30).Draw(t, "decisions") {
			now += rapid.Int64Range(-steps.params.Period/8, steps.params.Period/2).Draw(t, "later")
			cost := rapid.Int64Range(0, steps.params.Burst+steps.params.Debt+1).Draw(t, "cost")
			wait := rapid.Int64Range(0, steps.params.Wait).Draw(t, "wait")
			if rapid.IntRange(0, 9).Draw(t, "other numbers") == 0 { // what they have written
				steps.s[0], steps.s[1] = now+rapid.Int64Range(0, 4*day).Draw(t, "empty"), rapid.Int64Range(0, 5).Draw(t, "parts")
			}
			stored := slices.Clone(steps.s)
			var answer algo.Answer
			next, changed := whole.Decide(&answer, algo.Meter{Empty: stored[0], Parts: stored[1]}, now, cost, wait)
			admitted := !answer.Refused

			healed := steps.Load(steps.s, now)
			require.Equal(t, steps.Admits(steps.s, now, cost, wait), admitted)
			if admitted {
				steps.Charge(steps.s, now, cost)
			}
			require.Equal(t, steps.Explain(steps.s, now, cost, wait, !admitted), answer)
			require.Equal(t, healed, whole.Beyond(algo.Meter{Empty: stored[0], Parts: stored[1]}, now))
			require.False(t, whole.Beyond(next, now+rapid.Int64Range(0, day).Draw(t, "idle")))
			if require.Equal(t, healed || admitted && cost > 0, changed); changed {
				stored = []int64{next.Empty, next.Parts}
				require.Equal(t, stored, steps.s)
				require.Less(t, next.Parts, whole.Parts())
				require.Equal(t, steps.Expires(stored), next.Expires())
			}
			copy(steps.s, stored)
		}
	})
}

// Equal charges that follow each other have the answers that each would have had alone.
func TestGCRACharges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anyOf(t, 'g', anyWaits(kind('g')))
		a, isGCRA := b.Algorithm.(*algo.GCRA)
		require.True(t, isGCRA)
		cost := rapid.OneOf(rapid.Int64Range(1, 3), rapid.Int64Range(1, b.params.Burst+b.params.Debt)).Draw(t, "cost")
		cost = min(cost, b.params.Burst+b.params.Debt)
		b.s[0], b.s[1] = epoch+rapid.Int64Range(-1, 4*day).Draw(t, "empty"), rapid.Int64Range(0, 5).Draw(t, "parts")
		b.Load(b.s, epoch)
		before := slices.Clone(b.s)
		charges := a.Charges(b.s, epoch, cost)
		require.Equal(t, before, b.s)
		for b.Admits(b.s, epoch, cost, b.params.Wait) {
			b.Charge(b.s, epoch, cost)
			var got algo.Answer
			charges.Next(&got)
			require.Equal(t, b.Explain(b.s, epoch, cost, b.params.Wait, false), got)
			if rapid.IntRange(0, 20).Draw(t, "enough") == 0 {
				break
			}
		}
	})
}
