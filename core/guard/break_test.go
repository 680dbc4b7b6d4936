package guard_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/keyfunc"
)

// asked is a store that answers at once with what the test has set, and counts.
type asked struct {
	core.Store
	mu    sync.Mutex
	admit bool
	err   error
	takes int
}

func (a *asked) Take(context.Context, core.Take) (core.Result, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.takes++
	if a.admit {
		return core.Result{Outcome: core.Admitted, Taken: 1, Limit: 5, Remaining: 4}, a.err
	}
	return core.Result{Limit: 5, RetryAfter: time.Second}, a.err
}

// count returns how often the store was asked since the last time.
func (a *asked) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.takes
	a.takes = 0
	return n
}

// breaking returns a Guard with circuits, which answers with 429 while one is closed and with 403 while it is open.
func breaking(t *testing.T, policy string, o guard.BreakOptions) (*guard.Guard, *asked) {
	t.Helper()
	store := &asked{}
	if o.Then == nil {
		o.Then = guard.Reject(guard.RejectOptions{Status: 403})
	}
	return newGuard(t, guard.Config{
		Rule:  guard.Rule{Policy: policy, Key: keyfunc.Header("X-Key"), OverLimit: guard.Break(o)},
		Store: store,
		Log:   slog.New(new(records)),
	}), store
}

// of is a request with that key.
func of(key string) *request {
	r := from(alice)
	r.lines = map[string][]string{"X-Key": {key}}
	return r
}

// answers is the status and the Retry-After of a request with that key.
func answers(g *guard.Guard, key string) string {
	v := g.Check(of(key))
	defer v.Finish(guard.Final{})
	if v.Action == guard.Pass {
		return "pass"
	}
	h := header{}
	v.SetHeaders(h)
	return strconv.Itoa(v.Status) + " " + h["Retry-After"]
}

func TestBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, store := breaking(t, "5/1h", guard.BreakOptions{Refusals: 3, Within: time.Minute, Open: 10 * time.Second, MaxOpen: 30 * time.Second})
		say := func(want ...string) {
			t.Helper()
			for i, want := range want {
				assert.Equal(t, want, answers(g, "a"), i)
			}
		}
		say("429 1", "429 1", "403 10") // the third opens it
		assert.Equal(t, 3, store.count())
		advance(4500 * time.Millisecond)
		say("403 6", "403 6") // asking does not make it longer
		advance(5500*time.Millisecond - 1)
		say("403 1")
		assert.Zero(t, store.count())

		// The first after that is the probe: it is refused, and the time doubles, up to the longest.
		advance(1)
		say("403 20", "403 20")
		assert.Equal(t, 1, store.count())
		advance(20 * time.Second)
		say("403 30", "403 30")
		advance(30 * time.Second)
		say("403 30", "403 30")
		assert.Equal(t, 2, store.count())

		// One that is admitted closes it.
		for range 300 {
			advance(30 * time.Second)
			say("403 30")
		}
		advance(30*time.Second + 1)
		store.admit = true
		say("pass", "pass", "pass")
		store.admit = false
		say("429 1", "429 1", "403 30") // once more
		advance(30 * time.Second)
		store.admit = true
		say("pass")

		// After a time without refusals it begins anew.
		advance(30*time.Second + 1)
		store.admit = false
		say("429 1", "429 1", "403 10")
		advance(10*time.Second + 30*time.Second + 1)
		say("429 1", "429 1", "403 10") // also if nobody has asked
		assert.Equal(t, "429 1", answers(g, "b"), "others have their own")
	})
}

// Only so many refusals within the time open it.
func TestBreakWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, store := breaking(t, "5/1h", guard.BreakOptions{Refusals: 3, Within: 10 * time.Second})
		<-time.After(time.Hour)
		for range 5 {
			assert.Equal(t, "429 1", answers(g, "a"))
			assert.Equal(t, "429 1", answers(g, "a"))
			<-time.After(10*time.Second + 1)
		}
		assert.Equal(t, "429 1", answers(g, "a"))
		<-time.After(5 * time.Second)
		store.admit = true
		assert.Equal(t, "pass", answers(g, "a"), "what passes in between does not matter")
		store.admit = false
		assert.Equal(t, "429 1", answers(g, "a"))
		<-time.After(5 * time.Second)
		assert.Equal(t, "403 60", answers(g, "a"))
	})
}

// While the probe is on its way nobody else is let through, and one that never ends gives way to the next.
func TestBreakProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cost := func(keyfunc.Request) int64 { return 1 }
		store := &asked{}
		g := newGuard(t, guard.Config{
			Rule: guard.Rule{
				Policy: "5/1h; fail closed", Key: keyfunc.Header("X-Key"),
				Cost:      func(r keyfunc.Request) int64 { return cost(r) },
				OverLimit: guard.Break(guard.BreakOptions{Refusals: 1, Open: 10 * time.Second, Then: guard.Reject(guard.RejectOptions{Status: 403})}),
			},
			Store: store,
			Log:   slog.New(new(records)),
		})
		assert.Equal(t, "403 10", answers(g, "a"))
		<-time.After(10 * time.Second)
		cost = func(keyfunc.Request) int64 { // asks within the probe
			cost = func(keyfunc.Request) int64 { return 1 }
			assert.Equal(t, "403 1", answers(g, "a"))
			panic("boom")
		}
		assert.Panics(t, func() { answers(g, "a") })
		assert.Equal(t, "403 1", answers(g, "a"))
		assert.Equal(t, 1, store.count())
		<-time.After(time.Second)

		// A failure of the store decides nothing: the next one is the probe.
		store.err = down()
		for range 3 {
			assert.Equal(t, "503 1", answers(g, "a"))
		}
		assert.Equal(t, 3, store.count())
		store.err = nil
		store.admit = true
		assert.Equal(t, "pass", answers(g, "a"))
		assert.Equal(t, "pass", answers(g, "a"))
	})
}

// A request that was on its way when the circuit opened counts no more.
func TestBreakRequestsOnTheirWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g *guard.Guard
		within := func() {}
		store := &asked{}
		g = newGuard(t, guard.Config{
			Rule: guard.Rule{
				Policy: "5/1h", Key: keyfunc.Header("X-Key"),
				Cost: func(keyfunc.Request) int64 { within(); return 1 },
				OverLimit: guard.Break(guard.BreakOptions{
					Refusals: 1, Open: 10 * time.Second, Then: guard.Reject(guard.RejectOptions{Status: 403}),
				}),
			},
			Store: store,
		})
		within = func() {
			within = func() {}
			assert.Equal(t, "403 10", answers(g, "a"))
			<-time.After(time.Second)
		}
		assert.Equal(t, "403 9", answers(g, "a"))
		<-time.After(9 * time.Second)
		assert.Equal(t, "403 20", answers(g, "a"), "it has opened once")
	})
}

// What is no refusal by the limit does not count.
func TestBreakCountsRefusals(t *testing.T) {
	g, store := breaking(t, "5/1h; fail closed", guard.BreakOptions{Refusals: 1, Before: guard.Degrade()})
	for range 3 {
		v := g.Check(from(alice))
		assert.Equal(t, 403, v.Status)
		assert.ErrorIs(t, v.Err, keyfunc.ErrNoKey)
	}
	assert.Zero(t, store.count())
	store.err = down()
	for range 3 {
		assert.Equal(t, "503 1", answers(g, "a"))
	}
	store.err = nil
	assert.Equal(t, "403 60", answers(g, "a"))

	// The policy's own circuits, of one handler.
	other := g.With("other", "5/1h")
	store.admit = true
	assert.Equal(t, "pass", answers(other, "a"))
	assert.Equal(t, "403 60", answers(g, "a"))

	// In a trial nothing is refused, so that nothing opens.
	trial := g.With("trial", "5/1h; shadow")
	store.admit = false
	store.count()
	for range 3 {
		assert.Equal(t, "pass", answers(trial, "a"))
	}
	assert.Equal(t, 3, store.count())
}

// Before answers until then, and Observe is called for all.
func TestBreakBefore(t *testing.T) {
	var outcomes []core.Outcome
	store := &asked{}
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{
			Policy: "5/1h", Key: keyfunc.Header("X-Key"),
			OverLimit: guard.Break(guard.BreakOptions{Refusals: 2, Before: guard.Degrade()}),
		},
		Store:   store,
		Observe: func(e guard.Event) { outcomes = append(outcomes, e.Outcome) },
	})
	v := g.Check(of("a"))
	assert.True(t, guard.Degraded(v.Context(t.Context())))
	assert.Equal(t, "429 60", answers(g, "a"))
	assert.Equal(t, "429 60", answers(g, "a"))
	assert.Equal(t, []core.Outcome{core.Refused, core.Refused, core.Refused}, outcomes)
	v = g.Check(of("a"))
	h := header{}
	v.SetHeaders(h)
	assert.Empty(t, h["X-Ratelimit-Limit"], "nobody was asked")
	assert.Equal(t, "default", v.Policy)
}

// A probe that has to acquire a permit is decided by that.
func TestBreakPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, guard.Config{Rule: guard.Rule{
			Policy: "1 concurrent lease 1m", Key: keyfunc.Header("X-Key"),
			OverLimit: guard.Break(guard.BreakOptions{Refusals: 1, Open: 5 * time.Minute, Then: guard.Reject(guard.RejectOptions{Status: 403})}),
		}})
		first := g.Check(of("a"))
		require.Equal(t, guard.Pass, first.Action)
		assert.Equal(t, "403 300", answers(g, "a"))
		<-time.After(5 * time.Minute)
		assert.Equal(t, "403 600", answers(g, "a"))
		first.Finish(guard.Final{})
		<-time.After(10 * time.Minute)
		assert.Equal(t, "pass", answers(g, "a"))
		assert.Equal(t, "pass", answers(g, "a"))
	})
}

// A flood of keys displaces closed circuits, those with the least to lose first, and never an open one.
// Bans that are over, however many, do not keep others from being banned.
func TestBreakAfterManyBans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := breaking(t, "5/1h", guard.BreakOptions{Refusals: 3, MaxKeys: 1000, Open: 200 * time.Millisecond})
		ban := func(key string) (banned bool) {
			answers(g, key)
			answers(g, key)
			return strings.HasPrefix(answers(g, key), "403")
		}
		for i := range 10_000 {
			ban(fmt.Sprintf("before%d", i))
		}
		<-time.After(400 * time.Millisecond)
		banned := 0
		for i := range 200 {
			if ban(fmt.Sprintf("now%d", i)) {
				banned++
			}
		}
		assert.GreaterOrEqual(t, banned, 190)
		for i := range 200 { // and an open circuit is not displaced
			answers(g, fmt.Sprintf("flood%d", i))
		}
		still := 0
		for i := range 200 {
			if strings.HasPrefix(answers(g, fmt.Sprintf("now%d", i)), "403") {
				still++
			}
		}
		assert.Equal(t, banned, still)
	})
}

func TestBreakFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, store := breaking(t, "5/1h", guard.BreakOptions{Refusals: 3, MaxKeys: 8, Within: time.Hour, MaxOpen: 2 * time.Minute})
		open := func(key string) {
			t.Helper()
			assert.Equal(t, "429 1", answers(g, key))
			assert.Equal(t, "429 1", answers(g, key))
			assert.Equal(t, "403 60", answers(g, key))
		}
		open("closed")
		<-time.After(time.Minute)
		store.admit = true
		assert.Equal(t, "pass", answers(g, "closed"))
		store.admit = false
		for i := range 4 {
			open(fmt.Sprintf("open%d", i))
		}
		answers(g, "twice")
		answers(g, "twice")
		for i := range 1000 {
			assert.Equal(t, "429 1", answers(g, fmt.Sprintf("flood%d", i)))
		}
		for i := range 4 {
			assert.Equal(t, "403 60", answers(g, fmt.Sprintf("open%d", i)))
		}
		assert.Equal(t, "403 60", answers(g, "twice"), "it was not displaced either")
		answers(g, "closed")
		answers(g, "closed")
		assert.Equal(t, "403 120", answers(g, "closed"), "nor this one, which has opened before")
		for i := range 2 {
			open(fmt.Sprintf("more%d", i))
		}
		store.count()
		for range 10 { // no place is left: it is refused as ever
			assert.Equal(t, "429 1", answers(g, "full"))
		}
		assert.Equal(t, 10, store.count())
		<-time.After(3*time.Minute + 1) // those that nobody asks for any more give way
		open("full")
	})
}

func TestBreakMistakes(t *testing.T) {
	for want, o := range map[string]guard.BreakOptions{
		"BreakOptions.Refusals is -1":             {Refusals: -1},
		"BreakOptions.Within is -1s":              {Within: -time.Second},
		"BreakOptions.Open is -1s":                {Open: -time.Second},
		"BreakOptions.MaxOpen is 1s, and Open 2s": {Open: 2 * time.Second, MaxOpen: time.Second},
		"BreakOptions.MaxOpen is -1s":             {MaxOpen: -time.Second},
		"BreakOptions.MaxKeys is -1":              {MaxKeys: -1},
		"BreakOptions.MaxKeys is 1000000000":      {MaxKeys: 1e9},
		"BreakOptions.Before: Break within Break": {Before: guard.Break(guard.BreakOptions{})},
		"BreakOptions.Then: Break within Break":   {Then: guard.Break(guard.BreakOptions{})},
		"BreakOptions.Then: Degrade would let":    {Then: guard.Degrade()},
		"BreakOptions.Then: RejectOptions":        {Then: guard.Reject(guard.RejectOptions{Status: 1})},
		"BreakOptions.Before: Degrade(nil)":       {Before: guard.Degrade(nil)},
		`BreakOptions.Then: the function of "x"`:  {Then: guard.HandleNative("x", nil)},
	} {
		_, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.IP(), OverLimit: guard.Break(o)}})
		assert.ErrorContains(t, err, want)
	}
	for name, o := range map[string]guard.BreakOptions{
		"zero":          {},
		"a page":        {Then: guard.Degrade(guard.HandleNative("page", 1))},
		"a short limit": {MaxOpen: time.Second},
		"a long one":    {Open: 24 * time.Hour},
	} {
		_, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.IP(), OverLimit: guard.Break(o)}})
		assert.NoError(t, err, name)
	}
	assert.Equal(t, "break(degrade, reject(429))", guard.Break(guard.BreakOptions{Before: guard.Degrade()}).String())
}

// Many at once: the race detector watches, and a circuit opens once.
func TestBreakConcurrent(t *testing.T) {
	g, store := breaking(t, "5/1h", guard.BreakOptions{Refusals: 100})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				answers(g, "a")
				answers(g, "b")
			}
		})
	}
	all.Wait()
	n := store.count()
	assert.GreaterOrEqual(t, n, 200)
	assert.LessOrEqual(t, n, 200+2*8, "at most those on their way")
}

// An open circuit costs the key's text, as does a request that passes.
func TestBreakAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector drops pooled keys")
	}
	g, store := breaking(t, "5/1h", guard.BreakOptions{Refusals: 1})
	r := of("a")
	check := func() {
		v := g.Check(r)
		v.Finish(guard.Final{})
	}
	check()
	assert.LessOrEqual(t, testing.AllocsPerRun(200, check), 1.0)
	store.admit = true
	r = of("b")
	assert.LessOrEqual(t, testing.AllocsPerRun(200, check), 1.0)
}
