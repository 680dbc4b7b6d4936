package manage

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"time"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/explain"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// OfKey is the body of PathLook and PathReset: a key, which is counted, such as "user=7".
type OfKey struct {
	Key string `json:"key"`
}

// Keys answers PathKeys.
type Keys struct {
	// Numbers are those of the policy's keys that have some of their own.
	Numbers map[string]string `json:"numbers"`
	// Temporary are those of them that end by themselves.
	Temporary []adminapi.Temporarily `json:"temporary,omitempty"`
	// Busiest and Refused are the keys that use most and that are refused most, as far as services tell.
	Busiest []adminapi.Caller `json:"busiest,omitempty"`
	Refused []adminapi.Caller `json:"refused,omitempty"`
	// Counted is the time in seconds for which these were counted.
	Counted int `json:"counted,omitempty"`
	// Why is the reason why there are no busiest keys, or "".
	Why string `json:"why,omitempty"`
}

// KeyNumbers is the body of PathKeys.
type KeyNumbers struct {
	Key string `json:"key"`
	// Text are the numbers of the key, "blocked", "unlimited", or "" for those of the others.
	Text string `json:"text,omitempty"`
	// Until is the time at which the former numbers hold again. Only an owner may leave it out.
	Until time.Time `json:"until,omitzero"`
}

// Looks answers PathLook.
type Looks struct {
	App   string `json:"app"`
	Key   string `json:"key"`
	Looks []Look `json:"looks"`
	// Apart is the number of rules that do not count by keys of this kind.
	Apart int `json:"apart,omitempty"`
}

// Look is a key as one policy counts it, by one store.
type Look struct {
	Policy string `json:"policy"`
	// Revision is that of the policy if it belongs to the app, or 0.
	Revision int64 `json:"revision,omitempty"`
	// Place is that of the rule in the code, such as "GET /orders".
	Place string `json:"place,omitempty"`
	// Prefix is that of the store.
	Prefix string `json:"prefix,omitempty"`
	// Numbers are those that the key has of its own, "" if it has those of the others.
	Numbers string `json:"numbers,omitempty"`
	// Temporary is the end of these numbers, if they end by themselves.
	Temporary *adminapi.Temporarily `json:"temporary,omitempty"`
	// Left is the number of units left of the limit that has least, before any further request, and Of that limit. Both are 0 where
	// nothing is counted.
	Left int64 `json:"left"`
	Of   int64 `json:"of"`
	// Explanation has the answer that a request would get now. It is nil where nobody can look.
	Explanation *explain.Explanation `json:"explanation,omitempty"`
	// Tiers have the answers in tiers, of which MoreTiers are left out. Of a key that has numbers of its own there are none.
	Tiers     []counts.Tier `json:"tiers,omitempty"`
	MoreTiers int           `json:"moreTiers,omitempty"`
	// Unused are the texts of the document that the processes cannot use.
	Unused []counts.Unused `json:"unused,omitempty"`
	// Words is the explanation as text.
	Words string `json:"words,omitempty"`
	// Why is the reason why nobody can look, or "".
	Why string `json:"why,omitempty"`
}

// Keys returns the keys of a policy that have numbers of their own, and those that use most.
func (m *Manager) Keys(ctx context.Context, who *rights.Person, app, name string) (*Keys, int64, error) {
	if err := m.may(who, rights.ActionLook, app); err != nil {
		return nil, 0, err
	}
	p, revision, err := m.o.Record.Policy(ctx, app, name)
	if err != nil {
		return nil, 0, m.shown(who, app, err)
	}
	temporary, err := m.temporaryOf(ctx, who, app)
	if err != nil {
		return nil, 0, err
	}
	out := &Keys{Numbers: p.Keys}
	for _, t := range temporary[name] {
		if t.Key != "" {
			out.Temporary = append(out.Temporary, t)
		}
	}
	if out.Numbers == nil {
		out.Numbers = map[string]string{}
	}
	m.busiest(app, name, out)
	return out, revision, nil
}

// errNoCounts reports that a program was started without the stores of counts.
var errNoCounts = refusal(http.StatusServiceUnavailable, "this server does not know where services count; start it with -counts")

// bound returns the rules of an app, of which those are barred whose counts may be those of others.
func (m *Manager) bound(ctx context.Context, app string, s *standing) []counts.Rule {
	if m.o.Counts == nil {
		return s.rules
	}
	var others []counts.App
	var prefixes []string
	all, err := m.o.Record.Apps(ctx)
	if err != nil { // then nobody looks anywhere
		others = append(others, counts.App{Unread: true})
	}
	reading, cancel := context.WithTimeout(ctx, glimpse)
	defer cancel()
	for _, a := range all {
		if a.App == app {
			prefixes = a.Settings.Counts
			continue
		}
		var other standing
		if s.failed != nil || reading.Err() != nil { // somebody waits
			other = m.lastStanding(a.App)
		} else {
			other = m.standing(reading, a.App)
		}
		others = append(others, counts.App{Name: a.App, Prefixes: a.Settings.Counts, Rules: other.rules, Unread: other.read.IsZero()})
	}
	return m.o.Counts.Bind(counts.App{Name: app, Prefixes: prefixes, Rules: s.rules}, others)
}

// mayCounts decides whether a person may do something to counts that several apps share.
func (m *Manager) mayCounts(who *rights.Person, a rights.Action, app string, rules []counts.Rule) error {
	for i := range rules {
		if r := &rules[i]; len(r.With) > 0 && m.may(who, a, append([]string{app}, r.With...)...) != nil {
			return &RightError{Verdict: rights.Forbidden, Action: a, App: app, Lent: r.Policy}
		}
	}
	return nil
}

// ResetKey gives a key the whole limit of a policy back.
func (m *Manager) ResetKey(ctx context.Context, who *rights.Person, app, name, key string, w Write) error {
	if err := m.may(who, rights.ActionResetKey, app); err != nil {
		return err
	}
	if err := w.reasoned(); err != nil {
		return err
	}
	if err := counts.CheckKey(key); err != nil {
		return refusal(http.StatusUnprocessableEntity, "%v", err)
	}
	if m.o.Counts == nil {
		return errNoCounts
	}
	s := m.standing(ctx, app)
	rules := ofPolicy(m.bound(ctx, app, &s), name)
	if len(rules) == 0 {
		return refusal(http.StatusNotFound, "no process of app %q has a policy %q, so that it is not known where its counts are", app, name)
	}
	for i := range rules {
		if _, err := m.o.Counts.View(&rules[i]); err != nil {
			return refusal(http.StatusConflict, "%v", err)
		}
	}
	if err := m.mayCounts(who, rights.ActionResetKey, app, rules); err != nil {
		return err
	}
	document, _, err := m.o.Record.Document(ctx, app)
	if missing := new(record.NotFoundError); err != nil && !errors.As(err, &missing) {
		return err
	}
	// The row is written first: nothing is done of which the audit knows nothing.
	row := audit.Row{By: by(who), App: app, Policy: name, Action: string(rights.ActionResetKey), Reason: w.Reason, Key: key}
	if err := m.o.Audit.Write(ctx, row); err != nil {
		return err
	}
	if err := m.o.Counts.Reset(ctx, rules, document, key); err != nil {
		row.Detail = `{"failed":true}`
		return errors.Join(refusal(http.StatusServiceUnavailable, "the counts may not all be forgotten: %v; try again", err), m.o.Audit.Write(ctx, row))
	}
	return nil
}

// Look returns a key as each policy of an app counts it. The audit has a row with the reason, which may be "": at most
// one in ten minutes for each reason.
func (m *Manager) Look(ctx context.Context, who *rights.Person, app, key, reason string) (*Looks, error) {
	if err := m.may(who, rights.ActionLook, app); err != nil {
		return nil, err
	}
	if err := counts.CheckKey(key); err != nil {
		return nil, refusal(http.StatusUnprocessableEntity, "%v", err)
	}
	if m.o.Counts == nil {
		return nil, errNoCounts
	}
	uses, err := m.o.Record.Uses(ctx, app)
	if err != nil {
		return nil, err
	}
	s := m.standing(ctx, app)
	if s.failed != nil && s.read.IsZero() {
		return nil, refusal(http.StatusServiceUnavailable, "the processes could not be read from Redis: %v; try again", s.failed)
	}
	rules := m.lookable(who, app, m.bound(ctx, app, &s))
	document := &policies.Document{App: app, Policies: map[string]policies.Policy{}}
	for name, u := range uses {
		document.Policies[name] = u.Policy
	}
	temporary, err := m.temporaryOf(ctx, who, app)
	if err != nil {
		return nil, err
	}
	if err := m.looked(ctx, who, app, "", key, reason); err != nil {
		return nil, err
	}
	looking, cancel := s.patience(ctx)
	defer cancel()
	found, err := m.o.Counts.Look(looking, rules, document, key)
	if err != nil {
		return nil, refusal(http.StatusUnprocessableEntity, "%v", err)
	}
	out := &Looks{App: app, Key: key, Looks: []Look{}}
	for _, l := range found {
		if l.Apart != "" {
			out.Apart++
			continue
		}
		look := Look{Policy: l.Policy, Prefix: l.Prefix, Explanation: l.Explanation, Why: l.Why, Left: l.Left, Of: l.Of, Tiers: l.Tiers, MoreTiers: l.MoreTiers, Unused: l.Unused}
		if len(l.Places) > 0 {
			look.Place = l.Places[0]
		}
		if u, has := uses[l.Policy]; has {
			if u.Owner == app {
				look.Revision = u.Revision
			}
			look.Numbers = u.Policy.Keys[key]
			for _, t := range temporary[l.Policy] {
				if t.Key == key && u.Owner == app {
					look.Temporary = &t
				}
			}
		}
		if l.Explanation != nil {
			look.Words = l.Explanation.String()
		}
		out.Looks = append(out.Looks, look)
	}
	return out, nil
}

// Bounds of what is remembered of looks.
const (
	lookAgain = 10 * time.Minute
	maxLooks  = 10_000
)

// aLook is a key at which a person has looked, with the hash of the reason, which may be long.
type aLook struct {
	person, app, policy, key string
	reason                   [sha256.Size]byte
}

// looked writes a row of the audit for a look at a key, unless there is one of the last minutes with the same reason.
func (m *Manager) looked(ctx context.Context, who *rights.Person, app, policy, key, reason string) error {
	look := aLook{who.ID, app, policy, key, sha256.Sum256([]byte(reason))}
	now := m.o.Now()
	m.looks.Lock()
	at, known := m.looks.at[look]
	m.looks.Unlock()
	if known && now.Sub(at) < lookAgain {
		return nil
	}
	row := audit.Row{By: by(who), App: app, Policy: policy, Action: string(rights.ActionLook), Reason: reason, Key: key}
	if err := m.o.Audit.Write(ctx, row); err != nil {
		return err
	}
	m.looks.Lock()
	defer m.looks.Unlock()
	if len(m.looks.at) >= maxLooks {
		clear(m.looks.at) // then there are a few rows more
	}
	m.looks.at[look] = now
	return nil
}
