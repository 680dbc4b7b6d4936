package core_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/internal/race"
)

// epoch is time 0 of the tests, in microseconds since the Unix epoch.
const epoch int64 = 1_800_000_000_000_000

const second = 1_000_000 // microseconds

// stepper is one key of a store that keeps text and calls Step.
type stepper struct {
	t    require.TestingT
	text []byte
	ttl  time.Duration
}

func (s *stepper) take(p core.Policy, at, cost int64) core.Result {
	res, next, ttl := p.Spec().Step(s.text, core.Take{Policy: p, Key: "k", Cost: cost, Now: epoch + at})
	s.keep(next, ttl)
	return res
}

func (s *stepper) refund(p core.Policy, at int64, r core.Result, units int64) {
	s.keep(p.Spec().StepRefund(s.text, core.Refund{Key: "k", Now: epoch + at, Receipt: r, Units: units}))
}

func (s *stepper) keep(next []byte, ttl time.Duration) {
	if s.ttl = ttl; ttl != 0 {
		require.GreaterOrEqual(s.t, ttl, time.Millisecond)
		require.Zero(s.t, ttl%time.Millisecond)
		s.text = next
	}
}

func TestStep(t *testing.T) {
	s := &stepper{t: t}
	p := core.MustParse("3/1s")
	for _, c := range []struct {
		at, cost int64
		want     string
		text     string
		ttl      time.Duration
	}{
		{0, 1, "admitted limit 3 remaining 2 retry 0s reset 333.334ms", "1800000000333333+1", 334 * time.Millisecond},
		{0, 1, "admitted limit 3 remaining 1 retry 0s reset 666.667ms", "1800000000666666+2", 667 * time.Millisecond},
		{0, 1, "at-limit limit 3 remaining 0 retry 0s reset 1s", "1800000001000000", time.Second},
		{0, 1, "refused limit 3 remaining 0 retry 333.334ms reset 1s", "1800000001000000", 0},
		{333333, 1, "refused limit 3 remaining 0 retry 1µs reset 666.667ms", "1800000001000000", 0},
		{333334, 1, "at-limit limit 3 remaining 0 retry 0s reset 1s", "1800000001333333+1", 1000 * time.Millisecond},
		{2000000, 0, "admitted limit 3 remaining 3 retry 0s reset 0s", "1800000001333333+1", 0},
		{2000000, 4, "never limit 3 remaining 3 retry 0s reset 0s", "1800000001333333+1", 0},
		{2000000, math.MaxInt64, "never limit 3 remaining 3 retry 0s reset 0s", "1800000001333333+1", 0},
	} {
		res := s.take(p, c.at, c.cost)
		got := fmt.Sprintf("%v limit %d remaining %d retry %v reset %v", res.Outcome, res.Limit, res.Remaining, res.RetryAfter, res.ResetAfter)
		assert.Equal(t, c.want, got)
		assert.Equal(t, c.text, string(s.text))
		assert.Equal(t, c.ttl, s.ttl)
		assert.Equal(t, epoch+c.at, res.At)
		assert.Equal(t, res.Outcome == core.Admitted || res.Outcome == core.AtLimit, res.Allowed())
	}
}

// exported is a result without what its receipt has beside the fields.
func exported(r core.Result) core.Result {
	out := core.Result{
		Outcome: r.Outcome, Local: r.Local, Taken: r.Taken, Limit: r.Limit, Remaining: r.Remaining,
		RetryAfter: r.RetryAfter, ResetAfter: r.ResetAfter, Delay: r.Delay, At: r.At,
	}
	for i := range core.MaxLimits {
		if l := r.Each(i); l != (core.LimitResult{}) {
			out.SetEach(i, l)
		}
	}
	return out
}

// One limit that refuses keeps all others from charging.
func TestStepAllOrNone(t *testing.T) {
	s := &stepper{t: t}
	p := core.MustParse("2/1s, 3/1h")
	each := func(remaining int64, retry, reset, more time.Duration, refused bool) core.LimitResult {
		return core.LimitResult{Remaining: remaining, RetryAfter: retry, ResetAfter: reset, MoreAfter: more, Refused: refused}
	}
	with := func(r core.Result, each ...core.LimitResult) core.Result {
		for i, l := range each {
			r.SetEach(i, l)
		}
		return r
	}
	const ms, m20 = time.Millisecond, 20 * time.Minute
	for i, want := range []core.Result{
		with(core.Result{Outcome: core.Admitted, Limit: 2, Remaining: 1, ResetAfter: 500 * ms}, each(1, 0, 500*ms, 500*ms, false), each(2, 0, m20, m20, false)),
		with(core.Result{Outcome: core.AtLimit, Limit: 2, Remaining: 0, ResetAfter: 1000 * ms}, each(0, 0, 1000*ms, 500*ms, false), each(1, 0, 2*m20, m20, false)),
		with(core.Result{Outcome: core.Refused, Limit: 2, Remaining: 0, RetryAfter: 500 * ms, ResetAfter: 1000 * ms}, each(0, 500*ms, 1000*ms, 0, true), each(1, 0, 2*m20, m20, false)),
		with(core.Result{Outcome: core.Refused, Limit: 2, Remaining: 0, RetryAfter: 500 * ms, ResetAfter: 1000 * ms}, each(0, 500*ms, 1000*ms, 0, true), each(1, 0, 2*m20, m20, false)),
	} {
		want.At = epoch
		if want.Allowed() {
			want.Taken = 1
		}
		assert.Equal(t, want, exported(s.take(p, 0, 1)), "step %d", i)
	}
	assert.Equal(t, "1800000001000000;1800002400000000", string(s.text))
	res := s.take(p, second, 1)
	assert.Equal(t, core.AtLimit, res.Outcome, "the last unit of one limit is the last")
	assert.Equal(t, int64(3), res.Limit)
	res = s.take(p, second, 1)
	assert.Equal(t, m20-time.Second, res.RetryAfter)
	assert.Equal(t, [2]bool{false, true}, [2]bool{res.Each(0).Refused, res.Each(1).Refused})
	res = s.take(p, second, 3)
	assert.Equal(t, core.Never, res.Outcome)
	assert.Zero(t, res.RetryAfter, "never wins over a wait")
	assert.Equal(t, [2]bool{true, false}, [2]bool{res.Each(0).Never, res.Each(1).Never})
	assert.Positive(t, res.Each(1).RetryAfter)
}

// The tightest limit: refused before admitted, then the least remaining, then the
// longest reset.
func TestStepTightest(t *testing.T) {
	for _, c := range []struct {
		policy string
		used   int64
		cost   int64
		limit  int64
	}{
		{"10/1s, 100/1m", 0, 1, 10},
		{"100/1s, 10/1m", 0, 1, 10},
		{"10/1s, 10/1m", 0, 1, 10},
		{"10/1s burst 5, 5/1m", 0, 1, 5},
		{"10/1s, 9/1m", 9, 1, 9},
		{"2/1s, 100/1m burst 2", 0, 2, 2},
		{"5/1s, 4/1s, 6/1s", 0, 3, 4},
		{"100/1s burst 7, 1/1m burst 9", 0, 8, 7}, // never is refused
	} {
		s := &stepper{t: t}
		p := core.MustParse(c.policy)
		s.take(p, 0, c.used)
		res := s.take(p, 0, c.cost)
		assert.Equal(t, c.limit, res.Limit, c.policy)
		for i, l := range p.Limits() {
			if l.Burst != res.Limit {
				continue
			}
			assert.Equal(t, res.Remaining, res.Each(i).Remaining, c.policy)
		}
	}
	s := &stepper{t: t}
	p := core.MustParse("10/1s, 10/1m")
	assert.Equal(t, 6*time.Second, s.take(p, 0, 1).ResetAfter, "of equals the longer reset")
}

// A peek changes nothing.
func TestStepPeek(t *testing.T) {
	s := &stepper{t: t}
	p := core.MustParse("10/10s")
	assert.Equal(t, int64(10), s.take(p, 0, 0).Remaining)
	assert.Nil(t, s.text)
	s.take(p, 0, 10)
	for at := int64(0); at <= 20*second; at += second {
		res := s.take(p, at, 0)
		assert.Equal(t, core.Admitted, res.Outcome)
		assert.Equal(t, min(10, at/second), res.Remaining)
		assert.Zero(t, s.ttl)
	}
}

// A negative cost, and other mistakes: there is no answer to them.
func TestStepPanicsOnMistakes(t *testing.T) {
	p := core.MustParse("10/10s")
	good := core.Take{Policy: p, Key: "k", Cost: 1, Now: epoch}
	for want, break1 := range map[string]func(*core.Take){
		"core: a cost of -5 units; give 0 to peek, or more":                                                        func(t *core.Take) { t.Cost = -5 },
		"core: the key is empty; give one, or every caller would share one count":                                  func(t *core.Take) { t.Key = "" },
		"core: Take.Now is -1; give microseconds since the epoch, up to the year 2112, or 0 for the store's clock": func(t *core.Take) { t.Now = -1 },
	} {
		bad := good
		break1(&bad)
		require.EqualError(t, bad.Validate(), want)
		assert.PanicsWithError(t, want, func() { p.Spec().Step(nil, bad) })
		refund := core.Refund{Policy: p, Key: bad.Key, Receipt: core.Result{At: epoch, Taken: 1}, Units: min(bad.Cost, 1), Now: bad.Now}
		assert.Panics(t, func() { p.Spec().StepRefund(nil, refund) }, want)
	}
	good.Now = 1<<52 + 1
	require.ErrorContains(t, good.Validate(), "Take.Now")
	good.Now = 0
	require.NoError(t, good.Validate())
	assert.PanicsWithValue(t, "core: Step without a clock; set Now to the store's time in microseconds", func() { p.Spec().Step(nil, good) })
	assert.Panics(t, func() { core.Policy{}.Spec().Step(nil, core.Take{Key: "k", Now: epoch}) })
	good.Policy = core.Policy{}
	require.EqualError(t, good.Validate(), "core: Take.Policy is zero; build one with Parse or NewPolicy")
}

// Text that Step did not write means unused, and is replaced at once.
func TestStepHealsGarbage(t *testing.T) {
	one, two := core.MustParse("3/1s"), core.MustParse("3/1s, 9/1m")
	for _, c := range []struct {
		p    core.Policy
		text string
		cost int64
		next string
		ttl  time.Duration
	}{
		{one, "garbage", 0, "", time.Millisecond},
		{one, "garbage", 1, "1800000000333333+1", 334 * time.Millisecond},
		{one, "garbage", 4, "", time.Millisecond},
		{one, "", 0, "", 0},
		{one, "1800000000333333;", 0, "", time.Millisecond},
		{one, "1800000000500000", 0, "", 0},
		{one, "1700000000000000", 0, "", 0},
		{one, "1900000000000000", 0, "1800000001000000", time.Second}, // from the future
		{one, "1900000000000000", 1, "1800000001000000", time.Second},
		{two, "", 0, ";", time.Millisecond},
		{two, ";", 0, "", 0},
		{two, "1800000000500000;", 0, "", 0},
		{two, ";;", 0, ";", time.Millisecond},
		{two, "1800000000500000", 0, ";", time.Millisecond},
		{two, "x;1800000030000000", 0, ";1800000030000000", 30 * time.Second},
		{two, "1800000000500000;\x00", 0, "1800000000500000;", 500 * time.Millisecond},
		{two, "1900000000000000;1900000000000000", 10, "1800000001000000;1800000060000000", time.Minute},
		{two, "1800000000500000;y", 1, "1800000000833333+1;1800000006666666+2", 6667 * time.Millisecond},
	} {
		_, next, ttl := c.p.Spec().Step([]byte(c.text), core.Take{Policy: c.p, Key: "k", Cost: c.cost, Now: epoch})
		assert.Equal(t, c.next, string(next), "%q, cost %d", c.text, c.cost)
		assert.Equal(t, c.ttl, ttl, "%q, cost %d", c.text, c.cost)
		if c.cost == 0 { // a refund that gives nothing back heals as a peek does
			long := core.Result{At: 1, Taken: 1}
			next, ttl = c.p.Spec().StepRefund([]byte(c.text), core.Refund{Key: "k", Receipt: long, Units: 1, Now: epoch})
			assert.Equal(t, c.next, string(next), "%q, refund", c.text)
			assert.Equal(t, c.ttl, ttl, "%q, refund", c.text)
			_, ttl = c.p.Spec().StepRefund([]byte(c.text), core.Refund{Key: "k", Receipt: long, Now: epoch})
			assert.Zero(t, ttl, "%q: a refund of nothing does nothing", c.text)
		}
	}
	res, next, ttl := two.Spec().Step(nil, core.Take{Policy: two, Key: "k", Now: epoch})
	assert.Equal(t, int64(3), res.Remaining)
	assert.Nil(t, next)
	assert.Zero(t, ttl, "no text at all needs no healing")
}

func TestStepRefund(t *testing.T) {
	p := core.MustParse("10/10s, 100/1000s")
	s := &stepper{t: t}
	res := s.take(p, 0, 10)
	s.refund(p, 5*second, res, 4) // of the first limit 4 units weigh 4 s: drained
	assert.Equal(t, "1800000010000000;1800000065000000", string(s.text))
	assert.Equal(t, 60*time.Second, s.ttl)
	s.refund(p, 5*second, res, 6)
	assert.Equal(t, "1800000009000000;1800000010000000", string(s.text))
	s.refund(p, 5*second, res, 10)
	assert.Equal(t, ";", string(s.text), "unused")
	assert.Equal(t, time.Millisecond, s.ttl)
	s.refund(p, 6*second, res, 10)
	assert.Zero(t, s.ttl, "nothing to give back, nothing to store")
	assert.Equal(t, int64(10), s.take(p, 5*second, 0).Remaining)
}

// Whatever is stored and whatever the clock says: Step does not panic, its answer
// is within the rules, and what it stores can be read.
func FuzzStep(f *testing.F) {
	for _, text := range []string{"", "1800000000333333+1", "1900000000000000;;", "garbage", ";", ";;;;", "9007199254740991+9007199254740991", "-1;x;5", "1800000000000000:3", "1800000000000000:3;1800000000000000:3", "-2:1800000000000000", "1,2,3", "1800000000000000:1,2:3"} {
		for _, now := range []int64{1, epoch, 1 << 52} {
			f.Add(text, now, int64(1), uint8(len(text)))
			f.Add(text, now, int64(math.MaxInt64), uint8(3))
		}
	}
	policies := []core.Policy{
		core.MustParse("3/1s"), core.MustParse("3/1s, 9/1m"), core.MustParse("1/366d burst 71, 2147483648/1ms"),
		core.MustParse("1/1s, 7/2s, 100/1h, 2147483647/366d burst 2147483648"),
		core.MustParse("5/1s burst 3 debt 2, 9/1m token-bucket burst 20 debt 5; wait 10s"), core.MustParse("5/1s leaky-bucket, 9/1h leaky-bucket burst 2"),
		core.MustParse("5/1s fixed-window, 9/1m fixed-window aligned, 3/1d fixed-window calendar Europe/Berlin, 4/1mo fixed-window calendar UTC"),
		core.MustParse("5/1s sliding-window, 7/1h sliding-window buckets 3"), core.MustParse("5/1s sliding-counter, 7/1h sliding-counter"),
		core.MustParse("5/1s sliding-log, 1000/1h sliding-log"), core.MustParse("5/1s, 5/1s fixed-window, 5/1s sliding-window, 5/1s sliding-log"),
	}
	f.Fuzz(func(t *testing.T, text string, now, cost int64, which uint8) {
		p := policies[int(which)%len(policies)]
		take := core.Take{Policy: p, Key: "k", Cost: cost & math.MaxInt64, Now: now & (1<<52 - 1)}
		if take.Now == 0 {
			take.Now = 1 << 52
		}
		res, next, ttl := p.Spec().Step([]byte(text), take)
		requireWithinRules(t, p, take, res)
		if ttl == 0 {
			return
		}
		require.GreaterOrEqual(t, ttl, time.Millisecond)
		require.Zero(t, ttl%time.Millisecond)
		take.Cost = 0
		again, _, ttl := p.Spec().Step(next, take)
		require.Zero(t, ttl, "%q needs healing", next)
		require.Equal(t, res.Remaining, again.Remaining)
		require.Equal(t, res.ResetAfter, again.ResetAfter)

		next, ttl = p.Spec().StepRefund(next, core.Refund{
			Key: "k", Now: take.Now,
			Receipt: core.Result{At: take.Now, Taken: cost & math.MaxInt64}, Units: cost & math.MaxInt64,
		})
		if ttl > 0 {
			after, _, ttl := p.Spec().Step(next, take)
			require.Zero(t, ttl, "%q needs healing", next)
			require.GreaterOrEqual(t, after.Remaining, again.Remaining)
		}
	})
}

func requireWithinRules(t require.TestingT, p core.Policy, take core.Take, res core.Result) {
	require.Equal(t, take.Now, res.At)
	require.GreaterOrEqual(t, res.Remaining, int64(0))
	require.LessOrEqual(t, res.Remaining, res.Limit)
	require.Equal(t, res.Outcome == core.Refused, res.RetryAfter > 0)
	for i, l := range p.Limits() {
		e := res.Each(i)
		require.GreaterOrEqual(t, e.Remaining, int64(0))
		require.LessOrEqual(t, e.Remaining, l.Burst)
		require.LessOrEqual(t, e.RetryAfter, e.ResetAfter)
		require.Equal(t, e.Refused && !e.Never, e.RetryAfter > 0)
		require.False(t, e.Refused && res.Allowed())
	}
}

// replyOf returns the reply of a script of package lua for limits that are meters, worked
// out from what was stored before and after: the time, with take.AtMost how many units
// were taken, and each limit's level, the state before the charge negated as -1 - w where
// the cost does not fit.
func replyOf(p core.Policy, take core.Take, before, after []byte, res core.Result) []int64 {
	reply := []int64{res.At}
	if take.AtMost {
		reply = append(reply, res.Taken)
	}
	text := after
	if !res.Allowed() {
		text = before
	}
	segments := strings.Split(string(text), ";")
	for i := range p.Limits() {
		w, r := int64(0), int64(0)
		if i < len(segments) && segments[i] != "" {
			instant, parts, _ := strings.Cut(segments[i], "+")
			w, _ = strconv.ParseInt(instant, 10, 64)
			r, _ = strconv.ParseInt(parts, 10, 64)
			if w -= res.At; w < 0 {
				w, r = 0, 0
			}
		}
		if res.Each(i).Refused {
			w = -1 - w
		}
		if reply = append(reply, w); p.Spec().Kinds()[i] == 'G' {
			reply = append(reply, r)
		}
	}
	return reply
}

// Explain makes the same of a script's reply as Step answers, the receipt included.
func TestExplainAgreesWithStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPolicy(t, core.GCRA, core.LeakyBucket)
		s := &stepper{t: t}
		at := int64(0)
		for range rapid.IntRange(1, 20).Draw(t, "takes") {
			at += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, second), rapid.Int64Range(0, 1e12)).Draw(t, "step")
			limit := rapid.SampledFrom(p.Limits()).Draw(t, "limit")
			most := limit.Burst + limit.Debt
			take := core.Take{Policy: p, Key: "k", Now: epoch + at}
			take.Cost = rapid.OneOf(rapid.Int64Range(0, 2), rapid.Int64Range(0, most), rapid.SampledFrom([]int64{limit.Burst, most, most + 1, math.MaxInt64})).Draw(t, "cost")
			switch {
			case rapid.Bool().Draw(t, "at most"):
				take.AtMost, take.Debt = true, rapid.Bool().Draw(t, "with debt")
			case rapid.Bool().Draw(t, "ahead"):
				take.Wait = time.Duration(rapid.Int64Range(0, int64(2*p.Options().Wait+1)).Draw(t, "ahead of its time"))
			}
			before := s.text
			want, next, ttl := p.Spec().Step(s.text, take)
			s.keep(next, ttl)
			requireWithinRules(t, p, take, want)
			got, _, err := p.Spec().Explain(take, replyOf(p, take, before, s.text, want))
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	})
}

// A reply that no script has written is an error, not a verdict.
func TestExplainRefusesMalformedReplies(t *testing.T) {
	parse := core.MustParse
	for _, c := range []struct {
		name  string
		p     core.Policy
		take  core.Take
		reply []int64
	}{
		{"nothing", parse("3/1s"), core.Take{}, nil},
		{"the time alone", parse("3/1s"), core.Take{}, []int64{epoch}},
		{"one short", parse("3/1s"), core.Take{}, []int64{epoch, 0}},
		{"one too many", parse("3/1s"), core.Take{}, []int64{epoch, 0, 0, 0}},
		{"no time", parse("3/1s"), core.Take{}, []int64{0, 333333, 1}},
		{"negative time", parse("3/1s"), core.Take{}, []int64{-1, 333333, 1}},
		{"time beyond reason", parse("3/1s"), core.Take{}, []int64{math.MaxInt64, 333333, 1}},
		{"above the capacity", parse("3/1s"), core.Take{}, []int64{epoch, 1000000, 1}},
		{"far above the capacity", parse("3/1s"), core.Take{}, []int64{epoch, math.MaxInt64, 0}},
		{"below everything", parse("3/1s"), core.Take{}, []int64{epoch, math.MinInt64, 0}},
		{"a part too many", parse("3/1s"), core.Take{}, []int64{epoch, 333333, 3}},
		{"negative parts", parse("3/1s"), core.Take{}, []int64{epoch, 333333, -1}},
		{"refused what fits", parse("3/1s"), core.Take{}, []int64{epoch, -1, 0}},
		{"refused what barely fits", parse("3/1s"), core.Take{}, []int64{epoch, -1 - 666666, 2}},
		{"refused what can be reserved", parse("3/1s; wait 1s"), core.Take{Wait: time.Second}, []int64{epoch, -1 - 1666666, 2}},
		{"above what can be reserved", parse("3/1s; wait 1s"), core.Take{Wait: time.Second}, []int64{epoch, 2000000, 1}},
		{"admitted more than there ever is", parse("3/1s leaky-bucket"), core.Take{Cost: math.MaxInt64 - 1}, []int64{epoch, 0, 0}},
		{"admitted more than there ever is, at most", parse("3/1s"), core.Take{AtMost: true, Cost: 9}, []int64{epoch, 4, 0, 0}},
		{"a queue shorter than what was let in", parse("3/1s leaky-bucket"), core.Take{Cost: 1}, []int64{epoch, 333333, 1}},
		{"one of two", parse("3/1s, 9/1m"), core.Take{}, []int64{epoch, 0, 0}},
		{"one of two is bad", parse("3/1s, 9/1m"), core.Take{}, []int64{epoch, 0, 0, 60000000, 1}},
		{"at most: the time alone", parse("3/1s"), core.Take{AtMost: true}, []int64{epoch}},
		{"at most: no level", parse("3/1s"), core.Take{AtMost: true}, []int64{epoch, 1}},
		{"at most: without the units", parse("3/1s"), core.Take{AtMost: true}, []int64{epoch, 333333, 1}},
		{"at most: less than none", parse("3/1s"), core.Take{AtMost: true}, []int64{epoch, -1, 333333, 1}},
		{"at most: less than none, refused", parse("3/1s"), core.Take{AtMost: true}, []int64{epoch, -1, -1 - 1000000, 0}},
		{"at most: more than asked for", parse("3/1s"), core.Take{AtMost: true}, []int64{epoch, 2, 666666, 2}},
		{"at most: none, but admitted", parse("3/1s"), core.Take{AtMost: true}, []int64{epoch, 0, 333333, 1}},
		{"at most: some, but refused", parse("3/1s"), core.Take{AtMost: true}, []int64{epoch, 1, -1 - 1000000, 0}},
		{"at most, with debt: refused what debt bears", parse("3/1s debt 3"), core.Take{AtMost: true, Debt: true}, []int64{epoch, 0, -1 - 1666666, 0}},
		{"at most: a look that takes", parse("3/1s"), core.Take{AtMost: true, Cost: -1}, []int64{epoch, 1, 333333, 1}},
		{"at most: many limits, the time alone", parse("3/1s, 9/1m token-bucket"), core.Take{AtMost: true}, []int64{epoch}},
	} {
		c.take.Policy, c.take.Key, c.take.Cost = c.p, "k", c.take.Cost+1
		res, again, err := c.p.Spec().Explain(c.take, c.reply)
		require.ErrorContains(t, err, "not one of a script for", c.name)
		assert.False(t, again, c.name)
		assert.Equal(t, core.Result{}, res, c.name)
	}
	p := parse("3/1s")
	res, _, err := p.Spec().Explain(core.Take{Policy: p, Key: "k", Cost: 1}, []int64{epoch, -1 - 666667, 0})
	require.NoError(t, err)
	assert.Equal(t, time.Microsecond, res.RetryAfter)
	res, _, err = p.Spec().Explain(core.Take{Policy: p, Key: "k", Cost: 5, AtMost: true}, []int64{epoch, 2, 666666, 2})
	require.NoError(t, err)
	assert.Equal(t, int64(2), res.Taken)
	assert.Equal(t, int64(1), res.Remaining)
	res, _, err = p.Spec().Explain(core.Take{Policy: p, Key: "k", AtMost: true}, []int64{epoch, 0, -1 - 666667, 0})
	require.NoError(t, err)
	assert.Equal(t, time.Microsecond, res.RetryAfter, "of a look")
	res, _, err = p.Spec().Explain(core.Take{Policy: p, Key: "k", AtMost: true}, []int64{epoch, 0, 666666, 2})
	require.NoError(t, err)
	assert.Equal(t, core.Admitted, res.Outcome)
	_, _, err = core.Spec{}.Explain(core.Take{Policy: p, Key: "k", Cost: 1}, []int64{epoch, 333333, 1})
	require.ErrorContains(t, err, "is not one of a script for")
}

// No reply makes Explain panic, whatever the algorithm: the network is not to be trusted.
func FuzzExplain(f *testing.F) {
	policies := []core.Policy{
		core.MustParse("3/1s"), core.MustParse("3/1s leaky-bucket"), core.MustParse("3/1s burst 9 debt 2, 5/1m token-bucket; wait 3s"),
		core.MustParse("3/1s fixed-window, 9/1d fixed-window calendar Europe/Berlin"), core.MustParse("9/1h sliding-window"),
		core.MustParse("9/1h sliding-counter, 7/1m sliding-window buckets 60"), core.MustParse("9/1h sliding-log, 1000/1d sliding-log"),
	}
	for i := range policies {
		for _, n := range []int{0, 1, 2, 3, 5, 9, 17} {
			f.Add(make([]byte, 8*n), int64(n), n%2 == 0, uint8(i))
			some := make([]byte, 8*n)
			for j := range n {
				binary.BigEndian.PutUint64(some[8*j:], uint64(epoch*int64(1-j%3)+int64(j)))
			}
			f.Add(some, int64(1), n%2 == 1, uint8(i))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte, cost int64, atMost bool, which uint8) {
		p := policies[int(which)%len(policies)]
		reply := make([]int64, min(len(raw)/8, 100))
		for i := range reply {
			reply[i] = int64(binary.BigEndian.Uint64(raw[8*i:]))
		}
		take := core.Take{Policy: p, Key: "k", Cost: cost & math.MaxInt64, AtMost: atMost, Debt: atMost && which >= 128}
		res, again, err := p.Spec().Explain(take, reply)
		if err == nil && !again {
			require.GreaterOrEqual(t, res.Remaining, int64(0))
			require.LessOrEqual(t, res.Remaining, res.Limit)
			require.LessOrEqual(t, res.Taken, take.Cost)
			require.GreaterOrEqual(t, res.RetryAfter, time.Duration(0))
			require.GreaterOrEqual(t, res.Delay, time.Duration(0))
			return
		}
		if again {
			require.NoError(t, err)
			require.True(t, p.Spec().Calendar())
			require.Len(t, reply, 1)
			return
		}
		require.Equal(t, core.Result{}, res)
	})
}

// Nor does it make ExplainEach panic, which answers each call once, in order, or says that
// something is wrong.
func FuzzExplainEach(f *testing.F) {
	policies := []core.Policy{
		core.MustParse("3/1s"), core.MustParse("3/1s leaky-bucket"), core.MustParse("3/1s burst 9 debt 2, 5/1m token-bucket; wait 3s"),
		core.MustParse("3/1s fixed-window, 9/1d fixed-window calendar Europe/Berlin"), core.MustParse("9/1h sliding-window"),
		core.MustParse("9/1h sliding-counter, 7/1m sliding-window buckets 60"), core.MustParse("9/1h sliding-log, 1000/1d sliding-log"),
		core.MustParse("1000/1h"), core.MustParse("2147483647/1ms burst 2147483647; wait 366d"),
	}
	for i := range policies {
		for _, n := range []int{0, 1, 2, 3, 5, 9, 17} {
			some := make([]byte, 8*n)
			for j := range n {
				binary.BigEndian.PutUint64(some[8*j:], uint64([]int64{epoch, -1, 0, 1, 2, -3, -1 << 53, epoch - int64(j)}[(j+i)%8]))
			}
			for _, counts := range []string{"", "\x01", "\x03\x01", "\xff\x01\x02", "\x00"} {
				f.Add(some, int64(n%3), int64(i), uint8(i), []byte(counts))
			}
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte, cost, wait int64, which uint8, kept []byte) {
		p := policies[int(which)%len(policies)]
		reply := make([]int64, min(len(raw)/8, 100))
		for i := range reply {
			reply[i] = int64(binary.BigEndian.Uint64(raw[8*i:]))
		}
		counts := make([]int, min(len(kept), 20))
		for i := range counts {
			counts[i] = int(kept[i])
		}
		take := core.Take{Policy: p, Key: "k", Cost: cost & math.MaxInt64, Wait: time.Duration(wait & math.MaxInt64)}
		key, call, clock := 0, 0, int64(0)
		if len(reply) > 0 {
			clock = reply[0]
		}
		again, err := p.Spec().ExplainEach(take, reply, counts, func(atKey, atCall int, res *core.Result, _ []int64) {
			if call == counts[key] {
				key, call = key+1, 0
			}
			require.Equal(t, [2]int{key, call}, [2]int{atKey, atCall})
			call++
			if res == nil {
				return
			}
			require.Equal(t, clock, res.At)
			require.GreaterOrEqual(t, res.Remaining, int64(0))
			require.LessOrEqual(t, res.Remaining, res.Limit)
			require.GreaterOrEqual(t, res.RetryAfter, time.Duration(0))
			require.GreaterOrEqual(t, res.Delay, time.Duration(0))
			require.Contains(t, []int64{0, take.Cost}, res.Taken)
			require.Equal(t, res.Allowed(), res.Taken == take.Cost)
		})
		switch {
		case err != nil:
			require.Zero(t, again)
		case again != 0:
			require.True(t, p.Spec().Calendar())
			require.Equal(t, clock, again)
			require.Zero(t, call)
		case len(counts) > 0:
			require.Equal(t, len(counts)-1, key)
			require.Equal(t, counts[key], call)
		}
	})
}

// What no script replies is an error for all calls from there on.
func TestExplainEachRefusesMalformedReplies(t *testing.T) {
	const none = -1 << 53
	parse := core.MustParse
	for _, c := range []struct {
		name    string
		p       core.Policy
		cost    int64
		reply   []int64
		counts  []int
		visited int // before it was found out
	}{
		{"nothing", parse("9/9s"), 1, nil, []int{1}, 0},
		{"nothing, without keys", parse("9/9s"), 1, nil, nil, 0},
		{"no time", parse("9/9s"), 1, []int64{0, 1_000_000}, []int{1}, 0},
		{"the time alone", parse("9/9s"), 1, []int64{epoch}, []int{1}, 0},
		{"a key too few", parse("9/9s"), 1, []int64{epoch, 1_000_000}, []int{1, 1}, 1},
		{"a key too many", parse("9/9s"), 1, []int64{epoch, 1_000_000, 1_000_000}, []int{1}, 1},
		{"half a key", parse("3/1s"), 1, []int64{epoch, 333333, 1, 333333}, []int{1, 1}, 1},
		{"above the capacity", parse("9/9s"), 1, []int64{epoch, 9_000_001}, []int{1}, 0},
		{"less in use than was taken", parse("9/9s"), 2, []int64{epoch, 3_999_999}, []int{2}, 0},
		{"less of a window than was taken", parse("9/9s fixed-window"), 2, []int64{epoch, 3, epoch + second}, []int{2}, 0},
		{"less of a bucket than was taken", parse("9/9s token-bucket"), 2, []int64{epoch, epoch, 6}, []int{2}, 0},
		{"less of a counter than was taken", parse("9/9s sliding-counter"), 2, []int64{epoch, 3, 5}, []int{2}, 0},
		{"less of a sub-window than was taken", parse("9/9s sliding-window"), 2, []int64{epoch, epoch, 3, 0}, []int{2}, 0},
		{"another sub-window", parse("9/9s sliding-window"), 1, []int64{epoch, epoch - 900_000, 3, 0}, []int{2}, 0},
		{"less of a log than was taken", parse("9/9s sliding-log"), 2, []int64{epoch, 3, epoch, 0}, []int{2}, 0},
		{"another entry", parse("9/9s sliding-log"), 1, []int64{epoch, 3, epoch - 1, 0}, []int{2}, 0},
		{"a log of nothing", parse("9/9s sliding-log"), 1, []int64{epoch, 0, 0, 0}, []int{2}, 0},
		{"a cost that never fits", parse("9/9s"), 10, []int64{epoch, 9_000_000}, []int{2}, 0},
		{"refused, but not how many before", parse("9/9s"), 2, []int64{epoch, -1 - 8_000_000}, []int{2}, 0},
		{"refused after all", parse("9/9s"), 2, []int64{epoch, -1 - 8_000_000, 2}, []int{2}, 0},
		{"refused after less than none", parse("9/9s"), 2, []int64{epoch, -1 - 8_000_000, -1}, []int{2}, 0},
		{"refused what fits", parse("9/9s"), 2, []int64{epoch, -1 - 7_000_000, 1}, []int{2}, 0},
		{"nothing decided, and something behind it", parse("9/9s"), 1, []int64{epoch, none, 0}, []int{1}, 1},
	} {
		visited := 0
		take := core.Take{Policy: c.p, Key: "k", Cost: c.cost}
		again, err := c.p.Spec().ExplainEach(take, c.reply, c.counts, func(int, int, *core.Result, []int64) { visited++ })
		require.ErrorContains(t, err, "not one of a script for", c.name)
		assert.Zero(t, again, c.name)
		assert.Equal(t, c.visited, visited, c.name)
	}
	p, never := parse("9/9s"), func(int, int, *core.Result, []int64) { t.Error("visited") }
	_, err := p.Spec().ExplainEach(core.Take{Policy: p, Key: "k", Cost: 1, AtMost: true}, []int64{epoch, 0}, []int{1}, never)
	require.ErrorContains(t, err, "AtMost")
	for _, n := range []int{0, -1, 65537} {
		_, err = p.Spec().ExplainEach(core.Take{Policy: p, Key: "k", Cost: 1}, []int64{epoch, 0}, []int{n}, never)
		require.ErrorContains(t, err, "give 1 to 65536")
	}
}

// A flight allocates nothing for each of its calls.
func TestExplainEachAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates too")
	}
	for _, text := range []string{"1000/1000s", "1000/1000s, 10/1s token-bucket"} {
		p := core.MustParse(text)
		take := core.Take{Policy: p, Key: "k", Cost: 1}
		of := []int64{1_000_000, epoch, 9}[:2*len(p.Limits())-1] // one unit is in use
		reply, counts := make([]int64, 0, 200), make([]int, 64)
		for i := range counts {
			counts[i] = 1
		}
		visited := 0
		visit := func(_, _ int, res *core.Result, _ []int64) {
			if res != nil && res.Allowed() {
				visited++
			}
		}
		const runs = 100
		allocs := testing.AllocsPerRun(runs, func() {
			reply = append(reply[:0], epoch)
			for range counts {
				reply = append(reply, of...)
			}
			if _, err := p.Spec().ExplainEach(take, reply, counts, visit); err != nil {
				t.Error(err)
			}
		})
		assert.LessOrEqual(t, allocs, 1.0, text)
		assert.Equal(t, (runs+1)*len(counts), visited)
	}
}

func BenchmarkExplainEach(b *testing.B) {
	p := core.MustParse("1000/1000s")
	take := core.Take{Policy: p, Key: "k", Cost: 1}
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprint(n, " calls of one key"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := p.Spec().ExplainEach(take, []int64{epoch, int64(n) * 1_000_000}, []int{n}, func(int, int, *core.Result, []int64) {})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/call")
		})
	}
	b.Run("Explain", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := p.Spec().Explain(take, []int64{epoch, 1_000_000}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Equal calls that were decided together have the answers that each would have had alone.
func TestExplainEach(t *testing.T) {
	p := core.MustParse("3/3s")
	var got []string
	reply := []int64{epoch, 1_000_000, -1 - 3_000_000, 2, -1 << 53, 3_000_000}
	again, err := p.Spec().ExplainEach(core.Take{Policy: p, Key: "k", Cost: 1}, reply, []int{1, 4, 2, 3}, func(key, call int, res *core.Result, _ []int64) {
		text := fmt.Sprint(key, " ", call, " undecided")
		if res != nil {
			text = fmt.Sprint(key, " ", call, " ", res.Outcome, " remaining ", res.Remaining, " retry ", res.RetryAfter, " reset ", res.ResetAfter)
		}
		got = append(got, text)
	})
	require.NoError(t, err)
	assert.Zero(t, again)
	assert.Equal(t, []string{
		"0 0 admitted remaining 2 retry 0s reset 1s",
		"1 0 admitted remaining 1 retry 0s reset 2s",
		"1 1 at-limit remaining 0 retry 0s reset 3s",
		"1 2 refused remaining 0 retry 1s reset 3s",
		"1 3 refused remaining 0 retry 1s reset 3s",
		"2 0 undecided",
		"2 1 undecided",
		"3 0 admitted remaining 2 retry 0s reset 1s",
		"3 1 admitted remaining 1 retry 0s reset 2s",
		"3 2 at-limit remaining 0 retry 0s reset 3s",
	}, got)
}

// Of calls whose cost is more than ever fits none was charged, whatever it is.
func TestExplainEachNever(t *testing.T) {
	p := core.MustParse("3/3s")
	visited := 0
	_, err := p.Spec().ExplainEach(core.Take{Policy: p, Key: "k", Cost: math.MaxInt64}, []int64{epoch, -1, 0}, []int{3}, func(_, _ int, res *core.Result, _ []int64) {
		visited++
		assert.Equal(t, core.Never, res.Outcome)
		assert.Equal(t, int64(3), res.Remaining)
	})
	require.NoError(t, err)
	assert.Equal(t, 3, visited)
}

// A script that finds the caller's calendar to be behind does nothing, and says the time.
func TestExplainOtherWindow(t *testing.T) {
	p := core.MustParse("3/1d fixed-window calendar Europe/Berlin")
	for _, take := range []core.Take{{Cost: 1}, {}, {Cost: 2, AtMost: true}, {AtMost: true}} {
		take.Policy, take.Key = p, "k"
		res, again, err := p.Spec().Explain(take, []int64{epoch})
		require.NoError(t, err)
		assert.True(t, again)
		assert.Equal(t, core.Result{At: epoch}, res)
		_, again, err = p.Spec().Explain(take, []int64{0})
		require.Error(t, err)
		assert.False(t, again, "without a time there is nothing to ask again with")
	}
	before, after := p.Spec().TakeArgs(core.Take{Cost: 1}, epoch), p.Spec().TakeArgs(core.Take{Cost: 1}, epoch+36*3600*second)
	assert.NotEqual(t, before, after, "the guess decides which window is asked for")
}

func TestRefundValidate(t *testing.T) {
	good := core.Refund{
		Policy: core.MustParse("3/1s"), Key: "k", Units: 2,
		Receipt: core.Result{Outcome: core.AtLimit, Taken: 2, At: epoch},
	}
	require.NoError(t, good.Validate())
	for want, change := range map[string]func(*core.Refund){
		"":                             func(r *core.Refund) { r.Units = 0 },
		"a refund of -1 units; give 0": func(r *core.Refund) { r.Units = -1 },
		"core: a refund of 3 units, but the Result (at-limit) took 2; give at most those": func(r *core.Refund) { r.Units = 3 },
		"core: the Result (refused) took nothing; there is nothing to give back":          func(r *core.Refund) { r.Receipt = core.Result{At: epoch} },
		"has no At":         func(r *core.Refund) { r.Receipt.At = 0 },
		"Policy":            func(r *core.Refund) { r.Policy = core.Policy{} },
		"key is":            func(r *core.Refund) { r.Key = "" },
		"Now is -1":         func(r *core.Refund) { r.Now = -1 },
		"has permits alone": func(r *core.Refund) { r.Policy = core.MustParse("3 concurrent") },
	} {
		r := good
		if change(&r); want == "" {
			require.NoError(t, r.Validate())
		} else {
			require.ErrorContains(t, r.Validate(), want)
		}
	}
	credit := core.Refund{Policy: good.Policy, Key: "k", Units: 1 << 60, Credit: true}
	require.NoError(t, credit.Validate())
	credit.Units = -1
	require.ErrorContains(t, credit.Validate(), "a refund of -1 units; give 0")
	credit.Units, credit.Receipt = 1, good.Receipt
	require.ErrorContains(t, credit.Validate(), "a Credit with a Receipt; leave the Receipt out")
	nothing := core.Refund{Policy: good.Policy, Key: "k", Receipt: core.Result{At: epoch}}
	require.NoError(t, nothing.Validate())
}

func TestBatchError(t *testing.T) {
	down := &core.StoreError{Class: core.ClassDown, Err: io.EOF}
	err := error(&core.BatchError{Errs: []error{nil, down, nil, context.Canceled}})
	require.EqualError(t, err, "core: 2 of a batch of 4 failed, the first: store failed (down, surely not executed): EOF")
	require.ErrorIs(t, err, io.EOF)
	require.ErrorIs(t, err, context.Canceled)
	var failed *core.StoreError
	require.ErrorAs(t, err, &failed)
	require.NotPanics(t, func() { _ = (&core.BatchError{}).Error() })
}

// Smaller numbers neither write what they only look at, nor shorten how long a state is kept.
func TestSmallerNumbersKeepTheState(t *testing.T) {
	for _, kind := range []string{"token-bucket", "fixed-window", "fixed-window aligned", "sliding-window", "sliding-counter", "sliding-log", "", "leaky-bucket"} {
		large, small := core.MustParse("keep: 1000/1m "+kind), core.MustParse("keep: 10/1m "+kind)
		require.Equal(t, large.Spec().Shape(), small.Spec().Shape())
		_, text, long := large.Spec().Step(nil, core.Take{Key: "k", Cost: 600, Now: epoch})
		require.Positive(t, long, kind)
		for _, cost := range []int64{0, 1, 5, 11} {
			res, _, ttl := small.Spec().Step(text, core.Take{Key: "k", Cost: cost, Now: epoch + 1})
			if kind == "token-bucket" && 0 < cost && cost < 10 { // there are tokens
				require.True(t, res.Allowed(), kind)
				assert.GreaterOrEqual(t, ttl, long-time.Millisecond, kind)
				continue
			}
			assert.Equal(t, cost == 0 || res.Allowed(), res.Allowed(), kind)
			if !res.Allowed() || cost == 0 {
				assert.Zero(t, ttl, "%s: a cost of %d", kind, cost)
			}
		}
	}
	bucket, smaller := core.MustParse("keep: 10/1m burst 1000 token-bucket"), core.MustParse("keep: 10/1m token-bucket")
	_, text, long := bucket.Spec().Step(nil, core.Take{Key: "k", Cost: 1000, Now: epoch})
	require.Equal(t, 100*time.Minute, long)
	res, text, ttl := smaller.Spec().Step(text, core.Take{Key: "k", Cost: 1, Now: epoch + 60*second})
	require.True(t, res.Allowed())
	require.Equal(t, 99*time.Minute, ttl)
	text, ttl = smaller.Spec().StepRefund(text, core.Refund{Key: "k", Receipt: res, Units: 1, Now: epoch + 60*second})
	require.Equal(t, 99*time.Minute, ttl, "a bucket that is full here is not for the larger numbers")
	res, _, _ = bucket.Spec().Step(text, core.Take{Key: "k", Now: epoch + 60*second})
	require.EqualValues(t, 10, res.Remaining)
}
