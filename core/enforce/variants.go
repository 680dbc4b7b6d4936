package enforce

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"weak"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/follow"
)

// Entries of one policy in a Set, at most: they bound what it takes to prepare a Set.
const (
	maxTiers = 1000
	maxKeys  = 1000
)

// Variants are the Limiters of one policy by the numbers of a [follow.Set]; see [Limiter.Variants]. They are immutable.
type Variants struct {
	// Limiter has the policy of now.
	Limiter *Limiter
	// Tiers are the Limiters of the tiers, those of the code included, and Keys those of single keys. nil stands for
	// what is unlimited.
	Tiers, Keys map[string]*Limiter

	texts   texts
	err     error              // why the text of the policy is not used
	code    map[string]variant // the tiers of the code, with the options of now
	byText  map[string]variant // those of the tiers and keys of the Set
	free    *Limiter           // admits what is unlimited
	blocked *Limiter
	entries []follow.Entry
}

// The fields of a Set.
const (
	fieldPolicies = "Policies"
	fieldTiers    = "Tiers"
	fieldKeys     = "Keys"
)

// texts are the entries of a Set for one policy.
type texts struct {
	policy      string // "" if there is none
	tiers, keys map[string]string
}

// textsFor returns the entries of s for the policy of that name.
func textsFor(s *follow.Set, name string) (t texts) {
	if s != nil {
		t = texts{s.Policies[name], s.Tiers[name], s.Keys[name]}
	}
	return t
}

func (t texts) equal(u texts) bool {
	return t.policy == u.policy && maps.Equal(t.tiers, u.tiers) && maps.Equal(t.keys, u.keys)
}

// variant is the Limiter that was made of a text, nil if that is unlimited. The zero variant was made of nothing.
type variant struct {
	limiter   *Limiter
	unlimited bool
	err       error
}

func (v variant) usable() bool { return v.err == nil && (v.limiter != nil || v.unlimited) }

// String returns what Entry.Now shows.
func (v variant) String() string {
	switch {
	case v.limiter == nil:
		return follow.Unlimited
	case v.limiter.answer == refuses:
		return follow.Blocked
	default:
		return v.limiter.policy.String()
	}
}

// suggesting adds to the error of a text that cannot be read what else there is for its field.
func (v variant) suggesting(field string) variant {
	var unread *core.SyntaxError
	switch {
	case !errors.As(v.err, &unread):
	case field == fieldKeys:
		v.err = fmt.Errorf("%w; or give %q or %q", v.err, follow.Unlimited, follow.Blocked)
	default:
		v.err = fmt.Errorf("%w; or give %q", v.err, follow.Unlimited)
	}
	return v
}

// Variants returns the Limiters of l's policy by the numbers of s, which may be nil. tiers are the texts of the tiers
// that the code has, and before has those by the numbers before s, nil if there were none. Texts that say the same as
// before have the same Limiter as before, and texts that are equal have one Limiter.
//
// A text that cannot be used leaves the numbers as they were before. Whatever the numbers are, the Limiters of all tiers
// and keys have the options that the policy has now.
//
// The entries say what has become of each text of s for the policy, and which tiers of the code have a mistake. Variants
// is for programs that build something like a guard on a Limiter; others set [Options.Source].
func (l *Limiter) Variants(tiers map[string]string, s *follow.Set, before *Variants) (*Variants, []follow.Entry) {
	if l.code != nil {
		l = l.code
	}
	if v := l.madeBefore(tiers, s, before); v != nil {
		return v, v.entries
	}
	v := l.variants(tiers, textsFor(s, l.policy.Name()), before)
	l.keepMade(tiers, s, before, v)
	return v, v.entries
}

// made are the latest Variants of a policy for a Set, and those of the code: all that have the same policy, such as two
// hundred guards that enforce one on as many routes, share them. It keeps nothing alive.
type made struct {
	code     string
	tiers    map[string]string
	set      weak.Pointer[follow.Set]
	before   weak.Pointer[Variants]
	variants weak.Pointer[Variants]
}

func (l *Limiter) madeBefore(tiers map[string]string, s *follow.Set, before *Variants) *Variants {
	l.named.group.mu.Lock()
	m := l.named.made[slot(s)]
	l.named.group.mu.Unlock()
	v := m.variants.Value()
	switch {
	case v == nil || m.set != weak.Make(s) || m.code != l.policy.String() || !maps.Equal(m.tiers, tiers):
		return nil
	case m.before != weak.Make(before) && slices.ContainsFunc(v.entries, func(e follow.Entry) bool { return e.Err != nil }):
		return nil // something has stayed as it was before
	}
	return v
}

func (l *Limiter) keepMade(tiers map[string]string, s *follow.Set, before *Variants, v *Variants) {
	if v == before {
		return
	}
	l.named.group.mu.Lock()
	l.named.made[slot(s)] = made{l.policy.String(), tiers, weak.Make(s), weak.Make(before), weak.Make(v)}
	l.named.group.mu.Unlock()
}

// slot is the index of those made for a Set.
func slot(s *follow.Set) int {
	if s == nil {
		return 0
	}
	return 1
}

// variants is Variants for the entries of one policy.
func (l *Limiter) variants(tiers map[string]string, now texts, before *Variants) *Variants {
	if before != nil && before.texts.equal(now) {
		return before
	}
	m := maker{code: l, v: &Variants{Limiter: l, texts: now, byText: map[string]variant{}}, before: before}
	if m.before == nil {
		m.before = &Variants{Limiter: l}
	}
	m.policy()
	m.v.free, m.v.blocked = m.v.Limiter.answering(admits), m.v.Limiter.answering(refuses)
	if m.sameOptions = before != nil && before.Limiter.policy.Options() == m.v.Limiter.policy.Options(); m.sameOptions {
		m.v.code = before.code
	} else {
		m.v.code = m.codeTiers(tiers)
	}
	m.v.Tiers = m.field(fieldTiers, now.tiers, m.before.Tiers, maxTiers)
	for _, name := range slices.Sorted(maps.Keys(tiers)) {
		made := m.v.code[name]
		if made.err != nil {
			m.note(follow.Entry{Field: fieldTiers, Tier: name, Err: made.err}, made)
		}
		_, ok := m.v.Tiers[name]
		l, had := m.before.Tiers[name]
		if made.usable() {
			l = made.limiter
		}
		if !ok && (had || made.usable()) {
			if m.v.Tiers == nil {
				m.v.Tiers = map[string]*Limiter{}
			}
			m.v.Tiers[name] = l
		}
	}
	m.v.Keys = m.field(fieldKeys, now.keys, m.before.Keys, maxKeys)
	return m.v
}

// maker makes Variants, v.
type maker struct {
	code        *Limiter
	v, before   *Variants
	sameOptions bool                  // v has those of before
	renewed     map[*Limiter]*Limiter // those of before that were made anew, with the options of v
}

// policy makes the Limiter of the policy.
func (m *maker) policy() {
	text, before := m.v.texts.policy, m.before
	switch text {
	case "":
		return
	case before.texts.policy:
		m.v.Limiter, m.v.err = before.Limiter, before.err
	default:
		p, err := Fits(m.code.policy, text)
		if m.v.Limiter, m.v.err = before.Limiter, err; err == nil {
			m.v.Limiter = m.code.named.limiter(p)
		}
	}
	m.note(follow.Entry{Field: fieldPolicies, Text: text, Err: m.v.err}, variant{limiter: m.v.Limiter})
}

// note adds an entry; made is the variant that holds now.
func (m *maker) note(e follow.Entry, made variant) {
	now := m.v.Limiter.policy
	e.Policy, e.Trial = now.Name(), now.Options().Shadow
	if e.Now = now.String(); made.usable() {
		e.Now = made.String()
	}
	m.v.entries = append(m.v.entries, e)
}

// field makes the Limiters of the entries of a field of the Set. held are those from before.
func (m *maker) field(field string, texts map[string]string, held map[string]*Limiter, most int) map[string]*Limiter {
	if len(texts) == 0 {
		return nil
	}
	out := make(map[string]*Limiter, len(texts))
	if len(texts) > most {
		for name, l := range held {
			out[name] = m.renew(l)
		}
		err := fmt.Errorf("enforce: the Set has %d %s; give at most %d for one policy", len(texts), strings.ToLower(field), most)
		m.note(follow.Entry{Field: field, Err: err}, variant{err: err})
		return out
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		e := follow.Entry{Field: field, Text: texts[name]}
		if field == fieldTiers {
			e.Tier = name
		} else {
			e.Key = name
		}
		made := m.of(field, name, e.Text)
		if e.Err = made.err; e.Err != nil {
			if l, ok := held[name]; ok {
				l = m.renew(l)
				made = variant{limiter: l, unlimited: l == nil}
			} else if field == fieldTiers {
				made = m.v.code[name]
			}
		}
		if made.usable() {
			out[name] = made.limiter
		}
		m.note(e, made)
	}
	return out
}

// of returns what a text of a tier or key stands for.
func (m *maker) of(field, name, text string) variant {
	switch {
	case name == "" && field == fieldTiers:
		return variant{err: errNamelessTier}
	case name == "":
		return variant{err: errors.New(`enforce: an entry of Keys is for the key ""; give the text of a key, such as "user=7"`)}
	case text == follow.Unlimited:
		return variant{unlimited: true}
	case text == follow.Blocked && field == fieldKeys:
		return variant{limiter: m.v.blocked}
	}
	made, known := m.v.byText[text]
	if !known {
		if made, known = m.before.byText[text]; !known || !m.sameOptions || made.err != nil {
			made = m.parse(m.v.Limiter.policy, text)
		}
		m.v.byText[text] = made
	}
	return made.suggesting(field)
}

var errNamelessTier = errors.New("a tier has a name; the Policy is for those who are in none")

// parse makes the Limiter of a text of a tier or key of p, with the options of now.
func (m *maker) parse(p core.Policy, text string) (made variant) {
	tier, err := FitsTier(p, text)
	if err == nil {
		made.limiter, err = m.withOptions(tier, p.Options())
	}
	made.err = err
	return made
}

// codeTiers makes the Limiters of the tiers of the code, whatever options their texts have.
func (m *maker) codeTiers(texts map[string]string) map[string]variant {
	tiers, byText := map[string]variant{}, map[string]variant{follow.Unlimited: {unlimited: true}}
	for name, text := range texts {
		made, known := byText[text]
		if !known {
			made = m.parse(m.code.policy, text)
			byText[text] = made
		}
		if tiers[name] = made.suggesting(fieldTiers); name == "" {
			tiers[name] = variant{err: errNamelessTier}
		}
	}
	return tiers
}

// renew returns a Limiter from before with the options of now.
func (m *maker) renew(l *Limiter) *Limiter {
	switch {
	case l == nil || m.sameOptions && l.asksStore:
		return l
	case l.answer == refuses:
		return m.v.blocked
	}
	again, known := m.renewed[l]
	if !known {
		var err error
		if again, err = m.withOptions(l.policy, m.before.Limiter.policy.Options()); err != nil { // a share of it is too small
			again = l
		}
		if m.renewed == nil {
			m.renewed = map[*Limiter]*Limiter{}
		}
		m.renewed[l] = again
	}
	return again
}

// withOptions returns the Limiter of a tier or key with the options of now. The number of processes may be one of the
// tier: if it differs from that of the options by which the tier was read.
func (m *maker) withOptions(tier core.Policy, read core.PolicyOptions) (*Limiter, error) {
	o, written := m.v.Limiter.policy.Options(), tier.Options()
	if o.Fail == core.FailLocal && written.Fail == core.FailLocal && written.Processes != read.Processes {
		o.Processes = written.Processes
	}
	if o != written {
		var err error
		if tier, err = core.NewPolicy(tier.Name(), o, tier.Limits()...); err != nil {
			return nil, err
		}
	}
	return m.code.named.limiter(tier), nil
}
