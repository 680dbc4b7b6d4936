package redissource

import (
	"fmt"
	"strings"

	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/policies"
)

// follower is a Guard or Limiter that goes by a Source.
type follower struct {
	*enforce.Follower
	set    *enforce.Set // for which it is prepared
	states []policies.RuleState
}

// maxFollowers bounds those for which a Set is prepared before it is shown. Further ones prepare it by the first request
// that sees it.
const maxFollowers = 1000

// Listen implements [enforce.Listener].
func (s *Source) Listen(f *enforce.Follower) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.followers) == maxFollowers {
		s.prepare(s.set.Load()) // some may be gone
	}
	if len(s.followers) == maxFollowers {
		s.unlisted++
		return
	}
	if entries, alive := f.Prepare(s.set.Load()); alive {
		s.followers = append(s.followers, follower{f, s.set.Load(), states(f.Rules(), entries)})
		signal(s.changed)
	}
}

// prepare prepares all that follow for a Set, and forgets those that are gone. s.mu is held.
func (s *Source) prepare(set *enforce.Set) {
	alive := s.followers[:0]
	for _, f := range s.followers {
		entries, ok := f.Prepare(set)
		if !ok {
			continue
		}
		if f.set != set {
			f.set, f.states = set, states(f.Rules(), entries)
		}
		alive = append(alive, f)
	}
	clear(s.followers[len(alive):])
	s.followers = alive
}

// maxListed is the number of texts of tiers and keys whose mistakes are listed for a rule.
const maxListed = 10

// states returns what rules go by, of which the entries say what became of the texts for them. It keeps nothing of the
// entries: there may be a thousand for each rule.
func states(rules []enforce.Rule, entries []enforce.Entry) []policies.RuleState {
	states := make([]policies.RuleState, len(rules))
	mistakes := make([][]string, len(rules))
	type place struct{ policy, place string }
	at := map[place][]int{}
	for i, r := range rules {
		states[i] = policies.RuleState{
			Policy: r.Policy, Place: r.Place, Key: r.Key, OverLimit: r.OverLimit,
			Code: r.Text, Now: r.Text, Tiers: r.Tiers, Meaning: policies.Code,
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
