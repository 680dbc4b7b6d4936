package guard_test

import (
	"fmt"
	"log/slog"
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
	"github.com/weir-go/weir/core/internal/remotetest"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/keyfunc"
)

// numbers is a Source that can be changed.
type numbers = atomic.Pointer[guard.Set]

func policies(pairs ...string) *guard.Set {
	s := &guard.Set{Policies: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		s.Policies[pairs[i]] = pairs[i+1]
	}
	return s
}

func tiers(policy string, pairs ...string) *guard.Set {
	s := &guard.Set{Tiers: map[string]map[string]string{policy: {}}}
	for i := 0; i < len(pairs); i += 2 {
		s.Tiers[policy][pairs[i]] = pairs[i+1]
	}
	return s
}

// shown returns what the headers of a request show: whether it passes, the limit, and how many units are left.
func shown(g *guard.Guard, r *request) string {
	v, h := g.Check(r), header{}
	v.SetHeaders(h)
	v.Finish(guard.Final{})
	return fmt.Sprintf("%v %s %s", v.Action == guard.Pass, h["X-Ratelimit-Limit"], h["X-Ratelimit-Remaining"])
}

// Other numbers hold from the next request on, for the rules of everywhere, those of the table and those that With
// made, and what was counted is kept.
func TestSource(t *testing.T) {
	source, said := new(numbers), new(records)
	g := newGuard(t, guard.Config{
		Rule:   guard.Rule{Policy: "10/1h fixed-window"},
		Rules:  []guard.Rule{{Policy: "all: 1000/1h fixed-window", Key: keyfunc.Const("all")}},
		Routes: map[string]guard.Rule{"/files/*": {Policy: "files: 5/1h fixed-window", Instead: true}, "POST /login": {Policy: "3/1h fixed-window"}},
		Source: source,
		Log:    slog.New(said),
	})
	with := g.With("with", "7/1h fixed-window")
	files, login, route := from(alice), from(alice), from(alice)
	files.route, login.route, login.method = "/files/{name}", "/login", "POST"
	ask := func() (out []string) {
		return []string{shown(g, route), shown(g, files), shown(g, login), shown(with, route)}
	}
	assert.Equal(t, []string{"true 10 9", "true 5 4", "true 3 2", "true 7 6"}, ask())

	source.Store(policies("default", "20/1h fixed-window", "files", "files: 1/1h fixed-window", "post-login", "30/1h fixed-window", "with", "70/1h fixed-window", "other", "nonsense"))
	assert.Equal(t, []string{"true 20 17", "false 1 0", "true 20 16", "true 70 68"}, ask())
	assert.Equal(t, "default: 20/1h fixed-window", g.Policies()[0].String())
	assert.Contains(t, g.Describe([]string{"/login"}), "default: 20/1h fixed-window")

	source.Store(policies("files", "2/1h fixed-window"))
	assert.Equal(t, []string{"true 10 5", "true 2 0", "true 3 0", "true 7 4"}, ask(), "what is not there is as in the Config")

	source.Store(nil)
	assert.Equal(t, []string{"true 10 3", "true 5 2", "false 3 0", "true 7 3"}, ask())
	assert.Empty(t, said.all())
}

// Tiers change, come and go.
func TestSourceTiers(t *testing.T) {
	source, said := new(numbers), new(records)
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{
			Policy: "2/1h fixed-window",
			Key:    keyfunc.FirstOf(byHeader("plan", "Tier"), keyfunc.IP()),
			Tier:   func(r keyfunc.Request) string { return strings.Join(r.Header("Tier"), "") },
			Tiers:  map[string]string{"pro": "50/1h fixed-window", "admin": "unlimited"},
		},
		Headers: guard.Headers{RateLimit: true},
		Source:  source,
		Log:     slog.New(said),
	})
	ask := func() (out []string) {
		for _, tier := range []string{"", "pro", "admin", "new"} {
			out = append(out, strings.TrimPrefix(shown(g, sent("Tier", tier)), "true "))
		}
		return out
	}
	source.Store(tiers("default", "pro", "60/1h fixed-window", "admin", "90/1h fixed-window", "new", "80/1h fixed-window"))
	assert.Equal(t, []string{"2 1", "60 59", "90 89", "80 79"}, ask())
	assert.Empty(t, said.all(), "a tier that only the Set has")
	v, h := g.Check(sent("Tier", "pro")), header{}
	v.SetHeaders(h)
	assert.Equal(t, `"default";q=60;w=3600`, h["Ratelimit-Policy"])

	source.Store(tiers("default", "new", "unlimited"))
	assert.Equal(t, []string{"2 0", "50 47", " ", " "}, ask())

	source.Store(tiers("another"))
	assert.Equal(t, []string{"false 2 0", "50 46", " ", "2 0"}, ask())
	assert.Empty(t, said.all(), "a tier that is not there has the Policy's numbers")

	source.Store(tiers("default", "", "70/1h fixed-window"))
	assert.Equal(t, "false 2 0", shown(g, sent("Tier", "new")))
	assert.Contains(t, strings.Join(said.all(), ""), `entry=Tiers["default"][""] text=70/1h fixed-window error=a tier has a name`)
}

// delayed is a Source that a request may have asked long before it goes by the answer.
type delayed struct {
	numbers
	hold   atomic.Bool   // the next to ask gets its answer late
	has    chan struct{} // closed when that one has asked
	answer chan struct{} // closed when it gets its answer
}

func (d *delayed) Load() *guard.Set {
	set := d.numbers.Load()
	if d.hold.CompareAndSwap(true, false) {
		close(d.has)
		<-d.answer
	}
	return set
}

// A request that comes late to make a version of its Set, because others have made those of later ones meanwhile, does
// not bring its numbers back: where an entry cannot be used, they would stay.
func TestSourceDoesNotGoBack(t *testing.T) {
	source, said := &delayed{has: make(chan struct{}), answer: make(chan struct{})}, new(records)
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "10/1h fixed-window"}, Source: source, Log: slog.New(said)})
	limit := func() string { return strings.Fields(shown(g, from(alice)))[1] }
	source.Store(policies("default", "20/1h fixed-window"))
	source.hold.Store(true)
	late := make(chan string)
	go func() { late <- limit() }()
	<-source.has
	source.Store(policies("default", "30/1h fixed-window"))
	require.Equal(t, "30", limit())
	source.Store(policies("default", "nonsense"))
	require.Equal(t, "30", limit())
	close(source.answer)
	<-late
	assert.Equal(t, "30", limit(), "the numbers from before stay")
	assert.Equal(t, []string{"unusable-numbers"}, said.codes(), "one line")
}

// What cannot be used keeps the numbers that it had before, and the log has one line of it.
func TestSourceMistakes(t *testing.T) {
	source, said := new(numbers), new(records)
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{
			Policy: "10/1h fixed-window; fail closed",
			Tier:   func(r keyfunc.Request) string { return strings.Join(r.Header("Tier"), "") },
			Tiers:  map[string]string{"pro": "50/1h fixed-window; fail closed"},
		},
		Source: source,
		Log:    slog.New(said),
	})
	limit := func(tier string) string { return strings.Fields(shown(g, sent("Tier", tier)))[1] }
	source.Store(&guard.Set{
		Policies: map[string]string{"default": "20/1h fixed-window; fail closed"},
		Tiers:    map[string]map[string]string{"default": {"pro": "60/1h fixed-window; fail closed"}},
	})
	assert.Equal(t, "20", limit(""))
	assert.Equal(t, "60", limit("pro"))
	for text, want := range map[string]string{
		"30/1h; fail closed":                                 "differs in more than numbers",
		"30/1h; fail closed; wait 1s":                        "differs in more than numbers",
		"30/1h fixed-window, 3 concurrent; fail closed":      "differs in more than numbers",
		"other: 30/1h fixed-window; fail closed":             "has another name",
		"unlimited":                                          "unlimited",
		"30":                                                 "core: policy",
		"0/1h fixed-window; fail closed":                     "core: ",
		"30/1h fixed-window aligned; fail closed":            "differs in more than numbers",
		"30/1h fixed-window, 99/1h sliding-log; fail closed": "differs in more than numbers",
	} {
		bad := &guard.Set{Policies: map[string]string{"default": text}, Tiers: map[string]map[string]string{"default": {"pro": text, "new": text, "": text}}}
		if text == "unlimited" { // which a tier may be
			bad.Tiers = nil
		}
		source.Store(bad)
		said.all()
		for range 5 {
			assert.Equal(t, "20", limit(""), text)
			if bad.Tiers != nil {
				assert.Equal(t, "60", limit("pro"), text)
				assert.Equal(t, "20", limit("new"), text)
			}
		}
		lines := said.all()
		n := 0
		for _, line := range lines {
			if strings.HasPrefix(line, "ERROR ") {
				n++
				assert.Contains(t, line, "numbers that cannot be used")
				assert.True(t, strings.Contains(line, want) || strings.Contains(line, "a tier has a name"), "%s: %s", text, line)
			}
		}
		told := 4
		if bad.Tiers == nil {
			told = 1
		}
		assert.Equal(t, told, n, "%s: %q", text, lines)

		// The same in another Set is not logged again, and other entries change.
		again := &guard.Set{Policies: map[string]string{"default": text}, Tiers: map[string]map[string]string{"default": {"pro": "60/1h fixed-window; fail closed"}}}
		source.Store(again)
		assert.Equal(t, "20", limit(""))
		assert.Empty(t, said.all())
	}

	many := tiers("default")
	for i := range 1001 {
		many.Tiers["default"][fmt.Sprint("t", i)] = "70/1h fixed-window; fail closed"
	}
	source.Store(many)
	assert.Equal(t, "60", limit("pro"), "the tiers from before")
	assert.Contains(t, strings.Join(said.all(), "\n"), "the Set has 1001 tiers; give at most 1000")

	_, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.IP()}, Source: (*numbers)(nil)})
	require.ErrorContains(t, err, "guard: Source is a nil *atomic.Pointer")
}

// A Source that goes back and forth fills no log, and neither does a long text.
func TestSourceThatFlaps(t *testing.T) {
	source, said := new(numbers), new(records)
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "10/1h"}, Source: source, Log: slog.New(said)})
	for range 100 {
		for _, text := range []string{"20/1h", "nonsense", "30/1h", "other nonsense"} {
			source.Store(&guard.Set{Policies: map[string]string{"default": text}})
			g.Check(from(alice))
		}
	}
	assert.Len(t, said.all(), 2)

	source.Store(&guard.Set{Policies: map[string]string{"default": strings.Repeat("1/1h, ", 1_000_000)}})
	g.Check(from(alice))
	lines := said.all()
	require.Len(t, lines, 1)
	assert.Less(t, len(lines[0]), 1000)
	assert.Contains(t, lines[0], "... (6000000 bytes)")
}

// A Source that has another mistake for each request fills no log either.
func TestSourceOfMistakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, said := new(numbers), new(records)
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "10/1h"}, Source: source, Log: slog.New(said)})
		for range 2 {
			for i := range 3000 {
				source.Store(&guard.Set{Policies: map[string]string{"default": "nonsense" + strconv.Itoa(i)}})
				g.Check(from(alice))
			}
			assert.Len(t, said.all(), 1000)
			<-time.After(time.Hour)
		}
	})
}

// Lint tells of mistakes in a Source when the program starts.
func TestSourceLint(t *testing.T) {
	source := new(numbers)
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "10/1h", Tiers: map[string]string{"pro": "20/1h"}, Tier: func(keyfunc.Request) string { return "" }}, Source: source})
	assert.Empty(t, g.Lint(nil))
	source.Store(policies("default", "20/1h", "other", "nonsense"))
	assert.Empty(t, g.Lint(nil))
	source.Store(&guard.Set{
		Policies: map[string]string{"default": "20/1h fixed-window"},
		Tiers:    map[string]map[string]string{"default": {"pro": "20/1h; shadow"}},
	})
	var got []string
	for _, w := range g.Lint(nil) {
		got = append(got, w.String())
	}
	assert.Equal(t, []string{
		`unusable-numbers: Source.Policies["default"]: enforce: the variant "default: 20/1h fixed-window" of "default: 10/1h" differs in more than numbers, and so would not share its counts; give it the same algorithms; until it is mended, the numbers of the Config hold`,
		`unusable-numbers: Source.Tiers["default"]["pro"]: enforce: in "default: 20/1h; shadow" only the numbers may differ; leave the options out, as the policy does; until it is mended, the numbers of the Config hold`,
	}, got)
}

// asking counts how often it is asked.
type asking struct {
	numbers
	times atomic.Int64
}

func (a *asking) Load() *guard.Set {
	a.times.Add(1)
	return a.numbers.Load()
}

// A request asks once, however many rules it has, and goes by one Set.
func TestSourceIsAskedOnce(t *testing.T) {
	source := new(asking)
	changing := keyfunc.Custom("changing", func(keyfunc.Request) (string, error) {
		source.Store(policies("default", "90/1h", "second", "90/1h"))
		return "x", nil
	})
	g := newGuard(t, guard.Config{
		Rule:   guard.Rule{Policy: "10/1h", Key: changing},
		Rules:  []guard.Rule{{Policy: "second: 20/1h", Key: keyfunc.Const("x")}, {Policy: "third: 30/1h", Key: keyfunc.IP()}},
		Source: source,
		Observe: func(e guard.Event) {
			assert.NotEqualValues(t, 90, e.Result.Limit, "it was changed while the first rule was asked")
		},
	})
	require.True(t, passes(g, alice))
	assert.EqualValues(t, 1, source.times.Load())
}

// making makes a Set for each request, which always says the same.
type making struct{}

func (making) Load() *guard.Set { return policies("default", "20/1h") }

func TestSourceThatMakesSets(t *testing.T) {
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "10/1h"}, Source: making{}})
	for left := 19; left >= 10; left-- {
		assert.Equal(t, fmt.Sprintf("true 20 %d", left), shown(g, from(alice)))
	}
}

// All versions of a rule share the places to wait in, and the warnings that the log has had.
func TestSourceSharesPlaces(t *testing.T) {
	said := new(records)
	source := new(numbers)
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{
			Policy: "10/1h burst 1; wait 5h", Waiting: 1, Key: keyfunc.Custom("none", nothing),
			NoKey: guard.NoKeyShared, Cost: func(keyfunc.Request) int64 { return -1 },
		},
		Source: source, Log: slog.New(said),
	})
	for i := range 5 {
		source.Store(policies("default", fmt.Sprintf("%d/1h burst 1; wait 5h", i+1)))
		g.Check(from(alice))
	}
	assert.Equal(t, []string{"unusable-cost"}, said.codes())
}

// Numbers change under load, and no count is lost: what was taken is counted, and what was given back, under whatever
// numbers, is not.
func TestSourceUnderLoad(t *testing.T) {
	for _, where := range []string{"in the process", "remote"} {
		t.Run(where, func(t *testing.T) {
			memory := newMemory(t)
			c := guard.Config{Store: memory, Rules: []guard.Rule{{Policy: "64 concurrent lease 1h"}}}
			if c.Rules[0].Policy = "permits: " + c.Rules[0].Policy; where == "remote" {
				c.Store, c.Rules = remotetest.New(memory), nil
			}
			const least, workers, each = 10_000, 8, 500
			source := new(numbers)
			c.Source = source
			var kept atomic.Int64
			var limits sync.Map
			c.Rule = guard.Rule{
				Policy: "10000/24h fixed-window", Key: keyfunc.Const("all"),
				Settle: func(f guard.Final, taken int64) int64 {
					if f.Status == 500 {
						return 0
					}
					kept.Add(taken)
					return taken
				},
			}
			c.Observe = func(e guard.Event) { limits.Store(e.Policy+" "+fmt.Sprint(e.Result.Limit), true) }
			g := newGuard(t, c)
			var asking sync.WaitGroup
			for worker := range workers {
				asking.Go(func() {
					for i := range each {
						if i%3 == 0 {
							n := i + worker
							source.Store(policies("default", fmt.Sprintf("%d/24h fixed-window", least+n%10), "permits", fmt.Sprintf("%d concurrent lease 1h", 64+n%10)))
						}
						v := g.Check(from(alice))
						assert.Equal(t, guard.Pass, v.Action)
						v.Finish(guard.Final{Status: 200 + 300*((i+worker)%2)})
					}
				})
			}
			asking.Wait()
			require.NoError(t, g.Close(), "what is due is given back")
			source.Store(nil)
			require.Eventually(t, func() bool {
				p := g.Policies()
				res, err := memory.Take(t.Context(), core.Take{Policy: p[0], Key: "const=all"})
				require.NoError(t, err)
				if len(p) == 1 {
					return res.Remaining == least-kept.Load()
				}
				free, err := memory.Acquire(t.Context(), core.Permit{Policy: p[1], Key: "const=all", ID: "probe", Weight: 65})
				require.NoError(t, err)
				return res.Remaining == least-kept.Load() && free.Remaining == 64
			}, 20*time.Second, time.Millisecond)
			assert.EqualValues(t, workers*each/2, kept.Load())
			different := 0
			limits.Range(func(any, any) bool { different++; return true })
			assert.Greater(t, different, 2, "the numbers did change")
		})
	}
}

// Where nothing has changed, a Source costs no memory; without one there is nothing to cost.
func TestSourceAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector drops what is pooled")
	}
	source := new(numbers)
	source.Store(policies("default", "1000000/1s"))
	measure := func(s guard.Source) float64 {
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "100000/1s"}, Source: s})
		r := from(alice)
		return testing.AllocsPerRun(1000, func() { g.Check(r) })
	}
	assert.InDelta(t, measure(nil), measure(source), 0.01)
}

// How many processes share a limit while the store fails is a number like the others, where the Config has one.
func TestSourceShares(t *testing.T) {
	store, numbers := remotetest.New(newMemory(t)), new(atomic.Pointer[guard.Set])
	said := new(records)
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "8/1h fixed-window; fail local 1/2"}, Source: numbers, Store: store, Log: slog.New(said)})
	store.Fail(down())
	passing := func() (n int) {
		for passes(g, alice) {
			n++
		}
		return n
	}
	assert.Equal(t, 4, passing())
	said.all()
	numbers.Store(&guard.Set{Policies: map[string]string{"default": "24/1h fixed-window; fail local 1/3"}})
	assert.Equal(t, 4, passing(), "of 8, of which 4 were taken")
	assert.Empty(t, said.all())
	numbers.Store(&guard.Set{Policies: map[string]string{"default": "24/1h fixed-window; fail local 1/1"}})
	assert.Equal(t, 16, passing(), "a fleet of one")
	assert.Empty(t, said.all())
	numbers.Store(&guard.Set{Policies: map[string]string{"default": "40/1h fixed-window"}})
	assert.Zero(t, passing(), "by halves again")
	assert.Empty(t, said.all())
	numbers.Store(&guard.Set{Policies: map[string]string{"default": "40/1h fixed-window; fail open"}})
	assert.True(t, passes(g, alice))
	said.all()
	numbers.Store(nil)
	assert.Zero(t, passing(), "by halves again")
}

// Options that an entry or a tier leaves out are those of the policy; another one is a mistake, also where it is the
// word that is meant if there is none.
func TestOptionsAreInherited(t *testing.T) {
	build := func(policy, tier string) (*guard.Guard, error) {
		return guard.New(guard.Config{Rule: guard.Rule{
			Policy: policy, Key: keyfunc.IP(),
			Tier:  func(keyfunc.Request) string { return "pro" },
			Tiers: map[string]string{"pro": tier},
		}})
	}
	for _, c := range []struct{ policy, tier, mistake string }{
		{"2/1h; fail closed", "5/1h", ""},
		{"2/1h; fail closed", "5/1h; fail closed", ""},
		{"2/1h; fail closed", "5/1h; fail open", "only the numbers may differ"},
		{"2/1h; fail closed", "5/1h; fail local", "only the numbers may differ"},
		{"2/1h; fail closed", "5/1h; fail local 1/4", "only the numbers may differ"},
		{"2/1h; shadow", "5/1h", ""},
		{"2/1h", "5/1h; shadow", "only the numbers may differ"},
		{"2/1h; wait 1s", "5/1h", ""},
		{"2/1h; wait 1s", "5/1h; wait 2s", "only the numbers may differ"},
		{"2/1h", "5/1h; fail local", ""},
		{"8/1h; fail local 1/4", "16/1h", ""},
		{"8/1h; fail local 1/4", "16/1h; fail local 1/8", ""},
	} {
		g, err := build(c.policy, c.tier)
		if c.mistake != "" {
			assert.ErrorContains(t, err, c.mistake, c)
			continue
		}
		if assert.NoError(t, err, c) {
			assert.NoError(t, g.Close())
		}
	}

	store, source := remotetest.New(newMemory(t)), new(numbers)
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "2/1h; fail closed"}, Source: source, Store: store, Log: slog.New(slog.DiscardHandler)})
	source.Store(policies("default", "5/1h"))
	assert.Equal(t, "default: 5/1h; fail closed", g.Policies()[0].String())
	store.Fail(down())
	assert.Equal(t, 503, g.Check(from(alice)).Status)
}

// A Source may bring the tiers that the Config has none of.
func TestSourceBringsTiers(t *testing.T) {
	source := new(numbers)
	rule := guard.Rule{Policy: "2/1h", Key: keyfunc.IP(), Tier: func(keyfunc.Request) string { return "pro" }}
	g := newGuard(t, guard.Config{Rule: rule, Source: source})
	assert.Equal(t, "true 2 1", shown(g, from(alice)))
	source.Store(tiers("default", "pro", "50/1h"))
	assert.Contains(t, shown(g, from(bob)), "true 50 49")

	_, err := guard.New(guard.Config{Rule: rule})
	assert.ErrorContains(t, err, "Tier without Tiers")
	rule.Tier, rule.Tiers = nil, map[string]string{"pro": "50/1h"}
	_, err = guard.New(guard.Config{Rule: rule, Source: source})
	assert.ErrorContains(t, err, "Tiers without Tier")
}

// A name that none of the Guards has is found out.
func TestSetUnused(t *testing.T) {
	g := newGuard(t, guard.Config{
		Rule:   guard.Rule{Policy: "api: 2/1h"},
		Rules:  []guard.Rule{{Policy: "all: 9/1h", Key: keyfunc.Const("all")}},
		Routes: map[string]guard.Rule{"POST /login": {Policy: "3/1h"}},
	})
	set := policies("api", "3/1h", "all", "8/1h", "post-login", "4/1h", "with", "5/1h", "lgin", "6/1h")
	set.Tiers = map[string]map[string]string{"api": {"pro": "9/1h"}, "apo": {"pro": "9/1h"}}
	assert.Equal(t, []string{"apo", "lgin", "with"}, set.Unused(g))
	assert.Equal(t, []string{"apo", "lgin"}, set.Unused(g, g.With("with", "1/1h")))
	assert.Empty(t, (*guard.Set)(nil).Unused(g))
}
