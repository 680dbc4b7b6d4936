package follow

import (
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/core"
)

// Source knows the numbers of policies that change while the program runs, such as those of a file. Give
// it to enforce.Options.Source and guard.Config.Source. An *atomic.Pointer[Set] is one:
//
//	numbers := new(atomic.Pointer[follow.Set])
//	limiter, err := enforce.New(store, core.MustParse("mail: 10/1s"), enforce.Options{Source: numbers})
//	...
//	numbers.Store(&follow.Set{Policies: map[string]string{"mail": "20/1s"}})
//
// A Source with a goroutine that learns of changes may be a [Listener] as well.
type Source interface {
	// Load returns the Set that holds now, or nil where all is as the code says. It is called once for each request,
	// so it must return at once. A Set that it has returned must not be changed any more: other numbers are another
	// Set.
	Load() *Set
}

// Set is the numbers of policies, of their tiers and of single keys, in the place of those in the code. Each request
// goes by one Set. What was counted is kept as far as the numbers can share it; see enforce.Limiter.Variant. If an entry
// cannot be used, because it has a mistake or differs in more than enforce.Fits allows, the numbers from before stay, and the
// log has a line of it, once. Names that no policy of the program has are ignored, so that several programs may share a
// Set; [Set.Unused] finds those that none of them has.
type Set struct {
	// Revision names the Set, such as "3.17". It is shown where the numbers are. "" if it has no name.
	Revision string
	// Policies are texts by the names of the policies, such as "200/1m" or "200/1m; shadow off". An option that a text
	// leaves out is that of the code. A policy that is not there is as the code says.
	Policies map[string]string
	// Tiers are texts like those of guard.Rule.Tiers, by the names of the policies and then of the tiers: at most 1000
	// of one policy. They change numbers alone, and have the options that the policy has now. A tier that is not there
	// has the numbers of the code. The Set may have tiers that the code has not.
	Tiers map[string]map[string]string
	// Keys are texts for single keys, by the names of the policies and then by the text of the key, such as "user=7": at
	// most 1000 of one policy. A text is like that of a tier, [Unlimited], or [Blocked]. A key goes before a tier.
	Keys map[string]map[string]string
}

const (
	// Unlimited is the text of a tier or key that has no limit.
	Unlimited = "unlimited"
	// Blocked is the text of a key that is refused, for a minute each time. The store is not asked.
	Blocked = "blocked"
)

// Named is a user of policies: a guard.Guard, or an enforce.Limiter.
type Named interface {
	// PolicyNames returns the names of all policies that may be asked.
	PolicyNames() []string
}

// Unused returns the names in s that no policy of the users has, sorted: mistakes of spelling, mostly, if all that share
// s are given, those that With and WithRule have made included.
func (s *Set) Unused(users ...Named) []string {
	if s == nil {
		return nil
	}
	used := map[string]bool{}
	for _, u := range users {
		for _, name := range u.PolicyNames() {
			used[name] = true
		}
	}
	unused := map[string]bool{}
	for name := range s.Policies {
		unused[name] = !used[name]
	}
	for _, entries := range []map[string]map[string]string{s.Tiers, s.Keys} {
		for name := range entries {
			unused[name] = !used[name]
		}
	}
	maps.DeleteFunc(unused, func(_ string, is bool) bool { return !is })
	return slices.Sorted(maps.Keys(unused))
}

// Listener is a Source that learns of changes in a goroutine and prepares a [Set] before it shows it, so that no request
// has to. It may do without, at any time: the first request that sees a Set which nobody has prepared prepares it,
// while others go by the Set before.
type Listener interface {
	Source
	// Listen is called once by each Guard and each Limiter that follows the Source, when it is made, possibly while
	// requests are served. From then on the Source calls f.Prepare with each Set, the one of now included, before its
	// Load returns that. It keeps f until Prepare reports that nobody follows it any more. Prepare may call Load, which
	// must not wait for a lock that is held meanwhile: keep the Set of now in an atomic.Pointer.
	Listen(f *Follower)
}

// Lagger is a Source that knows whether its Set is the latest, such as one that reads a file which may have a mistake, or
// Redis, which may be gone.
type Lagger interface {
	Source
	// Lag returns the time since which the Set is not known to be the latest, and the reason; a zero time and "" if it is.
	// It must return at once.
	Lag() (since time.Time, why string)
}

// Follower is a Guard or Limiter as a [Listener] sees it. It does not keep it alive.
type Follower struct {
	rules   []Rule
	prepare func(*Set) ([]Entry, bool)
}

// Rule is a policy of a [Follower], as its code has it.
type Rule struct {
	// Policy is the name of the policy, and Text the whole of it, such as "api: 100/1m; fail closed".
	Policy, Text string
	// Place, Key and OverLimit name the place of the rule in the code, its key function and its handler. They are "" for
	// a Limiter.
	Place, Key, OverLimit string
	// Tiers are the texts of its tiers, by their names.
	Tiers map[string]string
	// Store is the one in which the policy counts. A Listener may ask it where that is; see stats.Location.
	Store core.Store
}

// NewFollower returns a Follower for a package such as guard. prepare does what [Follower.Prepare] says. It must not
// keep alive what it prepares: package weak has pointers for it.
func NewFollower(rules []Rule, prepare func(*Set) (entries []Entry, alive bool)) *Follower {
	return &Follower{rules, prepare}
}

// Rules returns the rules that follow the Source. They must not be changed.
func (f *Follower) Rules() []Rule { return f.rules }

// Prepare makes what the next Load that returns s leads to, so that no request has to, and returns what has become of
// each text of s. alive is false if nobody follows the Source any more: then forget f. It may take some milliseconds
// for each thousand texts. Calls of one Follower follow one another, in the order in which the Sets are shown.
func (f *Follower) Prepare(s *Set) (entries []Entry, alive bool) { return f.prepare(s) }
