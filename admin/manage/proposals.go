package manage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/internal/adminapi"
)

// Proposals answers PathProposals, the latest first.
type Proposals struct {
	Proposals []Proposal `json:"proposals"`
}

// Proposal is a change that waits for another owner.
type Proposal struct {
	ID  string `json:"id"`
	App string `json:"app"`
	// Action is that of the change, such as "set".
	Action string `json:"action"`
	// Differences have the parts of policies that it changes, and nothing else of them.
	Differences []adminapi.Difference `json:"differences"`
	// Settings are those that the app would have, and Grants the rights on it. They are left out where it changes none.
	Settings *adminapi.Settings `json:"settings,omitempty"`
	Grants   []Grant            `json:"grants,omitempty"`
	// Base is the revision of the app when it was made. It stays good while nobody changes the same parts.
	Base   int64     `json:"base"`
	By     string    `json:"by"` // the id of a person
	Name   string    `json:"name,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Made   time.Time `json:"made"`
	Ends   time.Time `json:"ends"`
	// State is "open", "approved", "rejected" or "ended".
	State     string    `json:"state"`
	Decided   string    `json:"decided,omitempty"` // the name of the person
	DecidedAt time.Time `json:"decidedAt,omitzero"`
	// Why is the reason of that person, or the reason why it has ended.
	Why string `json:"why,omitempty"`
	// MayApprove reports whether the person who asks may approve it.
	MayApprove bool `json:"mayApprove,omitempty"`
}

// proposedGrants are the grants of a proposal.
type proposedGrants struct {
	Grants   []people.Grant `json:"grants"`
	Expected int64          `json:"expected"`
}

// propose writes a change as a proposal.
func (m *Manager) propose(
	ctx context.Context, who *rights.Person, c record.Change, grants json.RawMessage,
) (*adminapi.Written, error) {
	p, outcome, err := m.o.Record.Propose(ctx, c, grants)
	if err != nil {
		return nil, m.refused(ctx, who, c, err)
	}
	out := writtenOf(who, c, outcome)
	out.Published = true
	if p != nil {
		out.Proposal = strconv.FormatInt(p.ID, 10)
	}
	return out, nil
}

// WhichProposals selects proposals.
type WhichProposals struct {
	App   string // "" is all that the person may see
	State string // "open", "approved", "rejected", "ended", or "" for all
	After string // the id after which the list goes on
	Limit int    // 0 is as many as there may be
}

// Proposals returns changes that wait for another owner, or did, the latest first.
func (m *Manager) Proposals(ctx context.Context, who *rights.Person, which WhichProposals) (*Proposals, error) {
	if who == nil {
		return nil, m.may(nil, rights.ActionView)
	}
	if which.App != "" {
		if err := m.may(who, rights.ActionView, which.App); err != nil {
			return nil, err
		}
	}
	w := record.WhichProposals{App: which.App, State: record.ProposalState(which.State)}
	if which.After != "" {
		var err error
		if w.Before, err = strconv.ParseInt(which.After, 10, 64); err != nil || w.Before < 1 {
			return nil, refusal(http.StatusUnprocessableEntity, `found an "after" that is the id of no proposal; take that of the last one of the list before`)
		}
	}
	out := &Proposals{Proposals: []Proposal{}}
	for { // of about a thousand that are kept
		all, err := m.o.Record.Proposals(ctx, w)
		if err != nil {
			return nil, err
		}
		for i := range all {
			p := &all[i]
			w.Before = p.ID
			if visible(who, p.App) {
				out.Proposals = append(out.Proposals, proposalFor(who, p))
			}
			if len(out.Proposals) == limited(which.Limit) {
				return out, nil
			}
		}
		if len(all) == 0 {
			return out, nil
		}
	}
}

// proposalFor returns a proposal as a person may see it.
func proposalFor(who *rights.Person, p *record.Proposal) Proposal {
	out := Proposal{
		ID: strconv.FormatInt(p.ID, 10), App: p.App, Action: p.Action, Differences: []adminapi.Difference{}, Base: p.Revision,
		By: p.By.ID, Name: p.By.Name, Reason: p.Reason, Made: p.Made, Ends: p.Ends, State: string(p.State),
		Decided: cmp.Or(p.Decided.Name, p.Decided.ID), DecidedAt: p.DecidedAt, Why: p.Why,
		MayApprove: p.State == record.Open && p.By.ID != who.ID &&
			rights.Decide(who, rights.ActionApprove, p.Apps...) == rights.Allowed,
	}
	for i := range p.Edits {
		d := p.Edits[i].Difference()
		out.Differences = append(out.Differences, adminapi.Difference{
			Name: d.Name, Before: pastFor(who, p.App, d.Before), After: pastFor(who, p.App, d.After),
		})
	}
	if p.Settings != nil {
		settings := settingsOf(p.Settings.Settings)
		out.Settings = &settings
	}
	var grants proposedGrants
	if p.Grants != nil && json.Unmarshal(p.Grants, &grants) == nil && rights.Decide(who, rights.ActionGrant, p.App) == rights.Allowed {
		for _, g := range grants.Grants {
			out.Grants = append(out.Grants, Grant{Kind: string(g.Kind), Subject: g.Subject, Name: g.Name, Role: g.Role.String(), Ends: g.Ends})
		}
	}
	return out
}

// proposal returns a proposal of which a person may know.
func (m *Manager) proposal(ctx context.Context, who *rights.Person, id string) (*record.Proposal, error) {
	if who == nil {
		return nil, m.may(nil, rights.ActionApprove)
	}
	missing := refusal(http.StatusNotFound, "there is no such proposal; old ones are forgotten, and the audit has them")
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil || n < 1 {
		return nil, missing
	}
	p, err := m.o.Record.Proposal(ctx, n)
	if notFound(err) || err == nil && !visible(who, p.App) {
		return nil, missing
	}
	return p, err
}

// Approve makes the change of a proposal, if nobody has changed what it changes meanwhile. It takes another owner
// than the one who has made the proposal, and who still may.
func (m *Manager) Approve(ctx context.Context, who *rights.Person, id, reason string) (*adminapi.Written, error) {
	p, err := m.proposal(ctx, who, id)
	if err != nil {
		return nil, err
	}
	if err := m.verdict(who, rights.ActionApprove, p.App)("", p.Apps); err != nil {
		return nil, err
	}
	w := Write{Reason: reason}
	if err := w.reasoned(); err != nil {
		return nil, err
	}
	c := record.Change{App: p.App, Action: p.Action}
	for i := range p.Edits {
		c.Edits = append(c.Edits, record.Edit{Name: p.Edits[i].Name, Patch: &p.Edits[i].Patch})
	}
	announced, whole, err := m.announced(ctx, c)
	if err != nil {
		return nil, err
	}
	c.Announced = announced
	outcome, _, err := m.o.Record.Approve(ctx, record.Approval{
		ID: p.ID, By: by(who), Reason: reason, Announced: announced, Grants: m.approveGrants,
		Permit: func(ctx context.Context, t sqldb.Tx, p *record.Proposal, apps []string) error {
			return m.mayApprove(ctx, t, who, p, apps)
		},
	})
	if err != nil {
		return nil, m.shown(who, p.App, err)
	}
	out := writtenOf(who, c, outcome)
	if whole {
		out.Unused = unused(outcome.Differences, announced)
	}
	out.Published, out.Alarm = m.published(ctx, who, outcome)
	return out, nil
}

// mayApprove decides, as an approved change is written, whether both persons may.
func (m *Manager) mayApprove(ctx context.Context, t sqldb.Tx, who *rights.Person, p *record.Proposal, apps []string) error {
	now, err := m.now(ctx, t, who)
	if err != nil {
		return err
	}
	if err := m.verdict(now, rights.ActionApprove, p.App)("", apps); err != nil || m.o.People == nil {
		return err
	}
	author, err := m.o.People.Now(ctx, t, &rights.Person{ID: p.By.ID, Name: p.By.Name})
	if err == nil && rights.Decide(author, rights.ActionWrite, apps...) != rights.Allowed {
		err = &record.LapsedError{Name: cmp.Or(p.By.Name, p.By.ID)}
	}
	return err
}

// approveGrants writes the grants of a proposal.
func (m *Manager) approveGrants(ctx context.Context, c *sqldb.Change, p *record.Proposal) error {
	var g proposedGrants
	if err := json.Unmarshal(p.Grants, &g); err != nil || m.o.People == nil {
		return errors.Join(err, errNoPeople)
	}
	author := people.By{Person: &rights.Person{ID: p.By.ID, Name: p.By.Name}, Reason: p.Reason}
	_, err := m.o.People.SetGrantsIn(ctx, c, author, p.App, g.Grants, g.Expected)
	if stale := new(people.StaleError); errors.As(err, &stale) {
		return &record.StaleError{Expected: stale.Expected, Current: stale.Current}
	}
	return err
}

// proposeGrants writes grants as a proposal if the app asks for a second person, and they would make somebody an owner who
// is none, or for longer: with that, one person could be both. base is the revision that
// the grants replace if they are not a proposal.
func (m *Manager) proposeGrants(
	ctx context.Context, who *rights.Person, app string, grants []people.Grant, expected int64, w Write,
) (id string, base int64, err error) {
	if who.Admin || app == rights.AllApps {
		return "", expected, nil
	}
	state, err := m.o.Record.State(ctx, app)
	if notFound(err) || err == nil && !state.Settings.FourEyes {
		return "", expected, nil
	}
	if err != nil {
		return "", 0, err
	}
	now, revision, err := m.o.People.Grants(ctx, app)
	if err != nil {
		return "", 0, err
	}
	if expected == people.Any {
		expected = revision
	}
	if !slices.ContainsFunc(grants, func(g people.Grant) bool {
		return g.Role >= rights.Owner && !slices.ContainsFunc(now, func(h people.Grant) bool {
			return h.Kind == g.Kind && h.Subject == g.Subject && h.Role >= g.Role &&
				(h.Ends.IsZero() || !g.Ends.IsZero() && !g.Ends.After(h.Ends))
		})
	}) {
		return "", expected, nil
	}
	if expected != revision {
		return "", 0, &people.StaleError{Expected: expected, Current: revision}
	}
	data, err := json.Marshal(proposedGrants{Grants: grants, Expected: expected})
	if err != nil {
		return "", 0, err
	}
	written, err := m.propose(ctx, who, record.Change{
		App: app, Action: string(rights.ActionGrant), By: by(who), Reason: w.Reason, Permit: m.permit(who, rights.ActionGrant, app),
	}, data)
	if err != nil {
		return "", 0, err
	}
	return written.Proposal, 0, nil
}

// Reject ends a proposal. Its author may do so as well.
func (m *Manager) Reject(ctx context.Context, who *rights.Person, id, reason string) error {
	p, err := m.proposal(ctx, who, id)
	if err != nil {
		return err
	}
	w := Write{Reason: reason}
	if err := w.reasoned(); err != nil {
		return err
	}
	return m.o.Record.Reject(ctx, record.Approval{
		ID: p.ID, By: by(who), Reason: reason,
		Permit: func(ctx context.Context, t sqldb.Tx, p *record.Proposal, _ []string) error {
			now, err := m.now(ctx, t, who)
			if err != nil {
				return err
			}
			needed := rights.ActionApprove
			if p.By.ID == who.ID {
				needed = rights.ActionView
			}
			return m.may(now, needed, p.App)
		},
	})
}

func notFound(err error) bool { return errors.As(err, new(*record.NotFoundError)) }
