package guard

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/keyfunc"
)

// Config has the rules that a [Guard] enforces, and the code around them. A Policy and a Key must be given; every other
// zero field is a good choice.
type Config struct {
	// Rule holds for every request, and other rules take from it what they leave out. A policy without a name is called
	// "default": with a Store, give it one, as in "api: 100/1m", because all policies of one name share counts there. The Policy may be left out if Rules or Routes have some.
	Rule
	// Rules are further rules for every request, each with another key, such as the tenant or the address. They are
	// asked after the Rule, in order: write the narrowest key first. Each policy needs a name. Limits for the same key
	// belong in one policy, which is one round trip to the store.
	Rules []Rule
	// Routes are rules for some routes, besides the Rule and Rules, or Instead of them. A key is the text of a pattern
	// that the router has registered, never a path, with or without a method before it: "/items/{id}", "POST /login".
	// "/files/*" stands for all patterns that begin with "/files/". Of several that match a request, the most specific
	// one holds alone: a method and a pattern, then a pattern, then the longest prefix. HEAD counts as GET. A policy
	// without a name is called after its key, such as "post-login". A key that no route has does nothing; [Guard.Lint]
	// says so.
	Routes map[string]Rule
	// StrictRoutes refuses, with 503, requests that may evade an entry of Routes: those whose path is like that of an
	// entry which does not hold for the route that was found; and, after one request has taken another route than the
	// one found for it, all for which that route is found. Without StrictRoutes such requests pass. Either way the log
	// has one line for each entry, with the names of both routes and the code "overlooked-entry".
	StrictRoutes bool
	// Headers is the style of the headers that show clients their limits. The zero Headers are X-RateLimit-Limit and its
	// like.
	Headers Headers
	// Source changes policies while the program runs: numbers and some options of policies, tiers and single keys. nil
	// means that none do, and costs nothing.
	Source Source
	// Store keeps the counts. nil means a new [core.Memory].
	Store core.Store
	// Observe is called for each rule that has decided on a request, and once more, after the request, if the rule has
	// a Settle or an After. It must not block.
	Observe func(Event)
	// Results puts the Result of each request into its context, for handlers that show what is left; see [FromContext].
	Results bool
	// Log receives what [enforce.Options] says of a store that fails, and mistakes that show in use, once each.
	// nil means slog.Default().
	Log *slog.Logger
}

// Guard, built by [New] or [Must], enforces rules on HTTP requests. It knows no framework: an adapter, such as
// nethttp.Limit, shows it each request. It is immutable and safe for concurrent use.
//
// A Guard that is mounted twice in one request counts it twice, and says so in the log, once.
type Guard struct {
	*family
	rules     []*rule // in the order in which they are asked
	routes    *routes // nil if there are none
	revision  string  // of the Set, if it is a version
	first     firstRequests
	following *follow.Following[*version] // nil without a Source
	listed    atomic.Pointer[[]RuleInfo]  // what Rules returns without routes, once somebody has asked
}

// family holds what a Guard shares with all Guards that its With and WithRule made.
type family struct {
	base    Rule
	limiter *enforce.Limiter // of some rule, from which the others are made
	headers headers
	observe func(Event)
	results bool
	source  Source // nil if there is none
	strict  bool   // of Config.StrictRoutes
	log     *slog.Logger
	// inProcess reports that the store keeps no key beyond the call.
	inProcess bool

	mu     sync.Mutex               // of latest
	latest map[preparedFor]*numbers // that were prepared

	rewritten sync.Once   // the warning that addresses are not those of sockets
	waits     atomic.Bool // some policy lets requests wait for their turn
	rates     atomic.Bool // some policy has a rate
	afters    afterQueue
}

// New builds a Guard. It does not use the Store, nor any other input or output but the log, which receives a line for a
// policy without a name on a Store. The error lists every mistake in c at once.
func New(c Config) (*Guard, error) { return build(c, "") }

// build is New. where is the call by which mistakes of the Config's own Rule are found, or "".
func build(c Config, where string) (*Guard, error) {
	f := &family{latest: map[preparedFor]*numbers{}, base: c.Rule, observe: c.Observe, results: c.Results, source: c.Source, strict: c.StrictRoutes, log: c.Log}
	if f.base.OverLimit == nil {
		f.base.OverLimit = Reject(RejectOptions{})
	}
	if f.base.NoKey == NoKeyDefault {
		f.base.NoKey = NoKeyRefuse
	}
	_, memory := c.Store.(*core.Memory)
	f.inProcess = memory || c.Store == nil
	g := &Guard{family: f}
	var err error
	var mistakes []error
	if f.headers, err = c.Headers.prepare(); err != nil {
		mistakes = append(mistakes, err)
	}
	if err = checkSource(c.Source); err != nil {
		mistakes = append(mistakes, err)
	}
	add := func(r Rule, name, at string) *rule {
		ru, err := f.prepare(c.Store, r, name)
		if err != nil {
			mistakes = append(mistakes, prefixed(cmp.Or(at, where), err))
			return nil
		}
		ru.place = cmp.Or(strings.TrimSuffix(at, ": "), "Rule")
		return ru
	}
	if f.base.Policy != "" || len(c.Rules) == 0 && len(c.Routes) == 0 {
		base := f.base
		if base.Instead {
			mistakes = append(mistakes, errors.New("guard: Instead has a meaning in Routes only; leave it out of the Config itself"))
			base.Instead = false
		}
		g.rules = append(g.rules, add(base, "default", ""))
	}
	for i, r := range c.Rules {
		if r.Instead {
			mistakes = append(mistakes, fmt.Errorf("guard: Rules[%d]: Instead has a meaning in Routes only; leave it out", i))
		}
		g.rules = append(g.rules, add(r, "", fmt.Sprintf("Rules[%d]: ", i)))
	}
	if g.routes, err = newRoutes(c.Routes, g.rules, add); err != nil {
		mistakes = append(mistakes, err)
	}
	if err := errors.Join(mistakes...); err != nil {
		if f.limiter == nil { // and a store that cannot be used by any policy
			_, unusable := enforce.New(c.Store, core.MustParse("1/1s"), enforce.Options{Log: c.Log})
			err = errors.Join(err, unusable)
		}
		return nil, err
	}
	if len(g.rules) > 0 && c.Store != nil && hasNoName(g.rules[0].Policy) {
		g.rules[0].unnamed = true
		f.logger().Warn("weir: "+textUnnamed, "policy", g.rules[0].Policy, "code", codeUnnamed)
	}
	g.follow()
	return g, nil
}

// prefixed says in each mistake where it is. Without a place, one of core is that of a Policy, and one of enforce says by
// itself what it is about.
func prefixed(where string, err error) error {
	if err == nil {
		return nil
	}
	if several := mistakesIn(err); len(several) > 1 {
		for i, e := range several {
			several[i] = prefixed(where, e)
		}
		return errors.Join(several...)
	}
	switch text := err.Error(); {
	case where == "" && strings.HasPrefix(text, "enforce: "):
		return err
	case where == "" && strings.HasPrefix(text, "core: "):
		where = "Policy: "
	}
	return fmt.Errorf("guard: %s%w", where, err)
}

// mistakesIn lists what is joined in err, or err alone.
func mistakesIn(err error) (all []error) {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, e := range several.Unwrap() {
		all = append(all, mistakesIn(e)...)
	}
	return all
}

// Must returns a Guard that counts in the process, for programs whose one policy is a constant:
//
//	r.Use(ginmw.Limit(guard.Must("100/1m", keyfunc.IP())))
//
// It panics on a mistake. For a store and everything else, use [New].
func Must(policy string, key keyfunc.Func) *Guard {
	where := fmt.Sprintf("Must(%q, %v): ", policy, cmp.Or(key.String(), "no key"))
	g, err := build(Config{Rule: Rule{Policy: policy, Key: key}}, where)
	if err != nil {
		panic(err)
	}
	return g
}

// With returns a Guard that enforces one more policy, for the routes on which it is mounted: an annotation. It shares
// the store, the key and everything else with g, and counts under its own name.
//
// It enforces that policy alone. What is mounted outside it, such as g on the whole application, has counted already:
// limits add up.
//
// What the Config has as Cost and Settle holds here too. A limit on requests beside one on bytes is another rule, with
// a Cost that returns 1: see [Guard.WithRule].
//
// With panics on a mistake, as http.ServeMux.Handle does, since its arguments are constants at start-up. For text from
// elsewhere use [Guard.WithRule].
func (g *Guard) With(name, policy string) *Guard {
	where := fmt.Sprintf("With(%q, %q): ", name, policy)
	out, err := g.with(Rule{Policy: policy}, name, where)
	if err == nil && out.rules[0].name != name {
		err = fmt.Errorf("guard: %sthe policy brings another name; leave it out", where)
	}
	if err != nil {
		if _, is := core.Parse(name); is == nil { // the name is a policy
			err = fmt.Errorf("%w; the name comes first", err)
		}
		panic(err)
	}
	return out
}

// WithRule is like [Guard.With] for a whole rule, and for text that is only known at run time. What r leaves out is
// taken from g's Config. The policy must have a name, and one name stands for one policy.
func (g *Guard) WithRule(r Rule) (*Guard, error) { return g.with(r, "", "") }

// with is WithRule. where is the call that mistakes name, or "".
func (g *Guard) with(r Rule, name, where string) (*Guard, error) {
	if r.Instead {
		return nil, errors.New("guard: WithRule: Instead has a meaning in Routes only, because what is mounted outside has counted already; leave it out")
	}
	ru, err := g.prepare(nil, r, name)
	if err != nil {
		return nil, prefixed(where, err)
	}
	ru.place = withPlace
	out := &Guard{family: g.family, rules: []*rule{ru}}
	out.follow()
	return out, nil
}

// withPlace is the place of the rule of a Guard that With or WithRule has made.
const withPlace = "With"

// madeByWith reports whether With or WithRule has made g.
func (g *Guard) madeByWith() bool { return len(g.rules) == 1 && g.rules[0].place == withPlace }

// Policies returns the policies that hold for every request, in the order in which they are asked, with the numbers
// that they have now.
func (g *Guard) Policies() []core.Policy {
	g = g.current()
	policies := make([]core.Policy, len(g.rules))
	for i, ru := range g.rules {
		policies[i] = ru.limiter.Policy()
	}
	return policies
}

// Close does what [enforce.Limiter.Close] does, for g and all that its With and WithRule made: it refuses, with 503,
// the requests that wait for their turn, and waits until all that is due has been given back to a remote store, for
// half a second at most. Call it after the server has shut down, if a rule with Settle, After or permits uses a remote
// store. The store is not closed, and g still decides; but requests that would have to wait for their turn get 503.
func (g *Guard) Close() error {
	g.afters.close()
	return g.limiter.Close()
}

func (f *family) logger() *slog.Logger {
	if f.log != nil {
		return f.log
	}
	return slog.Default()
}
