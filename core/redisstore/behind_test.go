package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/keyfunc"
)

// What runs behind the decisions, seen through enforce.Limiter and guard.Guard as programs use them.

// brief is the deadline of decisions on a server that fails, and is to answer at other times also on a busy
// machine.
const brief = time.Second

// far is a server that is some way off, and may fail.
type far struct {
	server *redistest.Server
	proxy  *redistest.Proxy
	rdb    redis.UniversalClient
	direct *redis.Client // which no fault troubles
}

// newFar starts a server for one test. Its client has as many connections as are wanted.
func newFar(t *testing.T) far {
	server := redistest.Single(t)
	proxy := redistest.NewProxy(t, server.Addr())
	o := unhurried(redisstore.ClientOptions(proxy.Addr()))
	o.PoolSize = 2 * crowd
	return far{server, proxy, closing(t, redis.NewUniversalClient(o)), server.Client(t)}
}

// crowd is the number of others that are under way at any time.
const crowd = 150

// patientStore decides however long it takes, for tests in which the server does not fail.
func (f far) patientStore(t *testing.T) *redisstore.Store {
	o := unhurried(redisstore.ClientOptions(f.proxy.Addr()))
	o.PoolSize = 2 * crowd
	return newStore(t, closing(t, redis.NewUniversalClient(o)), redisstore.Options{Deadline: patient})
}

func newLimiter(t *testing.T, s core.Store, policy string) *enforce.Limiter {
	l, err := enforce.New(s, core.MustParse(policy), enforce.Options{})
	require.NoError(t, err)
	return l
}

// hold takes n permits of a key, as soon as there are so many. It does not wait for long.
func hold(t *testing.T, l *enforce.Limiter, key string, n int64) (context.Context, func()) {
	t.Helper()
	type grant struct {
		held    context.Context //nolint:containedctx // a grant is a context
		release func()
	}
	granted := make(chan grant, 1)
	require.Eventually(t, func() bool {
		held, release, err := l.AcquireN(t.Context(), key, n)
		if err == nil {
			granted <- grant{held, release}
		}
		return err == nil
	}, patient, 5*time.Millisecond)
	g := <-granted
	return g.held, g.release
}

// held returns the number of permits that the server knows of.
func (f far) held(t *testing.T) (n int64) {
	t.Helper()
	for _, key := range f.direct.Keys(t.Context(), "*").Val() {
		n += f.direct.ZCard(t.Context(), key).Val()
	}
	return n
}

// hold takes a permit of the key "k", the nth that is held. It is the server that grants it: on a busy machine the
// fail word may have to decide at first.
func (f far) hold(t *testing.T, l *enforce.Limiter, nth int64) (context.Context, func()) {
	t.Helper()
	for {
		held, release := hold(t, l, "k", 1)
		if f.held(t) == nth {
			return held, release
		}
		release()
		require.Eventually(t, func() bool { return f.held(t) == nth-1 }, patient, 5*time.Millisecond)
	}
}

// beside calls others at the same time, again and again, until do is over, and returns how often they were called.
func beside(others func(i int), do func()) int64 {
	var over atomic.Bool
	var calls atomic.Int64
	var wg sync.WaitGroup
	for i := range crowd {
		wg.Go(func() {
			for !over.Load() {
				others(i)
				calls.Add(1)
			}
		})
	}
	do()
	over.Store(true)
	wg.Wait()
	return calls.Load()
}

// someTime is a while that a request takes: five times that of a question to the server, however busy the machine is.
func (f far) someTime(t *testing.T) {
	for range 5 {
		require.NoError(t, f.rdb.Ping(t.Context()).Err())
	}
}

// Others, which use only their own permits, cost nobody any, and nothing is left of them.
func TestReleasesOfOthers(t *testing.T) { //nolint:paralleltest // it leaves nothing for others
	f := newFar(t)
	l := newLimiter(t, f.patientStore(t), "calls: 5 concurrent lease 10m; fail closed")
	_, release := hold(t, l, "first", 1)
	release()
	f.proxy.Latency(5 * time.Millisecond) // each way
	start := time.Now()
	n := beside(func(i int) {
		_, release, err := l.Acquire(t.Context(), fmt.Sprint(i))
		if err == nil {
			release()
			return
		}
		assert.ErrorAs(t, err, new(*enforce.OverLimitError), "its releases may be behind")
	}, func() {
		for range 15 {
			_, release, err := l.Acquire(t.Context(), "victim")
			if !assert.NoError(t, err) {
				return
			}
			f.someTime(t)
			release()
		}
	})
	t.Logf("%.0f a second of others", float64(n)/time.Since(start).Seconds())
	f.empty(t)
	_ = l.Close()
}

// empty waits until nothing is held by anybody.
func (f far) empty(t *testing.T) {
	t.Helper()
	start := time.Now()
	require.Eventually(t, func() bool { return f.held(t) == 0 }, patient, 5*time.Millisecond)
	t.Logf("all is given back after %v", time.Since(start))
}

// login is a request of a user.
type login struct {
	keyfunc.Request
	ctx  context.Context //nolint:containedctx // that of a request
	user string
}

func (l login) Context() context.Context { return l.ctx }
func (l login) Value(any) any            { return l.user }
func (login) Header(string) []string     { return nil }
func (login) Peer() netip.AddrPort       { return netip.AddrPort{} }
func (login) ProtoMajor() int            { return 1 }

// Where failures alone count, a user that never fails is never refused, however many others do not fail either.
func TestSettlementsOfOthers(t *testing.T) { //nolint:paralleltest // it leaves nothing for others
	for _, policy := range []string{"login: 5/1m; fail closed", "login: 5/1d fixed-window; fail closed"} {
		t.Run(policy, func(t *testing.T) {
			testSettlementsOfOthers(t, policy)
		})
	}
}

func testSettlementsOfOthers(t *testing.T, policy string) {
	f := newFar(t)
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{
			Policy: policy,
			Key:    keyfunc.User("user"),
			Settle: func(f guard.Final, taken int64) int64 {
				if f.Status == 401 {
					return taken
				}
				return 0
			},
		},
		Store: f.patientStore(t),
	})
	require.NoError(t, err)
	attempt := func(user string, status int, meanwhile func()) core.Outcome {
		v := g.Check(login{ctx: t.Context(), user: user})
		defer v.Finish(guard.Final{Status: status})
		meanwhile()
		return v.Result.Outcome
	}
	require.Eventually(t, func() bool { return attempt("first", 200, func() {}) == core.Admitted }, patient, time.Millisecond)
	f.proxy.Latency(5 * time.Millisecond)
	start := time.Now()
	n := beside(func(i int) {
		attempt(fmt.Sprint(i), 200, func() {})
	}, func() {
		for range 12 {
			outcome := attempt("victim", 200, func() { f.someTime(t) })
			if !assert.Contains(t, []core.Outcome{core.Admitted, core.AtLimit}, outcome) {
				return
			}
		}
	})
	t.Logf("%.0f a second of others", float64(n)/time.Since(start).Seconds())
	for range 5 {
		attempt("guesser", 401, func() {})
	}
	assert.Equal(t, core.Refused, attempt("guesser", 200, func() {}), "failures count")
	l, err := enforce.New(f.patientStore(t), g.Policies()[0], enforce.Options{})
	require.NoError(t, err)
	key := func(user string) string {
		k := new(keyfunc.Key)
		require.NoError(t, keyfunc.User("user").AppendTo(k, login{ctx: t.Context(), user: user}))
		return k.String()
	}
	for i := range crowd {
		require.Eventually(t, func() bool {
			res, err := l.Peek(t.Context(), key(fmt.Sprint(i)))
			require.NoError(t, err)
			// A meter drains while units are on their way back, and what has drained is not given back.
			return res.Remaining == 5 || g.Policies()[0].Limits()[0].Algorithm == core.GCRA
		}, patient, 5*time.Millisecond)
	}
	res, err := l.Peek(t.Context(), key("guesser"))
	require.NoError(t, err)
	require.Zero(t, res.Remaining, "it is the same key")
	_ = g.Close() // whether that is in time depends on the machine
}

// After a moment without a network the rate is as before, although permits were to be released meanwhile, and
// others were asked for of which nobody knows whether they were granted.
func TestPermitsAfterABlackHole(t *testing.T) {
	t.Parallel()
	for _, blip := range []time.Duration{200 * time.Millisecond, 700 * time.Millisecond, 1500 * time.Millisecond} {
		for name, fault := range map[string]func(*redistest.Proxy){
			"black hole":   (*redistest.Proxy).Blackhole,
			"lost replies": func(p *redistest.Proxy) { p.LoseReplies(redistest.Hang) },
		} {
			t.Run(fmt.Sprint(name, " ", blip), func(t *testing.T) {
				t.Parallel()
				f := newFar(t)
				l := newLimiter(t, newStore(t, f.rdb, redisstore.Options{Deadline: brief}), "calls: 20 concurrent lease 10m; fail closed")
				var releases []func()
				for range 15 {
					_, release := hold(t, l, "k", 1)
					releases = append(releases, release)
				}
				fault(f.proxy)
				end := time.After(blip)
				var begun, wg sync.WaitGroup
				for _, release := range releases {
					begun.Add(1)
					wg.Go(func() {
						begun.Done()
						if _, release, err := l.Acquire(t.Context(), "k"); err == nil { // when all was over
							release()
						}
					})
					release()
				}
				begun.Wait()
				<-end
				f.proxy.Pass()
				start := time.Now()
				wg.Wait()
				f.empty(t)
				_, release := hold(t, l, "k", 20)
				t.Logf("all 20 are back after %v", time.Since(start))
				release()
				f.empty(t)
			})
		}
	}
}

// A permit that is granted late, after its caller has given up and released it, is not held for a lease.
func TestPermitGrantedLate(t *testing.T) {
	t.Parallel()
	const late = 3 * brief
	f := newFar(t)
	l := newLimiter(t, newStore(t, f.rdb, redisstore.Options{Deadline: brief}), "calls: 20 concurrent lease 10m; fail closed")
	_, release := f.hold(t, l, 1)
	release()
	f.empty(t)
	f.proxy.Latency(late)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if _, release, err := l.Acquire(t.Context(), "k"); err == nil {
				release()
			}
		})
	}
	<-time.After(brief / 2)
	f.proxy.Pass() // for what is released now
	wg.Wait()
	<-time.After(late)
	f.empty(t)
}

// exchange is a request whose handler is next.
type exchange struct {
	login
	next func(context.Context)
}

func (exchange) Get(string) string       { return "" }
func (exchange) Set(string, string)      {}
func (exchange) Del(string)              {}
func (exchange) BeforeHeader(func())     {}
func (exchange) Reply(int, []byte)       {}
func (exchange) Watch()                  {}
func (exchange) Hijacked() bool          { return false }
func (exchange) Scratch() *guard.Scratch { return nil }

func (x exchange) Next(ctx context.Context) error {
	x.next(ctx)
	return nil
}

func (exchange) Routed() (pattern string, everyMethod bool) { return "", false }

func (exchange) Handle(any, *guard.Verdict) (answered, known bool, err error) {
	return false, false, nil
}

func (exchange) Final(error, bool) guard.Final { return guard.Final{} }

// patientAtFirst grants permits however long it takes, until that is over.
type patientAtFirst struct {
	*redisstore.Store
	first *redisstore.Store
	over  atomic.Bool
}

func (s *patientAtFirst) Acquire(ctx context.Context, p core.Permit) (core.Result, error) {
	if !s.over.Load() {
		return s.first.Acquire(ctx, p)
	}
	return s.Store.Acquire(ctx, p)
}

// A server that is too slow for decisions ends nobody's work.
func TestStreamsOnASlowServer(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second // long enough for a machine that is busy
	f := newFar(t)
	s := &patientAtFirst{Store: newStore(t, f.rdb, redisstore.Options{Deadline: 60 * time.Millisecond}), first: f.patientStore(t)}
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{
			Policy: fmt.Sprintf("streams: 10 concurrent lease %dms; fail closed", lease.Milliseconds()),
			Key:    keyfunc.Const("everybody"),
		},
		Store: s,
	})
	require.NoError(t, err)
	var streams sync.WaitGroup
	begun, end := make(chan context.Context), make(chan struct{})
	for range 10 {
		streams.Go(func() {
			assert.NoError(t, g.Serve(exchange{login{ctx: t.Context()}, func(ctx context.Context) {
				begun <- ctx
				<-end
			}}))
		})
	}
	var all []context.Context
	for range 10 {
		all = append(all, <-begun)
	}
	s.over.Store(true)
	f.proxy.Latency(40 * time.Millisecond) // each way: a renewal may take a second
	<-time.After(lease + lease/2)
	for _, ctx := range all {
		assert.NoError(t, context.Cause(ctx))
	}
	refused := true
	assert.NoError(t, g.Serve(exchange{login{ctx: t.Context()}, func(context.Context) { refused = false }}))
	assert.True(t, refused, "all places are taken")
	close(end)
	streams.Wait()
	f.empty(t)
}

// An outage that is longer than a lease ends what runs where the policy fails closed, and nowhere else; and soon
// after it all is as it was.
func TestOutageLongerThanALease(t *testing.T) {
	t.Parallel()
	const lease = 4 * time.Second // long enough for a machine that is busy
	for _, word := range []core.Failure{core.FailOpen, core.FailLocal, core.FailClosed} {
		for name, fault := range map[string]func(*redistest.Proxy){
			"silent":  (*redistest.Proxy).Blackhole,
			"refuses": func(p *redistest.Proxy) { p.Refuse(); p.Disconnect(redistest.RST) },
		} {
			t.Run(fmt.Sprint(word, " ", name), func(t *testing.T) {
				t.Parallel()
				f := newFar(t)
				s := newStore(t, f.rdb, redisstore.Options{Deadline: brief})
				l := newLimiter(t, s, fmt.Sprintf("work: 3 concurrent lease %v; fail %v", lease, word))
				first, release := f.hold(t, l, 1)
				second, release2 := f.hold(t, l, 2)
				fault(f.proxy)
				<-time.After(2 * lease)
				_, another, err := l.Acquire(t.Context(), "k")
				_, _, none := l.Acquire(t.Context(), "k")
				switch word {
				case core.FailOpen:
					require.NoError(t, errors.Join(err, none))
				case core.FailLocal:
					require.NoError(t, err)
					assert.ErrorAs(t, none, new(*enforce.OverLimitError), "what runs counts")
				case core.FailClosed:
					assert.ErrorAs(t, err, new(*core.StoreError))
					assert.ErrorIs(t, context.Cause(first), enforce.ErrPermitLost)
					assert.ErrorIs(t, context.Cause(second), enforce.ErrPermitLost)
					another = func() {}
				}
				f.proxy.Pass()
				if word != core.FailClosed {
					assert.NoError(t, context.Cause(first))
					require.Eventually(t, func() bool { return f.held(t) == 2 }, patient, 5*time.Millisecond)
					<-time.After(lease)
					assert.NoError(t, context.Cause(first))
					assert.NoError(t, context.Cause(second))
				}
				another()
				release()
				release2()
				f.empty(t)
				f.hold(t, l, 1)
			})
		}
	}
}

// behind counts the goroutines of the library, but those of tests, which may wait for their turn inside it.
func behind() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	n := 0
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, "testing.tRunner") {
			continue
		}
		if strings.Contains(stack, "weir/core.") || strings.Contains(stack, "weir/core/redisstore.") {
			n++
		}
	}
	return n
}

// Close does not wait for a server that is gone, and says what it has not been given. No goroutine outlives the
// leases.
func TestCloseWithoutAServer(t *testing.T) { //nolint:paralleltest // it counts goroutines
	for name, fault := range map[string]func(*redistest.Proxy){
		"silent":  (*redistest.Proxy).Blackhole,
		"refuses": func(p *redistest.Proxy) { p.Refuse(); p.Disconnect(redistest.RST) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFar(t)
			s := newStore(t, f.rdb, redisstore.Options{Deadline: brief})
			permits := newLimiter(t, s, "work: 100 concurrent lease 3s; fail closed")
			rates, err := permits.With(core.MustParse("rate: 1/1h; wait 1h; fail closed"))
			require.NoError(t, err)
			var all []context.Context
			for range 20 {
				ctx, _ := hold(t, permits, "k", 1)
				all = append(all, ctx)
			}
			require.Eventually(t, func() bool {
				_, err := rates.Allow(t.Context(), "k")
				return err == nil
			}, patient, time.Millisecond)
			waits := make(chan error, 1)
			go func() { waits <- rates.Wait(t.Context(), "k", 1) }()
			require.Eventually(t, func() bool {
				res, err := rates.Peek(t.Context(), "k")
				return err == nil && res.ResetAfter > time.Hour
			}, patient, time.Millisecond)

			fault(f.proxy)
			start := time.Now()
			err = permits.Close()
			t.Logf("closed after %v", time.Since(start))
			n := 0
			_, _ = fmt.Sscanf(fmt.Sprint(err), "enforce: Close: %d releases, refunds, charges and hand-backs may not", &n)
			require.GreaterOrEqual(t, n, 21, err)
			require.ErrorIs(t, <-waits, enforce.ErrClosed)
			for _, ctx := range all {
				require.ErrorIs(t, context.Cause(ctx), enforce.ErrPermitLost)
			}
			f.proxy.Pass()
			f.server.Kill()
			require.Eventually(t, func() bool { return behind() == 0 }, patient, 10*time.Millisecond)
		})
	}
}

// What there was no time for was not done, and says so: then it can be sent again.
func TestFlightsWithoutTime(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	s := f.patientStore(t)
	p := core.MustParse("log: 10/1d sliding-log")
	refunds := charged(t, s, p, 100, 1, 1)
	f.proxy.Blackhole()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var partly *core.BatchError
	require.ErrorAs(t, s.Refund(ctx, refunds), &partly)
	unknown := 0
	for _, err := range partly.Errs {
		var failed *core.StoreError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, core.ClassTimeout, failed.Class)
		if failed.MaybeExecuted {
			unknown++
		}
	}
	assert.Less(t, unknown, 50, "the first flight alone")
}
