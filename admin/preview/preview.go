package preview

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/inwords"
)

// Ask has the change that a preview is of, and the keys to look at.
type Ask struct {
	// Policy is the name of the policy, and Before and After what the fleet says of it: the zero Policy if nothing.
	Policy        string
	Before, After policies.Policy
	// Rules are those that processes have of the policy. Without any, the texts stand for themselves.
	Rules []counts.Rule
	// Keys are looked at, MaxKeys at most.
	Keys []Key
}

// Bounds of a preview.
const (
	// MaxKeys is the number of keys in a preview at most.
	MaxKeys    = 150
	maxRules   = 8 // that differ in their code or the place of their counts; the others are counted
	maxEntries = 100
)

// patience bounds the time that a preview waits for counts: a person waits.
const patience = 1500 * time.Millisecond

// Key is a key to look at.
type Key struct {
	// Key is its text, such as "user=7", and Tier the tier of its requests, "" if there is none or it is not known.
	Key  string `json:"key"`
	Tier string `json:"tier,omitempty"`
	// Busiest reports whether services have reported it, and nobody has typed it.
	Busiest bool `json:"busiest,omitempty"`
}

// Preview has the consequences of a change.
type Preview struct {
	// Differences are the entries that the change sets, alters or deletes; none if it changes nothing.
	Differences []Difference `json:"differences"`
	// Rules are its consequences in the processes: one for each text of the code and each place of counts.
	Rules []Rule `json:"rules"`
	// MoreRules is the number of rules that were left out.
	MoreRules int `json:"moreRules,omitempty"`
}

// Difference is an entry before and after a change. A text is "" where there is none.
type Difference struct {
	// Entry is "text", "apps", "tier pro", or "key user=7".
	Entry  string `json:"entry"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// Rule has the consequences of a change in the processes that have a rule.
type Rule struct {
	counts.Rule
	// Entries have the numbers before and after of each entry that the change alters, also where it is the text of the
	// policy that alters it, as an epoch alters the tiers. More is the number of those that were left out.
	Entries []Entry `json:"entries"`
	More    int     `json:"more,omitempty"`
	// Keys are those that were asked for.
	Keys []Standing `json:"keys,omitempty"`
	// Busiest is the number of busiest keys that could be looked at, and RefusedBefore and RefusedAfter of how many of them
	// the next request is refused.
	Busiest       int `json:"busiest"`
	RefusedBefore int `json:"refusedBefore"`
	RefusedAfter  int `json:"refusedAfter"`
	// Idle is the number of busiest keys of which the store has nothing. If it is all of those that were busy a moment ago,
	// these services do not seem to count there.
	Idle int `json:"idle,omitempty"`
	// Why is the reason why no counts could be looked at, or "".
	Why string `json:"why,omitempty"`
}

// Entry has the numbers of one entry of a rule before and after.
type Entry struct {
	Entry string `json:"entry"` // as in Difference
	// Before and After are the policies that hold, "unlimited" or "blocked".
	Before string `json:"before"`
	After  string `json:"after"`
	// Words are the bounds of After. They are nil where nothing is counted.
	Words *inwords.Policy `json:"words,omitempty"`
	// Change is the fate of the counts. It is nil where nothing is or was counted.
	Change *inwords.Change `json:"change,omitempty"`
	// Why is the reason why the processes cannot use the text, and go on with Before, or "".
	Why string `json:"why,omitempty"`
}

// Standing is a key before and after a change, at one instant.
type Standing struct {
	Key
	At     time.Time `json:"at,omitzero"`
	Before Next      `json:"before"`
	After  Next      `json:"after"`
	// Unused reports whether the store has nothing of the key.
	Unused bool `json:"unused,omitempty"`
	// Why is the reason why it is not known, or "".
	Why string `json:"why,omitempty"`
}

// Next is the answer to the next request of a key, if it takes one unit.
type Next struct {
	// Policy is the one that holds for the key, and Numbers the place of its numbers, such as "code".
	Policy  string `json:"policy"`
	Numbers string `json:"numbers"`
	// Outcome is "admitted", "at-limit" (admitted as the last one), "refused" or "never", also on trial, where nobody is
	// refused.
	Outcome string `json:"outcome"`
	Trial   bool   `json:"trial,omitempty"`
	// Remaining is the number of units that are left: with 10/1s and 6 used, 4. It is -1 where nothing is counted.
	Remaining int64 `json:"remaining"`
	// RetryAfter is the time until such a request is admitted, if this one is refused, and Delay the time that it waits for
	// its turn, if it is admitted. In JSON they are nanoseconds.
	RetryAfter time.Duration `json:"retryAfter,omitempty"`
	Delay      time.Duration `json:"delay,omitempty"`
}

// Refused reports whether the request is refused.
func (n *Next) Refused() bool {
	return n.Outcome == core.Refused.String() || n.Outcome == core.Never.String()
}

// Of works out a preview. It takes no longer than some 1.5 s, whatever the stores of the counts do.
func Of(ctx context.Context, stores *counts.Stores, ask Ask) (Preview, error) {
	if len(ask.Keys) > MaxKeys {
		return Preview{}, fmt.Errorf("a preview of %d keys; give at most %d", len(ask.Keys), MaxKeys)
	}
	for _, key := range ask.Keys {
		if err := counts.CheckKey(key.Key); err != nil {
			return Preview{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rules := ask.Rules
	if len(rules) == 0 {
		rules = []counts.Rule{{Policy: ask.Policy}}
	}
	out := Preview{Differences: differences(ask.Before, ask.After), MoreRules: max(0, len(rules)-maxRules)}
	out.Rules = make([]Rule, min(len(rules), maxRules))
	var all sync.WaitGroup
	for i := range out.Rules {
		out.Rules[i].Rule = rules[i]
		all.Go(func() { out.Rules[i].preview(ctx, stores, &ask) })
	}
	all.Wait()
	return out, nil
}
