package envoyrls_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	extpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/grpcmw/envoyrls"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/internal/schedtest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// entries makes a descriptor of keys and values.
func entries(pairs ...string) *extpb.RateLimitDescriptor {
	d := &extpb.RateLimitDescriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &extpb.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

// with makes an override of a descriptor's limit.
func with(d *extpb.RateLimitDescriptor, n uint32, unit typepb.RateLimitUnit) *extpb.RateLimitDescriptor {
	d.Limit = &extpb.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: unit}
	return d
}

func asking(domain string, descriptors ...*extpb.RateLimitDescriptor) *rlspb.RateLimitRequest {
	return &rlspb.RateLimitRequest{Domain: domain, Descriptors: descriptors}
}

const hour = typepb.RateLimitUnit_HOUR

const byUser = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 10}
`

// What is too large is refused before it costs anything, and what is just small enough is not.
func TestBounds(t *testing.T) {
	t.Parallel()
	s := newServer(t, envoyrls.Config{}, byUser)
	many := func(n int, d *extpb.RateLimitDescriptor) (all []*extpb.RateLimitDescriptor) {
		for range n {
			all = append(all, d)
		}
		return all
	}
	deep := func(n int) *extpb.RateLimitDescriptor {
		return entries(strings.Split(strings.Repeat("user,x,", n-1)+"user,x", ",")...)
	}
	long := strings.Repeat("x", 4096)
	deepLong := func(n int, value string) *extpb.RateLimitDescriptor {
		d := deep(n)
		for _, e := range d.GetEntries() {
			e.Value = value
		}
		return d
	}
	for name, c := range map[string]struct {
		request *rlspb.RateLimitRequest
		code    codes.Code
	}{
		"64 descriptors":                         {asking("shop", many(64, entries("nobody", "x"))...), codes.OK},
		"65 descriptors":                         {asking("shop", many(65, entries("nobody", "x"))...), codes.InvalidArgument},
		"16 entries":                             {asking("shop", deep(16)), codes.OK},
		"17 entries":                             {asking("shop", deep(17)), codes.InvalidArgument},
		"a key of 4 KiB":                         {asking("shop", entries(long[:4092], "user")), codes.OK},
		"a longer key":                           {asking("shop", entries(long+"x", "")), codes.InvalidArgument},
		"a longer value":                         {asking("shop", entries("user", long+"x")), codes.InvalidArgument},
		"a longer value, override":               {asking("shop", with(entries("user", long+"x"), 1, hour)), codes.InvalidArgument},
		"no domain":                              {asking("", entries("user", "x")), codes.Unknown}, // as in envoyproxy/ratelimit
		"no descriptors":                         {asking("shop"), codes.Unknown},
		"nothing":                                {nil, codes.Unknown},
		"1 MiB of all":                           {asking("shop", many(64, deepLong(16, long[:1020]))...), codes.OK},
		"1 MiB and more of all":                  {asking("shop", append(many(63, deepLong(16, long[:1020])), deepLong(16, long[:1021]))...), codes.InvalidArgument},
		"too large by one, in an unknown domain": {asking("nowhere", many(65, entries("user", "x"))...), codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, err := s.ShouldRateLimit(t.Context(), c.request)
			assert.Equal(t, c.code, status.Code(err), "%v", err)
			if err == nil {
				assert.Len(t, res.GetStatuses(), len(c.request.GetDescriptors()))
			}
		})
	}
}

// Whatever a message can have in it, there is an answer with a status for each descriptor, or an error that says that
// the message is wrong; and nothing overflows.
func TestOddMessages(t *testing.T) {
	t.Parallel()
	own := func(n uint64, d *extpb.RateLimitDescriptor) *extpb.RateLimitDescriptor {
		d.HitsAddend = wrapperspb.UInt64(n)
		return d
	}
	times := func(n uint32, d *extpb.RateLimitDescriptor) *extpb.RateLimitDescriptor {
		d.Limit.UnitMultiplier = wrapperspb.UInt32(n)
		return d
	}
	negative := func(d *extpb.RateLimitDescriptor) *extpb.RateLimitDescriptor {
		d.IsNegativeHits = true
		return d
	}
	for name, d := range map[string]*extpb.RateLimitDescriptor{
		"nil":                     nil,
		"empty":                   {},
		"a nil entry":             {Entries: []*extpb.RateLimitDescriptor_Entry{nil}},
		"an empty entry":          {Entries: []*extpb.RateLimitDescriptor_Entry{{}}},
		"an empty key":            entries("", "x"),
		"an empty value":          entries("user", ""),
		"bytes that are no UTF-8": entries("user", "\xff\xfe\x00"),
		"a key of line breaks":    entries("\n\r\x00", "\n"),
		"all the hits there are":  own(math.MaxUint64, entries("user", "a")),
		"half of the hits":        own(math.MaxInt64, entries("user", "b")),
		"and one more":            own(math.MaxInt64+1, entries("user", "c")),
		"all of them back":        negative(own(math.MaxUint64, entries("user", "d"))),
		"back, but none":          negative(own(0, entries("user", "e"))),
		"back, by default":        negative(entries("user", "f")),
		"no requests":             with(entries("user", "g"), 0, hour),
		"all requests":            with(entries("user", "h"), math.MaxUint32, hour),
		"no unit":                 with(entries("user", "i"), 5, typepb.RateLimitUnit_UNKNOWN),
		"a unit of tomorrow":      with(entries("user", "j"), 5, 99),
		"a unit below zero":       with(entries("user", "k"), 5, -1),
		"0 hours":                 times(0, with(entries("user", "l"), 5, hour)),
		"all hours":               times(math.MaxUint32, with(entries("user", "m"), 5, hour)),
		"all years":               times(math.MaxUint32, with(entries("user", "n"), 5, typepb.RateLimitUnit_YEAR)),
		"an override of nothing":  with(&extpb.RateLimitDescriptor{}, 5, hour),
		"all hits of all":         own(math.MaxUint64, with(entries("user", "o"), math.MaxUint32, hour)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, c := range []envoyrls.Config{{}, {ChargeAll: true}, {Shadow: true}, {Quota: true}, {
				Headers: envoyrls.Headers{Limit: "L", Remaining: "R", Reset: "S"}, Metadata: true,
			}} {
				s := newServer(t, c, byUser)
				for _, addend := range []uint32{0, 1, math.MaxUint32} {
					r := asking("shop", entries("user", "z"), d)
					r.HitsAddend = addend
					for range 3 {
						res, err := s.ShouldRateLimit(t.Context(), r)
						if err != nil {
							assert.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
							continue
						}
						if assert.Len(t, res.GetStatuses(), 2) {
							for _, x := range res.GetStatuses() {
								require.NotNil(t, x)
								assert.LessOrEqual(t, x.GetLimitRemaining(), max(10, d.GetLimit().GetRequestsPerUnit()))
							}
						}
					}
				}
			}
		})
	}
}

// Descriptors that read alike when they are joined have counts of their own.
func TestDescriptorsThatReadAlike(t *testing.T) {
	t.Parallel()
	s := newServer(t, envoyrls.Config{}, byUser)
	parts := []string{"a", "b", "_", "a_b", "a_", "_b", ".", "a.b", "1:a", "1", ":", "=", "a=b", "\x00", "\x01", "a\x00b", ""}
	random := rand.New(rand.NewPCG(20, 20))
	seen := map[string]bool{}
	for range 20_000 {
		var pairs []string
		for range 2 * (1 + random.IntN(3)) {
			pairs = append(pairs, pick(random, parts))
		}
		name := fmt.Sprintf("%q", pairs)
		if seen[name] {
			continue
		}
		seen[name] = true
		res, err := s.ShouldRateLimit(t.Context(), asking("shop", with(entries(pairs...), 1, hour)))
		if status.Code(err) == codes.InvalidArgument { // such as an empty key
			continue
		}
		require.NoError(t, err)
		require.Equal(t, rlspb.RateLimitResponse_OK, res.GetOverallCode(), "%s has never been used", name)
	}
	require.Greater(t, len(seen), 10_000)
}

// A request is answered by one configuration as a whole, while others are loaded.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	configuration := func(n int) string {
		return fmt.Sprintf(`
domain: shop
descriptors:
  - key: user
    rate_limit: {name: r%[1]d, unit: hour, requests_per_unit: %[1]d}
  - key: tenant
    rate_limit: {name: r%[1]d, unit: day, requests_per_unit: %[1]d}
  - key: path
    descriptors:
      - key: method
        rate_limit: {name: r%[1]d, unit: minute, requests_per_unit: %[1]d}
`, n)
	}
	s := newServer(t, envoyrls.Config{}, configuration(1_000_000))
	over := make(chan struct{})
	var asks sync.WaitGroup
	var answers atomic.Int64
	for i := range 4 {
		asks.Go(func() {
			r := asking("shop", entries("user", strconv.Itoa(i)), entries("tenant", "x"), entries("path", "/", "method", "GET"))
			for {
				select {
				case <-over:
					return
				default:
				}
				res, err := s.ShouldRateLimit(context.Background(), r)
				if !assert.NoError(t, err) || !assert.Len(t, res.GetStatuses(), 3) {
					return
				}
				answers.Add(1)
				first := res.GetStatuses()[0].GetCurrentLimit()
				for _, x := range res.GetStatuses() {
					assert.Equal(t, first.GetRequestsPerUnit(), x.GetCurrentLimit().GetRequestsPerUnit())
					assert.Equal(t, first.GetName(), x.GetCurrentLimit().GetName())
				}
			}
		})
	}
	for i := range 200 {
		require.NoError(t, s.Load(filesOf(configuration(1_000_000+i))...))
		require.Error(t, s.Load(filesOf("domain: shop\ndescriptors: [{key: user, rate_limit: {unit: fortnight}}]")...))
		runtime.Gosched()
	}
	close(over)
	asks.Wait()
	assert.Positive(t, answers.Load())
}

// How strict TestRedisFails is. On a machine that does nothing else it passes with -deadline 15ms, which is that of weir
// rls because Envoy waits for 20, and -late 35ms.
var (
	deadline = flag.Duration("deadline", 300*time.Millisecond, "the store's deadline while Redis fails")
	late     = flag.Duration("late", 5*time.Second, "by how much an answer may come later, beyond what the scheduler took")
)

const patience = 30 * time.Second

// Whatever fails in Redis, in the middle of random requests: each is answered, soon, and never is more admitted than
// what Redis admits, what the process does meanwhile, and what Redis has lost.
func TestRedisFails(t *testing.T) {
	t.Parallel()
	set := func(t *testing.T, s *redistest.Server, name, value string) {
		t.Helper()
		require.NoError(t, s.Client(t).ConfigSet(t.Context(), name, value).Err())
	}
	for name, fault := range map[string]struct {
		begin, end func(t *testing.T, s *redistest.Server, p *redistest.Proxy)
		lost       bool // the counts
	}{
		"killed": {
			begin: func(_ *testing.T, s *redistest.Server, _ *redistest.Proxy) { s.Kill() },
			end:   func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) { s.Restart(t) },
			lost:  true,
		},
		"stopped": {
			begin: func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) { s.Pause(t) },
			end:   func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) { s.Resume(t) },
		},
		"slow": {
			begin: func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.Latency(*deadline) },
			end:   func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.Pass() },
		},
		"out of reach": {
			begin: func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.Blackhole() },
			end:   func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.Pass(); p.Disconnect(redistest.RST) },
		},
		"replies are lost": {
			begin: func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.LoseReplies(redistest.RST) },
			end:   func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.Pass() },
		},
		"read-only": {
			begin: func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) {
				require.NoError(t, s.Client(t).ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
			},
			end: func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) {
				require.NoError(t, s.Client(t).ReplicaOf(t.Context(), "NO", "ONE").Err())
			},
		},
		"out of memory": {
			begin: func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) { set(t, s, "maxmemory", "1") },
			end:   func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) { set(t, s, "maxmemory", "0") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Single(t)
			proxy := redistest.NewProxy(t, server.Addr())
			o := redisstore.ClientOptions(proxy.Addr()).Simple()
			rdb := redis.NewClient(o)
			t.Cleanup(func() { _ = rdb.Close() })
			store, err := redisstore.New(rdb, redisstore.Options{Deadline: *deadline})
			require.NoError(t, err)
			const most = 50
			s := newServerOn(t, store, envoyrls.Config{Log: slog.New(slog.DiscardHandler)}, `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 50}
  - key: tenant
    rate_limit: {unit: year, requests_per_unit: 100000000}
  - key: closed
    rate_limit: {policy: "50/365d fixed-window aligned; fail closed"}
`)
			probe, over := schedtest.New(), make(chan struct{})
			var wg, asks sync.WaitGroup
			wg.Go(func() { probe.Run(over) })
			var admitted [3][2]atomic.Int64 // by user, and by what is asked for
			var slowest atomic.Int64
			ask := func(random *rand.Rand) {
				user := random.IntN(3)
				kind := random.IntN(2)
				mine := entries([]string{"user", "closed"}[kind], strconv.Itoa(user))
				r := asking("shop", mine, entries("tenant", "x"), entries("nobody", "y"))
				if one(random, 5) { // a cost that was spent, and a look
					r.Descriptors = append(r.Descriptors, entries("tenant", "y"), entries("user", "z"))
					r.Descriptors[3].HitsAddend = wrapperspb.UInt64(random.Uint64N(20))
					r.Descriptors[4].HitsAddend = wrapperspb.UInt64(0)
				}
				random.Shuffle(len(r.GetDescriptors()), func(i, j int) {
					r.Descriptors[i], r.Descriptors[j] = r.Descriptors[j], r.Descriptors[i]
				})
				began, before := time.Now(), probe.Lost()
				res, err := s.ShouldRateLimit(context.Background(), r)
				took := time.Since(began)
				probe.Sample()
				took -= probe.Lost().Since(before)
				assert.Less(t, took, *deadline+*late)
				for at := slowest.Load(); int64(took) > at && !slowest.CompareAndSwap(at, int64(took)); {
					at = slowest.Load()
				}
				switch {
				case err != nil:
					assert.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
					assert.Equal(t, 1, kind, "only what fails closed fails: %v", err)
				case assert.Len(t, res.GetStatuses(), len(r.GetDescriptors())) && res.GetOverallCode() == rlspb.RateLimitResponse_OK:
					admitted[user][kind].Add(1)
				}
			}
			half := make(chan struct{})
			for i := range 4 {
				asks.Go(func() {
					random := rand.New(rand.NewPCG(rand.Uint64(), uint64(i)))
					for k := 0; ; k++ {
						select {
						case <-half:
							return
						case <-time.After(time.Duration(random.IntN(2_000_000))):
						}
						ask(random)
					}
				})
			}
			random := rand.New(rand.NewPCG(rand.Uint64(), 0))
			for range 30 {
				ask(random)
			}
			fault.begin(t, server, proxy)
			for range 100 {
				ask(random)
			}
			fault.end(t, server, proxy)
			require.Eventually(t, func() bool {
				_, err := s.ShouldRateLimit(t.Context(), asking("shop", entries("closed", "again")))
				return err == nil
			}, patience, 10*time.Millisecond, "Redis decides again")
			for range 200 {
				ask(random)
			}
			close(half)
			asks.Wait()
			close(over)
			wg.Wait()
			t.Logf("the slowest answer came after %v", time.Duration(slowest.Load()))
			for user := range admitted {
				once := int64(most)
				if fault.lost {
					once = 2 * most
				}
				assert.LessOrEqual(t, admitted[user][0].Load(), once+most, "Redis and this process")
				assert.LessOrEqual(t, admitted[user][1].Load(), once, "Redis alone")
			}
		})
	}
}

// A caller that has left, and one that has hardly any time, have an answer within the store's deadline.
func TestCallersThatLeave(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rdb := redis.NewClient(redisstore.ClientOptions(server.Addr()).Simple())
	t.Cleanup(func() { _ = rdb.Close() })
	store, err := redisstore.New(rdb, redisstore.Options{Deadline: *deadline})
	require.NoError(t, err)
	s := newServerOn(t, store, envoyrls.Config{Log: slog.New(slog.DiscardHandler)}, byUser)
	server.Pause(t)
	defer server.Resume(t)
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err = s.ShouldRateLimit(gone, asking("shop", entries("user", "x")))
	assert.Equal(t, codes.Canceled, status.Code(err), "%v", err)
	for range 20 {
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		began := time.Now()
		res, err := s.ShouldRateLimit(short, asking("shop", entries("user", "x"), entries("user", "y")))
		assert.Less(t, time.Since(began), *deadline+*late)
		if err != nil {
			assert.Equal(t, codes.DeadlineExceeded, status.Code(err), "%v", err)
		} else {
			assert.Len(t, res.GetStatuses(), 2)
		}
		cancel()
	}
}

// Many at once, some of which are refused, so that what others were charged is given back: none has more than its limit,
// and in the end each has used what was admitted, no more and no less.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func(t *testing.T) core.Store{
		"in the process": func(t *testing.T) core.Store { return memory(t) },
		"in Redis": func(t *testing.T) core.Store {
			rdb := redis.NewClient(patient(redisstore.ClientOptions(redistest.Single(t).Addr())).Simple())
			t.Cleanup(func() { _ = rdb.Close() })
			s, err := redisstore.New(rdb, redisstore.Options{Deadline: patience})
			require.NoError(t, err)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const most = 60
			s := newServerOn(t, store(t), envoyrls.Config{}, `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 60}
`)
			const users = 4
			var admitted [users]atomic.Int64
			var asks sync.WaitGroup
			for i := range 8 {
				asks.Go(func() {
					random := rand.New(rand.NewPCG(rand.Uint64(), uint64(i)))
					for range 200 {
						r := asking("shop")
						r.HitsAddend = 1 + random.Uint32N(3)
						mine := random.Perm(users)[:1+random.IntN(users)]
						for _, user := range mine {
							r.Descriptors = append(r.Descriptors, entries("user", strconv.Itoa(user)))
						}
						res, err := s.ShouldRateLimit(t.Context(), r)
						if !assert.NoError(t, err) {
							return
						}
						for k, x := range res.GetStatuses() {
							if res.GetOverallCode() == rlspb.RateLimitResponse_OK {
								assert.Equal(t, rlspb.RateLimitResponse_OK, x.GetCode())
								admitted[mine[k]].Add(int64(r.GetHitsAddend()))
							}
						}
					}
				})
			}
			asks.Wait()
			for user := range admitted {
				n := admitted[user].Load()
				assert.LessOrEqual(t, n, int64(most))
				look := entries("user", strconv.Itoa(user))
				look.HitsAddend = wrapperspb.UInt64(0)
				assert.Eventually(t, func() bool { // what was given back may be under way
					res, err := s.ShouldRateLimit(t.Context(), asking("shop", look))
					return err == nil && int64(res.GetStatuses()[0].GetLimitRemaining()) == most-n
				}, patience, 10*time.Millisecond, "user %d, of %d admitted", user, n)
			}
		})
	}
}

// A service that was loaded, asked and closed leaves nothing behind.
func TestCloseLeavesNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	for i := range 20 {
		memory, err := core.NewMemory(core.MemoryOptions{})
		require.NoError(t, err)
		s, err := envoyrls.New(memory, envoyrls.Config{Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		require.NoError(t, s.Load(filesOf(byUser)...))
		for range 20 {
			_, err = s.ShouldRateLimit(t.Context(), asking("shop", entries("user", strconv.Itoa(i)), with(entries("a", "b"), 1, hour)))
			require.NoError(t, err)
		}
		require.NoError(t, s.Load(filesOf(byUser)...))
		require.NoError(t, s.Close())
		require.NoError(t, s.Close(), "twice")
	}
	assert.Eventually(t, func() bool { return runtime.NumGoroutine()-1 <= before }, patience, 10*time.Millisecond)
}

// Any bytes that are a request have an answer with a status for each descriptor, or an error with a code of the client's.
func FuzzRequest(f *testing.F) {
	for i := range 8 {
		p := newPlan(rand.New(rand.NewPCG(uint64(i), 0)), 4)
		p.domains[0].name = "shop"
		for _, s := range p.steps {
			s.request.Domain = "shop"
			data, err := proto.Marshal(s.request)
			require.NoError(f, err)
			f.Add(data, i%2 == 0)
		}
	}
	p := newPlan(rand.New(rand.NewPCG(1, 0)), 0)
	p.domains[0].name, p.domains = "shop", p.domains[:1]
	servers := map[bool]*envoyrls.Server{}
	for _, all := range []bool{false, true} {
		servers[all] = newServer(f, envoyrls.Config{
			ChargeAll: all, Metadata: true, Headers: envoyrls.Headers{Limit: "L", Remaining: "R", Reset: "S"},
		}, p.documents()...)
	}
	f.Fuzz(func(t *testing.T, data []byte, all bool) {
		r := new(rlspb.RateLimitRequest)
		if proto.Unmarshal(data, r) != nil {
			t.Skip()
		}
		res, err := servers[all].ShouldRateLimit(t.Context(), r)
		if err != nil {
			assert.Contains(t, []codes.Code{codes.InvalidArgument, codes.Unknown}, status.Code(err), "%v", err)
			return
		}
		assert.Len(t, res.GetStatuses(), len(r.GetDescriptors()))
		_, err = proto.Marshal(res)
		assert.NoError(t, err, "what gRPC cannot send")
	})
}
