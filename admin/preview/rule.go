package preview

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/explain"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/internal/inwords"
)

// preview fills in what the change does in the processes of one rule.
func (r *Rule) preview(ctx context.Context, stores *counts.Stores, ask *Ask) {
	r.Entries = []Entry{}
	view, err := stores.View(&r.Rule)
	if err != nil { // the words hold all the same
		r.Why, view = counts.Plain(err), new(counts.View)
	}
	first := ask.Before
	if r.Code == "" && first.Text == "" {
		first = ask.After
	}
	of, err := counts.NumbersOf(&r.Rule, view, first, "")
	if err != nil {
		r.Why = counts.Plain(err)
		return
	}
	t := turn{name: r.Policy, before: of.Then(ask.Before, "")}
	t.after = t.before.Then(ask.After, "")
	// Without a text of the fleet the numbers are those of the code, which nobody knows if no process has announced it.
	t.unknown, t.lost = r.Code == "" && ask.Before.Text == "", r.Code == "" && ask.After.Text == ""
	r.compare(&t, ask)
	if r.Why != "" {
		return
	}
	r.Keys = make([]Standing, len(ask.Keys))
	var all sync.WaitGroup
	for i := range r.Keys {
		r.Keys[i].Key = ask.Keys[i]
		all.Go(func() {
			if err := r.Keys[i].stand(ctx, view, &t); err != nil {
				r.Keys[i].Why = counts.Plain(err)
			}
		})
	}
	all.Wait()
	r.count()
	if len(r.Keys) > 0 && !slices.ContainsFunc(r.Keys, func(s Standing) bool { return s.Why == "" }) {
		r.Why = r.Keys[0].Why
	}
}

// turn is a change in one rule.
type turn struct {
	name          string // of the policy
	before, after *counts.Numbers
	unknown, lost bool // nobody knows what was before, or what is after
}

// compare fills in the entries.
func (r *Rule) compare(t *turn, ask *Ask) {
	why := map[string]string{}
	for _, e := range t.after.Entries {
		if e.Err != nil {
			why[entryOf(e)] = counts.Plain(e.Err)
		}
	}
	add := func(entry, key, tier string) {
		was, _ := t.before.Of(key, tier)
		is, _ := t.after.Of(key, tier)
		if was.String() == is.String() && why[entry] == "" && !t.unknown && !t.lost {
			return
		}
		if len(r.Entries) == maxEntries {
			r.More++
			return
		}
		e := Entry{Entry: entry, Why: why[entry]}
		if !t.unknown {
			e.Before = withoutName(was)
		}
		if !t.lost {
			e.After = withoutName(is)
		}
		p, counted := t.before.Counts(key, tier)
		if q, counts := t.after.Counts(key, tier); counts && !t.lost {
			words := inwords.Of(q)
			e.Words = &words
			if counted && !t.unknown && e.Why == "" {
				change := inwords.Between(p, q, q.String())
				e.Change = &change
			}
		}
		r.Entries = append(r.Entries, e)
	}
	add("text", "", "")
	for _, all := range []string{"tiers", "keys"} { // too many of them
		if why[all] != "" {
			r.Entries = append(r.Entries, Entry{Entry: all, Why: why[all]})
		}
	}
	tiers := union(t.before.Tiers, t.after.Tiers)
	for _, tier := range union(ask.After.Tiers, nil) {
		if !slices.Contains(tiers, tier) { // it cannot be used
			tiers = append(tiers, tier)
		}
	}
	for _, tier := range tiers {
		add("tier "+tier, "", tier)
	}
	for _, key := range union(ask.Before.Keys, ask.After.Keys) {
		add("key "+key, key, "")
	}
}

// entryOf returns the name of an entry of a Set, as in Difference.
func entryOf(e follow.Entry) string {
	switch {
	case e.Field == "Policies":
		return "text"
	case e.Tier+e.Key == "" && e.Text == "":
		return strings.ToLower(e.Field)
	case e.Field == "Tiers":
		return "tier " + e.Tier
	}
	return "key " + e.Key
}

// withoutName returns the text of what holds, without the policy's name, which everybody knows.
func withoutName(l *enforce.Limiter) string {
	text := l.String()
	if l != nil {
		text = strings.TrimPrefix(text, l.Policy().Name()+": ")
	}
	return text
}

// stand looks at the key, and fills in how it stands before and after.
func (s *Standing) stand(ctx context.Context, view *counts.View, t *turn) error {
	var all []core.Policy
	for _, n := range []*counts.Numbers{t.before, t.after} {
		if p, ok := n.Counts(s.Key.Key, s.Tier); ok {
			all = append(all, p)
		}
	}
	if err := view.Read(ctx, s.Key.Key, all...); err != nil {
		return err
	}
	s.At, s.Unused = view.At(s.Key.Key), view.Unused(s.Key.Key)
	for _, of := range []struct {
		numbers *counts.Numbers
		unknown bool
		next    *Next
	}{{t.before, t.unknown, &s.Before}, {t.after, t.lost, &s.After}} {
		if of.unknown {
			continue
		}
		x, err := of.numbers.Explain(ctx, s.Key.Key, s.Tier)
		if err != nil {
			return err
		}
		*of.next = nextOf(&x, t.name)
	}
	return nil
}

// nextOf returns what the next request gets.
func nextOf(x *explain.Explanation, name string) Next {
	policy := strings.TrimPrefix(x.Policy, name+": ")
	next := Next{
		Policy: policy, Numbers: x.Numbers, Outcome: x.Outcome, Trial: x.Shadow, Remaining: -1,
		RetryAfter: x.Result.RetryAfter, Delay: x.Result.Delay,
	}
	for i, l := range x.Limits {
		if i == 0 || l.Left < next.Remaining {
			next.Remaining = l.Left
		}
	}
	return next
}

// count counts the busiest keys that are refused.
func (r *Rule) count() {
	for i := range r.Keys {
		s := &r.Keys[i]
		if !s.Busiest || s.Why != "" {
			continue
		}
		r.Busiest++
		if s.Unused {
			r.Idle++
		}
		if s.Before.Refused() {
			r.RefusedBefore++
		}
		if s.After.Refused() {
			r.RefusedAfter++
		}
	}
}
