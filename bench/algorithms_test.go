// Package bench compares the algorithms: what a decision costs and what a key takes, in
// the process and in Redis, and how much a clever client gets through. It is a module
// of its own, so that its dependencies reach no user.
//
//	go test -C bench -bench .
//
// Unless a benchmark says otherwise, decisions are made in simulated time, in a steady stream as fast
// as the limit admits: then each is written, windows have no empty part, and logs are full.
package bench

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// contenders are the algorithms by name, and then some of them in other sizes.
var contenders = []struct{ name, limit string }{
	{"gcra", "100/10s"},
	{"gcra-debt", "100/10s debt 50"},
	{"token-bucket", "100/10s token-bucket"},
	{"leaky-bucket", "100/10s leaky-bucket"},
	{"fixed-window", "100/10s fixed-window"},
	{"fixed-window-aligned", "100/10s fixed-window aligned"},
	{"fixed-window-calendar", "100/1m fixed-window calendar Europe/Berlin"},
	{"sliding-window", "100/10s sliding-window"},
	{"sliding-counter", "100/10s sliding-counter"},
	{"sliding-log", "100/10s sliding-log"},

	{"sliding-window-5", "100/10s sliding-window buckets 5"},
	{"sliding-window-30", "100/10s sliding-window buckets 30"},
	{"sliding-window-60", "100/10s sliding-window buckets 60"},
	{"sliding-log-10", "10/10s sliding-log"},
	{"sliding-log-1000", "1000/10s sliding-log"},
}

// epoch is the beginning of simulated time, in microseconds.
const epoch = 1_800_000_000_000_000

// stream is a client that comes as often as it is admitted.
type stream struct {
	core.Take

	gap int64 // in microseconds
}

func newStream(policy core.Policy) *stream {
	s := &stream{Take: core.Take{Policy: policy, Key: "ip=203.0.113.7", Cost: 1, Now: epoch}}
	for _, l := range policy.Limits() {
		gap := l.Period.Microseconds() / l.Rate
		switch l.Algorithm {
		case core.SlidingWindow: // where units come back a part late
			gap += gap / int64(l.Buckets)
		case core.SlidingLog: // exact: one leaves as one comes
			s.gap = max(s.gap, gap)
			continue
		default:
		}
		s.gap = max(s.gap, gap+gap/50)
	}
	return s
}

func (s *stream) next() core.Take {
	s.Now += s.gap
	return s.Take
}

// fill brings the key's state to its full size.
func (s *stream) fill(b *testing.B, store core.Store) {
	b.Helper()
	most := int64(0)
	for _, l := range s.Policy.Limits() {
		most = max(most, l.Rate)
	}
	for range 2*most + 2 {
		s.take(b, store)
	}
}

func (s *stream) take(b *testing.B, store core.Store) {
	r, err := store.Take(b.Context(), s.next())
	if err != nil || !r.Allowed() {
		b.Fatalf("%v: %v, %v", s.Policy, r.Outcome, err)
	}
}

func parse(b testing.TB, name, text string) core.Policy {
	b.Helper()
	policy, err := core.Parse(name + ": " + text)
	require.NoError(b, err)
	return policy
}

func newMemory(b testing.TB, keys int) *core.Memory {
	b.Helper()
	m, err := core.NewMemory(core.MemoryOptions{MaxKeys: keys})
	require.NoError(b, err)
	return m
}

// million are the keys of the tables below.
var million = sync.OnceValue(func() []string {
	keys := make([]string, 1_000_000)
	for i := range keys {
		keys[i] = "ip=" + strconv.Itoa(i*7919)
	}
	return keys
})

var hourly = strings.NewReplacer("/10s", "/1h", "/1m", "/1h")

// BenchmarkMemory is a decision in the process, of one key and of many in turn.
func BenchmarkMemory(b *testing.B) {
	for _, c := range contenders {
		policy := parse(b, "m", c.limit)
		b.Run(c.name+"/1-key", func(b *testing.B) {
			m, s := newMemory(b, 0), newStream(policy)
			s.fill(b, m)
			b.ReportAllocs()
			for b.Loop() {
				s.take(b, m)
			}
		})
		for _, n := range []int{10_000, 1_000_000} {
			if strings.ContainsAny(c.name, "0123456789") && n > 10_000 {
				continue // the other sizes of an algorithm
			}
			b.Run(fmt.Sprintf("%s/%d-keys", c.name, n), func(b *testing.B) {
				// A period so long that no key is forgotten before its next turn.
				m, s := newMemory(b, 2*n), newStream(parse(b, "m", hourly.Replace(c.limit)))
				keys := million()[:n]
				s.gap = s.gap/int64(n)*13/10 + 1
				s.Cost = 2
				for _, s.Key = range keys {
					s.take(b, m)
				}
				s.Cost = 1
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					s.Key = keys[i*7919%n]
					s.take(b, m)
				}
			})
		}
	}
}

// BenchmarkHeap measures the bytes of a key in the process, the air in the hash table
// included. The time means nothing.
func BenchmarkHeap(b *testing.B) {
	for _, c := range contenders {
		b.Run(c.name, func(b *testing.B) {
			policy := parse(b, "h", c.limit)
			n, takes := 100_000, int64(3)
			if l := policy.Limits()[0]; l.Algorithm == core.SlidingLog {
				n, takes = 500_000/int(l.Rate), l.Rate // the length of its state varies
			}
			keys := million()
			for b.Loop() {
				m, s := newMemory(b, 0), newStream(policy)
				for _, s.Key = range keys[len(keys)-4096:] { // all parts of the store have what they always need
					s.take(b, m)
					require.NoError(b, m.Reset(b.Context(), policy, s.Key))
				}
				before := heap()
				for range takes {
					s.Now += s.gap
					for _, s.Key = range keys[:n] {
						if _, err := m.Take(b.Context(), s.Take); err != nil {
							b.Fatal(err)
						}
					}
				}
				b.ReportMetric(float64(heap()-before)/float64(n), "B/key")
				runtime.KeepAlive(m)
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // for what the first one has found
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// bare is the baseline.
var bare = redis.NewScript(redistest.GCRAByHand)

// BenchmarkRedisFull is a decision in Redis on a state of full size, next to the
// baseline, and what the key takes there. See versus.
func BenchmarkRedisFull(b *testing.B) {
	r := newRedis(b)
	for _, c := range contenders {
		b.Run(c.name, func(b *testing.B) {
			policy := parse(b, "r", c.limit)
			s := newStream(policy)
			s.fill(b, r.store)
			size, err := r.rdb.MemoryUsage(b.Context(), r.name(s.Take)).Result()
			require.NoError(b, err)
			r.versus(b, s)
			b.ReportMetric(float64(size), "B/key")
		})
	}
}

// live are limits that admit all that one client can ask of a server, by its clock.
// Their periods are so short that within a moment no part of a window is empty. A log
// holds what came within 8 ms, which is about a hundred units.
var live = []struct{ name, short, long string }{
	{"gcra", "1000000/20ms", "2000000/40ms"},
	{"token-bucket", "1000000/20ms token-bucket", "2000000/40ms token-bucket"},
	{"leaky-bucket", "1000000/20ms leaky-bucket", "2000000/40ms leaky-bucket"},
	{"fixed-window", "1000000/20ms fixed-window", "2000000/40ms fixed-window"},
	{"sliding-window", "1000000/20ms sliding-window", "2000000/40ms sliding-window"},
	{"sliding-counter", "1000000/20ms sliding-counter", "2000000/40ms sliding-counter"},
	{"sliding-log", "1000/8ms sliding-log", "999/8ms sliding-log"},
}

// BenchmarkRedis is a decision in Redis by the server's clock, next to the baseline.
func BenchmarkRedis(b *testing.B) {
	r := newRedis(b)
	for _, c := range live {
		b.Run(c.name, func(b *testing.B) { r.live(b, c.short) })
	}
}

// BenchmarkPair is a policy of two limits in Redis by the server's clock, for each pair
// of algorithms, next to the baseline, which has one.
func BenchmarkPair(b *testing.B) {
	r := newRedis(b)
	for i, first := range live {
		for _, second := range live[i:] {
			b.Run(first.name+"+"+second.name, func(b *testing.B) { r.live(b, first.short+", "+second.long) })
		}
	}
}

// live is versus by the server's clock.
func (r server) live(b *testing.B, text string) {
	s := newStream(parse(b, "r", text))
	s.Now, s.gap = 0, 0
	for start := time.Now(); time.Since(start) < 80*time.Millisecond; {
		s.take(b, r.store)
	}
	r.versus(b, s)
}

type server struct {
	rdb   redis.UniversalClient
	store *redisstore.Store
}

func newRedis(b *testing.B) server {
	b.Helper()
	const patient = 30 * time.Second // a pause of the machine is no failure
	o := redisstore.ClientOptions(redistest.Single(b).Addr())
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = patient, patient, patient, patient
	rdb := redis.NewUniversalClient(o)
	b.Cleanup(func() { _ = rdb.Close() })
	require.NoError(b, bare.Load(b.Context(), rdb).Err())
	store, err := redisstore.New(rdb, redisstore.Options{Deadline: patient})
	require.NoError(b, err)
	return server{rdb, store}
}

// name is that of a key in the server.
func (r server) name(t core.Take) string {
	return "weir:1:" + t.Policy.Name() + ":" + t.Policy.Spec().Shape() + ":" + t.Key
}

// versus lets decisions and the baseline take turns within one run, so that a machine
// whose speed wanders slows both. The medians are compared, so that a pause of the
// machine does not count for either. ns/op is that of both together.
func (r server) versus(b *testing.B, s *stream) {
	ctx := b.Context()
	baseline := []string{"bare" + r.name(s.Take)[4:]} // as long as ours
	var took [2][]time.Duration                       // by the baseline, by a decision
	call := [2]func() error{
		func() error { return bare.EvalSha(ctx, r.rdb, baseline, 1, 1_000_000, 1).Err() },
		func() error {
			res, err := r.store.Take(ctx, s.next())
			if err == nil && !res.Allowed() {
				err = fmt.Errorf("%v: %v", s.Policy, res.Outcome)
			}
			return err
		},
	}
	for i := 0; b.Loop(); i++ {
		for _, which := range [2]int{i % 2, 1 - i%2} { // which comes first must not matter
			start := time.Now()
			if err := call[which](); err != nil {
				b.Fatal(err)
			}
			took[which] = append(took[which], time.Since(start))
		}
	}
	theirs, ours := median(took[0]), median(took[1])
	b.ReportMetric(ours/theirs, "x-bare")
	b.ReportMetric(ours, "decision-ns")
	b.ReportMetric(theirs, "bare-ns")
	require.NoError(b, r.store.Reset(ctx, s.Policy, s.Key))
}

func median(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2])
}
