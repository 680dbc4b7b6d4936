package redisstore_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/internal/schedtest"
)

// How hard TestEveryFault is. On a machine that does nothing else, one topology passes with -deadline 50ms -late 5ms
// -rest 2ms -back 2s. -late is the time in which a caller that could not run until its deadline has passed still looks for
// a reply that has arrived.
var (
	inTime = flag.Duration("deadline", 300*time.Millisecond, "how long a decision may take while faults come and go")
	after  = flag.Duration("late", 5*time.Second, "by how much an answer may come later, beyond what the scheduler took meanwhile")
	rest   = flag.Duration("rest", 100*time.Millisecond, "how long callers rest at most between two calls")
	back   = flag.Duration("back", 2*patient, "within what time Redis decides again after each fault")
)

// Of TestEveryFault: how many callers there are, how many answers of Redis in a row are back to normal, how long a
// fault lasts at least, and the limit that holds for a key whatever the fault.
const (
	callers    = 100
	normal     = 100
	lasting    = 150 * time.Millisecond
	tightLimit = 1000
)

// On each topology, whatever fails while a hundred callers ask without end: every caller has an answer within the
// deadline, but for what the scheduler takes meanwhile, of a class that the fault explains; nothing is lost that Redis
// has not lost, and nothing is charged twice; no key's limit is exceeded by more than what was lost; and when the fault
// is over, Redis decides again by itself. Only one of several servers is hurt, and it shows in no key of the others.
func TestEveryFault(t *testing.T) {
	t.Parallel()
	for name, start := range sites {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			c := newLoad(t, s)
			for _, f := range faults {
				if f.on == nil || slices.Contains(f.on, name) {
					t.Run(f.name, func(t *testing.T) { c.suffer(t, f) })
				}
			}
		})
	}
}

// fault is something that fails, and what that explains.
type fault struct {
	name string
	on   []string // of the sites; nil is all
	// begin starts it, and end ends it, when the server can serve again. Then after tidies up.
	begin, end, after func(t *testing.T, s *site)
	// shows is the class by which callers notice, and classes are the others that there may be besides those of a
	// process that is short of time; "" is none.
	shows   string
	classes []string
	// forgets is true if the server may lose some of what it was sent, and losses counts how often it lost all of it.
	forgets bool
	losses  int64
}

// everywhere are the classes that may come of a machine that is short of processors, whatever the fault.
var everywhere = []string{core.ClassTimeout, core.ClassBusy, core.ClassBreaker}

var faults = []fault{
	{
		name: "the server is killed and starts anew", shows: core.ClassBreaker, classes: []string{core.ClassDown, core.ClassLost}, losses: 1,
		begin: func(_ *testing.T, s *site) { s.victim().Kill(); s.front().Refuse() },
		end: func(t *testing.T, s *site) {
			s.victim().Restart(t)
			s.front().Pass()
			s.serves(t)
		},
	},
	{
		name: "the server is stopped", shows: core.ClassBreaker, classes: []string{core.ClassLost},
		begin: func(t *testing.T, s *site) { s.victim().Pause(t) },
		end:   func(t *testing.T, s *site) { s.victim().Resume(t) },
	},
	{
		name: "a black hole", shows: core.ClassBreaker, classes: []string{core.ClassLost},
		begin: func(_ *testing.T, s *site) { s.front().Blackhole() },
		end:   func(_ *testing.T, s *site) { s.front().Pass() },
	},
	{
		name: "connections are half-open", shows: core.ClassTimeout, classes: []string{core.ClassLost},
		begin: func(_ *testing.T, s *site) { s.front().Disconnect(redistest.Hang) },
	},
	{
		name: "connections are reset", shows: core.ClassBreaker, classes: []string{core.ClassDown, core.ClassLost},
		begin: func(_ *testing.T, s *site) { s.front().Reset() },
		end:   func(_ *testing.T, s *site) { s.front().Pass() },
	},
	{
		name: "the network is slower than the deadline", shows: core.ClassBreaker, classes: []string{core.ClassLost},
		begin: func(_ *testing.T, s *site) { s.front().Latency(2 * *inTime) },
		end:   func(_ *testing.T, s *site) { s.front().Pass() },
	},
	{
		name: "replies are lost with their connections", shows: core.ClassLost, classes: []string{core.ClassDown},
		begin: func(_ *testing.T, s *site) { s.front().LoseReplies(redistest.EOF) },
		end:   func(_ *testing.T, s *site) { s.front().Pass() },
	},
	{
		name: "replies are lost in silence", shows: core.ClassBreaker, classes: []string{core.ClassLost},
		begin: func(_ *testing.T, s *site) { s.front().LoseReplies(redistest.Hang) },
		end:   func(_ *testing.T, s *site) { s.front().Pass() },
	},
	{
		name: "the server closes connections", shows: core.ClassLost, classes: []string{core.ClassDown},
		begin: func(t *testing.T, s *site) {
			s.until(t, core.ClassLost, func() {
				require.NoError(t, s.admin().Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
			})
		},
	},
	{
		name: "the server takes no more clients", shows: core.ClassBreaker, classes: []string{core.ClassDown, core.ClassLost},
		begin: func(t *testing.T, s *site) { s.set(t, "maxclients", "1"); s.front().Disconnect(redistest.EOF) },
		end:   func(t *testing.T, s *site) { s.set(t, "maxclients", "10000") },
	},
	{
		name: "scripts are flushed",
		begin: func(t *testing.T, s *site) {
			for range 10 {
				require.NoError(t, s.admin().ScriptFlush(t.Context()).Err())
				pause(lasting / 10)
			}
		},
	},
	{
		name: "all keys are deleted", losses: 3,
		begin: func(t *testing.T, s *site) {
			for range 3 {
				require.NoError(t, s.admin().FlushAll(t.Context()).Err())
				pause(lasting / 10)
			}
		},
	},
	{
		name: "somebody else writes to the keys", losses: 2 * 5,
		begin: func(t *testing.T, s *site) {
			for range 5 {
				for _, name := range s.names {
					require.NoError(t, s.admin().Set(t.Context(), name, "f1,x", 0).Err())
				}
				pause(lasting / 10)
				for _, name := range s.names {
					pipe := s.admin().TxPipeline()
					pipe.Del(t.Context(), name)
					pipe.LPush(t.Context(), name, "a")
					_, err := pipe.Exec(t.Context())
					require.NoError(t, err)
				}
				pause(lasting / 10)
			}
		},
	},
	{
		name: "the server is out of memory", shows: core.ClassOOM,
		begin: func(t *testing.T, s *site) {
			s.fill(t, 2<<20)
			await(t, "memory is short", func() bool {
				s.tighten(t)
				err := s.admin().Set(t.Context(), s.filler()+":more", "", 0).Err()
				return err != nil && strings.Contains(err.Error(), "OOM")
			})
		},
		end:   func(t *testing.T, s *site) { s.set(t, "maxmemory", "0") },
		after: func(t *testing.T, s *site) { s.empty(t) },
	},
	{
		name: "the server evicts keys", classes: []string{core.ClassOOM},
		begin: func(t *testing.T, s *site) {
			s.losses = -s.stat(t, "evicted_keys")
			s.fill(t, 2<<20)
			s.set(t, "maxmemory-policy", "volatile-lru")
			await(t, "keys are evicted", func() bool {
				s.tighten(t)
				return s.stat(t, "evicted_keys")+s.losses > 3
			})
		},
		end: func(t *testing.T, s *site) { s.set(t, "maxmemory", "0") },
		after: func(t *testing.T, s *site) {
			s.losses += s.stat(t, "evicted_keys")
			s.set(t, "maxmemory-policy", "noeviction")
			s.empty(t)
		},
	},
	{
		name: "a foreign script is slow", shows: core.ClassBreaker, classes: []string{core.ClassDown},
		begin: func(t *testing.T, s *site) {
			s.set(t, "lua-time-limit", "20")
			s.foreign.Go(func() { // it fails when it is killed
				_ = s.admin().Eval(context.WithoutCancel(t.Context()), "while true do end", nil).Err()
			})
		},
		end: func(t *testing.T, s *site) {
			await(t, "the script ends", func() bool { return s.admin().ScriptKill(t.Context()).Err() == nil })
			s.foreign.Wait()
		},
	},
	{
		name: "others have all connections", shows: core.ClassBusy,
		begin: func(t *testing.T, s *site) {
			direct := s.direct(t)
			for len(s.conns) < direct.Options().PoolSize {
				conn := direct.Conn()
				if conn.Ping(t.Context()).Err() != nil {
					_ = conn.Close()
					continue
				}
				s.conns = append(s.conns, conn)
			}
		},
		end: func(_ *testing.T, s *site) {
			for _, conn := range s.conns {
				_ = conn.Close()
			}
			s.conns = nil
		},
	},
	{
		name: "the user loses its rights", on: []string{"tls", "ring", "sentinel", "cluster"}, shows: core.ClassDenied,
		begin: func(t *testing.T, s *site) {
			require.NoError(t, s.admin().Do(t.Context(), "ACL", "SETUSER", "weir", "-evalsha", "-eval").Err())
		},
		end: func(t *testing.T, s *site) {
			require.NoError(t, s.admin().Do(t.Context(), "ACL", "SETUSER", "weir", "+evalsha", "+eval").Err())
		},
	},
	{
		name: "the master becomes a replica", on: []string{"single", "tls", "ring"}, shows: core.ClassBreaker, classes: []string{core.ClassDown},
		begin: func(t *testing.T, s *site) {
			require.NoError(t, s.admin().ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
		},
		end: func(t *testing.T, s *site) { require.NoError(t, s.admin().ReplicaOf(t.Context(), "NO", "ONE").Err()) },
	},
	{
		name: "the master is killed and the replica promoted", on: []string{"sentinel"}, classes: []string{core.ClassDown, core.ClassLost}, forgets: true,
		begin: func(t *testing.T, s *site) { s.sentinel.Failover(t) },
		after: func(t *testing.T, s *site) { s.sentinel.Rejoin(t) },
	},
	{
		name: "the replica is promoted beside the living master", on: []string{"sentinel"}, classes: []string{core.ClassDown, core.ClassLost}, forgets: true,
		begin: func(t *testing.T, s *site) { s.sentinel.Switch(t) },
	},
	{
		name: "a slot moves", on: []string{"cluster"},
		begin: func(t *testing.T, s *site) {
			finish := s.cluster.Migrating(t, s.names[0])
			pause(lasting)
			finish()
		},
	},
}

// cell is a key that many ask for at the same time.
type cell struct {
	policy core.Policy
	key    string
	spared bool // its server is not hurt
	tight  bool // it is asked for through a Limiter, whose process decides while Redis fails
	sum
	byRedis, byProcess atomic.Int64 // of a tight one, the admitted
}

func (c *cell) name() string { return "weir:1:" + c.policy.Name() + ":f:" + c.key }

// episode is the time of one fault, from the calm before to the calm after it. It has keys of its own.
type episode struct {
	fault fault
	cells []*cell
	in    atomic.Int64 // calls that are under way

	mu    sync.Mutex
	took  []time.Duration
	late  time.Duration  // the most by which an answer came later than the deadline and that
	hurt  map[string]int // how often there was a class on keys whose server is hurt; "" is an answer of Redis
	other map[string]int // of the other keys
	since time.Time      // of the calls that count for the next two
	row   int            // the latest answers of Redis in a row, of those that began since then
	began time.Time      // when the first of them came
}

func (e *episode) allows(class string) bool {
	return class == "" || class == e.fault.shows || slices.Contains(everywhere, class) || slices.Contains(e.fault.classes, class)
}

// note keeps what came of a call, while which the process was kept from running for so long.
func (e *episode) note(c *cell, start, end time.Time, lost time.Duration, class string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.took = append(e.took, end.Sub(start))
	e.late = max(e.late, end.Sub(start)-*inTime-lost)
	if c.tight {
		return
	}
	if c.spared {
		e.other[class]++
		return
	}
	e.hurt[class]++
	switch {
	case start.Before(e.since):
	case class != "":
		e.row = 0
	default:
		if e.row++; e.row == 1 {
			e.began = end
		}
	}
}

// seen counts the classes on the keys that are hurt.
func (e *episode) seen(class string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hurt[class]
}

// settled waits until Redis has decided many calls in a row that began from now on, and returns after how long the
// first of them had its answer.
func (e *episode) settled(t *testing.T) time.Duration {
	t.Helper()
	e.mu.Lock()
	e.since, e.row = time.Now(), 0
	e.mu.Unlock()
	took := time.Duration(-1)
	await(t, "Redis decides again", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.row >= normal {
			took = e.began.Sub(e.since)
		}
		return took >= 0
	})
	return took
}

// load asks.
type load struct {
	site    *site
	probe   *schedtest.Probe
	current atomic.Pointer[episode]
	stopped atomic.Bool
}

func newLoad(t *testing.T, s *site) *load {
	c := &load{site: s, probe: schedtest.New()}
	limiter, err := enforce.New(s.store, tight, enforce.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	for _, p := range exact { // the first decision of a policy composes its scripts, which is no waiting
		_, _ = s.store.Take(t.Context(), core.Take{Policy: p, Key: "warm"})
	}
	_, _ = limiter.Allow(t.Context(), "warm")
	c.begin(t, fault{name: "calm"})

	ctx := context.WithoutCancel(t.Context()) // the load is there until the end, so that the report of it is
	over := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() { c.probe.Run(over) })
	for g := range callers {
		all.Go(func() { c.call(ctx, limiter, rand.New(rand.NewPCG(*seed, uint64(g)))) }) //nolint:gosec // the same numbers for the same seed
	}
	t.Cleanup(func() {
		c.stopped.Store(true)
		close(over)
		all.Wait()
	})
	c.current.Load().settled(t)
	return c
}

// tight is the policy of which a process admits no more than its limit, whatever fails.
var tight = core.MustParse(fmt.Sprintf("tight: %d/1d fixed-window", tightLimit))

// exact are policies whose units can be counted afterwards, with scripts and arguments of their own each.
var exact = []core.Policy{
	core.MustParse("exact: 1000000000/1d fixed-window"),
	core.MustParse("exact-wide: 2000000000/1d fixed-window"),
}

// begin turns to a new episode, and returns it and the one before.
func (c *load) begin(t *testing.T, f fault) (now, before *episode) {
	t.Helper()
	now = &episode{fault: f, hurt: map[string]int{}, other: map[string]int{}}
	now.cells = c.site.cells(t)
	return now, c.current.Swap(now)
}

// call asks again and again.
func (c *load) call(ctx context.Context, limiter *enforce.Limiter, rng *rand.Rand) {
	for !c.stopped.Load() {
		e := c.current.Load()
		if e.in.Add(1); c.current.Load() != e {
			e.in.Add(-1)
			continue
		}
		of := e.cells[rng.IntN(len(e.cells))]
		start, before, lost := time.Now(), c.probe.Lost(), time.Duration(0)
		class := of.ask(ctx, c.site.store, limiter, 1+rng.Int64N(2))
		end := time.Now()
		if end.Sub(start) > *inTime {
			c.probe.Sample()
			lost = c.probe.Lost().Since(before)
		}
		e.note(of, start, end, lost, class)
		e.in.Add(-1)
		// Where a machine is so slow that all of them take it longer than the deadline, they ask less.
		pause(time.Duration(rng.Int64N(int64(max(*rest, 3*end.Sub(start))))))
	}
}

// ask asks for a cell, and returns the class of what failed.
func (c *cell) ask(ctx context.Context, s *redisstore.Store, l *enforce.Limiter, cost int64) string {
	if c.tight {
		switch res, err := l.Allow(ctx, c.key); {
		case err != nil:
			return "not decided: " + err.Error()
		case res.Allowed() && res.Local:
			c.byProcess.Add(1)
		case res.Allowed():
			c.byRedis.Add(1)
		}
		return ""
	}
	res, err := s.Take(ctx, core.Take{Policy: c.policy, Key: c.key, Cost: cost})
	var failed *core.StoreError
	ok := errors.As(err, &failed)
	switch {
	case err == nil && !res.Allowed():
		return "refused"
	case err == nil:
		c.surely.Add(cost)
		return ""
	case !ok:
		return "not classified: " + err.Error()
	case failed.MaybeExecuted:
		c.perhaps.Add(cost)
	}
	if failed.Class == core.ClassOther || failed.Class == core.ClassReply {
		return failed.Class + ": " + err.Error()
	}
	return failed.Class
}

// suffer goes through one fault.
func (c *load) suffer(t *testing.T, f fault) {
	s := c.site
	s.whole(t)
	e, before := c.begin(t, f)
	await(t, "everybody is through with what was before", func() bool { return before.in.Load() == 0 })
	s.names, s.losses = nil, 0
	for _, of := range e.cells {
		if !of.spared {
			s.names = append(s.names, of.name())
		}
	}
	s.episode = e
	e.settled(t) // it begins in the middle of calm

	end := sync.OnceFunc(func() {
		if f.end != nil {
			f.end(t, s)
		}
	})
	defer end() // for those that come after it, if it fails
	s.mute.Store(silent(f))
	defer s.mute.Store(false)
	f.begin(t, s)
	pause(lasting)
	if f.shows != "" {
		await(t, "it shows", func() bool {
			if f.shows == core.ClassOOM { // what a server needs for its clients may shrink
				s.tighten(t)
			}
			return e.seen(f.shows) > 0 || s.gone()
		})
	}
	end()
	s.mute.Store(false)
	recovered := e.settled(t)
	assert.Less(t, recovered, *back)
	if f.after != nil {
		f.after(t, s)
	}

	c.begin(t, fault{name: "calm"})
	await(t, "everybody is through with it", func() bool { return e.in.Load() == 0 })
	s.whole(t)
	c.current.Load().settled(t)
	lost := c.count(t, e)

	slices.Sort(e.took)
	inside, _ := slices.BinarySearch(e.took, *inTime+1)
	t.Logf("back after %v; %d calls, p99 %v, the slowest %v, %d after the deadline, none more than %v after that and what the scheduler took; %v on the keys of the server, %v on others; %d units lost",
		recovered.Round(time.Millisecond), len(e.took), e.took[len(e.took)*99/100].Round(10*time.Microsecond),
		e.took[len(e.took)-1].Round(10*time.Microsecond), len(e.took)-inside, e.late.Round(10*time.Microsecond), e.hurt, e.other, lost)
	assert.LessOrEqual(t, e.late, *after)
	for class := range e.hurt {
		assert.True(t, e.allows(class), "%s: %v", class, e.hurt)
	}
	for class := range e.other {
		assert.True(t, class == "" || slices.Contains(everywhere, class), "%s, of a server that is not hurt: %v", class, e.other)
	}
}

// count looks what has become of what was taken, and returns how many units are lost.
func (c *load) count(t *testing.T, e *episode) (lost int64) {
	t.Helper()
	direct := newStore(t, c.site.rdb, redisstore.Options{Deadline: patient, DenyCache: -1})
	moved := c.site.kind == "ring" && silent(e.fault) // a ring moves the keys of a server that does not answer for longer
	for _, of := range e.cells {
		n := int64(0)
		await(t, "what is used is read", func() bool { // a connection may be left that is half-open
			res, err := direct.Take(t.Context(), core.Take{Policy: of.policy, Key: of.key})
			n = res.Limit - res.Remaining
			return err == nil
		})
		switch {
		case of.tight:
			assert.LessOrEqual(t, n, int64(tightLimit))
			assert.LessOrEqual(t, of.byProcess.Load(), int64(tightLimit), "the process keeps to the limit")
			times := 1 + e.fault.losses + c.site.losses
			if !of.spared && (e.fault.forgets || moved) {
				times++
			}
			assert.LessOrEqual(t, of.byRedis.Load(), times*tightLimit, "Redis keeps to the limit, but for what it has lost")
		case of.spared || !e.fault.forgets && e.fault.losses+c.site.losses == 0 && !moved:
			assert.GreaterOrEqual(t, n, of.surely.Load(), "%s: nothing is lost", of.name())
			fallthrough
		default:
			lost += max(0, of.surely.Load()-n)
			assert.LessOrEqual(t, n, of.surely.Load()+of.perhaps.Load(), "%s: nothing is executed twice", of.name())
		}
	}
	return lost
}

// silent reports whether a server that fails like that does not answer a ping.
func silent(f fault) bool { return f.shows == core.ClassBreaker || len(f.classes) > 0 }

func pause(d time.Duration) { <-time.After(d) }

// await waits for what must come, and asks for it in the test's own goroutine. Many calls in a row come late on a machine
// that is short of processors.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(6 * patient); !ok(); pause(time.Millisecond) {
		require.True(t, time.Now().Before(end), what)
	}
}
