package guard

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/guard/internal/sfv"
)

// RateLimit and RateLimit-Policy are lists of Strings with parameters, as RFC 9651 has them.

// item is the text of one limit for RateLimit and RateLimit-Policy, prepared with its rule.
type item struct {
	name    string // a String, with its quotes
	policy  string // for RateLimit-Policy: the name, q, qu and w
	all     string // policy of all the items of one policy, joined
	of      int    // how many there are of one policy
	quota   int64  // q
	permits bool
}

// listing has the items that one rule adds to the two headers.
type listing struct {
	items     []item
	partition string // ";pk=:...:", or ""
}

// member is a limit in the lists of one answer.
type member struct {
	*item
	partition string
	known     bool // whether the limit was asked, so that there is a number of units that remain
	remaining int64
	after     int64 // seconds, or 0 if there is nothing to wait for
	refuses   bool
}

// outerMember is a member of RateLimit or RateLimit-Policy that somebody else has set.
type outerMember struct {
	sfv.Member
	remaining  int64 // r
	after      int64 // t, or 0
	begin, end int   // where t is in Text
}

// readLimits reads RateLimit or RateLimit-Policy. ok is false for a text that is not weir's: older drafts had no such
// lists.
func readLimits(s string) (list []outerMember, ok bool) {
	members, ok := sfv.ReadList(s)
	for _, m := range members {
		l := outerMember{Member: m}
		for p := range m.Params() {
			switch p.Key {
			case "r":
				l.remaining, _ = strconv.ParseInt(p.Value, 10, 64)
			case "t":
				if l.after != 0 { // which of two holds is not worth knowing
					return nil, false
				}
				l.after, _ = strconv.ParseInt(p.Value, 10, 64)
				l.begin, l.end = p.Begin, p.End
			}
		}
		list = append(list, l)
	}
	return list, ok
}

// append adds l, without a t that is beyond wait.
func (l *outerMember) append(text []byte, wait int64) []byte {
	text = next(text)
	if wait > 0 && l.after > wait {
		return append(append(text, l.Text[:l.begin]...), l.Text[l.end:]...)
	}
	return append(text, l.Text...)
}

// prepareLists prepares the items of a rule's policies.
func (n *numbers) prepareLists() {
	n.lists = map[*enforce.Limiter]*listing{}
	add := func(l *enforce.Limiter) {
		if l != nil && n.lists[l] == nil { // several tiers or keys may have one
			n.lists[l] = &listing{items: items(l.Policy())}
		}
	}
	add(n.limiter)
	for _, l := range n.tiers {
		add(l)
	}
	for _, l := range n.keys {
		add(l)
	}
}

// limitNames returns the names by which clients know the limits of a policy.
func limitNames(p core.Policy) []string {
	names := make([]string, len(p.Limits()))
	for i := range names {
		if names[i] = p.Name(); len(names) > 1 {
			names[i] += "/" + strconv.Itoa(i+1)
		}
	}
	return names
}

// items are the limits of a policy.
func items(p core.Policy) []item {
	limits := p.Limits()
	out := make([]item, len(limits))
	policies := make([]string, len(limits))
	for i, name := range limitNames(p) {
		l := limits[i]
		name = sfv.String(name)
		text := name + ";q=" + strconv.FormatInt(sfv.Integer(l.Burst), 10)
		if l.Algorithm == core.Concurrent {
			text += `;qu="concurrent-requests"`
		} else if w := window(l); w > 0 {
			text += ";w=" + strconv.FormatInt(w, 10)
		}
		out[i] = item{name: name, policy: text, of: len(limits), quota: l.Burst, permits: l.Algorithm == core.Concurrent}
		policies[i] = text
	}
	for i := range out {
		out[i].all = strings.Join(policies, ", ")
	}
	return out
}

// window is the time in which a limit's burst comes back, or 0 if it is not in whole seconds.
func window(l core.Limit) int64 {
	micros := uint64(l.Period.Microseconds())        //nolint:gosec // a period is positive
	high, low := bits.Mul64(micros, uint64(l.Burst)) //nolint:gosec // and so are bursts and rates
	seconds, rest := bits.Div64(high, low, uint64(l.Rate)*uint64(time.Second/time.Microsecond))
	if rest != 0 {
		return 0
	}
	return sfv.Integer(int64(min(seconds, math.MaxInt64))) //nolint:gosec // it is small enough
}

// listing returns what the lists say of a rule that is asked for a key.
func (f *family) listing(ru *rule, l *enforce.Limiter, key string) *listing {
	a := ru.lists[l]
	if f.headers.PartitionSecret != "" {
		h := hmac.New(sha256.New, []byte(f.headers.PartitionSecret))
		h.Write([]byte(key)) // a hash has no errors
		a = &listing{a.items, ";pk=:" + base64.StdEncoding.EncodeToString(h.Sum(nil)[:12]) + ":"}
	}
	return a
}

// members are the limits that were asked, with their numbers at the decision.
func members(all []taken) (list []member) {
	for i := range all {
		t := &all[i]
		res := &t.admission.Result
		if t.listing == nil || res.Limit == 0 {
			continue
		}
		for i := range t.listing.items {
			m := member{item: &t.listing.items[i], partition: t.listing.partition}
			m.read(each(res, i, len(t.listing.items)), t.admission.Held())
			same := slices.IndexFunc(list, func(other member) bool { return other.name == m.name })
			switch {
			case same < 0:
				list = append(list, m)
			case m.tighter(list[same].remaining, list[same].known): // one policy in two rules
				list[same] = m
			}
		}
	}
	return list
}

// each returns the part of limit i of n in a decision. If there is one limit, that is the Result itself, which also
// says that there was no place to wait in, or that the turn would come too late.
func each(res *core.Result, i, n int) core.LimitResult {
	if n > 1 {
		return res.Each(i)
	}
	return core.LimitResult{
		Remaining: res.Remaining, RetryAfter: res.RetryAfter, ResetAfter: res.ResetAfter, MoreAfter: res.Each(0).MoreAfter,
		Refused: !res.Allowed(), Never: res.Outcome == core.Never,
	}
}

// read fills in a limit's part in a decision, which is zero if the limit was not asked, because another one had
// refused.
func (m *member) read(each core.LimitResult, held bool) {
	m.remaining, m.refuses = sfv.Integer(each.Remaining), each.Refused
	switch {
	case m.permits: // nobody knows when they come back
		m.known = each.Refused || held
	case each.Never:
		m.known = true
	case each.Refused:
		m.known, m.after = true, sfv.Integer(ceilSeconds(each.RetryAfter.Microseconds()))
	default:
		m.known = each.Remaining > 0 || each.ResetAfter > 0
		if more := cmp.Or(each.MoreAfter, each.ResetAfter); each.Remaining < m.quota { // a store may not say the former
			m.after = sfv.Integer(ceilSeconds(more.Microseconds()))
		}
	}
}

// tighter reports whether m says more than what is there under its name.
func (m *member) tighter(remaining int64, known bool) bool {
	return m.known && (!known || m.refuses || m.remaining <= remaining)
}

// setLists sets RateLimit and RateLimit-Policy. What an outer guard has set stays, before this guard's: of one name the
// tighter. On a refusal no t is beyond wait, the seconds in Retry-After, or 0 if there is none.
func (v *Verdict) setLists(h Header, wait int64) {
	outer, _ := readLimits(h.Get(headerRateLimit))
	outerPolicies, _ := readLimits(h.Get(headerPolicy))
	if v.rule != nil && v.guard.headers.XRateLimit == NoXRateLimit && slices.ContainsFunc(outerPolicies, v.names) {
		v.rule.repeats.suspect()
	}
	var room [256]byte
	text := room[:0]
	mine := v.members
	for _, o := range outer {
		same := slices.IndexFunc(mine, func(m member) bool { return m.name == o.Name })
		if same >= 0 && mine[same].tighter(o.remaining, true) {
			continue
		}
		if same >= 0 {
			mine = slices.Delete(slices.Clone(mine), same, same+1)
		}
		text = o.append(text, wait)
	}
	for i := range mine {
		if mine[i].known {
			text = mine[i].append(text, wait)
		}
	}
	if len(text) > 0 {
		h.Set(headerRateLimit, string(text))
	}
	if len(outerPolicies) == 0 && len(mine) > 0 && len(mine) == mine[0].of && mine[0].partition == "" {
		h.Set(headerPolicy, mine[0].all) // nearly always, and without an allocation
		return
	}
	text = text[:0]
	for _, o := range outerPolicies {
		if !slices.ContainsFunc(mine, func(m member) bool { return m.name == o.Name }) {
			text = o.append(text, 0)
		}
	}
	for i := range mine {
		text = append(append(next(text), mine[i].policy...), mine[i].partition...)
	}
	if len(text) > 0 {
		h.Set(headerPolicy, string(text))
	}
}

// names reports whether a member of an outer guard has the name of one of v's.
func (v *Verdict) names(o outerMember) bool {
	return slices.ContainsFunc(v.members, func(m member) bool { return m.name == o.Name })
}

// next returns text with what stands between two members.
func next(text []byte) []byte {
	if len(text) > 0 {
		text = append(text, ", "...)
	}
	return text
}

// append adds m as RateLimit has it.
func (m *member) append(text []byte, wait int64) []byte {
	text = append(append(next(text), m.name...), ";r="...)
	text = strconv.AppendInt(text, m.remaining, 10)
	if m.after > 0 && (wait == 0 || m.after <= wait) {
		text = strconv.AppendInt(append(text, ";t="...), m.after, 10)
	}
	return append(text, m.partition...)
}
