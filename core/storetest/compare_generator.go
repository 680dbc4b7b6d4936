package storetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/weir-go/weir/core"
)

// Algorithms are all that a [core.Store] can count by.
func Algorithms() (all []core.Algorithm) {
	for a := range core.Concurrent {
		if possible(core.PolicyOptions{}, core.Limit{Algorithm: a, Rate: 1, Period: time.Second}) {
			all = append(all, a)
		}
	}
	return all
}

// possible reports whether a limit can be had.
func possible(o core.PolicyOptions, l core.Limit) bool {
	_, err := core.NewPolicy("", o, l)
	return err == nil
}

// familyLife is the number of operations after which one family takes the place of another.
const familyLife = 200

// family is a policy and some that it may be changed to, of one name and, as far as the
// same state is to go on, of one shape and epoch.
type family struct {
	policies []core.Policy
	receipts []receipt
}

type receipt struct {
	take   core.Take
	result core.Result
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

func (c *comparison) family(number int) *family {
	n := pick(c.rng, 1, 1, 1, 2, 3, 4)
	if len(c.algorithms) > 1 {
		n = pick(c.rng, 1, 2, 2, 3, 4)
	}
	from := c.algorithms
	if len(c.reserving) > 0 && c.rng.IntN(4) == 0 {
		from = c.reserving
	}
	var first []core.Limit
	out := new(family)
	for len(out.policies) < 4 {
		var o core.PolicyOptions
		if c.rng.IntN(2) == 0 {
			o.Wait = c.ahead()
		}
		if c.rng.IntN(8) == 0 {
			o.Epoch = 1 + c.rng.IntN(2)
		}
		limits := make([]core.Limit, n)
		for i := range limits {
			if first == nil || c.rng.IntN(20) == 0 {
				limits[i] = c.limit(pick(c.rng, from...))
			} else {
				limits[i] = c.changed(first[i], n > 1 && c.rng.IntN(4) > 0)
			}
		}
		name := fmt.Sprint("compare", number)
		p, err := core.NewPolicy(name, o, limits...)
		if err != nil && o.Wait > 0 {
			o.Wait = 0
			p, err = core.NewPolicy(name, o, limits...)
		}
		if err != nil {
			continue // one limit twice
		}
		if out.policies = append(out.policies, p); first == nil {
			first = limits
		}
	}
	return out
}

// replace puts a new family in the place of another.
func (c *comparison) replace(number int) {
	i := c.rng.IntN(len(c.families))
	for _, p := range c.families[i].policies {
		for _, key := range c.keys {
			c.same(c.a.Reset(c.Context(), p, key), c.b.Reset(c.Context(), p, key))
		}
	}
	c.families[i] = c.family(len(c.families) + number)
	c.current = c.families[i]
}

var zones = []string{"UTC", "Europe/Berlin", "America/Havana", "Asia/Kolkata", "Australia/Lord_Howe"}

// limit is one of an algorithm. What that algorithm cannot have is left out again.
func (c *comparison) limit(algorithm core.Algorithm) core.Limit {
	rng := c.rng
	var l core.Limit
	for {
		l = core.Limit{
			Algorithm: algorithm,
			Rate:      pick(rng, 1, 2, 3, 5, 7, 10, 60, 100, 1000, 104_251, 999_983, core.MaxRate-1, core.MaxRate, 2*core.MaxRate, 1+rng.Int64N(20), 1+rng.Int64N(1000), 1+rng.Int64N(core.MaxRate)),
			Period: pick(rng, core.MinPeriod, 7*time.Millisecond, 999_983*time.Microsecond, time.Second, time.Second, 10*time.Second,
				time.Minute, time.Hour, 24*time.Hour, core.MaxPeriod, core.MinPeriod+time.Duration(rng.Int64N(int64(time.Hour)/1000))*time.Microsecond),
		}
		if possible(core.PolicyOptions{}, l) {
			break
		}
	}
	for _, more := range []func(*core.Limit){
		func(l *core.Limit) {
			l.Burst = pick(rng, 1, 2, 5, 20, core.MaxRate, 1+rng.Int64N(50), 1+rng.Int64N(core.MaxRate))
		},
		func(l *core.Limit) {
			l.Debt = pick(rng, 1, 2, 3, l.Rate, core.MaxRate, 1+rng.Int64N(50), 1+rng.Int64N(core.MaxRate))
		},
		func(l *core.Limit) { l.Buckets = pick(rng, 1, 2, 3, 7, 60, 1+rng.IntN(60)) },
		func(l *core.Limit) {
			if l.Align = "epoch"; rng.IntN(3) > 0 {
				l.Align, l.Period = pick(rng, "minute", "hour", "day", "week", "month")+" "+pick(rng, zones...), 0
			}
		},
	} {
		if longer := l; rng.IntN(2) == 0 {
			if more(&longer); possible(core.PolicyOptions{}, longer) {
				l = longer
			}
		}
	}
	return l
}

// changed is another limit that has the same state: with the same period, by which limits
// that are alike differ, if so demanded.
func (c *comparison) changed(l core.Limit, samePeriod bool) core.Limit {
	if c.rng.IntN(4) == 0 {
		return l
	}
	onCalendar := func(l core.Limit) bool { return strings.Contains(l.Align, " ") }
	for {
		other := c.limit(l.Algorithm)
		other.Buckets = l.Buckets
		if samePeriod || other.Align != l.Align && !(onCalendar(other) && onCalendar(l)) {
			other.Align, other.Period = l.Align, l.Period
		}
		if possible(core.PolicyOptions{}, other) {
			return other
		}
	}
}

// many is takes for several keys at one instant. Most often they are equal in all but the
// key, and most often a key is asked for several times in a row: up to a length at which a
// limit has had enough of it.
func (c *comparison) many(t core.Take) {
	c.ask(&t)
	var takes []core.Take
	for range 1 + c.rng.IntN(6) {
		switch c.rng.IntN(8) {
		case 0:
			c.ask(&t)
		case 1:
			t.Policy = pick(c.rng, pick(c.rng, c.families[:]...).policies...)
		}
		t.Key = pick(c.rng, c.keys...)
		for range pick(c.rng, 1, 1, 2, 3, 1+c.rng.IntN(12), 1+c.rng.IntN(40)) {
			takes = append(takes, t)
			c.noteTake(t)
		}
	}
	ra, erra := c.takeMany(c.a, takes)
	rb, errb := c.takeMany(c.b, takes)
	c.same(erra, errb)
	if erra != nil || errb != nil {
		return
	}
	for i, t := range takes {
		if c.answer(t, ra[i], rb[i]); c.Failed() {
			c.note(t, "which was number %d of these %d at once", i+1, len(takes))
			return
		}
	}
}

// ask chooses the units and the options of t.
func (c *comparison) ask(t *core.Take) {
	t.Cost, t.AtMost, t.Debt, t.Wait = c.cost(t.Policy), false, false, 0
	switch n := c.rng.IntN(10); {
	case n < 2:
		t.AtMost, t.Debt = true, c.rng.IntN(2) == 0
	case n < 7 && t.Policy.Options().Wait > 0, n == 9:
		most := t.Policy.Options().Wait
		t.Wait = pick(c.rng, most, most, most+1, most/2, time.Duration(c.rng.Int64N(int64(most)+1)), c.ahead(), math.MaxInt64)
	}
}

func (c *comparison) ahead() time.Duration {
	return pick(c.rng, time.Microsecond, time.Millisecond, time.Second, time.Minute, 24*time.Hour, core.MaxPeriod,
		time.Duration(1+c.rng.Int64N(int64(time.Hour)/1000))*time.Microsecond)
}

// tick moves the clock: not at all, to where something should happen, or anywhere.
func (c *comparison) tick(p core.Policy) {
	const day = 24 * hour
	period := pick(c.rng, p.Limits()...).Period.Microseconds()
	switch n := c.rng.IntN(1000); {
	case n < 400:
	case n < 580:
		if hint := pick(c.rng, c.hints[:]...); hint > 0 {
			c.now += hint - 1 + c.rng.Int64N(3)
		}
	case n < 700:
		c.now += c.rng.Int64N(second / 10)
	case n < 760:
		c.now += period/pick[int64](c.rng, 1, 2, 3, 10, 60) - 1 + c.rng.Int64N(3)
	case n < 800: // to where windows begin and parts of them end
		c.now += period - c.now%period + pick(c.rng, 0, 0, period/pick[int64](c.rng, 2, 3, 10, 60)) - 1 + c.rng.Int64N(3)
	case n < 850:
		c.now += c.rng.Int64N(period/8 + 1)
	case n < 900:
		c.now += c.rng.Int64N(10 * second)
	case n < 920:
		c.now += c.rng.Int64N(hour)
	case n < 930:
		c.now += c.rng.Int64N(5 * day)
	case n < 950:
		c.now -= c.rng.Int64N(10 * second)
	case n < 970:
		c.now -= c.rng.Int64N(period + 1)
	case n < 980:
		c.now -= c.rng.Int64N(2 * hour)
	case n < 985:
		c.now -= c.rng.Int64N(5 * day)
	case n < 997:
		c.now = c.changeOfClocks() + c.rng.Int64N(4*hour) - 2*hour
	case n < 998: // the first and the last instants that there are
		c.now = pick(c.rng, 1+c.rng.Int64N(10*second), lastNow-c.rng.Int64N(10*second), 1, lastNow)
	}
	if far := c.now < Epoch-800*day || c.now > Epoch+800*day; far && c.rng.IntN(50) == 0 || c.now < 1 || c.now > lastNow {
		c.now = Epoch
	}
}

// lastNow is the latest Take.Now that is valid.
const lastNow = 1 << 52

// changeOfClocks returns the instant at which somewhere summer time begins or ends next.
func (c *comparison) changeOfClocks() int64 {
	if where, err := time.LoadLocation(pick(c.rng, zones...)); err == nil {
		if _, end := time.UnixMicro(c.now).In(where).ZoneBounds(); !end.IsZero() {
			return end.UnixMicro()
		}
	}
	return c.now
}

func (c *comparison) cost(p core.Policy) int64 {
	limits := p.Limits()
	l := pick(c.rng, limits...)
	for _, other := range limits { // most often one that fits all
		if other.Burst+other.Debt < l.Burst+l.Debt && c.rng.IntN(4) > 0 {
			l = other
		}
	}
	if c.rng.IntN(12) == 0 {
		return pick(c.rng, l.Burst+1, l.Burst+l.Debt+1, core.MaxRate, math.MaxInt64)
	}
	return pick(c.rng, 0, 0, 1, 1, 1, 1, 1, 2, 3, l.Burst, max(1, l.Burst/2), l.Burst+l.Debt, max(1, l.Debt),
		1+c.rng.Int64N(l.Burst), 1+c.rng.Int64N(l.Burst), 1+c.rng.Int64N(max(1, l.Burst/10)))
}
