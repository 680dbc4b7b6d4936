package guard_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// preparing is a Source that prepares a Set before it shows it.
type preparing struct {
	numbers
	mu        sync.Mutex
	followers []*follow.Follower
}

func (p *preparing) Listen(f *follow.Follower) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.followers = append(p.followers, f)
	f.Prepare(p.Load())
}

// prepare prepares a Set for all that follow, and returns the entries of the first.
func (p *preparing) prepare(set *guard.Set) (entries []follow.Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	alive := p.followers[:0]
	for _, f := range p.followers {
		each, is := f.Prepare(set)
		if is {
			alive = append(alive, f)
		}
		if entries == nil {
			entries = each
		}
	}
	p.followers = alive
	return entries
}

func (p *preparing) show(set *guard.Set) []follow.Entry {
	entries := p.prepare(set)
	p.Store(set)
	return entries
}

func (p *preparing) follows() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.followers)
}

// witness is a log that notes which lines were written by a goroutine with a request.
type witness struct {
	lines, ofRequests atomic.Int64
}

func (*witness) Enabled(context.Context, slog.Level) bool { return true }

func (w *witness) Handle(context.Context, slog.Record) error {
	w.lines.Add(1)
	if stack := make([]byte, 1<<16); strings.Contains(string(stack[:runtime.Stack(stack, false)]), "guard.(*Guard).check(") {
		w.ofRequests.Add(1)
	}
	return nil
}

func (w *witness) WithAttrs([]slog.Attr) slog.Handler { return w }

func (w *witness) WithGroup(string) slog.Handler { return w }

// With a Source that prepares its Sets, no request does: each Set here has another entry that cannot be used, for which
// whoever prepares it writes a line.
func TestNoRequestPrepares(t *testing.T) {
	source, log := new(preparing), new(witness)
	source.Store(policies("default", "20/1h"))
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "10/1h"}, Source: source, Log: slog.New(log)})
	with := g.With("with", "10/1h")
	v := g.Check(from(alice))
	assert.EqualValues(t, 20, v.Result.Limit, "what there was when it began to listen")
	stop := make(chan struct{})
	var requests sync.WaitGroup
	var asked atomic.Int64
	for range 4 {
		requests.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				g.Check(from(alice))
				with.Check(from(bob))
				asked.Add(1)
			}
		})
	}
	const changes = 200
	for i := range changes {
		before := asked.Load()
		source.show(policies("default", strconv.Itoa(30+i)+"/1h", "with", "nonsense"+strconv.Itoa(i)))
		require.EqualValues(t, 30+i, g.Check(from(alice)).Result.Limit)
		if i%10 == 0 {
			require.Eventually(t, func() bool { return asked.Load() > before+4 }, 20*time.Second, time.Microsecond)
		}
	}
	close(stop)
	requests.Wait()
	assert.EqualValues(t, changes, log.lines.Load())
	assert.Zero(t, log.ofRequests.Load(), "lines that requests have written")

	source.Store(policies("with", "nonsense")) // unprepared
	with.Check(from(alice))
	assert.EqualValues(t, 1, log.ofRequests.Load(), "the lines show it")
}

// What was prepared is used when it is shown, and not before; what was shown before stays meanwhile, also if no request
// has gone by it yet.
func TestPreparedIsNotShown(t *testing.T) {
	source := new(preparing)
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "10/1h"}, Source: source})
	numbers := func(n int) *guard.Set { return policies("default", fmt.Sprint(n, "/1h")) }
	holds := func(n int) {
		t.Helper()
		assert.EqualValues(t, n, g.Check(from(alice)).Result.Limit)
	}
	source.prepare(numbers(1))
	assert.EqualValues(t, 10, g.Check(from(alice)).Result.Limit)
	second, third := numbers(2), numbers(3)
	source.show(second)
	source.prepare(third)
	holds(2) // no request has gone by it before the next was prepared
	source.Store(third)
	holds(3)
	source.show(nil)
	holds(10)
	source.show(third)
	holds(3)
}

// late is a preparing Source of which a request may have asked long before it goes by the answer.
type late struct {
	preparing
	hold        atomic.Bool
	has, answer chan struct{}
}

func (l *late) Load() *guard.Set {
	set := l.preparing.Load()
	if l.hold.CompareAndSwap(true, false) {
		close(l.has)
		<-l.answer
	}
	return set
}

// A request that comes late with a Set, after the Source has prepared and shown others, brings nothing back.
func TestLateRequestBringsNothingBack(t *testing.T) {
	for _, shows := range []int{1, 2, 3} {
		for _, taken := range []bool{false, true} {
			t.Run(fmt.Sprint(shows, taken), func(t *testing.T) {
				source := &late{has: make(chan struct{}), answer: make(chan struct{})}
				g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "10/1h"}, Source: source})
				limit := func() int64 { return g.Check(from(alice)).Result.Limit }
				source.show(policies("default", "20/1h"))
				source.hold.Store(true)
				answered := make(chan int64)
				go func() { answered <- limit() }()
				<-source.has
				for i := range shows {
					source.show(policies("default", strconv.Itoa(30+i)+"/1h"))
					if taken {
						require.EqualValues(t, 30+i, limit())
					}
				}
				close(source.answer)
				if got := <-answered; got != 20 {
					assert.EqualValues(t, 29+shows, got, "the Set that it has asked for, or that of now")
				}
				assert.EqualValues(t, 29+shows, limit())
			})
		}
	}
}

// A Source learns of each rule, and of each entry of a Set whether it is used.
func TestFollower(t *testing.T) {
	source := new(preparing)
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{
			Policy: "api: 10/1h",
			Tier:   func(keyfunc.Request) string { return "" },
			Tiers:  map[string]string{"pro": "50/1h", "staff": "unlimited"},
		},
		Rules:  []guard.Rule{{Policy: "all: 1000/1h", Key: keyfunc.Const("all"), OverLimit: guard.Degrade()}},
		Routes: map[string]guard.Rule{"POST /login": {Policy: "3/1h; fail closed"}},
		Source: source,
		Log:    slog.New(slog.DiscardHandler),
	})
	require.Equal(t, 1, source.follows())
	assert.Equal(t, []follow.Rule{
		{Policy: "api", Text: "api: 10/1h", Place: "Rule", Key: "ip", OverLimit: "reject(429)", Tiers: map[string]string{"pro": "50/1h", "staff": "unlimited"}, Store: g.Store()},
		{Policy: "all", Text: "all: 1000/1h", Place: "Rules[0]", Key: "const(all)", OverLimit: "degrade", Store: g.Store()},
		{Policy: "post-login", Text: "post-login: 3/1h; fail closed", Place: `Routes["POST /login"]`, Key: "ip", OverLimit: "reject(429)", Store: g.Store()},
	}, source.followers[0].Rules())

	entries := source.show(&guard.Set{
		Policies: map[string]string{"api": "20/1h", "all": "1000/1h fixed-window", "other": "1/1h"},
		Tiers:    map[string]map[string]string{"api": {"pro": "60/1h", "new": "nonsense"}, "all": {"pro": "60/1h"}},
		Keys:     map[string]map[string]string{"post-login": {"ip=192.0.2.1": "blocked"}},
	})
	got := map[string]string{}
	for _, e := range entries {
		name := strings.Join([]string{e.Place, e.Policy, e.Tier, e.Key, e.Text}, "|")
		got[name] = ""
		if e.Err != nil {
			got[name] = strings.Join(strings.Fields(e.Err.Error())[:3], " ")
		}
	}
	assert.Equal(t, map[string]string{
		"Rule|api|||20/1h":                                       "",
		"Rule|api|pro||60/1h":                                    "",
		"Rule|api|new||nonsense":                                 got["Rule|api|new||nonsense"],
		"Rules[0]|all|||1000/1h fixed-window":                    got["Rules[0]|all|||1000/1h fixed-window"],
		"Rules[0]|all|pro||60/1h":                                "the rule has",
		`Routes["POST /login"]|post-login||ip=192.0.2.1|blocked`: "",
	}, got)
	assert.NotEmpty(t, got["Rule|api|new||nonsense"])
	assert.NotEmpty(t, got["Rules[0]|all|||1000/1h fixed-window"])

	with := g.With("with", "5/1h")
	require.Equal(t, 2, source.follows())
	assert.Equal(t, []follow.Rule{{
		Policy: "with", Text: "with: 5/1h", Place: "With", Key: "ip", OverLimit: "reject(429)", Store: g.Store(),
	}}, source.followers[1].Rules())
	runtime.KeepAlive(with)
}

// A Guard that was made and dropped goes, although a Source prepares Sets for it.
func TestFollowerKeepsNothingAlive(t *testing.T) {
	source := new(preparing)
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "10/1h"}, Source: source})
	kept, err := g.WithRule(guard.Rule{Policy: "kept: 5/1h"})
	require.NoError(t, err)
	handler := func() bool { return passes(kept, alice) } // a Guard that only a handler has is alive
	for range 10_000 {
		_, err := g.WithRule(guard.Rule{Policy: "short: 5/1h"})
		require.NoError(t, err)
	}
	require.Equal(t, 10_002, source.follows())
	require.Eventually(t, func() bool {
		runtime.GC()
		source.show(policies("kept", "50/1h"))
		return source.follows() == 2
	}, 20*time.Second, time.Millisecond)
	assert.True(t, handler())
	assert.EqualValues(t, 50, kept.Check(from(bob)).Result.Limit)
	runtime.KeepAlive(g)
}

// Numbers of one policy are prepared once for each Set, however many Guards have it, and also if one of them is made
// later.
func TestNumbersAreShared(t *testing.T) {
	source, said := new(preparing), new(records)
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "10/1h"}, Source: source, Log: slog.New(said)})
	rule := guard.Rule{Policy: "api: 5/1h", Tier: func(keyfunc.Request) string { return "t7" }, Tiers: map[string]string{"t7": "6/1h"}}
	var guards []*guard.Guard
	add := func(rule guard.Rule) {
		for range 50 {
			one, err := g.WithRule(rule)
			require.NoError(t, err)
			guards = append(guards, one)
		}
	}
	set := func(n int) *guard.Set {
		s := tiers("api")
		for i := range 1000 {
			s.Tiers["api"][fmt.Sprint("t", i)] = fmt.Sprint(n+i, "/1h")
		}
		return s
	}
	add(rule)
	source.show(set(100))
	source.show(set(200))
	add(rule)
	assert.Equal(t, 1, guard.SharedNumbers(guards...))

	// To prepare it for all others takes less than for the first.
	third := set(300)
	before := allocated()
	source.followers[1].Prepare(third) // the first is that of g, which has another policy
	one := allocated() - before
	source.show(third)
	assert.Less(t, allocated()-before-one, one)
	assert.Equal(t, 1, guard.SharedNumbers(guards...))
	for _, g := range guards {
		require.EqualValues(t, 307, g.Check(from(alice)).Result.Limit)
	}

	bad := set(400)
	bad.Policies = map[string]string{"api": "nonsense"}
	source.show(bad)
	assert.Equal(t, []string{"unusable-numbers"}, said.codes(), "one line for all of them")

	rule.Tiers = map[string]string{"t2000": "8/1h"} // other tiers of the code are other numbers
	other, err := g.WithRule(rule)
	require.NoError(t, err)
	assert.Equal(t, 2, guard.SharedNumbers(append(guards, other)...))
}

// allocated returns how many bytes the process has allocated so far.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// Two policies always change together, at a thousand requests a second and a hundred changes: no request goes by one
// of them as it was before and by the other as it is after, and the revision is that of both.
func TestNoRequestSeesAMix(t *testing.T) {
	type source interface {
		guard.Source
		show(*guard.Set) []follow.Entry
	}
	for name, source := range map[string]source{"prepared": new(preparing), "unprepared": new(showing)} {
		t.Run(name, func(t *testing.T) {
			var seen sync.Map // by the request
			mixed, different := new(atomic.Int64), new(sync.Map)
			const base = 1_000_000
			g := newGuard(t, guard.Config{
				Rule: guard.Rule{
					Policy: "first: 1000000/1h fixed-window; fail open", Key: byHeader("id", "Id"),
					Tier: func(r keyfunc.Request) string { return r.Header("Tier")[0] },
				},
				Rules:  []guard.Rule{{Policy: "second: 1000000/1h fixed-window; fail open"}},
				Routes: map[string]guard.Rule{"/items/{id}": {Policy: "third: 1000000/1h fixed-window; fail open"}},
				Source: source,
				Observe: func(e guard.Event) {
					id := e.Key()
					about := fmt.Sprint(e.Revision, " ", e.Result.Limit-base)
					if before, ok := seen.LoadOrStore(id, about); ok && before != about {
						mixed.Add(1)
					}
					if e.Revision != "" && e.Revision != strconv.FormatInt(e.Result.Limit-base, 10) {
						mixed.Add(1)
					}
					different.Store(about, true)
				},
			})
			set := func(n int) *guard.Set {
				text := strconv.Itoa(base+n) + "/1h fixed-window"
				s := policies("first", text, "second", text, "third", text)
				s.Revision = strconv.Itoa(n)
				s.Tiers = map[string]map[string]string{"first": {"pro": text}}
				return s
			}
			stop := make(chan struct{})
			var requests sync.WaitGroup
			var asked atomic.Int64
			for worker := range 4 {
				requests.Go(func() {
					tick := time.NewTicker(4 * time.Millisecond)
					defer tick.Stop()
					for i := 0; ; i++ {
						select {
						case <-stop:
							return
						case <-tick.C:
						}
						v := g.Check(sent("Id", fmt.Sprint(worker, "-", i), "Tier", []string{"", "pro"}[i%2]))
						v.Finish(guard.Final{})
						asked.Add(1)
					}
				})
			}
			for i := 1; i <= 100; i++ {
				before := asked.Load()
				source.show(set(i))
				require.Eventually(t, func() bool { return asked.Load() >= before+4 }, 20*time.Second, 100*time.Microsecond)
			}
			close(stop)
			requests.Wait()
			assert.Zero(t, mixed.Load())
			n := 0
			different.Range(func(any, any) bool { n++; return true })
			assert.Greater(t, n, 50, "the numbers did change")
		})
	}
}

// showing is a Source that prepares nothing.
type showing struct{ numbers }

func (s *showing) show(set *guard.Set) []follow.Entry {
	s.Store(set)
	return nil
}

// What no request of a rule can be is an error of that rule, for whoever shows the entries.
func TestEntriesThatNoRequestMeets(t *testing.T) {
	source := new(preparing)
	newGuard(t, guard.Config{
		Rule:   guard.Rule{Policy: "api: 10/1h", Key: keyfunc.Join(keyfunc.User("uid"), keyfunc.Route())},
		Routes: map[string]guard.Rule{"/a": {Policy: "api: 10/1h", Key: keyfunc.IP()}},
		Source: source,
	})
	meets := func(key string) (places []string) {
		set := &guard.Set{Keys: map[string]map[string]string{"api": {key: "20/1h"}}}
		for _, e := range source.show(set) {
			if e.Err == nil {
				places = append(places, e.Place)
			} else {
				assert.ErrorContains(t, e.Err, `which makes no such key; write keys as Event.Key returns them, as in "user=7"`)
			}
		}
		return places
	}
	assert.Equal(t, []string{"Rule"}, meets("user=7&route=/"))
	assert.Equal(t, []string{`Routes["/a"]`}, meets("ip=192.0.2.1"))
	for _, key := range []string{"192.0.2.1", "alice", "usr=7", "user=7&"} {
		assert.Empty(t, meets(key), "%q", key)
	}
}
