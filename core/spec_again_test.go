package core_test

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/internal/race"
)

// Again refuses what Step refuses at the latest instant, with the answer of the earliest, for any
// cost and wait, and leaves all else to the store.
func TestAgainAgreesWithStep(t *testing.T) {
	answers := 0
	rapid.Check(t, func(t *rapid.T) {
		p := anyPolicy(t, core.GCRA, core.LeakyBucket)
		s := &stepper{t: t}
		take := core.Take{Policy: p, Key: "k"}
		draw := func(label string) core.Take {
			limit := rapid.SampledFrom(p.Limits()).Draw(t, label+"limit")
			most := limit.Burst + limit.Debt
			take.Cost = rapid.OneOf(rapid.Int64Range(1, 2), rapid.Int64Range(1, most), rapid.SampledFrom([]int64{limit.Burst, most, most + 1, math.MaxInt64})).Draw(t, label+"cost")
			take.Wait = time.Duration(rapid.Int64Range(0, int64(2*p.Options().Wait+1)).Draw(t, label+"ahead of its time"))
			if take.AtMost = rapid.IntRange(0, 3).Draw(t, label+"at most") == 0; take.AtMost {
				take.Wait, take.Cost = 0, rapid.SampledFrom([]int64{0, take.Cost}).Draw(t, label+"look")
			}
			take.Debt = take.AtMost && rapid.Bool().Draw(t, label+"debt")
			return take
		}
		at := func(t core.Take, now int64) core.Take { t.Now = now; return t }
		now, res, cost := epoch, core.Result{}, int64(0)
		for i := 0; i == 0 || i < 30 && res.Allowed(); i++ {
			first := at(draw("first "), now)
			var next []byte
			var ttl time.Duration
			res, next, ttl = p.Spec().Step(s.text, first)
			s.keep(next, ttl)
			if cost = first.Cost; first.AtMost {
				cost = 1
			}
		}
		if res.Allowed() {
			return
		}
		reply := replyOf(p, core.Take{}, s.text, nil, res)
		for range 5 {
			until := []int64{0, 1, second, int64(res.RetryAfter / time.Microsecond)}
			earliest := now + max(0, rapid.SampledFrom(until).Draw(t, "until")+rapid.Int64Range(-2, 2).Draw(t, "and"))
			latest := earliest + rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 3), rapid.Int64Range(0, second)).Draw(t, "unknown")
			other := draw("other ")
			got, refused := p.Spec().Again(other, cost, reply, earliest, latest)
			then, _, _ := p.Spec().Step(s.text, at(other, latest))
			require.Equal(t, !then.Allowed(), refused)
			if refused {
				want, _, _ := p.Spec().Step(s.text, at(other, earliest))
				require.Equal(t, want, got)
				answers++
			}
		}
	})
	assert.Positive(t, answers)
}

// What Again does not answer.
func TestAgainLeavesToTheStore(t *testing.T) {
	p, log := core.MustParse("3/1s burst 9"), core.MustParse("9/1h sliding-log")
	full, fullLog := []int64{epoch, -1 - 3_000_000, 0}, []int64{epoch, -1 - 9, epoch - 2, epoch - 5, epoch - 9}
	for _, c := range []struct {
		name             string
		p                core.Policy
		take             core.Take
		reply            []int64
		earliest, latest int64
		want             bool
	}{
		{"one unit", p, core.Take{Cost: 1}, full, epoch, epoch, true},
		{"another cost", p, core.Take{Cost: 9}, full, epoch + 1, epoch + 2, true},
		{"a peek", p, core.Take{}, full, epoch, epoch, false},
		{"less than nothing", p, core.Take{Cost: -1}, full, epoch, epoch, false},
		{"what there is, if there is none", p, core.Take{Cost: 9, AtMost: true}, full, epoch, epoch, true},
		{"what there is, just before there is one", p, core.Take{Cost: 9, AtMost: true}, full, epoch, epoch + 333_333, true},
		{"what there is, if there is one", p, core.Take{Cost: 9, AtMost: true}, full, epoch, epoch + 333_334, false},
		{"a look", p, core.Take{AtMost: true}, full, epoch, epoch, true},
		{"what there is, and a wait", p, core.Take{Cost: 1, AtMost: true, Wait: 1}, full, epoch, epoch, false},
		{"a forced clock", p, core.Take{Cost: 1, Now: epoch}, full, epoch, epoch, false},
		{"a wait below zero", p, core.Take{Cost: 1, Wait: -1}, full, epoch, epoch, false},
		{"just before it fits", p, core.Take{Cost: 1}, full, epoch, epoch + 333_333, true},
		{"when it fits", p, core.Take{Cost: 1}, full, epoch, epoch + 333_334, false},
		{"earlier than the reply", p, core.Take{Cost: 1}, full, epoch - 1, epoch, false},
		{"the latest before the earliest", p, core.Take{Cost: 1}, full, epoch + 2, epoch + 1, false},
		{"beyond all time", p, core.Take{Cost: 1}, full, epoch, math.MaxInt64, false},
		{"no reply", p, core.Take{Cost: 1}, nil, epoch, epoch, false},
		{"the time alone", p, core.Take{Cost: 1}, full[:1], epoch, epoch, false},
		{"one short", p, core.Take{Cost: 1}, full[:2], epoch, epoch, false},
		{"one too many", p, core.Take{Cost: 1}, append(full[:3:3], 0), epoch, epoch, false},
		{"no time", p, core.Take{Cost: 1}, []int64{0, full[1], full[2]}, epoch, epoch, false},
		{"above the capacity", p, core.Take{Cost: 1}, []int64{epoch, -1 - 3_000_001, 0}, epoch, epoch, false},
		{"an admission", p, core.Take{Cost: 1}, []int64{epoch, 333_333, 1}, epoch, epoch, false},
		{"the same cost of a log", log, core.Take{Cost: 3}, fullLog, epoch, epoch, true},
		{"another cost of a log", log, core.Take{Cost: 2}, fullLog, epoch, epoch, false},
		{"what there is in a log, from a cost of 3", log, core.Take{Cost: 3, AtMost: true}, fullLog, epoch, epoch, false},
		{"no policy", core.Policy{}, core.Take{Cost: 1}, full, epoch, epoch, false},
		{"permits alone", core.MustParse("3 concurrent"), core.Take{Cost: 1}, []int64{epoch}, epoch, epoch, false},
	} {
		res, refused := c.p.Spec().Again(c.take, 3, c.reply, c.earliest, c.latest)
		assert.Equal(t, c.want, refused, c.name)
		assert.False(t, res.Allowed(), c.name)
		if refused {
			assert.Equal(t, c.earliest, res.At, c.name)
		} else {
			assert.Equal(t, core.Result{}, res, c.name)
		}
	}
}

func TestAgainAllocates(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates too")
	}
	for _, c := range []struct {
		p     core.Policy
		reply []int64
	}{
		{core.MustParse("3/1s"), []int64{epoch, -1 - 1_000_000, 0}},
		{core.MustParse("3/1s, 9/1h sliding-window buckets 60"), []int64{epoch, -1 - 1_000_000, 0, 0, 0, 0, 0}},
		{core.MustParse("9/1h sliding-log, 9/1d fixed-window calendar UTC"), []int64{epoch, 0, 0, -1 - 9, epoch - 5, epoch - 9, epoch - 9}},
	} {
		take := core.Take{Policy: c.p, Cost: 1}
		refused := 0
		const runs = 100
		assert.Zero(t, testing.AllocsPerRun(runs, func() {
			if _, ok := c.p.Spec().Again(take, 1, c.reply, epoch, epoch+1); ok {
				refused++
			}
		}), c.p)
		assert.Equal(t, runs+1, refused, c.p)
	}
}

// No reply makes Again panic, admit, or tell a client to come at once.
func FuzzAgain(f *testing.F) {
	policies := []core.Policy{
		core.MustParse("3/1s"), core.MustParse("3/1s leaky-bucket"), core.MustParse("3/1s burst 9 debt 2, 5/1m token-bucket; wait 3s"),
		core.MustParse("3/1s fixed-window, 9/1d fixed-window calendar Europe/Berlin"), core.MustParse("9/1h sliding-window"),
		core.MustParse("9/1h sliding-counter, 7/1m sliding-window buckets 60"), core.MustParse("9/1h sliding-log, 1000/1d sliding-log"),
	}
	for i := range policies {
		for _, n := range []int{0, 3, 4, 5, 7} {
			raw := make([]byte, 8*n)
			for j := range n {
				binary.BigEndian.PutUint64(raw[8*j:], uint64(epoch*int64(1-j%3)+int64(j)))
			}
			f.Add(raw, int64(1), int64(1), int64(n), int64(7*n), uint8(i))
		}
	}
	for i, reply := range [][]int64{
		{epoch, -1 - 1_000_000, 0},
		{epoch, -1 - 1_000_000, 0},
		{epoch, -1 - 3_666_666, 2, epoch - 60_000_000, -15},
		{epoch, -1 - 3, epoch + 1, -1 - 9, epoch + 1_000_000},
		{epoch, -1 - (epoch - epoch%360_000_000), 9, 0},
		{epoch, 0, 0, 0, -1 - (epoch - epoch%3_600_000_000), 9, 3},
		{epoch, -1 - 9, epoch - 2, epoch - 5, 9, epoch - 2, 0},
	} {
		raw := make([]byte, 0, 8*len(reply))
		for _, n := range reply {
			raw = binary.BigEndian.AppendUint64(raw, uint64(n))
		}
		for _, elapsed := range []int64{0, 1000, 400_000} {
			f.Add(raw, int64(1), int64(1), elapsed, int64(10), uint8(i))
			f.Add(raw, int64(9), int64(1), elapsed, int64(10), uint8(i))
			f.Add(raw, int64(0), int64(1), elapsed, int64(10), uint8(i+len(policies)*(0x80/len(policies)+1)))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte, cost, then, elapsed, unknown int64, which uint8) {
		p := policies[int(which)%len(policies)]
		reply := make([]int64, min(len(raw)/8, 100))
		for i := range reply {
			reply[i] = int64(binary.BigEndian.Uint64(raw[8*i:]))
		}
		earliest := elapsed
		if len(reply) > 0 {
			earliest += reply[0]
		}
		take := core.Take{Policy: p, Key: "k", Cost: cost, Wait: time.Duration(unknown)}
		if take.AtMost, take.Debt = which&0x80 != 0, which&0x40 != 0; take.AtMost {
			take.Wait = 0
		}
		res, refused := p.Spec().Again(take, then, reply, earliest, earliest+unknown)
		if !refused {
			require.Equal(t, core.Result{}, res)
			return
		}
		require.False(t, res.Allowed())
		require.Equal(t, res.Outcome == core.Refused, res.RetryAfter > 0)
		require.Equal(t, earliest, res.At)
		require.GreaterOrEqual(t, res.Remaining, int64(0))
		require.LessOrEqual(t, res.Remaining, res.Limit)
		require.Zero(t, res.Taken)
	})
}
