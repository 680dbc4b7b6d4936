package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// view is the page as people read it: its HTML and its text have the same words.
type view struct {
	Title    string
	Head     string
	Well     bool
	Verdict  string
	Causes   []line
	Sections []section
}

// line is a cause and what is said about it.
type line struct {
	Grave bool
	Text  string
	More  []string
}

// section is a table with a title.
type section struct {
	Title string
	Notes []string
	Head  []string
	Rows  [][]cell
	// Numbers is the number of columns at the end of which the cells are aligned to the right.
	Numbers map[int]bool
}

// cell is a cell of a table. Bad ones are shown so.
type cell struct {
	Text string
	Bad  bool
}

func cells(texts ...string) []cell {
	all := make([]cell, len(texts))
	for i, t := range texts {
		all[i].Text = t
	}
	return all
}

// view returns p for people, in the order in which somebody looks who was woken by it.
func (p *page) view() *view {
	v := &view{
		Title: "weir: " + p.Program, Well: p.Well,
		Head: fmt.Sprintf("%s at %s, up %s", p.Program, p.At.UTC().Format("2006-01-02 15:04:05 UTC"), ago(p.At.Sub(p.Start))),
	}
	v.Verdict = p.verdict()
	for _, c := range p.Causes {
		text := c.What
		if !c.Since.IsZero() {
			text += fmt.Sprintf("; since %s (%s)", c.Since.UTC().Format("15:04:05"), ago(p.At.Sub(c.Since)))
		}
		more := c.More
		if c.See != "" {
			more = append(slices.Clip(more), "see "+c.See)
		}
		v.Causes = append(v.Causes, line{c.Grave, text, more})
	}
	v.Sections = []section{p.servers(), p.background(), p.policies(), p.rules(), p.worst(), p.refusals()}
	return v
}

// verdict says in one line whether the store is well.
func (p *page) verdict() string {
	bad := 0
	slowest := seconds(0)
	for i := range p.Servers {
		s := &p.Servers[i]
		switch s.State {
		case notAsked, fails, slow:
			bad++
		}
		slowest = max(slowest, s.Decisions.RoundTrip)
	}
	switch n := len(p.Servers); {
	case bad == n && n > 0:
		return "THE STORE IS NOT WELL: " + map[bool]string{true: "its server has trouble", false: "all of its servers have trouble"}[n == 1]
	case bad > 0:
		return fmt.Sprintf("THE STORE IS NOT WELL: %s of its %d servers %s trouble", number(uint64(bad)), n, map[bool]string{true: "has", false: "have"}[bad == 1])
	case !p.Well:
		return "The store is well, and something else is not"
	case n > 0 && slowest > 0:
		return fmt.Sprintf("The store is well: %s, the slowest in %s of %s",
			count(n, "server answers", "servers answer"), shortly(slowest.duration()), shortly(p.Deadline.duration()))
	case n > 0:
		return "The store was not asked yet"
	case len(p.Memory) > 0:
		return "All is well: this process counts for itself"
	}
	return "Nothing is known of a store: give it to Observer.Watch"
}

func (p *page) servers() section {
	s := section{
		Title: "Store", Head: []string{"server", "state", "since", "class", "round trip", "waiting", "out", "flights", "calls", "merged", "failed", "decided instead"},
		Numbers: columns(4, 10),
	}
	if p.Deadline > 0 {
		s.Notes = append(s.Notes, "A decision has "+shortly(p.Deadline.duration())+". Behind it stands what no request waits for.")
	}
	for i := range p.Servers {
		v := &p.Servers[i]
		bad := v.State != answers && v.State != unknown
		row := trafficCells(shown(v.Addr), v.State, since(v.Since, p.At), v.Class, &v.Decisions)
		row[1].Bad = bad
		row = append(row, cell{Text: v.instead()})
		s.Rows = append(s.Rows, row)
		if b := &v.Behind; b.Flights > 0 || b.Waiting > 0 || b.BreakerOpen {
			state, at := answers, time.Time{}
			if b.BreakerOpen {
				state, at = notAsked, b.BreakerSince
			}
			row := append(trafficCells("└ behind", state, since(at, p.At), b.BreakerClass, b), cell{})
			row[1].Bad = b.BreakerOpen
			s.Rows = append(s.Rows, row)
		}
	}
	for _, m := range p.Memory {
		s.Notes = append(s.Notes, fmt.Sprintf("In this process: %d of at most %d keys; %d forgotten while they still counted, %d of them at their limit.",
			m.Keys, m.MaxKeys, m.Displaced, m.DisplacedAtLimit))
	}
	if p.Left.Servers > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%d further servers are not shown.", p.Left.Servers))
	}
	return s
}

func trafficCells(name, state, since, class string, t *traffic) []cell {
	trip := ""
	if t.RoundTrip > 0 {
		trip = shortly(t.RoundTrip.duration())
	}
	return cells(name, state, since, class, trip, strconv.Itoa(t.Waiting), strconv.Itoa(t.Out), number(t.Flights), number(t.Calls),
		number(t.Merged), number(t.Failures))
}

// instead returns the numbers of decisions that were made in place of the server.
func (s *server) instead() string {
	var by []string
	for _, w := range []struct {
		n    int64
		word string
	}{{s.Local, "local"}, {s.Closed, "closed"}, {s.Open, "open"}} {
		if w.n > 0 {
			by = append(by, fmt.Sprintf("%s %d", w.word, w.n))
		}
	}
	return strings.Join(by, ", ")
}

func (p *page) background() section {
	s := section{
		Title: "Background", Head: []string{"what", "pending", "out", "oldest", "lost"}, Numbers: columns(1, 4),
		Notes: []string{fmt.Sprintf("%s for their turn, %s.", count(p.Waiting, "request waits", "requests wait"),
			count(p.Permits, "permit is held", "permits are held"))},
	}
	for _, l := range p.Lanes {
		oldest := ""
		if l.Oldest > 0 {
			oldest = ago(l.Oldest.duration())
		}
		row := cells(l.Name, strconv.Itoa(l.Pending), strconv.Itoa(l.Out), oldest, number(l.Lost))
		row[3].Bad, row[4].Bad = l.Oldest.duration() >= stuck, l.Lost > 0
		s.Rows = append(s.Rows, row)
	}
	if p.Owed.Keys > 0 || p.Owed.Lost > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("The store is not charged yet for %d units of %d keys that this process has admitted by itself.",
			p.Owed.Units, p.Owed.Keys))
	}
	return s
}

func (p *page) policies() section {
	s := section{
		Title: "Refused most", Head: []string{"policy", "refused/s 10s", "5min", "1h", "allowed/s 10s", "5min", "1h", "refused", "of", "p99", "waiting", "permits", "by", "decided by"},
		Numbers: columns(1, 11),
	}
	for i := range p.Policies {
		q := &p.Policies[i]
		name := shown(q.Name)
		if q.Trial {
			name += " (trial)"
		}
		p99 := ""
		if q.P99 > 0 {
			p99 = shortly(q.P99.duration())
		}
		row := cells(name, hertz(q.Refused.TenSeconds), hertz(q.Refused.FiveMinutes), hertz(q.Refused.OneHour),
			hertz(q.Allowed.TenSeconds), hertz(q.Allowed.FiveMinutes), hertz(q.Allowed.OneHour),
			number(q.RefusedSum), number(q.Sum), p99, nonZero(q.Waiting), nonZero(q.Permits), shares(q.By), shares(q.From))
		row[1].Bad = q.Refused.TenSeconds >= fewRefusals
		s.Rows = append(s.Rows, row)
	}
	if len(p.Policies) == 0 {
		s.Notes = append(s.Notes, "Nothing was decided yet.")
	}
	if p.Left.Policies > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%d further policies refuse less.", p.Left.Policies))
	}
	return s
}

func (p *page) rules() section {
	s := section{Title: "Rules", Head: []string{"route", "place", "policy now", "key", "over the limit", "more"}}
	for i := range p.Guards {
		g := &p.Guards[i]
		if len(p.Guards) > 1 || g.Revision != "" {
			s.Rows = append(s.Rows, cells(fmt.Sprintf("guard %d: revision %s", i+1, cmp.Or(shown(g.Revision), "none, as in the code"))))
		}
		for _, r := range g.Rules {
			var more []string
			if r.Trial {
				more = append(more, "trial")
			}
			if r.Tiers > 0 {
				more = append(more, count(r.Tiers, "tier", "tiers"))
			}
			if r.Keys > 0 {
				more = append(more, count(r.Keys, "key", "keys")+" with numbers")
			}
			if r.Circuits > 0 {
				more = append(more, count(r.Circuits, "circuit", "circuits")+" open")
			}
			s.Rows = append(s.Rows, cells(cmp.Or(r.Route, "all others"), r.Place, r.Policy, r.Key, r.OverLimit, strings.Join(more, ", ")))
		}
	}
	if len(p.Guards) == 0 {
		s.Notes = append(s.Notes, "No guard is known: give them to Observer.Watch.")
	}
	if p.Left.Rules > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%d further rules are not shown.", p.Left.Rules))
	}
	return s
}

func (p *page) worst() section {
	s := section{Title: "Worst callers", Head: worstHead, Numbers: columns(2, 3)}
	for _, w := range p.Worst {
		s.Rows = append(s.Rows, w.rows(p.At)...)
	}
	if len(s.Rows) == 0 {
		s.Notes = append(s.Notes, "Nobody was refused lately, or nobody twice.")
	}
	return s
}

var worstHead = []string{"policy", "key", "refused at least", "at most", "since"}

// rows returns the rows of a policy, the first of which names it.
func (w *worst) rows(now time.Time) (rows [][]cell) {
	for i, c := range w.Callers {
		name := shown(w.Policy)
		if i > 0 {
			name = ""
		}
		rows = append(rows, cells(name, c.Key, number(c.Least), number(c.Most), since(c.Since, now)))
	}
	return rows
}

func (p *page) refusals() section {
	s := section{Title: "Last refusals", Head: []string{"at", "policy", "rule", "route", "tier", "key", "outcome", "by", "retry after"}, Numbers: columns(8, 8)}
	for i := range p.Refusals {
		r := &p.Refusals[i]
		outcome := r.Outcome
		if r.Trial {
			outcome += " (trial)"
		}
		wait := ""
		if r.RetryAfter > 0 {
			wait = shortly(r.RetryAfter.duration())
		}
		s.Rows = append(s.Rows, cells(r.At.UTC().Format("15:04:05.000"), shown(r.Policy), r.Rule, r.Route, r.Tier, r.Key, outcome, r.From, wait))
	}
	if len(s.Rows) == 0 {
		s.Notes = append(s.Notes, "Nobody was refused.")
	}
	return s
}

// columns has the numbers of columns from first to last.
func columns(first, last int) map[int]bool {
	all := map[int]bool{}
	for i := first; i <= last; i++ {
		all[i] = true
	}
	return all
}

func shown(name string) string { return cmp.Or(clip(name), `""`) }

func number(n uint64) string { return strconv.FormatUint(n, 10) }

func nonZero(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// hertz is a number a second, with as many digits as matter.
func hertz(perSecond float64) string {
	switch {
	case perSecond == 0:
		return "0"
	case perSecond < 10:
		return strconv.FormatFloat(perSecond, 'f', 2, 64)
	}
	return strconv.FormatFloat(perSecond, 'f', 0, 64)
}

func perSecond(n float64) string { return hertz(n) + "/s" }

func percent(part float64) string { return strconv.FormatFloat(100*part, 'f', 0, 64) + "%" }

// shortly is a duration with three digits.
func shortly(d time.Duration) string {
	for unit := time.Nanosecond; unit < time.Second; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
	return d.Round(time.Second).String()
}

// ago is a duration in whole seconds.
func ago(d time.Duration) string { return d.Round(time.Second).String() }

// since is an instant and how long ago that is, or "" for none.
func since(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("15:04:05") + " (" + ago(now.Sub(at)) + ")"
}

// shares lists the largest parts of a number.
func shares(all []share) string {
	const most = 3
	sum := uint64(0)
	for _, s := range all {
		sum += s.Count
	}
	if sum == 0 {
		return ""
	}
	var texts []string
	for i, s := range all {
		if i == most {
			texts = append(texts, fmt.Sprintf("%d more", len(all)-most))
			break
		}
		texts = append(texts, clip(s.Name)+" "+percent(float64(s.Count)/float64(sum)))
	}
	return strings.Join(texts, ", ")
}
