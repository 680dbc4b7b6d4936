// Package followers keeps the Guards and Limiters that go by a source of policies, and makes what a process announces of
// them.
package followers

import (
	"fmt"
	"strings"
	"weak"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/stats"
)

// Max bounds those for which a Set is prepared before it is shown. Further ones prepare it by the first request that
// sees it.
const Max = 1000

// Followers are the Guards and Limiters that go by an [follow.Listener], up to [Max]. The zero Followers has none. A
// source calls the methods one at a time, with the lock that it holds while it shows a Set.
type Followers struct {
	all      []follower
	unlisted int
}

// follower is a Guard or Limiter.
type follower struct {
	*follow.Follower
	states []policies.RuleState
	made   madeOf
}

// madeOf identifies a Set and its entries: while they are the same, so are the states that were made of them. Of the
// entries, which are never changed, there may be a thousand for each rule: they are not kept alive.
type madeOf struct {
	set     *follow.Set
	first   weak.Pointer[follow.Entry]
	entries int
}

// update makes the states of what has become of a Set, unless they are made of it already.
func (f *follower) update(entries []follow.Entry, set *follow.Set) {
	made := madeOf{set: set, entries: len(entries)}
	if len(entries) > 0 {
		made.first = weak.Make(&entries[0])
	}
	if f.states == nil || made != f.made {
		f.states, f.made = states(f.Rules(), entries, set), made
	}
}

// Add adds one, prepared for the Set that the source shows now, and reports whether it is listed: it is not if there are
// Max, or if nobody uses it any more.
func (fs *Followers) Add(f *follow.Follower, now *follow.Set) bool {
	if len(fs.all) == Max {
		fs.Prepare(now) // some may be gone
	}
	if len(fs.all) == Max {
		fs.unlisted++
		return false
	}
	entries, alive := f.Prepare(now)
	if alive {
		x := follower{Follower: f}
		x.update(entries, now)
		fs.all = append(fs.all, x)
	}
	return alive
}

// Prepare prepares all for a Set, and forgets those that nobody uses any more.
func (fs *Followers) Prepare(set *follow.Set) {
	alive := fs.all[:0]
	for _, f := range fs.all {
		if entries, ok := f.Prepare(set); ok {
			f.update(entries, set)
			alive = append(alive, f)
		}
	}
	clear(fs.all[len(alive):])
	fs.all = alive
}

// States returns what the rules go by, as the last Prepare has found it.
func (fs *Followers) States() (all []policies.RuleState) {
	for _, f := range fs.all {
		all = append(all, f.states...)
	}
	return all
}

// Usage returns u without policies that are none of theirs, and with keys as the stores keep them: where keys are hashed, in
// hashes. Keys are left out where it is not known how they are kept.
func (fs *Followers) Usage(u stats.Usage) stats.Usage {
	show := map[string]shows{}
	for _, f := range fs.all {
		for _, r := range f.Rules() {
			before, there := show[r.Policy]
			now := showsOf(r.Store)
			if there {
				now = now.and(before)
			}
			show[r.Policy] = now
		}
	}
	theirs := make([]stats.PolicyUsage, 0, len(u.Policies))
	for _, p := range u.Policies {
		if s, is := show[p.Policy]; is {
			p.Busiest, p.Refused = s.keys(p.Busiest), s.keys(p.Refused)
			theirs = append(theirs, p)
		}
	}
	u.Policies = theirs
	return u
}

// shows knows how stores show the keys of a policy.
type shows struct {
	unknown bool
	hash    func(key string) string // nil where they are shown as they are
}

func showsOf(s core.Store) shows {
	at := location(s)
	hashes, can := s.(interface{ ScoreKey(key string) string })
	switch {
	case at == stats.Location{}, at.Hashed && !can:
		return shows{unknown: true}
	case at.Hashed:
		return shows{hash: hashes.ScoreKey}
	}
	return shows{}
}

// and returns what two stores show: hashes if one of them hashes, and nothing if they do so by two secrets.
func (s shows) and(other shows) shows {
	switch {
	case s.unknown || other.hash == nil && !other.unknown:
		return s
	case other.unknown || s.hash == nil:
		return other
	}
	return shows{unknown: s.hash("a") != other.hash("a"), hash: s.hash}
}

// keys returns keys as they are shown.
func (s shows) keys(top stats.TopKeys) stats.TopKeys {
	if s.unknown {
		return stats.TopKeys{}
	}
	if s.hash == nil {
		return top
	}
	keys := make([]stats.KeyCount, len(top.Keys))
	for i, k := range top.Keys {
		keys[i] = stats.KeyCount{Key: s.hash(k.Key), Count: k.Count, Error: k.Error}
	}
	top.Keys = keys
	return top
}

// Unlisted returns the number of those that came when there were Max.
func (fs *Followers) Unlisted() int { return fs.unlisted }

// maxListed is the number of texts of tiers and keys whose mistakes are listed for a rule.
const maxListed = 10

// states returns what rules go by, of which the entries say what became of the texts for them. A text that is not in set
// is of another layer: see [policies.Layers]. It keeps nothing of the entries: there may be a thousand for each rule.
func states(rules []follow.Rule, entries []follow.Entry, set *follow.Set) []policies.RuleState {
	states := make([]policies.RuleState, len(rules))
	mistakes := make([][]string, len(rules))
	type place struct{ policy, place string }
	at := map[place][]int{}
	for i, r := range rules {
		states[i] = policies.RuleState{
			Policy: r.Policy, Place: r.Place, Key: r.Key, OverLimit: r.OverLimit,
			Code: r.Text, Now: r.Text, Tiers: r.Tiers, Meaning: policies.Code, Location: location(r.Store),
		}
		at[place{r.Policy, r.Place}] = append(at[place{r.Policy, r.Place}], i)
	}
	for _, e := range entries {
		used := policies.Fleet
		if e.Trial {
			used = policies.Trial
		}
		for _, i := range at[place{e.Policy, e.Place}] {
			state := &states[i]
			switch ofPolicy := e.Field == "Policies"; {
			case !has(set, e):
				if ofPolicy {
					state.Now = e.Now
				}
				if ofPolicy || e.Err != nil {
					mistakes[i] = append(mistakes[i], anotherSource(e))
				}
			case ofPolicy && e.Err != nil:
				state.Meaning, state.Now = policies.Unusable, e.Now
				mistakes[i] = append(mistakes[i], e.Err.Error())
			case ofPolicy:
				state.Meaning, state.Now = used, e.Now
			case e.Err != nil:
				mistakes[i] = append(mistakes[i], fmt.Sprintf("%v: %v", e, e.Err))
			case state.Meaning == policies.Code && e.Text != "": // of a tier or a key alone
				state.Meaning = used
			}
		}
	}
	for i, all := range mistakes {
		more := ""
		if len(all) > maxListed {
			more = fmt.Sprintf("; and %d more", len(all)-maxListed)
			all = all[:maxListed]
		}
		states[i].Why = strings.Join(all, "; ") + more
	}
	return states
}

// location returns where a store keeps its counts, as far as it says.
func location(s core.Store) stats.Location {
	switch s := s.(type) {
	case *core.Memory:
		return stats.Location{Process: true}
	case interface{ Location() stats.Location }:
		return s.Location()
	default:
		return stats.Location{}
	}
}

// has reports whether the text of an entry is in set.
func has(set *follow.Set, e follow.Entry) bool {
	if set == nil {
		return false
	}
	texts, name := set.Policies, e.Policy
	switch e.Field {
	case "Tiers":
		texts, name = set.Tiers[e.Policy], e.Tier
	case "Keys":
		texts, name = set.Keys[e.Policy], e.Key
	}
	text, there := texts[name]
	// What is of all tiers or of all keys, or of the code's, has no text.
	return there && text == e.Text || e.Text == "" && len(texts) > 0
}

// anotherSource says that a text is not of the document.
func anotherSource(e follow.Entry) string {
	text := fmt.Sprintf("another source of the process has %v: %q", e, e.Text)
	if e.Err != nil {
		text += ", which cannot be used: " + e.Err.Error()
	}
	return text
}
