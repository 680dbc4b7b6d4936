package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/core"
)

// The states of a server.
const (
	answers  = "answers"
	slow     = "slow"
	fails    = "fails"
	notAsked = "not asked"
	unknown  = "unknown" // nothing was sent to it yet
)

// Bounds beyond which something is a cause.
const (
	stuck       = 5 * time.Second // the age of what waits in a lane
	fewRefusals = 1.0             // a second, below which refusals are nobody's trouble
	oneKey      = 0.5             // of a policy's refusals
	manyTimes   = 10              // as many refusals as in the last hour
)

// meanings has the classes of failures in words; see docs/when-redis-fails.md.
var meanings = map[string]string{
	core.ClassDown:    "nothing listens there, or it says that it cannot serve",
	core.ClassTimeout: "no answer within the deadline: it hangs, or the network does",
	core.ClassLost:    "connections break before the answer comes",
	core.ClassBusy:    "this process asks for more than it can send, or has no processor for the answers",
	core.ClassOOM:     "it is out of memory",
	core.ClassDenied:  "wrong user or password, or a right is missing",
	core.ClassReply:   "its answers make no sense",
	core.ClassBreaker: "it failed just before",
	core.ClassOther:   "the log has its error",
}

// inWords returns what a class means.
func inWords(class string) string { return cmp.Or(meanings[class], meanings[core.ClassOther]) }

const docs = "docs/when-redis-fails.md"

// state returns what is known of a server, and since when it is not well.
func (p *page) state(s *server) (state string, since time.Time) {
	switch d := &s.Decisions; {
	case d.BreakerOpen:
		if s.Since.IsZero() || d.BreakerSince.Before(s.Since) {
			return notAsked, d.BreakerSince
		}
		return notAsked, s.Since
	case !s.Since.IsZero():
		return fails, s.Since
	case p.isSlow(d) || p.isSlow(&s.Behind):
		return slow, time.Time{}
	case d.Flights == d.Failures && s.Behind.Flights == s.Behind.Failures:
		return unknown, time.Time{}
	}
	return answers, time.Time{}
}

// isSlow reports whether round trips take more than half the deadline.
func (p *page) isSlow(t *traffic) bool { return p.Deadline > 0 && t.RoundTrip > p.Deadline/2 }

// diagnose fills in the states of servers, and the causes: what is grave first.
func (p *page) diagnose() {
	for i := range p.Servers {
		s := &p.Servers[i]
		s.State, s.Since = p.state(s)
		s.Class = cmp.Or(s.Class, s.Decisions.BreakerClass)
	}
	slices.SortStableFunc(p.Servers, func(a, b server) int {
		return cmp.Or(cmp.Compare(badness(a.State), badness(b.State)), cmp.Compare(a.Addr, b.Addr))
	})
	p.storeCauses()
	p.laneCauses()
	p.guardCauses()
	p.refusalCauses()
	p.memoryCauses()
	slices.SortStableFunc(p.Causes, func(a, b cause) int { // what is grave first
		switch {
		case a.Grave == b.Grave:
			return 0
		case a.Grave:
			return -1
		}
		return 1
	})
	p.Well = !slices.ContainsFunc(p.Causes, func(c cause) bool { return c.Grave })
}

// badness orders states, the worst first.
func badness(state string) int {
	return slices.Index([]string{notAsked, fails, slow, unknown, answers}, state)
}

// storeCauses names the servers that fail or are slow, and who decides meanwhile.
func (p *page) storeCauses() {
	well := 0
	for i := range p.Servers {
		if p.Servers[i].State == answers {
			well++
		}
	}
	for i := range p.Servers {
		s := &p.Servers[i]
		c := cause{Since: s.Since, See: docs + "#which-fault-is-it"}
		class := s.Class
		switch s.State {
		case notAsked, fails:
			c.Kind, c.Grave = "store", true
			c.What = fmt.Sprintf("%s fails (%s): %s", shown(s.Addr), cmp.Or(class, "class unknown"), inWords(class))
			if class == core.ClassBusy {
				c.Kind, c.See = "busy", docs+"#what-if-this-process-asks-for-too-much"
			}
			if p.isSlow(&s.Behind) || p.isSlow(&s.Decisions) {
				c.Kind = "slow"
				c.What = fmt.Sprintf("%s is slow, so that decisions fail (%s): %s", shown(s.Addr), cmp.Or(class, "class unknown"), p.trip(s))
			}
			if s.State == notAsked {
				c.More = append(c.More, "it is asked twice a second, by one flight, until it answers; then all goes on by itself")
			}
			if quiet := p.At.Sub(s.Last); !s.Last.IsZero() && quiet >= stuck {
				c.More = append(c.More, fmt.Sprintf("the latest failure was %s ago, and no decision has asked it since", ago(quiet)))
			}
			c.More = append(c.More, s.meanwhile())
		case slow:
			c.Kind, c.Grave = "slow", true
			c.What = fmt.Sprintf("%s is slow: %s", shown(s.Addr), p.trip(s))
		default:
			if !s.Behind.BreakerOpen {
				continue
			}
			c.Kind, c.Since, class = "background", s.Behind.BreakerSince, s.Behind.BreakerClass
			c.Grave, c.See = true, docs+"#what-happens-to-permits"
			c.What = fmt.Sprintf("%s does not answer what no request waits for (%s): %s", shown(s.Addr), class, inWords(class))
			c.More = []string{"decisions go on, but permits are not renewed, and units are not given back"}
		}
		if well > 0 && c.Kind != "background" {
			c.More = append(c.More, fmt.Sprintf("%s, for %s keys all is as ever", count(well, "other server answers", "other servers answer"),
				map[bool]string{true: "its", false: "their"}[well == 1]))
		}
		p.Causes = append(p.Causes, c)
	}
}

// trip returns a text that compares a round trip with the deadline.
func (p *page) trip(s *server) string {
	return fmt.Sprintf("a round trip takes %s, and a decision has %s", shortly(max(s.Behind.RoundTrip, s.Decisions.RoundTrip).duration()),
		shortly(p.Deadline.duration()))
}

// meanwhile returns a line about the decisions that were made in place of the server.
func (s *server) meanwhile() string {
	var by []string
	for _, w := range []struct {
		n    int64
		what string
	}{
		{s.Local, "by this process for itself (fail local)"},
		{s.Closed, "by refusing (fail closed)"},
		{s.Open, "by letting pass uncounted (fail open)"},
	} {
		if w.n > 0 {
			by = append(by, fmt.Sprintf("%d %s", w.n, w.what))
		}
	}
	if by == nil {
		return "meanwhile the fail word of each policy decides; nothing was to be decided yet"
	}
	return "meanwhile the fail word of each policy decides: " + strings.Join(by, ", ")
}

// laneCauses names work in the background that is stuck or was given up.
func (p *page) laneCauses() {
	for _, l := range p.Lanes {
		c := cause{Kind: "background", See: docs + "#what-happens-to-permits"}
		switch {
		case l.Oldest.duration() >= stuck:
			c.Grave, c.Since = true, p.At.Add(-l.Oldest.duration())
			c.What = fmt.Sprintf("%s are stuck: %d wait and %d are under way, the oldest for %s", l.Name, l.Pending, l.Out, ago(l.Oldest.duration()))
			c.More = []string{consequences[l.Name]}
		case l.Lost > 0:
			c.What = fmt.Sprintf("%d %s were given up since the start: %s", l.Lost, l.Name, consequences[l.Name])
		default:
			continue
		}
		if c.Grave && p.storeFails() {
			c.Grave = false
			c.More = append(c.More, "it follows from the store, and goes on when that answers again")
		}
		if c.More != nil && l.Lost > 0 {
			c.More = append(c.More, fmt.Sprintf("%d were given up since the start", l.Lost))
		}
		p.Causes = append(p.Causes, c)
	}
	if p.Owed.Lost > 0 {
		p.Causes = append(p.Causes, cause{
			Kind: "background", See: docs + "#what-happens-to-what-a-process-has-admitted-by-itself",
			What: fmt.Sprintf("%d decisions made without the store are not charged to it: too many keys owed something", p.Owed.Lost),
		})
	}
}

// storeFails reports whether a server of the store fails.
func (p *page) storeFails() bool {
	return slices.ContainsFunc(p.Servers, func(s server) bool { return s.State == notAsked || s.State == fails })
}

// consequences has what follows from work that is not done, by lanes.
var consequences = map[string]string{
	"renewals":   "permits that are not renewed end with their leases, and others get them although they are in use",
	"releases":   "permits that are not given back count until their leases end, so that fewer requests run at a time",
	"refunds":    "units that are not given back count until they expire, so that clients have less than their limit",
	"charges":    "units that are not charged leave clients more than their limit",
	"hand-backs": "what was admitted without the store is not charged to it, so that clients have more than their limit",
}

// guardCauses names guards that go by other policies than they should.
func (p *page) guardCauses() {
	type lag struct {
		since int64
		why   string
	}
	named := map[lag]bool{}
	for i := range p.Guards {
		g := &p.Guards[i]
		l := lag{g.LagsSince.UnixNano(), g.Lag}
		if g.Lag == "" || named[l] { // guards with one Source have one cause
			continue
		}
		named[l] = true
		by := "the policies of the code"
		if g.Revision != "" {
			by = "revision " + g.Revision
		}
		p.Causes = append(p.Causes, cause{
			Kind: "policies", Grave: true, Since: g.LagsSince, See: "docs/fleet-at-3am.md#some-processes-do-not-obey",
			What: fmt.Sprintf("the policies may be out of date: this process goes by %s, which is not known to be the latest", by),
			More: []string{"the reason: " + g.Lag},
		})
	}
}

// refusalCauses names policies that refuse much, and the key behind it if it is one.
func (p *page) refusalCauses() {
	for i := range p.Policies {
		q := &p.Policies[i]
		now := max(q.Refused.TenSeconds, q.Refused.FiveMinutes)
		if now < fewRefusals {
			continue
		}
		c := cause{Kind: "refusals", See: "docs/alerts.md#weirrefusalsjumped"}
		trial := ""
		if q.Trial {
			trial = " (on trial: nobody is refused)"
		}
		if key, part, known := p.culprit(q); known {
			c.Kind = "key"
			c.What = fmt.Sprintf("one key makes %s of what %s refuses%s: %s", percent(part), shown(q.Name), trial, key)
			c.More = []string{fmt.Sprintf("%s are refused lately, %s admitted", perSecond(now), perSecond(max(q.Allowed.TenSeconds, q.Allowed.FiveMinutes)))}
		} else if q.Refused.OneHour > 0 && now >= manyTimes*q.Refused.OneHour {
			c.What = fmt.Sprintf("%s refuses far more than in the last hour%s: %s instead of %s, and no single key is the cause",
				shown(q.Name), trial, perSecond(now), perSecond(q.Refused.OneHour))
		} else {
			continue
		}
		p.Causes = append(p.Causes, c)
	}
}

// fewest is the number of the last refusals of a policy, of the time lately, from which something follows.
const (
	fewest = 10
	lately = 5 * time.Minute
)

// culprit returns the key that makes most of a policy's refusals: of the last ones, or, where those of other policies
// have pushed them out, by how fast it was refused.
func (p *page) culprit(q *policy) (key string, part float64, known bool) {
	keys, sum, most := map[string]int{}, 0, 0
	for i := range p.Refusals {
		r := &p.Refusals[i]
		if r.Policy != q.Name || r.hash == "" || p.At.Sub(r.At) >= lately {
			continue
		}
		sum++
		if keys[r.hash]++; keys[r.hash] > most {
			most, key = keys[r.hash], r.Key
		}
	}
	if sum >= fewest {
		part = float64(most) / float64(sum)
		return key, part, part >= oneKey
	}
	for _, w := range p.Worst {
		if w.Policy == q.Name && len(w.Callers) > 0 {
			c := &w.Callers[0]
			part = min(float64(c.Least)/max(p.At.Sub(c.Since).Seconds(), 1)/q.Refused.FiveMinutes, 1)
			return c.Key, part, part >= oneKey
		}
	}
	return "", 0, false
}

// memoryCauses names in-process stores that had to forget limits.
func (p *page) memoryCauses() {
	for _, m := range p.Memory {
		if m.Displaced > 0 {
			p.Causes = append(p.Causes, cause{
				Kind: "forgotten", See: "docs/alerts.md#weirlimitsdisplaced",
				What: fmt.Sprintf("%d keys were forgotten while they still counted, %d of them at their limit: there were more than the %d that have room",
					m.Displaced, m.DisplacedAtLimit, m.MaxKeys),
				More: []string{"MemoryOptions.MaxKeys is too small, or somebody makes up keys"},
			})
		}
	}
}
