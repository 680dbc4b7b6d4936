package observe_test

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/observe"
)

// request is a request of an address, or with a key of its own.
type request struct {
	key   string
	tier  string
	route string          // "/items/{id}" if it is ""
	ctx   context.Context //nolint:containedctx // a request has one
	peer  netip.AddrPort
}

func (r *request) Context() context.Context {
	if r.ctx != nil {
		return r.ctx
	}
	return context.Background()
}
func (r *request) Method() string       { return "GET" }
func (r *request) ProtoMajor() int      { return 1 }
func (r *request) Host() string         { return "example.org" }
func (r *request) Path() string         { return r.Route() }
func (r *request) Route() string        { return cmp.Or(r.route, "/items/{id}") }
func (r *request) Peer() netip.AddrPort { return r.peer }
func (r *request) ContentLength() int64 { return -1 }
func (r *request) Native() any          { return r }
func (r *request) Value(any) any        { return r.tier }
func (r *request) Header(name string) []string {
	if r.key == "" {
		return nil
	}
	return []string{r.key}
}

func newRequest() *request { return &request{peer: netip.MustParseAddrPort("203.0.113.7:1234")} }

// newGuard returns a guard with that policy and Observe.
func newGuard(t testing.TB, policy string, key keyfunc.Func, to func(guard.Event)) *guard.Guard {
	t.Helper()
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: policy, Key: key}, Observe: to})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

func newObserver(t testing.TB, o observe.Options) *observe.Observer {
	t.Helper()
	ob, err := observe.New(o)
	require.NoError(t, err)
	return ob
}

// BenchmarkObserve is a check in the process without Observe, with one that does nothing, and with that of an Observer
// that keeps no keys, of one that does, and of one that also finds those that use most, in turns, so that all are of one machine at one time.
func BenchmarkObserve(b *testing.B) {
	for _, policy := range []struct{ name, text string }{{"admitted", "2147483648/1s"}, {"refused", "1/366d"}} {
		b.Run(policy.name, func(b *testing.B) {
			o := newObserver(b, observe.Options{})
			names := []string{"none", "empty", "no-keys", "observe", "usage-keys"}
			noKeys, usageKeys := newObserver(b, observe.Options{NoKeys: true}), newObserver(b, observe.Options{UsageKeys: true})
			var check []func()
			seen := 0
			for _, to := range []func(guard.Event){nil, func(e guard.Event) { seen += len(e.Policy) }, noKeys.Observe, o.Observe, usageKeys.Observe} {
				g, r := newGuard(b, policy.text, keyfunc.IP(), to), newRequest()
				check = append(check, func() {
					v := g.Check(r)
					v.Finish(guard.Final{})
				})
			}
			const calls = 2000
			took := make([][]float64, len(check))
			for b.Loop() {
				for i, call := range check {
					began := time.Now()
					for range calls {
						call()
					}
					took[i] = append(took[i], float64(time.Since(began).Nanoseconds())/calls)
				}
			}
			for i := range took {
				slices.Sort(took[i])
				b.ReportMetric(took[i][len(took[i])/2], names[i]+"-ns")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// Neither what is admitted nor what is refused allocates more with an Observer, nor does a flood of new keys.
func TestObserveAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	keys := make([]string, 1<<14)
	for i := range keys {
		keys[i] = "user-" + strconv.Itoa(i)
	}
	for _, c := range []struct{ name, policy string }{{"admitted", "2147483648/1s"}, {"refused", "1/366d"}, {"flood", "blocked: 1/366d"}} {
		t.Run(c.name, func(t *testing.T) {
			allocs := func(to func(guard.Event)) float64 {
				key := keyfunc.IP()
				if c.name == "flood" {
					key = keyfunc.Header("X-User")
				}
				g, r, i := newGuard(t, c.policy, key, to), newRequest(), 0
				check := func() {
					if c.name == "flood" {
						r.key = keys[i%len(keys)]
						i++
					}
					v := g.Check(r)
					v.Finish(guard.Final{})
				}
				for range 2 * len(keys) { // both rounds are refused from here on
					check()
				}
				return testing.AllocsPerRun(len(keys), check)
			}
			without := allocs(nil)
			for _, usageKeys := range []bool{false, true} {
				o := newObserver(t, observe.Options{UsageKeys: usageKeys})
				assert.Equal(t, without, allocs(o.Observe))
				assert.NotEmpty(t, o.Snapshot().Decisions)
			}
		})
	}
}

// BenchmarkSnapshot takes what a scrape asks for, of a program with 10 000 policies, in a table of routes, a million keys, and
// all series used up.
func BenchmarkSnapshot(b *testing.B) {
	o := newObserver(b, observe.Options{})
	routes := map[string]guard.Rule{}
	for i := range 10_000 {
		routes["/r"+strconv.Itoa(i)] = guard.Rule{Policy: "p" + strconv.Itoa(i) + ": 1/366d", Instead: true}
	}
	g, err := guard.New(guard.Config{Rule: guard.Rule{Key: keyfunc.Header("X-User")}, Routes: routes, Observe: o.Observe})
	require.NoError(b, err)
	o.Watch([]*guard.Guard{g})
	r := newRequest()
	for i := range 1_000_000 {
		r.key, r.route = strconv.Itoa(i/2), "/r"+strconv.Itoa(i/2%10_000)
		v := g.Check(r)
		v.Finish(guard.Final{})
	}
	series := 0
	for b.Loop() {
		s := o.Snapshot()
		series = 0
		for _, f := range s.Families() {
			series += len(f.Points)
		}
		o.Worst("", 100)
	}
	b.ReportMetric(float64(series), "points")
}

// BenchmarkObserveAtOnce is BenchmarkObserve with all processors at a time, each with keys that the others do not have.
func BenchmarkObserveAtOnce(b *testing.B) {
	for _, policy := range []struct{ name, text string }{{"admitted", "2147483648/1s"}, {"refused", "1/366d"}} {
		o := newObserver(b, observe.Options{})
		for _, to := range []struct {
			name    string
			observe func(guard.Event)
		}{{"none", nil}, {"observe", o.Observe}} {
			b.Run(policy.name+"/"+to.name, func(b *testing.B) {
				g := newGuard(b, policy.text, keyfunc.Header("X-User"), to.observe)
				var n atomic.Int64
				b.RunParallel(func(pb *testing.PB) {
					r := newRequest()
					for r.key = strconv.FormatInt(n.Add(1), 10); pb.Next(); {
						v := g.Check(r)
						v.Finish(guard.Final{})
					}
				})
			})
		}
	}
}
