package guard

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/keyfunc"
)

// Rule is a policy and the code around it: the key by which requests are counted, their cost, and the handler of those
// over the limit. A [Guard] enforces one or several.
type Rule struct {
	// Policy is the text of the policy, as [core.Parse] reads it: "100/1m", or "login: 5/1m; fail closed". A request
	// waits for its turn if the policy says so: "10/1s; wait 2s", or a leaky-bucket.
	Policy string
	// Key is the key function, by whose keys requests are counted, such as keyfunc.IP(). A rule beside that of the Config
	// takes the Config's Key if its Key is the zero Func, and in the same way the fields below, except Tier, Tiers, After
	// and Instead.
	Key keyfunc.Func
	// Skip exempts requests from the rule, such as health checks.
	Skip func(keyfunc.Request) bool
	// Tier returns the tier of a request's sender, such as "pro". Its numbers are in Tiers; a tier that is not there, and
	// "", have those of Policy.
	Tier func(keyfunc.Request) string
	// Tiers are the policies of the tiers: Policy with other numbers, without a name, or "unlimited". Options that a
	// text leaves out are those of Policy: beside "60/1h; fail closed", "5000/1h" fails closed too. Where a Source may
	// bring tiers, there need be none here.
	Tiers map[string]string
	// Waiting is the number of requests that may wait for their turn in this process, if the policy lets them wait or the
	// rule has an After; 0 means 1000. With none left, a request passes if its turn is now, and is refused otherwise.
	Waiting int
	// Cost returns the units that a request takes, before the handler: 0 only looks and is always admitted. A negative
	// cost, such as the -1 of an unknown ContentLength, is a mistake: the request is answered with 503, and the log has a
	// line of it. nil means 1; where the Config has a Cost, a rule that counts requests says so: func(keyfunc.Request)
	// int64 { return 1 }.
	Cost func(keyfunc.Request) int64
	// Settle is called after the request and returns the units that it actually used; see [Reported]. taken is the number
	// of units that were taken before. What is left of them is given back, and what was used beyond them is charged as
	// well, as far as the policy's debt allows, and without debt up to what there is. Until the request is over, and with
	// a remote store some milliseconds longer, all of them are taken, so that a client has less than its limit. A part of
	// what a meter took in debt or with a delay cannot be given back; see [core.Store]. At most 16384 refunds and as many
	// charges wait for a remote store that hangs: those beyond are not made, and the log has a line of it. nil means that
	// all were used; if the Config has a Settle, a rule can undo it by func(_ guard.Final, taken int64) int64 { return
	// taken }. Settle is not called if nothing was taken.
	Settle func(f Final, taken int64) int64
	// After replaces Cost and Settle: it is called after the request and returns the units to charge, such as one for a
	// login that failed; less than 0 counts as 0. Before, the rule takes none: it only refuses if there is not one unit
	// left. So there is nothing to give back. What a request used is charged as far as the policy's debt allows, and without debt up to what there
	// is.
	//
	// Until that is charged, each request of a key counts as one unit: in this process no more of them run at a time
	// than the key has units left. The others take turns, first come first served: with 3 left, the fourth of ten
	// logins at once runs when one of the first three has succeeded. They wait for a second at most, in the places of
	// Waiting, and are refused as soon as nothing is left. Each process counts for itself, so that n of them may let n
	// times as many through; permits beside the rate ("5/1m, 5 concurrent") bound that. The policy cannot make requests
	// wait.
	After func(f Final) int64
	// OverLimit answers what the policy refuses. nil means Reject.
	OverLimit OverLimit
	// NoKey is the treatment of a request that has no key.
	NoKey NoKey
	// Instead, in Config.Routes, replaces the rules that hold for every request by this one. Without a Policy, the
	// route has no limit, and the other fields must be left out.
	Instead bool
}

// defaultWaiting is the number of requests that may wait in a process, if Waiting is 0.
const defaultWaiting = 1000

// NoKey is the treatment of a request without a key, such as one without a user where users are counted, or one
// whose key function failed.
type NoKey uint8

// The treatments of a request without a key.
const (
	// NoKeyDefault, the zero NoKey, is that of the Config, and there it is NoKeyRefuse.
	NoKeyDefault NoKey = iota
	// NoKeyRefuse hands the request to the OverLimit handler, which by default answers 403: what cannot be counted
	// does not pass.
	NoKeyRefuse
	// NoKeyShared counts all requests without a key together.
	NoKeyShared
	// NoKeyPass lets the request pass uncounted.
	NoKeyPass
)

// String returns the text of n, such as "refuse".
func (n NoKey) String() string {
	return [...]string{"default", "refuse", "shared", "pass"}[min(n, NoKeyPass)]
}

// sharedKey is the key of all requests without one. Every key that a keyfunc.Func builds has a "=", and so differs.
const sharedKey = "none"

// rule is a Rule with everything filled in, and what depends on it alone. Of a rule whose policy a Source has changed
// there are versions, which differ in their numbers and the revision alone.
type rule struct {
	Rule
	*numbers
	revision string // of the Set
	name     string
	place    string // where in the Config it is
	waits    bool   // requests may have to wait for their turn
	permits  bool
	rated    bool // the policy has a rate
	unnamed  bool // the policy has no name in its text, and a Store was given
	routed   bool // the key asks for the route
	settles  bool // it has a Settle or an After, and a rate
	forgets  bool // nothing needs the key once it has decided
	bodies   *bodies
	breaker  *breaker // the handler, if it is one
	*live
}

// prepare checks r, after it has filled in from the base what r leaves out, and opens its limiters: the family's first
// on store. A policy without a name is given one.
func (f *family) prepare(store core.Store, r Rule, name string) (*rule, error) {
	twice := r.After != nil && (r.Cost != nil || r.Settle != nil)
	r = r.or(f.base)
	p, err := policy(r.Policy, name)
	mistakes := []error{err}
	wrong := func(format string, args ...any) { mistakes = append(mistakes, fmt.Errorf(format, args...)) }
	if r.Key.String() == "" {
		wrong("Key is missing; say who is counted, as with keyfunc.IP()")
	} else if err := r.Key.Err(); err != nil {
		for _, e := range mistakesIn(err) {
			wrong("Key: %w", e)
		}
	}
	if h, ok := r.OverLimit.(interface{ Err() error }); ok && h.Err() != nil {
		for _, e := range mistakesIn(h.Err()) {
			wrong("OverLimit: %w", e)
		}
	}
	if twice {
		wrong("After counts when the request is over, and Cost and Settle before that; leave out the one or the others")
	}
	if r.NoKey > NoKeyPass {
		wrong("NoKey is %d; give NoKeyRefuse, NoKeyShared or NoKeyPass", r.NoKey)
	}
	if r.Waiting < 0 {
		wrong("Waiting is %d; give how many requests may wait, or 0 for %d", r.Waiting, defaultWaiting)
	}
	switch {
	case r.Tier == nil && len(r.Tiers) > 0:
		wrong("Tiers without Tier: nothing names the tier of a request; give Tier as well, or leave Tiers out")
	case r.Tier != nil && len(r.Tiers) == 0 && f.source == nil:
		wrong("Tier without Tiers: no tier has numbers of its own; give Tiers as well, or a Source that may bring them, or leave Tier out")
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	r.Waiting = cmp.Or(r.Waiting, defaultWaiting)
	ru := &rule{Rule: r, live: new(live), name: p.Name(), waits: p.Options().Wait > 0, routed: slices.Contains(r.Key.Kinds(), "route")}
	for _, l := range p.Limits() {
		rate := l.Algorithm != core.Concurrent
		ru.settles = ru.settles || rate && (r.Settle != nil || r.After != nil)
		ru.permits, ru.rated = ru.permits || !rate, ru.rated || rate
		ru.waits = ru.waits || l.Algorithm == core.LeakyBucket
	}
	switch {
	case r.After != nil && ru.waits:
		return nil, fmt.Errorf("a rule with After counts when the request is over, and in %q requests wait before they count; give a policy without wait and leaky-bucket", p)
	case r.After != nil && !ru.settles:
		return nil, fmt.Errorf("a rule with After has nothing to count in %q, which has permits alone; add a rate or leave After out", p)
	}
	ru.bodies = newBodies(ru.name, limitNames(p))
	ru.breaker, _ = r.OverLimit.(*breaker)
	var l *enforce.Limiter
	if f.limiter != nil {
		l, err = f.limiter.With(p)
	} else if l, err = enforce.New(store, p, enforce.Options{Log: f.log}); err == nil {
		f.limiter = l
	}
	if err != nil {
		return nil, err
	}
	ru.numbers = f.numbersOf(l, r.Tiers, nil, nil)
	if err = ru.tierMistakes(); err != nil {
		return nil, err
	}
	if ru.rated {
		f.rates.Store(true)
	}
	if ru.queues() {
		f.waits.Store(true)
	}
	ru.forgets = f.inProcess && !ru.settles && !ru.permits && !ru.waits
	return ru, nil
}

// or fills in from base what r leaves out.
func (r Rule) or(base Rule) Rule {
	if r.Key.String() == "" {
		r.Key = base.Key
	}
	if r.Skip == nil {
		r.Skip = base.Skip
	}
	if r.Cost == nil && r.After == nil {
		r.Cost = base.Cost
	}
	if r.Settle == nil && r.After == nil {
		r.Settle = base.Settle
	}
	if r.OverLimit == nil {
		r.OverLimit = base.OverLimit
	}
	r.Waiting, r.NoKey = cmp.Or(r.Waiting, base.Waiting), cmp.Or(r.NoKey, base.NoKey)
	return r
}

// policy reads a policy's text, and names it if it does not do so itself.
func policy(text, name string) (core.Policy, error) {
	if text == "" {
		return core.Policy{}, errors.New("the Policy is missing; give one, such as \"100/1m\"")
	}
	p, err := core.Parse(text)
	if _, words, named := strings.Cut(text, ":"); err != nil && (text == unlimited || named && strings.TrimSpace(words) == unlimited) {
		return p, fmt.Errorf("the policy %q: only a tier can be unlimited; leave the rule out, or, for a route of the table, give Instead alone", text)
	}
	switch {
	case err != nil || p.Name() != "":
		return p, err
	case name == "":
		return core.Policy{}, fmt.Errorf("the policy %q has no name; give it one, as in \"login: %v\"", text, p)
	default:
		return core.NewPolicy(name, p.Options(), p.Limits()...)
	}
}

// live is the part of a rule that all its versions share.
type live struct {
	waiting   atomic.Int64
	memo      Memo         // of what observes the rule
	keyed     evidence     // a key
	charged   evidence     // something to settle, or something that After has charged
	reports   evidence     // a handler that has reported
	reported  atomic.Bool  // its Settle has called Reported
	asked     evidence     // a handler that has asked Degraded
	strangers atomic.Int32 // requests of unknown tiers, of which the first are compared with the known ones
	repeats   repeats
	warned    struct { // the warnings that the log has had
		below, cost, key, tier, store, foreign, detach, repeat sync.Once
	}
}
