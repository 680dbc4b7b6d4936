package redissource

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/internal/followers"
	"github.com/weir-go/weir/internal/redistest"
)

// job makes a Limiter that follows a Source, with the counts of the process.
func job(t testing.TB, s follow.Source, policy string) *enforce.Limiter {
	t.Helper()
	store, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	l, err := enforce.New(store, core.MustParse(policy), enforce.Options{Source: s})
	require.NoError(t, err)
	return l
}

// TestPreparedBeforeItIsShown: a Set is ready for all that follow when the first request can see it.
func TestPreparedBeforeItIsShown(t *testing.T) {
	t.Parallel()
	rdb := server(t).Client(t)
	app := newApp()
	s := followed(t, rdb, app, Options{}, quick())
	var mu sync.Mutex
	prepared := map[string]bool{} // revisions
	for range 3 {
		s.Listen(follow.NewFollower(nil, func(set *follow.Set) ([]follow.Entry, bool) {
			if set == nil {
				return nil, true
			}
			mu.Lock()
			defer mu.Unlock()
			if shown := s.Load(); !prepared[set.Revision] && shown != nil {
				assert.NotEqual(t, set.Revision, shown.Revision, "it is shown already")
			}
			prepared[set.Revision] = true
			return nil, true
		}))
	}
	for n := range int64(5) {
		write(t, rdb, document(app, 1, n+1, fmt.Sprint(n+1, "/1m")))
		awaitText(t, s, fmt.Sprint(n+1, "/1m"))
		mu.Lock()
		assert.True(t, prepared[s.Load().Revision])
		mu.Unlock()
	}
	late := make(chan string, 1) // one that comes when there is a document
	s.Listen(follow.NewFollower(nil, func(set *follow.Set) ([]follow.Entry, bool) {
		signal := set.Revision
		select {
		case late <- signal:
		default:
		}
		return nil, true
	}))
	assert.Equal(t, "1.5", <-late)
}

// TestFollowersAreForgotten: what nobody uses any more is not kept, and the followers are bounded.
func TestFollowersAreForgotten(t *testing.T) {
	t.Parallel()
	rdb := server(t).Client(t)
	app := newApp()
	write(t, rdb, document(app, 1, 1, "7/1m"))
	s := followed(t, rdb, app, Options{}, quick())
	awaitText(t, s, "7/1m")
	store, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	shared, err := enforce.New(store, core.MustParse("others: 1/1m"), enforce.Options{Source: s})
	require.NoError(t, err)
	for range 3 {
		for range followers.Max {
			_, err := shared.With(core.MustParse("api: 1/1m"))
			require.NoError(t, err)
		}
		runtime.GC()
	}
	last := job(t, s, "api: 1/1m")
	require.Eventually(t, func() bool {
		runtime.GC()
		return len(s.Status().Rules) < 10
	}, patience, time.Millisecond)
	assert.Equal(t, "api: 7/1m", last.Policy().String())
}

// TestUnlistedFollowersObey: the thousand and first obeys the same document.
func TestUnlistedFollowersObey(t *testing.T) {
	t.Parallel()
	rdb := server(t).Client(t)
	app := newApp()
	s := followed(t, rdb, app, Options{}, quick())
	all := make([]*enforce.Limiter, followers.Max+5)
	for i := range all {
		all[i] = job(t, s, "api: 1/1m")
	}
	write(t, rdb, document(app, 1, 1, "7/1m"))
	awaitText(t, s, "7/1m")
	for _, l := range all {
		_, err := l.Allow(t.Context(), "k")
		require.NoError(t, err)
		assert.Equal(t, "api: 7/1m", l.Policy().String())
	}
	st := s.Status()
	assert.Len(t, st.Rules, followers.Max)
	assert.Equal(t, 5, st.Unlisted)
	runtime.KeepAlive(all)
}

// TestStatesAreMadeOnce: while nothing changes, what follows is not described anew, neither for a Status nor to find who
// is gone when one more comes than there may be.
func TestStatesAreMadeOnce(t *testing.T) { //nolint:paralleltest // it counts what is allocated
	rdb := server(t).Client(t)
	app := newApp()
	d := document(app, 1, 1, "7/1m")
	keys := map[string]string{}
	for i := range 1000 {
		keys[fmt.Sprint("user=", i)] = fmt.Sprint(i+1, "/1m")
	}
	d.Policies["api"] = policies.Policy{Text: "7/1m", Keys: keys}
	write(t, rdb, d)
	p := quick()
	p.read, p.announce, p.silence = never, never, never
	s := followed(t, rdb, app, Options{Silent: true}, p)
	awaitText(t, s, "7/1m")
	all := make([]*enforce.Limiter, 200)
	for i := range all {
		all[i] = job(t, s, "api: 1/1m")
	}
	assert.Less(t, testing.AllocsPerRun(10, func() { s.Status() }), float64(len(all)))
	assert.Len(t, s.Status().Rules, len(all))
	runtime.KeepAlive(all)
}

// inProcess is the location of what the limiters of these tests count.
var inProcess = stats.Location{Process: true}

// ruleOf returns the rule of a policy.
func ruleOf(t testing.TB, rules []policies.RuleState, policy string) policies.RuleState {
	t.Helper()
	for _, r := range rules {
		if r.Policy == policy {
			return r
		}
	}
	require.Fail(t, "no rule", policy)
	return policies.RuleState{}
}

// TestMeanings: each of the six words, for the policies of one process, as it stands in the inventory.
func TestMeanings(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rdb := server.Client(t)
	p := quick()
	p.stale = 500 * time.Millisecond
	s := followed(t, rdb, "pay", Options{}, p)
	limiters := map[string]*enforce.Limiter{}
	for _, text := range []string{"alone: 1/1m", "numbers: 1/1m", "tried: 1/1m", "other: 1/1m", "tiers: 1/1m", "keys: 1/1m; shadow"} {
		name, _, _ := strings.Cut(text, ":")
		limiters[name] = job(t, s, text)
	}
	announced := func(want map[string]policies.Meaning) []policies.RuleState {
		t.Helper()
		var rules []policies.RuleState
		awaitProcesses(t, rdb, "pay", func(all []*policies.Process) bool {
			if len(all) != 1 || len(all[0].Rules) != len(limiters) {
				return false
			}
			rules = all[0].Rules
			for _, r := range rules {
				if r.Meaning != want[r.Policy] {
					return false
				}
			}
			return true
		})
		return rules
	}
	all := func(m policies.Meaning) map[string]policies.Meaning {
		want := map[string]policies.Meaning{}
		for name := range limiters {
			want[name] = m
		}
		return want
	}
	announced(all(policies.Code))

	d := document("pay", 1, 1, "1/1m")
	d.Policies = map[string]policies.Policy{
		"numbers": {Text: "7/1m"},
		"tried":   {Text: "7/1m; shadow"},
		"other":   {Text: "7/1m sliding-log"},
		"tiers":   {Tiers: map[string]string{"pro": "9/1m"}},
		"keys":    {Keys: map[string]string{"user=7": "9/1m", "user=8": "9/1m sliding-log"}},
		"nobody":  {Text: "7/1m"},
	}
	write(t, rdb, d)
	mixed := map[string]policies.Meaning{
		"alone": policies.Code, "numbers": policies.Fleet, "tried": policies.Trial, "other": policies.Unusable,
		"tiers": policies.Code, "keys": policies.Trial, // a Limiter has no tiers
	}
	rules := announced(mixed)
	assert.Equal(t, policies.RuleState{Policy: "alone", Code: "alone: 1/1m", Now: "alone: 1/1m", Meaning: policies.Code, Location: inProcess}, ruleOf(t, rules, "alone"))
	assert.Equal(t, policies.RuleState{Policy: "numbers", Code: "numbers: 1/1m", Now: "numbers: 7/1m", Meaning: policies.Fleet, Location: inProcess}, ruleOf(t, rules, "numbers"))
	assert.Equal(t, "tried: 7/1m; shadow", ruleOf(t, rules, "tried").Now)
	assert.Equal(t, "other: 1/1m", ruleOf(t, rules, "other").Now)
	assert.Contains(t, ruleOf(t, rules, "other").Why, "sliding-log")
	assert.Contains(t, ruleOf(t, rules, "keys").Why, "user=8")
	assert.NotContains(t, ruleOf(t, rules, "keys").Why, "user=7")

	require.NoError(t, rdb.HSet(t.Context(), Key("pay"), FieldRevision, 2).Err())
	announced(all(policies.Unread))
	assert.Equal(t, "numbers: 7/1m", limiters["numbers"].Policy().String())

	require.NoError(t, rdb.Del(t.Context(), Key("pay")).Err())
	announced(all(policies.Stale))
	assert.Equal(t, "numbers: 7/1m", limiters["numbers"].Policy().String())

	write(t, rdb, d)
	announced(mixed)
}

// TestDeletedIsTheCodes: a policy that the fleet has deleted is as the code says, at once, and nothing else.
func TestDeletedIsTheCodes(t *testing.T) {
	t.Parallel()
	rdb := server(t).Client(t)
	app := newApp()
	d := document(app, 1, 1, "7/1m")
	d.Policies["mail"] = policies.Policy{Text: "8/1m", Keys: map[string]string{"a@b.c": "blocked"}}
	write(t, rdb, d)
	s := followed(t, rdb, app, Options{}, quick())
	awaitText(t, s, "7/1m")
	api, mail := job(t, s, "api: 1/1m"), job(t, s, "mail: 2/1m")
	res, err := mail.Allow(t.Context(), "a@b.c")
	require.NoError(t, err)
	assert.False(t, res.Allowed())
	assert.Equal(t, "mail: 8/1m", mail.Policy().String())

	d.Version.Revision++
	delete(d.Policies, "mail")
	write(t, rdb, d)
	require.Eventually(t, func() bool { return mail.Policy().String() == "mail: 2/1m" }, patience, time.Millisecond)
	res, err = mail.Allow(t.Context(), "a@b.c")
	require.NoError(t, err)
	assert.True(t, res.Allowed())
	assert.Equal(t, "api: 7/1m", api.Policy().String())
	assert.Equal(t, policies.Code, ruleOf(t, s.Status().Rules, "mail").Meaning)
	assert.Equal(t, policies.Fleet, ruleOf(t, s.Status().Rules, "api").Meaning)
}

// TestBehindALayer: what another source of the process says is not the fleet's word.
func TestBehindALayer(t *testing.T) {
	t.Parallel()
	rdb := server(t).Client(t)
	app := newApp()
	d := document(app, 1, 1, "7/1m")
	d.Policies["mail"] = policies.Policy{Text: "8/1m"}
	d.Policies["jobs"] = policies.Policy{Keys: map[string]string{"a": "8/1m", "b": "nonsense"}}
	write(t, rdb, d)
	s := followed(t, rdb, app, Options{}, quick())
	awaitText(t, s, "7/1m")
	front := new(atomic.Pointer[follow.Set])
	front.Store(&follow.Set{Policies: map[string]string{"api": "9/1m"}})
	all := policies.Layers(front, s)
	api, mail, jobs := job(t, all, "api: 1/1m"), job(t, all, "mail: 1/1m"), job(t, all, "jobs: 1/1m")
	rules := s.Status().Rules
	assert.Equal(t, policies.RuleState{
		Policy: "api", Code: "api: 1/1m", Now: "api: 9/1m", Meaning: policies.Code, Location: inProcess,
		Why: `another source of the process has Policies["api"]: "9/1m"`,
	}, ruleOf(t, rules, "api"))
	assert.Equal(t, policies.Fleet, ruleOf(t, rules, "mail").Meaning)
	assert.Equal(t, policies.Fleet, ruleOf(t, rules, "jobs").Meaning)
	assert.Contains(t, ruleOf(t, rules, "jobs").Why, `Keys["jobs"]["b"]`)
	front.Store(nil)
	assert.Equal(t, "api: 7/1m", api.Policy().String())
	assert.Equal(t, policies.RuleState{Policy: "api", Code: "api: 1/1m", Now: "api: 7/1m", Meaning: policies.Fleet, Location: inProcess}, ruleOf(t, s.Status().Rules, "api"))
	for _, l := range []*enforce.Limiter{api, mail, jobs} {
		runtime.KeepAlive(l)
	}
}
