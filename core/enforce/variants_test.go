package enforce_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/follow"
)

// Fits decides what a text may change, whoever asks.
func TestFits(t *testing.T) {
	for _, c := range []struct{ code, text, want, tier string }{
		{"api: 10/1m", "20/1h", "api: 20/1h", ""},
		{"api: 10/1m; fail closed", "20/1m", "api: 20/1m; fail closed", ""},
		{"api: 10/1m; fail closed", "20/1m; fail closed", "api: 20/1m; fail closed", ""},
		{"api: 10/1m", "20/1m; fail local 1/4", "api: 20/1m; fail local 1/4", ""},
		{"api: 10/1m; fail local 1/4", "20/1m; fail local 1/8", "api: 20/1m; fail local 1/8", ""},
		{"api: 10/1m; wait 1s", "20/1m; wait 1s", "api: 20/1m; wait 1s", ""},
		{"api: 10/1h fixed-window calendar UTC", "20/1mo fixed-window calendar Asia/Tokyo", "api: 20/1mo fixed-window calendar Asia/Tokyo", ""},
		// What only a policy may change.
		{"api: 10/1m", "10/1m; shadow", "api: 10/1m; shadow", "only the numbers may differ"},
		{"api: 10/1m; shadow", "10/1m; shadow off", "api: 10/1m", "only the numbers may differ"},
		{"api: 10/1m; fail closed", "10/1m; fail local", "api: 10/1m", "only the numbers may differ"},
		{"api: 10/1m; fail local 1/4", "10/1m; fail open", "api: 10/1m; fail open", "only the numbers may differ"},
		{"api: 10/1m; wait 1s", "10/1m; wait 2s", "api: 10/1m; wait 2s", "only the numbers may differ"},
		{"api: 10/1m", "10/1m; epoch 7", "api: 10/1m; epoch 7", "only the numbers may differ"},
		{"api: 10/1m; epoch 7", "10/1m; epoch 0", "api: 10/1m", "only the numbers may differ"},
		// What neither may.
		{"api: 10/1m", "10/1m; wait 1s", `waits, and the code has no "wait"`, `waits, and the code has no "wait"`},
		{"api: 10/1m; wait 1s", "10/1m; wait 0s", "does not wait", "does not wait"},
		{"api: 10/1m", "login: 10/1m", "has another name", "has another name"},
		{"api: 10/1m", "10/1m fixed-window", "differs in more than numbers", "differs in more than numbers"},
		{"api: 10/1m", "10/1m, 3 concurrent", "differs in more than numbers", "differs in more than numbers"},
		{"api: 10/1m", "10/1m, 3/1s", "differs in more than numbers", "differs in more than numbers"},
		{"api: 10/1m sliding-window", "10/1m sliding-window buckets 3", "differs in more than numbers", "differs in more than numbers"},
		{"api: 10/1m fixed-window", "10/1m fixed-window aligned", "differs in more than numbers", "differs in more than numbers"},
		{"api: 10/1m fixed-window aligned", "10/1m fixed-window calendar UTC", "differs in more than numbers", "differs in more than numbers"},
		{"api: 10/1m; wait 1s", "10/1m fixed-window", "cannot reserve", "cannot reserve"},
		{"api: 10/1m", "10/1", "expected a unit", "expected a unit"},
	} {
		code := core.MustParse(c.code)
		if c.tier == "" {
			c.tier = c.want
		}
		for want, fits := range map[*string]func(core.Policy, string) (core.Policy, error){&c.want: enforce.Fits, &c.tier: enforce.FitsTier} {
			p, err := fits(code, c.text)
			if err != nil {
				require.ErrorContains(t, err, *want, "%s in the place of %s", c.text, c.code)
				assert.True(t, p.IsZero())
				continue
			}
			assert.Equal(t, *want, p.String(), "%s in the place of %s", c.text, c.code)
			l := newLimiter(t, nil, c.code)
			_, err = l.Variant(p)
			assert.Equal(t, want == &c.tier || c.tier == c.want, err == nil, "Variant is as strict as tiers are: %v, %v", p, err)
		}
	}
}

// model has the texts of the policy, its tiers and its keys by the Sets so far, worked out from nothing each time.
type model struct {
	now         core.Policy
	tiers, keys map[string]string
}

func (m model) next(code core.Policy, codeTiers map[string]string, s *follow.Set) model {
	next := model{now: code, tiers: map[string]string{}, keys: map[string]string{}}
	if text := s.Policies["api"]; text != "" {
		next.now = m.now
		if p, err := enforce.Fits(code, text); err == nil {
			next.now = p
		}
	}
	o := next.now.Options()
	like := func(p core.Policy, read core.PolicyOptions) string {
		o := o
		if o.Fail == core.FailLocal && p.Options().Fail == core.FailLocal && p.Options().Processes != read.Processes {
			o.Processes = p.Options().Processes
		}
		q, err := core.NewPolicy("api", o, p.Limits()...)
		if err != nil {
			panic(err)
		}
		return q.String()
	}
	held := func(text string) string {
		if text == follow.Unlimited || text == follow.Blocked {
			return text
		}
		return like(core.MustParse(text), m.now.Options())
	}
	for name, text := range codeTiers {
		if next.tiers[name] = text; text != follow.Unlimited {
			p, err := code.ParseLike(text)
			if err != nil {
				panic(err)
			}
			next.tiers[name] = like(p, code.Options())
		}
	}
	for name, text := range s.Tiers["api"] {
		p, err := enforce.FitsTier(next.now, text)
		switch before, had := m.tiers[name]; {
		case name != "" && text == follow.Unlimited:
			next.tiers[name] = text
		case name != "" && err == nil:
			next.tiers[name] = p.String()
		case had:
			next.tiers[name] = held(before)
		}
	}
	for name, text := range s.Keys["api"] {
		p, err := enforce.FitsTier(next.now, text)
		switch before, had := m.keys[name]; {
		case name != "" && (text == follow.Unlimited || text == follow.Blocked):
			next.keys[name] = text
		case name != "" && err == nil:
			next.keys[name] = p.String()
		case had:
			next.keys[name] = held(before)
		}
	}
	return next
}

// said returns the text of each Limiter.
func said(t require.TestingT, limiters map[string]*enforce.Limiter) map[string]string {
	out := map[string]string{}
	for name, l := range limiters {
		if out[name] = follow.Unlimited; l == nil {
			continue
		}
		if out[name] = l.Policy().String(); isBlocked(t, l) {
			out[name] = follow.Blocked
		}
	}
	return out
}

func isBlocked(t require.TestingT, l *enforce.Limiter) bool {
	res, err := l.Peek(context.Background(), "k")
	require.NoError(t, err)
	return res.RetryAfter == time.Minute && res.Limit == 0
}

// What is made from what there was before is the same as what is made from nothing, whatever Sets come, with texts that
// cannot be used among them.
func TestVariantsByDifference(t *testing.T) {
	const code = "api: 10/1m; fail local 1/4"
	codeTiers := map[string]string{"pro": "50/1m", "big": "90/1m; fail local 1/9", "staff": "unlimited"}
	policies := []string{"", "", "20/1m", "20/1m; shadow", "20/1h; fail open", "20/1m; fail local 1/2", "10/1m; epoch 3; shadow", "10/1m; fail closed", "nonsense", "20/1m fixed-window", "20/1m; wait 1s", "other: 5/1m"}
	texts := []string{"unlimited", "5/1m", " 5/1m", "6/1m; shadow", "7/1m; fail local 1/3", "7/1m; fail open", "blocked", "nonsense", "5/1m fixed-window", "9/1h; epoch 3"}
	names := []string{"pro", "pro", "big", "staff", "new", ""}
	keys := []string{"user=1", "user=2", "user=3", ""}
	rapid.Check(t, func(t *rapid.T) {
		l, err := enforce.New(nil, core.MustParse(code), enforce.Options{})
		require.NoError(t, err)
		var v *enforce.Variants
		want := model{now: core.MustParse(code)}
		for range rapid.IntRange(1, 6).Draw(t, "sets") {
			s := &follow.Set{Policies: map[string]string{}, Tiers: map[string]map[string]string{"api": {}}, Keys: map[string]map[string]string{"api": {}}}
			if text := rapid.SampledFrom(policies).Draw(t, "policy"); text != "" {
				s.Policies["api"] = text
			}
			for range rapid.IntRange(0, 4).Draw(t, "tiers") {
				s.Tiers["api"][rapid.SampledFrom(names).Draw(t, "tier")] = rapid.SampledFrom(texts).Draw(t, "text")
			}
			for range rapid.IntRange(0, 4).Draw(t, "keys") {
				s.Keys["api"][rapid.SampledFrom(keys).Draw(t, "key")] = rapid.SampledFrom(texts).Draw(t, "text")
			}
			want = want.next(core.MustParse(code), codeTiers, s)
			before := v
			var entries []follow.Entry
			v, entries = l.Variants(codeTiers, s, before)
			require.Equal(t, want.now.String(), v.Limiter.Policy().String())
			require.Equal(t, want.tiers, said(t, v.Tiers))
			require.Equal(t, want.keys, said(t, v.Keys))
			checkEntries(t, s, v, entries)
			again, _ := l.Variants(codeTiers, s, before)
			require.Same(t, v, again, "all that have the policy share one")
		}
	})
}

// checkEntries compares the entries with the Set and with what was made of it.
func checkEntries(t require.TestingT, s *follow.Set, v *enforce.Variants, entries []follow.Entry) {
	tiers, keys, of := said(t, v.Tiers), said(t, v.Keys), map[string]map[string]string{"Policies": {}, "Tiers": {}, "Keys": {}}
	policy := v.Limiter.Policy().String()
	used := map[string]*enforce.Limiter{}
	for _, e := range entries {
		of[e.Field][e.Tier+e.Key] = e.Text
		require.Equal(t, "api", e.Policy)
		require.Equal(t, v.Limiter.Policy().Options().Shadow, e.Trial)
		now := policy
		switch e.Field {
		case "Tiers":
			if text, ok := tiers[e.Tier]; ok {
				now = text
			}
		case "Keys":
			if text, ok := keys[e.Key]; ok {
				now = text
			}
		}
		require.Equal(t, now, e.Now, "%v", e)
		if e.Err != nil || e.Field == "Policies" {
			continue
		}
		l := v.Tiers[e.Tier]
		if e.Field == "Keys" {
			l = v.Keys[e.Key]
		}
		other, known := used[e.Text]
		require.True(t, !known || other == l, "equal texts have one Limiter: %v", e)
		used[e.Text] = l
	}
	require.Equal(t, s.Policies["api"], of["Policies"][""])
	require.Equal(t, s.Tiers["api"], of["Tiers"])
	require.Equal(t, s.Keys["api"], of["Keys"])
}

// The options of a policy reach its tiers and keys, those of the code as well, and texts that cannot be used any more
// keep their numbers.
func TestVariantsHaveTheOptionsOfNow(t *testing.T) {
	l := newLimiter(t, nil, "api: 10/1m; fail closed")
	tiers := map[string]string{"pro": "50/1m", "wordy": "60/1m; fail closed"}
	set := func(policy string) *follow.Set {
		return &follow.Set{
			Policies: map[string]string{"api": policy},
			Tiers:    map[string]map[string]string{"api": {"new": "70/1m", "picky": "80/1m; fail closed"}},
			Keys:     map[string]map[string]string{"api": {"user=7": "90/1m", "user=8": "blocked", "user=9": "unlimited"}},
		}
	}
	v, entries := l.Variants(tiers, set("20/1m"), nil)
	assert.Equal(t, map[string]string{"pro": "api: 50/1m; fail closed", "wordy": "api: 60/1m; fail closed", "new": "api: 70/1m; fail closed", "picky": "api: 80/1m; fail closed"}, said(t, v.Tiers))
	assert.Len(t, entries, 6)
	v, entries = l.Variants(tiers, set("20/1m; epoch 1; shadow; fail open"), v)
	const now = "; fail open; shadow; epoch 1"
	assert.Equal(t, map[string]string{"pro": "api: 50/1m" + now, "wordy": "api: 60/1m" + now, "new": "api: 70/1m" + now, "picky": "api: 80/1m" + now}, said(t, v.Tiers))
	assert.Equal(t, map[string]string{"user=7": "api: 90/1m" + now, "user=8": "blocked", "user=9": "unlimited"}, said(t, v.Keys))
	for _, e := range entries {
		assert.Equal(t, e.Tier == "picky", e.Err != nil, "%v: %v", e, e.Err)
		assert.True(t, e.Trial)
	}
	assert.Equal(t, `Tiers["api"]["picky"]`, entries[2].String())
	assert.Equal(t, `Policies["api"]`, entries[0].String())
	assert.Equal(t, `Keys["api"]["user=7"]`, entries[3].String())
	v, _ = l.Variants(tiers, nil, v)
	assert.Same(t, l, v.Limiter)
	assert.Equal(t, map[string]string{"pro": "api: 50/1m; fail closed", "wordy": "api: 60/1m; fail closed"}, said(t, v.Tiers))
	assert.Empty(t, v.Keys)

	// Mistakes of the code.
	v, entries = l.Variants(map[string]string{"": "9/1m", "bad": "9", "odd": "9/1m; fail open", "good": "9/1m"}, nil, nil)
	assert.Equal(t, map[string]string{"good": "api: 9/1m; fail closed"}, said(t, v.Tiers))
	require.Len(t, entries, 3)
	assert.ErrorContains(t, entries[0].Err, "a tier has a name")
	assert.ErrorContains(t, entries[1].Err, `or give "unlimited"`)
	assert.ErrorContains(t, entries[2].Err, "only the numbers may differ")
}

// Too many entries of a policy are not used, and those from before stay.
func TestVariantsAreBounded(t *testing.T) {
	l := newLimiter(t, nil, "api: 10/1m")
	many := func(n int) map[string]map[string]string {
		out := map[string]map[string]string{"api": {}}
		for i := range n {
			out["api"][fmt.Sprint("n", i)] = "5/1m"
		}
		return out
	}
	v, entries := l.Variants(nil, &follow.Set{Tiers: many(1000), Keys: many(1000)}, nil)
	assert.Len(t, v.Tiers, 1000)
	assert.Len(t, v.Keys, 1000)
	assert.Len(t, entries, 2000)
	one := slices.Collect(maps.Values(v.Tiers))
	for _, l := range append(one, slices.Collect(maps.Values(v.Keys))...) {
		assert.Same(t, one[0], l)
	}
	v, entries = l.Variants(map[string]string{"pro": "50/1m"}, &follow.Set{Tiers: many(3), Keys: many(3)}, v)
	assert.Len(t, entries, 6)
	v, entries = l.Variants(map[string]string{"pro": "50/1m"}, &follow.Set{Policies: map[string]string{"api": "20/1m; shadow"}, Tiers: many(1001), Keys: many(1001)}, v)
	assert.Equal(t, map[string]string{"n0": "api: 5/1m; shadow", "n1": "api: 5/1m; shadow", "n2": "api: 5/1m; shadow", "pro": "api: 50/1m; shadow"}, said(t, v.Tiers))
	assert.Equal(t, map[string]string{"n0": "api: 5/1m; shadow", "n1": "api: 5/1m; shadow", "n2": "api: 5/1m; shadow"}, said(t, v.Keys))
	require.Len(t, entries, 3)
	assert.EqualError(t, entries[1].Err, "enforce: the Set has 1001 tiers; give at most 1000 for one policy")
	assert.EqualError(t, entries[2].Err, "enforce: the Set has 1001 keys; give at most 1000 for one policy")
	assert.Equal(t, `Tiers["api"]`, entries[1].String())
}

// A blocked key is refused and an unlimited one admitted, whatever is asked, and the store hears nothing of either.
func TestBlockedAndUnlimited(t *testing.T) {
	for _, text := range []string{"api: 1/1h, 1 concurrent; wait 1h; fail closed", "api: 1/1h leaky-bucket", "api: 1 concurrent"} {
		l := newLimiter(t, unasked{t}, text)
		v, _ := l.Variants(nil, &follow.Set{Keys: map[string]map[string]string{"api": {"bad": "blocked"}}}, nil)
		bad, ctx := v.Keys["bad"], t.Context()
		assert.Equal(t, l.Policy(), bad.Policy())
		refused := core.Result{RetryAfter: time.Minute}
		if !strings.HasPrefix(text, "api: 1 c") { // it has rates
			for _, ask := range []func() (core.Result, error){
				func() (core.Result, error) { return bad.Allow(ctx, "bad") },
				func() (core.Result, error) { return bad.AllowN(ctx, "bad", 5) },
				func() (core.Result, error) { return bad.Peek(ctx, "bad") },
				func() (core.Result, error) { return bad.UpTo(ctx, "bad", 5) },
				func() (core.Result, error) { return bad.Reserve(ctx, "bad", 5, time.Hour) },
			} {
				res, err := ask()
				require.NoError(t, err)
				assert.True(t, refused.Equal(res), "%+v", res)
			}
			err := bad.Wait(ctx, "bad", 1)
			assert.EqualError(t, err, "enforce: api: the key is blocked; try again in 1m0s")
			_, err = bad.Allow(ctx, "")
			require.ErrorContains(t, err, "the key is empty")
			_, err = bad.AllowN(ctx, "bad", -1)
			require.ErrorContains(t, err, "a cost of -1")
			ended, cancel := context.WithCancel(ctx)
			cancel()
			_, err = bad.Allow(ended, "bad")
			require.ErrorIs(t, err, context.Canceled)
		}
		if strings.Contains(text, "concurrent") {
			_, _, err := bad.Acquire(ctx, "bad")
			assert.EqualError(t, err, "enforce: api: the key is blocked; try again in 1m0s")
		}
		var a enforce.Admission
		require.NoError(t, bad.Begin(ctx, enforce.Ask{Key: "bad", Cost: 1}, &a))
		assert.True(t, refused.Equal(a.Result))
		require.NoError(t, a.Wait(ctx))
		require.NoError(t, a.Acquire(ctx, 1))
		a.GiveBack(1)
		a.Charge(1, nil)
		a.Finish(false)
		require.NoError(t, l.Close())
	}
}

// unasked is a store that must not be asked.
type unasked struct{ testing.TB }

func (u unasked) asked() error {
	u.Helper()
	u.Error("the store was asked")
	return errors.New("asked")
}

func (u unasked) Take(context.Context, core.Take) (core.Result, error) {
	return core.Result{}, u.asked()
}
func (u unasked) Refund(context.Context, []core.Refund) error      { return u.asked() }
func (u unasked) Reset(context.Context, core.Policy, string) error { return u.asked() }
func (u unasked) Acquire(context.Context, core.Permit) (core.Result, error) {
	return core.Result{}, u.asked()
}

func (u unasked) Renew(context.Context, []core.Permit) ([]core.Permit, error) { return nil, u.asked() }
func (u unasked) Release(context.Context, []core.Permit) error                { return u.asked() }

// All that have one policy share what is made of a Set, and it is kept alive by them alone.
func TestVariantsAreShared(t *testing.T) {
	l := newLimiter(t, nil, "api: 10/1m")
	tiers := map[string]string{"pro": "50/1m"}
	type user struct {
		limiter *enforce.Limiter
		now     *enforce.Variants
	}
	users := make([]user, 200)
	for i := range users {
		own, err := l.With(core.MustParse("api: 10/1m"))
		require.NoError(t, err)
		users[i].limiter = own
	}
	for i := range 5 {
		set := &follow.Set{Tiers: map[string]map[string]string{"api": {"pro": fmt.Sprint(60+i, "/1m")}}}
		for u := range users {
			users[u].now, _ = users[u].limiter.Variants(maps.Clone(tiers), set, users[u].now)
			require.Same(t, users[0].now, users[u].now)
		}
		numbers, err := l.Variant(core.MustParse("11/1m"))
		require.NoError(t, err)
		other, _ := numbers.Variants(tiers, set, nil)
		assert.Same(t, numbers, other.Limiter, "another policy")
		other, _ = l.Variants(map[string]string{"max": "50/1m"}, set, nil)
		assert.NotContains(t, users[0].now.Tiers, "max")
		assert.Contains(t, other.Tiers, "max", "other tiers")
	}
	bad := &follow.Set{Tiers: map[string]map[string]string{"api": {"pro": "nonsense"}}}
	late, _ := l.Variants(tiers, bad, nil)
	users[0].now, _ = l.Variants(tiers, bad, users[0].now)
	assert.Equal(t, map[string]string{"pro": "api: 50/1m"}, said(t, late.Tiers))
	assert.Equal(t, map[string]string{"pro": "api: 64/1m"}, said(t, users[0].now.Tiers), "what cannot be used depends on what was before")
	users[0].now, _ = l.Variants(tiers, nil, users[0].now)
	assert.Equal(t, map[string]string{"pro": "api: 50/1m"}, said(t, users[0].now.Tiers))
}

// BenchmarkVariants makes what a thousand tiers and a thousand keys stand for: all of them anew, one that has changed,
// and all with other options.
func BenchmarkVariants(b *testing.B) {
	set := func(from int, policy, one string) *follow.Set {
		s := &follow.Set{
			Policies: map[string]string{"api": policy},
			Tiers:    map[string]map[string]string{"api": {"one": one}}, Keys: map[string]map[string]string{"api": {}},
		}
		for i := range 999 {
			s.Tiers["api"][fmt.Sprint("tier-", i)] = fmt.Sprint(from+i, "/1m")
			s.Keys["api"][fmt.Sprint("user=", i)] = fmt.Sprint(from+i, "/1h burst ", i+1)
		}
		return s
	}
	l, err := enforce.New(nil, core.MustParse("api: 10/1m"), enforce.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for name, sets := range map[string][2]*follow.Set{
		"all":     {set(1, "20/1m", "5/1m"), set(10_000, "20/1m", "5/1m")},
		"one":     {set(1, "20/1m", "5/1m"), set(1, "20/1m", "6/1m")},
		"options": {set(1, "20/1m", "5/1m"), set(1, "20/1m; shadow", "5/1m")},
	} {
		b.Run(name, func(b *testing.B) {
			v, _ := l.Variants(nil, sets[1], nil)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				v, _ = l.Variants(nil, sets[i%2], v)
			}
		})
	}
}

// A Set changes what Fits accepts, and nothing else: the form must be the same, and so must it be whether
// requests wait.
func TestFitsAgreesWithVariants(t *testing.T) {
	limits := []string{
		"5/1m", "7/1h burst 3", "9/1s debt 2", "5/1m token-bucket", "5/1m leaky-bucket", "5/1m fixed-window", "5/1h fixed-window aligned",
		"5/1d fixed-window calendar UTC", "5/1mo fixed-window calendar Asia/Tokyo", "5/1m sliding-window", "5/1m sliding-window buckets 3",
		"5/1m sliding-log", "5/1m sliding-counter", "3 concurrent", "4 concurrent lease 1m",
	}
	options := []string{"", "; wait 1s", "; wait 2s", "; wait 0s", "; fail open", "; fail closed", "; fail local", "; fail local 1/3", "; shadow", "; shadow off", "; epoch 2", "; epoch 0"}
	form := func(p core.Policy) string {
		text := ""
		for _, l := range p.Limits() {
			unit, _, calendar := strings.Cut(l.Align, " ")
			if calendar {
				unit = "calendar"
			}
			text += fmt.Sprint(l.Algorithm, l.Buckets, unit, ";")
		}
		return fmt.Sprint(text, p.Options().Wait > 0)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := func() string {
			var several []string
			for range rapid.IntRange(1, 2).Draw(t, "limits") {
				several = append(several, rapid.SampledFrom(limits).Draw(t, "limit"))
			}
			out := strings.Join(several, ", ")
			for range rapid.IntRange(0, 2).Draw(t, "options") {
				out += rapid.SampledFrom(options).Draw(t, "option")
			}
			return out
		}
		code, err := core.Parse("api: " + text())
		if err != nil {
			t.Skip(err)
		}
		other := text()
		like, unread := code.ParseLike(other)
		want := unread == nil && form(like) == form(code)
		p, err := enforce.Fits(code, other)
		require.Equal(t, want, err == nil, "%s in the place of %v: %v", other, code, err)
		l, problem := enforce.New(nil, code, enforce.Options{})
		require.NoError(t, problem)
		v, entries := l.Variants(nil, &follow.Set{Policies: map[string]string{"api": other}}, nil)
		require.Equal(t, err, entries[0].Err)
		if want {
			require.Equal(t, like.String(), p.String())
			require.Equal(t, like.String(), v.Limiter.Policy().String())
		} else {
			require.Same(t, l, v.Limiter)
		}
		_, tier := enforce.FitsTier(code, other)
		o := like.Options()
		o.Processes = code.Options().Processes
		require.Equal(t, want && o == code.Options(), tier == nil, "%s as a tier of %v: %v", other, code, tier)
	})
}
