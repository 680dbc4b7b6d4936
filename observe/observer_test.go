package observe_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/observe"
)

// samples returns the number of series in Prometheus, where each bucket of a classic histogram is one, its sum and its
// count.
func samples(t *testing.T, s observe.Snapshot) (n int) {
	t.Helper()
	for _, f := range s.Families() {
		seen := map[string]bool{}
		for _, p := range f.Points {
			at := strings.Join(p.Values, "\x00")
			assert.False(t, seen[at], "%s has %q twice: Prometheus would refuse the whole scrape", f.Name, p.Values)
			assert.Len(t, p.Values, len(f.Attributes), f.Name)
			seen[at] = true
			n++
			if f.Kind == observe.Histograms {
				assert.NotNil(t, p.Histogram)
				n += len(f.Bounds) + 2 // the bucket +Inf is the one that is counted already
			}
		}
	}
	return n
}

// sum is the number of decisions that a Snapshot has.
func sum(s observe.Snapshot) (n uint64) {
	for _, d := range s.Decisions {
		n += d.Count
	}
	return n
}

// However many policies, rules and tiers there are, and whatever they are called, the series are bounded, nothing is
// lost, and no counter goes back.
func TestSeriesAreBounded(t *testing.T) {
	for name, event := range map[string]func(i int) guard.Event{
		"policies": func(i int) guard.Event { return guard.Event{Policy: "p" + strconv.Itoa(i%10_000)} },
		"tiers":    func(i int) guard.Event { return guard.Event{Policy: "p", Tier: "t" + strconv.Itoa(i%10_000)} },
		"hostile": func(i int) guard.Event {
			return guard.Event{Policy: "p", Tier: strings.Repeat("\xff", i%3) + strings.Repeat("x", i%1000)}
		},
		"other": func(i int) guard.Event {
			return guard.Event{Policy: "other", Rule: "other", Tier: []string{"", "other"}[i%2]}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newObserver(t, observe.Options{})
			n, before := 0, map[string]uint64{}
			for range 3 {
				for i := range 20_000 {
					e := event(i)
					e.Outcome, e.From, e.Shadow = core.Outcome(i%4), guard.From(i/4%8), i/32%2 == 0 //nolint:gosec // they are small
					e.Took, e.Waited, e.At = time.Millisecond, time.Second, time.Now().UnixMicro()
					o.Observe(e)
					o.Observe(guard.Event{Policy: e.Policy, Settled: true, Used: 1})
					n++
				}
				s := o.Snapshot()
				assert.LessOrEqual(t, samples(t, s), 2000)
				assert.Equal(t, uint64(n), sum(s))
				durations, settled, waits := uint64(0), uint64(0), uint64(0)
				for _, d := range s.Durations {
					durations += d.Histogram.Count
				}
				for _, d := range s.Settled {
					settled += d.Units
				}
				for _, d := range s.Queues {
					waits += d.Histogram.Count
				}
				assert.Equal(t, []uint64{uint64(n), uint64(n), uint64(n)}, []uint64{durations, settled, waits})
				for _, f := range s.Families() {
					for _, p := range f.Points {
						count, at := uint64(p.Value), f.Name+strings.Join(p.Values, "\x00")
						if p.Histogram != nil {
							count = p.Histogram.Count
						}
						assert.GreaterOrEqual(t, count, before[at], "%s %q", f.Name, p.Values)
						before[at] = count
					}
				}
			}
			assert.LessOrEqual(t, len(o.Refusals()), 100)
		})
	}
}

// One policy with any number of tiers leaves series for the others.
func TestNoPolicyTakesAllSeries(t *testing.T) {
	o := newObserver(t, observe.Options{})
	for i := range 10_000 {
		o.Observe(guard.Event{Policy: "greedy", Tier: strconv.Itoa(i), Outcome: core.Admitted, From: guard.FromStore})
	}
	o.Observe(guard.Event{Policy: "modest", Outcome: core.Refused, From: guard.FromStore})
	s := o.Snapshot()
	assert.True(t, slices.ContainsFunc(s.Decisions, func(d observe.Decisions) bool { return d.Policy == "modest" && d.Count == 1 }))
}

// What a real guard decides is counted as what it is.
func TestDecisionsOfAGuard(t *testing.T) {
	o := newObserver(t, observe.Options{})
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{
			Policy: "api: 2/1h", Key: keyfunc.Header("X-User"),
			Tier: func(r keyfunc.Request) string { return r.(*request).tier }, Tiers: map[string]string{"pro": "3/1h"},
		},
		Rules:   []guard.Rule{{Policy: "trial: 1/1h; shadow", Key: keyfunc.IP()}},
		Observe: o.Observe,
	})
	require.NoError(t, err)
	for _, r := range []*request{{key: "a"}, {key: "a"}, {key: "a"}, {key: "b", tier: "pro"}, {}} {
		r.peer = newRequest().peer
		v := g.Check(r)
		v.Finish(guard.Final{})
	}
	var lines []string
	for _, d := range o.Snapshot().Decisions {
		lines = append(lines, fmt.Sprintf("%s %s %q %s %s shadow=%v allowed=%v %d", d.Policy, d.Rule, d.Tier, d.Outcome, d.From, d.Shadow, d.Allowed(), d.Count))
	}
	assert.Equal(t, []string{
		`api Rule "" admitted process shadow=false allowed=true 1`,
		`api Rule "" at-limit process shadow=false allowed=true 1`,
		`api Rule "" refused none shadow=false allowed=false 1`,
		`api Rule "" refused process shadow=false allowed=false 1`,
		`api Rule "pro" admitted process shadow=false allowed=true 1`,
		`trial Rules[0] "" at-limit process shadow=true allowed=true 1`,
		`trial Rules[0] "" refused process shadow=true allowed=false 2`,
	}, lines)
	var refusals []string
	for _, r := range o.Refusals() {
		refusals = append(refusals, r.Policy+" "+r.Key+" "+r.Route+" "+r.Err)
		assert.WithinDuration(t, time.Now(), r.At, time.Hour)
	}
	assert.Equal(t, []string{
		"api  /items/{id} " + keyfunc.ErrNoKey.Error(),
		"trial ip=203.0.113.7 /items/{id} ",
		"api header.x-user=a /items/{id} ",
		"trial ip=203.0.113.7 /items/{id} ",
	}, refusals)
}

// Two Observers that see the same rules count apart.
func TestTwoObservers(t *testing.T) {
	a, b := newObserver(t, observe.Options{}), newObserver(t, observe.Options{})
	g := newGuard(t, "10/1h", keyfunc.IP(), func(e guard.Event) {
		a.Observe(e)
		if e.Outcome == core.Admitted {
			b.Observe(e)
		}
	})
	for range 12 {
		v := g.Check(newRequest())
		v.Finish(guard.Final{})
	}
	assert.Equal(t, []uint64{12, 9}, []uint64{sum(a.Snapshot()), sum(b.Snapshot())})
}

func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObserver(t, observe.Options{})
		observed := func(n int, e guard.Event) {
			for range n {
				e.Policy, e.At = "p", time.Now().UnixMicro()
				o.Observe(e)
			}
		}
		admitted, refused := guard.Event{Outcome: core.Admitted, From: guard.FromStore}, guard.Event{Outcome: core.Refused, From: guard.FromFallback}
		<-time.After(500 * time.Millisecond)
		observed(10, admitted)
		r := o.Snapshot().Rates[0]
		assert.Equal(t, observe.Rate{Allowed: 10}, r.TenSeconds, "in the first second, as if it had been one")
		for range 3600 { // an hour of 10 a second, and 2 refusals by the fallback
			<-time.After(time.Second)
			observed(10, admitted)
			observed(2, refused)
		}
		r = o.Snapshot().Rates[0]
		for _, rate := range []observe.Rate{r.TenSeconds, r.FiveMinutes, r.OneHour} {
			assert.InDelta(t, 10, rate.Allowed, 1)
			assert.InDelta(t, 2, rate.Refused, 0.2)
			assert.InDelta(t, 2, rate.Unstored, 0.2)
		}
		<-time.After(time.Minute) // nothing comes, and nobody looks
		r = o.Snapshot().Rates[0]
		assert.Zero(t, r.TenSeconds)
		assert.InDelta(t, 8, r.FiveMinutes.Allowed, 0.4)
		assert.InDelta(t, 10*59./60, r.OneHour.Allowed, 0.2)
		<-time.After(2 * time.Hour)
		assert.Equal(t, observe.Rates{Policy: "p"}, o.Snapshot().Rates[0])
		observed(50, refused)
		assert.InDelta(t, 5, o.Snapshot().Rates[0].TenSeconds.Refused, 0.6)
	})
}

// A clock that is set back does not make rates of nothing for as long as it takes to come to where it was.
func TestRatesAfterTheClockIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObserver(t, observe.Options{})
		ahead := time.Now().Add(24 * time.Hour).UnixMicro()
		o.Observe(guard.Event{Policy: "p", Outcome: core.Admitted, At: ahead})
		for range 20 {
			<-time.After(time.Second)
			o.Observe(guard.Event{Policy: "p", Outcome: core.Admitted, At: time.Now().UnixMicro()})
		}
		assert.InDelta(t, 1, o.Snapshot().Rates[0].TenSeconds.Allowed, 0.11)
	})
}

// A flood leaves the first hundred of a second; later seconds displace them.
func TestRefusalsAreBounded(t *testing.T) {
	o := newObserver(t, observe.Options{})
	for second := range int64(3) {
		for i := range 1000 {
			o.Observe(guard.Event{Policy: "p" + strconv.Itoa(i), Outcome: core.Refused, At: (1_000_000 + second) * 1e6})
		}
	}
	all := o.Refusals()
	require.Len(t, all, 100)
	assert.Equal(t, "p99", all[0].Policy)
	assert.Equal(t, time.Unix(1_000_002, 0), all[0].At)
	o.Observe(guard.Event{Policy: "last", Outcome: core.Never, At: 1_000_003 * 1e6, Err: errors.New("why")})
	all = o.Refusals()
	require.Len(t, all, 100)
	assert.Equal(t, "last never why", all[0].Policy+" "+all[0].Outcome+" "+all[0].Err)
	assert.Equal(t, "p99", all[1].Policy)
	assert.Equal(t, "p1", all[99].Policy)
}

func TestStoreFailures(t *testing.T) {
	o := newObserver(t, observe.Options{})
	timeout := &core.StoreError{Class: core.ClassTimeout, Server: "10.0.0.1:6379", Err: errors.New("late")}
	for range 3 {
		o.Observe(guard.Event{Policy: "p", Outcome: core.Admitted, From: guard.FromFallback, Err: timeout})
	}
	o.Observe(guard.Event{Policy: "p", Outcome: core.Admitted, From: guard.FromFallback, Err: fmt.Errorf("wrapped: %w", timeout)})
	o.Observe(guard.Event{Policy: "p", Outcome: core.Refused, Err: keyfunc.ErrNoKey})
	o.ObserveFlight(stats.Flight{Server: "10.0.0.2:6379", Calls: 5, Merged: 2, Took: time.Millisecond})
	o.ObserveFlight(stats.Flight{Server: "10.0.0.2:6379", Calls: 1, Took: time.Millisecond, Err: timeout})
	o.ObserveFlight(stats.Flight{Server: "10.0.0.2:6379", Calls: 1, Took: time.Second, Behind: true})
	o.ObserveBreaker(stats.BreakerChange{Server: "10.0.0.2:6379", Open: true, Class: core.ClassDown})
	s := o.Snapshot()
	for _, f := range s.Failures {
		want := uint64(0)
		if f.Class == core.ClassTimeout && f.Server == "10.0.0.1:6379" {
			want = 4
		}
		assert.Equal(t, want, f.Count, f)
	}
	assert.Len(t, s.Failures, 9+1, "each class of the server that is known, and the one that was seen")
	require.Len(t, s.Flights, 2)
	assert.Equal(t, []uint64{6, 2, 1, 2}, []uint64{s.Flights[0].Calls, s.Flights[0].Merged, s.Flights[0].Failed, s.Flights[0].Histogram.Count})
	assert.True(t, s.Flights[1].Behind)
	require.Len(t, s.Breakers, 2)
	assert.Equal(t, []bool{true, false}, []bool{s.Breakers[0].Open, s.Breakers[1].Open})

	for i := range 1000 {
		server := "10.0.1." + strconv.Itoa(i)
		o.ObserveFlight(stats.Flight{Server: server, Took: 1})
		o.ObserveBreaker(stats.BreakerChange{Server: server, Open: true})
		o.Observe(guard.Event{Policy: "p", Err: &core.StoreError{Class: core.ClassDown, Server: server}})
	}
	s = o.Snapshot()
	assert.LessOrEqual(t, len(s.Flights), 130)
	assert.LessOrEqual(t, len(s.Breakers), 130)
	samples(t, s)
}

// Many goroutines observe, and others read, at a time.
func TestObserveAtOnce(t *testing.T) {
	o := newObserver(t, observe.Options{})
	var all sync.WaitGroup
	const each = 2000
	for g := range 4 {
		key := keyfunc.Header("X-User")
		gd := newGuard(t, "p"+strconv.Itoa(g%2)+": 100/1h", key, o.Observe)
		all.Go(func() {
			for i := range each {
				r := newRequest()
				r.key = strconv.Itoa(i % 10)
				v := gd.Check(r)
				v.Finish(guard.Final{})
			}
		})
	}
	all.Go(func() {
		for range 50 {
			s := o.Snapshot()
			s.Families()
			o.Refusals()
			o.Worst("", 10)
		}
	})
	all.Wait()
	assert.Equal(t, uint64(4*each), sum(o.Snapshot()))
	worst := o.Worst("p0", 20)
	require.Len(t, worst, 10)
	for _, c := range worst {
		assert.Equal(t, observe.Caller{Policy: "p0", Key: c.Key, Count: 2 * 100, Since: c.Since}, c)
	}
}

func TestWorst(t *testing.T) {
	for _, by := range []observe.WorstBy{observe.ByRefusals, observe.ByUnits} {
		o := newObserver(t, observe.Options{WorstBy: by})
		g := newGuard(t, "p: 5/1h", keyfunc.Header("X-User"), o.Observe)
		for key, n := range map[string]int{"a": 20, "b": 10, "c": 4, "": 50} {
			for range n {
				r := newRequest()
				r.key = key
				v := g.Check(r)
				v.Finish(guard.Final{})
			}
		}
		var got []string
		for _, c := range o.Worst("p", 10) {
			got = append(got, fmt.Sprint(c.Key, " ", c.Count, " ", c.Error))
		}
		slices.Sort(got)
		want := []string{"header.x-user=a 15 0", "header.x-user=b 5 0"}
		if by == observe.ByUnits {
			want = []string{"header.x-user=a 5 0", "header.x-user=b 5 0", "header.x-user=c 4 0"}
		}
		assert.Equal(t, want, got)
		assert.Empty(t, o.Worst("q", 10))
		assert.Len(t, o.Worst("", 1), 1)
	}
}

// Beyond the first policies the others share a table, in which keys of the same name are apart.
func TestWorstOfManyPolicies(t *testing.T) {
	o := newObserver(t, observe.Options{})
	for i := range 50 {
		g := newGuard(t, fmt.Sprintf("p%d: 1/1h", i), keyfunc.IP(), o.Observe)
		for range 3 + i {
			v := g.Check(newRequest())
			v.Finish(guard.Final{})
		}
	}
	for _, i := range []int{0, 31, 32, 49} {
		policy := "p" + strconv.Itoa(i)
		worst := o.Worst(policy, 10)
		require.Len(t, worst, 1, policy)
		assert.Equal(t, observe.Caller{Policy: policy, Key: "ip=203.0.113.7", Count: uint64(2 + i), Since: worst[0].Since}, worst[0])
	}
	worst := o.Worst("", 2)
	assert.Equal(t, []string{"p49", "p48"}, []string{worst[0].Policy, worst[1].Policy})
}

func TestNewMistakes(t *testing.T) {
	for _, o := range []observe.Options{{MaxSeries: -1}, {MaxSeries: 10}, {WorstBy: 7}, {UsageKeys: true, NoKeys: true}} {
		_, err := observe.New(o)
		assert.Error(t, err)
	}
}

type traceKey struct{}

// The trace of a request is kept for the bucket of its duration, for a second at least, and the context is only asked then.
func TestExemplars(t *testing.T) {
	asked := 0
	o := newObserver(t, observe.Options{Exemplar: func(ctx context.Context) (string, string) {
		asked++
		trace, _ := ctx.Value(traceKey{}).(string)
		return trace, "span"
	}})
	var now time.Time
	took := time.Duration(0)
	g := newGuard(t, "1000/1s", keyfunc.IP(), func(e guard.Event) {
		e.Took, e.At = took, now.UnixMicro()
		o.Observe(e)
	})
	check := func(trace string, at, d time.Duration) {
		r := newRequest()
		if trace != "" {
			r.ctx = context.WithValue(t.Context(), traceKey{}, trace)
		}
		now, took = time.Unix(1_000_000, 0).Add(at), d
		v := g.Check(r)
		v.Finish(guard.Final{})
	}
	check("", 0, time.Millisecond) // it is not traced
	check("a", 0, time.Millisecond)
	check("b", time.Second/2, time.Millisecond)
	check("c", time.Second/2, 5*time.Millisecond)
	check("d", time.Second/2, 0) // it was not measured
	check("e", 2*time.Second, 900*time.Microsecond)
	check("f", 2*time.Second, time.Minute)
	var got []string
	for _, e := range o.Snapshot().Durations[0].Histogram.Exemplars {
		got = append(got, fmt.Sprint(e.TraceID, " ", e.SpanID, " ", e.Took, " ", e.At.Unix()))
	}
	assert.Equal(t, []string{"e span 900µs 1000002", "c span 5ms 1000000", "f span 1m0s 1000002"}, got)
	assert.Equal(t, 5, asked)
}

// storeValue is a store that is no pointer, and that cannot be compared.
type storeValue struct {
	core.Store
	servers []string
}

func (s storeValue) Stats() stats.Store {
	return stats.Store{Servers: []stats.Server{{Addr: s.servers[0]}}, Deadline: time.Second}
}

func TestWatch(t *testing.T) {
	o := newObserver(t, observe.Options{})
	memory, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{Policy: "api: 10/1h, 3 concurrent", Key: keyfunc.IP()}, Store: memory, Observe: o.Observe,
	})
	require.NoError(t, err)
	with := g.With("login", "5/1m; wait 1s")
	for range 2 { // given twice, it counts once
		o.Watch([]*guard.Guard{g, with, nil}, memory, storeValue{servers: []string{"10.0.0.1:6379"}}, (*core.Memory)(nil), nil)
	}
	v := g.Check(newRequest())
	defer v.Finish(guard.Final{})

	s := o.Snapshot()
	samples(t, s)
	assert.Equal(t, []*guard.Guard{g, with}, o.Guards())
	assert.Len(t, s.Guards, 2)
	assert.Len(t, s.Limiters, 1, "they share it")
	require.Len(t, s.Memories, 1)
	assert.Equal(t, []observe.Policy{{"api", "10/1h, 3 concurrent", true}, {"login", "5/1m; wait 1s", false}}, s.Policies)
	got := map[string]float64{}
	for _, f := range s.Families() {
		for _, p := range f.Points {
			if f.Kind == observe.Gauge && !strings.HasPrefix(f.Name, "weir.background") {
				got[strings.Join(append([]string{f.Name}, p.Values...), " ")] += p.Value
			}
		}
	}
	assert.Equal(t, map[string]float64{
		"weir.active_permits api": 1, "weir.queued_requests login": 0, "weir.keys": float64(s.Memories[0].Keys),
		"weir.store.deadline": 1, "weir.breaker.open 10.0.0.1:6379 false ": 0, "weir.breaker.open 10.0.0.1:6379 true ": 0,
		"weir.policy.info api 10/1h, 3 concurrent": 1, "weir.policy.info login 5/1m; wait 1s": 1,
	}, got)
}

// The stores of guards are watched with them, also the one that a guard without a Store has made.
func TestWatchStoresOfGuards(t *testing.T) {
	o := newObserver(t, observe.Options{})
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "10/1h", Key: keyfunc.IP()}})
	require.NoError(t, err)
	o.Watch([]*guard.Guard{g, g.With("login", "5/1m")})
	v := g.Check(newRequest())
	v.Finish(guard.Final{})
	s := o.Snapshot()
	require.Len(t, s.Memories, 1)
	assert.Equal(t, 1, s.Memories[0].Keys)

	memory, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	g, err = guard.New(guard.Config{Rule: guard.Rule{Policy: "10/1h", Key: keyfunc.IP()}, Store: memory})
	require.NoError(t, err)
	o.Watch([]*guard.Guard{g}, memory)
	assert.Len(t, o.Snapshot().Memories, 2)
}

// A table of many routes, each with a policy that holds permits and lets requests wait, takes no more series.
func TestSeriesOfManyRulesAreBounded(t *testing.T) {
	routes := map[string]guard.Rule{}
	for i := range 1000 {
		routes["/r"+strconv.Itoa(i)] = guard.Rule{Policy: fmt.Sprintf("p%d: 9/1h, 5 concurrent; wait 1s", i), Instead: true}
	}
	o := newObserver(t, observe.Options{})
	var set atomic.Pointer[guard.Set]
	g, err := guard.New(guard.Config{Rule: guard.Rule{Key: keyfunc.Header("X-User")}, Routes: routes, Observe: o.Observe, Source: &set})
	require.NoError(t, err)
	o.Watch([]*guard.Guard{g})
	for revision := range 3 {
		set.Store(&guard.Set{Revision: strconv.Itoa(revision)})
		for i := range 2000 {
			r := newRequest()
			r.key, r.route = strconv.Itoa(i%3), "/r"+strconv.Itoa(i%1000)
			v := g.Check(r)
			v.Finish(guard.Final{})
		}
		s := o.Snapshot()
		assert.LessOrEqual(t, samples(t, s), 2000)
		assert.Equal(t, strconv.Itoa(revision), s.Guards[0].Revision)
		assert.Len(t, s.Policies, 1000)
	}
}

// The numbers of a Set without a revision are those in force, too.
func TestPoliciesOfASetWithoutRevision(t *testing.T) {
	t.Parallel()
	o, set := newObserver(t, observe.Options{}), new(atomic.Pointer[guard.Set])
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "api: 10/1h", Key: keyfunc.IP()}, Source: set, Observe: o.Observe})
	require.NoError(t, err)
	o.Watch([]*guard.Guard{g})
	for _, limits := range []string{"10/1h", "20/1h", "30/1h"} {
		set.Store(&guard.Set{Policies: map[string]string{"api": limits}})
		assert.Equal(t, []observe.Policy{{Name: "api", Limits: limits}}, o.Snapshot().Policies)
	}
}
