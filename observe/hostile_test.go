package observe_test

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/observe"
)

// Where series are used up, a policy's rates are its own, and those of the others are counted as "other".
func TestRatesBeyondTheSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObserver(t, observe.Options{MaxSeries: 500})
		decide := func(policy string, outcome core.Outcome) {
			o.Observe(guard.Event{Policy: policy, Rule: "Rule", Outcome: outcome, From: guard.FromStore, At: time.Now().UnixMicro()})
		}
		decide("calm", core.Admitted) // the only one for which there is a series
		for i := range 1000 {
			decide("p"+strconv.Itoa(i), core.Refused)
		}
		<-time.After(20 * time.Second)
		for range 9 { // seconds
			<-time.After(time.Second)
			decide("calm", core.Admitted)
			decide("calm", core.Refused)
			for range 100 {
				decide("p1", core.Admitted)
			}
		}
		<-time.After(time.Second)
		rates := map[string]observe.Rate{}
		for _, r := range o.Snapshot().Rates {
			rates[r.Policy] = r.TenSeconds
		}
		assert.InDelta(t, 1, rates["calm"].Allowed, 0.2)
		assert.Zero(t, rates["calm"].Refused, "it is counted as other")
		assert.InDelta(t, 90, rates[observe.Other].Allowed, 20)
		assert.InDelta(t, 1, rates[observe.Other].Refused, 1)
	})
}

// told is a store that shows its servers.
type told struct {
	core.Store

	stats stats.Store
}

func (s told) Stats() stats.Store { return s.stats }

// A server, a class or a revision that is no text is "other": Prometheus would refuse the whole scrape for it.
func TestLabelsAreText(t *testing.T) {
	o := newObserver(t, observe.Options{})
	const bad = "\xff"
	for i := range 200 {
		addr := bad + strconv.Itoa(i)
		o.ObserveFlight(stats.Flight{Server: addr, Took: 1})
		o.ObserveBreaker(stats.BreakerChange{Server: addr, Class: addr, Open: true})
		o.Observe(guard.Event{Policy: "p", Rule: "Rule", Err: &core.StoreError{Class: addr, Server: strings.Repeat("x", 300) + addr}})
	}
	o.Watch(nil, &told{stats: stats.Store{Servers: []stats.Server{{Addr: bad + "1"}, {
		Addr: bad + "2", Decisions: stats.Traffic{Breaker: stats.Breaker{Open: true, Class: bad}},
	}}}})
	s := o.Snapshot()
	samples(t, s)
	for _, f := range s.Families() {
		for _, p := range f.Points {
			assert.True(t, utf8.ValidString(strings.Join(p.Values, "")), "%s %q", f.Name, p.Values)
		}
	}
	require.Len(t, s.Flights, 1)
	assert.Equal(t, observe.Other, s.Flights[0].Server)
	assert.EqualValues(t, 200, s.Flights[0].Histogram.Count)
}

// However many servers a store has, those beyond the first are one: two series for each, and one for each class.
func TestServersAreBounded(t *testing.T) {
	o := newObserver(t, observe.Options{})
	var servers stats.Store
	for i := range 500 {
		servers.Servers = append(servers.Servers, stats.Server{Addr: strconv.Itoa(i)})
	}
	servers.Servers[499].Decisions.Breaker = stats.Breaker{Open: true, Class: "down"}
	o.Watch(nil, &told{stats: servers}, &told{stats: servers})
	s := o.Snapshot()
	samples(t, s)
	assert.Len(t, s.Breakers, 2*65)
	assert.Len(t, s.Failures, 9*65)
	for _, b := range s.Breakers {
		assert.Equal(t, b.Server == observe.Other && !b.Behind, b.Open, b.Server)
	}
}

// What is beyond the series, and an event with the names that stand for it, are one series.
func TestNamedOther(t *testing.T) {
	o := newObserver(t, observe.Options{})
	o.Observe(guard.Event{Policy: observe.Other, Rule: observe.Other, Tier: observe.Other})
	o.Observe(guard.Event{Policy: "\xff"})
	s := o.Snapshot()
	samples(t, s)
	require.Len(t, s.Decisions, 1)
	assert.EqualValues(t, 2, s.Decisions[0].Count)
}

// An event without a time, or with one before the epoch, is counted like any other.
func TestEventsWithoutTime(t *testing.T) {
	o := newObserver(t, observe.Options{})
	for _, at := range []int64{0, time.Time{}.UnixMicro(), -5_000_000, time.Now().UnixMicro(), -1, 1 << 62} {
		for range 2 {
			o.Observe(guard.Event{Policy: "p", Outcome: core.Refused, At: at})
		}
		o.Worst("p", 1)
	}
	assert.EqualValues(t, 12, sum(o.Snapshot()))
}
