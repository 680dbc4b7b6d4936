package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
)

// Proposal is a change that waits for the approval of another person, or did.
type Proposal struct {
	ID     int64
	App    string
	Action string // that of the change
	By     audit.Person
	Reason string
	Made   time.Time
	Ends   time.Time
	State  ProposalState
	// Decided is the person who has approved or rejected it, with the reason. Of one that has ended, Why is the reason.
	Decided   audit.Person
	DecidedAt time.Time
	Why       string
	// Revision is that of the app when it was made.
	Revision int64
	Proposed
}

// Proposed is the content of a proposal.
type Proposed struct {
	// Apps are all that the change concerns: an owner of each has to agree, who is one person.
	Apps     []string       `json:"apps"`
	Edits    []ProposedEdit `json:"edits,omitempty"`
	Settings *SettingsEdit  `json:"settings,omitempty"`
	// Grants are rights on the app, as the Approval writes them.
	Grants  json.RawMessage `json:"grants,omitempty"`
	Force   bool            `json:"force,omitempty"`
	Back    bool            `json:"back,omitempty"`
	Beneath bool            `json:"beneath,omitempty"`
	// FromFiles reports whether it comes from the files that the app is kept by.
	FromFiles bool `json:"fromFiles,omitempty"`
}

// ProposedEdit is an edit of a proposal: what it changes, how that was before, and its Base then.
type ProposedEdit struct {
	Name   string `json:"name"`
	Patch  Patch  `json:"patch"`
	Before Patch  `json:"before"`
	Base   string `json:"base"`
	// Revision is that of the policy then, or of its deletion.
	Revision int64 `json:"revision"`
}

// Difference returns the parts of the policy that the edit changes, before and after.
func (e *ProposedEdit) Difference() Difference {
	return Difference{Name: e.Name, Before: e.Before.On(nil), After: e.Patch.On(nil)}
}

// ProposalState is open, approved, rejected or ended.
type ProposalState string

// The states of a proposal.
const (
	Open     ProposalState = "open"
	Approved ProposalState = "approved"
	Rejected ProposalState = "rejected"
	Ended    ProposalState = "ended" // its time is over, or what it changes was changed
)

// Bounds of proposals.
const (
	ProposalTerm  = 7 * 24 * time.Hour
	maxOpen       = 100     // of an app
	keptProposals = 1000    // of all apps; older ones are forgotten
	maxListed     = 200     // in one answer
	maxProposal   = 1 << 20 // bytes
)

// Propose writes a change as a proposal, after it has tried it: it fails where the change would, but for the approval
// that is missing.
func (r *Record) Propose(ctx context.Context, c Change, grants json.RawMessage) (*Proposal, *Outcome, error) {
	try := c
	try.Dry, try.Reviewed = true, true
	concerns := map[string]bool{c.App: true}
	try.Permit = func(ctx context.Context, t sqldb.Tx) (Verdict, error) {
		verdict := func(string, []string) error { return nil }
		if c.Permit != nil {
			var err error
			if verdict, err = c.Permit(ctx, t); err != nil {
				return nil, err
			}
		}
		return func(name string, apps []string) error {
			for _, app := range apps {
				concerns[app] = true
			}
			return verdict(name, apps)
		}, nil
	}
	outcome, err := r.Change(ctx, try)
	if err != nil {
		return nil, nil, err
	}
	if len(outcome.Differences) == 0 && c.Settings == nil && grants == nil {
		return nil, outcome, nil // it holds already
	}
	p := &Proposal{
		App: c.App, Action: c.Action, By: c.By, Reason: c.Reason, State: Open, Revision: outcome.Head.Version.Revision,
		Proposed: Proposed{
			Apps: sortedNames(concerns), Settings: c.Settings, Grants: grants, Force: c.Force, Back: c.Back, Beneath: c.Beneath,
			FromFiles: c.FromFiles,
		},
	}
	err = r.db.Change(ctx, func(ctx context.Context, t *sqldb.Change) error {
		p.Made = r.now().UTC().Truncate(time.Microsecond)
		p.Ends = p.Made.Add(ProposalTerm)
		return r.propose(ctx, t, p, outcome)
	})
	if err != nil {
		return nil, nil, err
	}
	return p, outcome, nil
}

func (r *Record) propose(ctx context.Context, t *sqldb.Change, p *Proposal, tried *Outcome) error {
	p.Edits = nil
	for _, d := range tried.Differences {
		now, err := heldOf(ctx, t.Tx, p.App, d.Name)
		if err != nil {
			return err
		}
		running, err := temporariesOf(ctx, t.Tx, `WHERE app = ? AND name = ? AND ended = 0`, p.App, d.Name)
		if err != nil {
			return err
		}
		beneath := Beneath(now.policy, running)
		was := now.policy
		if p.Beneath {
			was = beneath
		}
		if !says(was, d.Before) { // somebody was faster
			return &StaleError{Name: d.Name, Current: now.revision}
		}
		e := ProposedEdit{
			Name: d.Name, Patch: PatchOf(d.Before, d.After), Before: PatchOf(d.After, d.Before), Revision: now.revision,
		}
		e.Base = e.Patch.Base(beneath)
		p.Edits = append(p.Edits, e)
	}
	body, err := json.Marshal(p.Proposed)
	if err != nil {
		return err
	}
	if len(body) > maxProposal {
		return &InvalidError{Err: fmt.Errorf("the proposal has %d bytes; give at most %d: change less at once", len(body), maxProposal)}
	}
	var open int
	if err := t.Row(ctx, `SELECT COUNT(*) FROM weir_proposals WHERE app = ? AND state = 'open' AND ends > ?`, p.App,
		p.Made.UnixMicro()).Scan(&open); err != nil {
		return err
	}
	if open >= maxOpen {
		return &InvalidError{Err: fmt.Errorf("app %q has %d open proposals; approve or reject some of them first", p.App, open)}
	}
	if err := t.Row(ctx, `SELECT COALESCE(MAX(id), 0) + 1 FROM weir_proposals`).Scan(&p.ID); err != nil {
		return err
	}
	if _, err := t.Exec(ctx, `INSERT INTO weir_proposals (id, app, action, body, revision, person, shown, reason, made, ends, state,
		decided, decided_shown, decided_at, why) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'open', '', '', 0, '')`, p.ID, p.App,
		p.Action, string(body), p.Revision, p.By.ID, p.By.Name, p.Reason, p.Made.UnixMicro(), p.Ends.UnixMicro()); err != nil {
		return err
	}
	if _, err := t.Exec(ctx, `DELETE FROM weir_proposals WHERE (state <> 'open' OR ends < ?) AND id <= ?`,
		p.Made.UnixMicro(), p.ID-keptProposals); err != nil {
		return err
	}
	policy := ""
	if len(p.Edits) == 1 {
		policy = p.Edits[0].Name
	}
	return r.log.Append(ctx, t, audit.Row{
		At: p.Made, By: p.By, App: p.App, Policy: policy, Action: "propose", Reason: p.Reason, Forced: p.Force,
		Detail: fmt.Sprintf(`{"proposal":%d,"change":%q}`, p.ID, p.Action),
	})
}

// WhichProposals selects proposals.
type WhichProposals struct {
	App    string        // "" is any
	State  ProposalState // "" is any
	Before int64         // the number before which the list goes on; 0 is after the last one
	Limit  int
}

// Proposals returns proposals, the latest first.
func (r *Record) Proposals(ctx context.Context, which WhichProposals) (all []Proposal, err error) {
	now := r.now().UnixMicro()
	where, args := `WHERE (? = '' OR app = ?) AND (? = 0 OR id < ?)`, []any{which.App, which.App, which.Before, which.Before}
	switch which.State {
	case "":
	case Open:
		where, args = where+` AND state = 'open' AND ends > ?`, append(args, now)
	case Ended:
		where, args = where+` AND (state = 'ended' OR state = 'open' AND ends <= ?)`, append(args, now)
	default:
		where, args = where+` AND state = ?`, append(args, string(which.State))
	}
	limit := which.Limit
	if limit <= 0 || limit > maxListed {
		limit = maxListed
	}
	err = r.db.Read(ctx, func(ctx context.Context, t sqldb.Tx) error {
		all, err = r.proposals(ctx, t, where+` ORDER BY id DESC LIMIT ?`, append(args, limit)...)
		return err
	})
	return all, err
}

// Proposal returns one. The error is a *NotFoundError if there is none, or it was forgotten.
func (r *Record) Proposal(ctx context.Context, id int64) (p *Proposal, err error) {
	err = r.db.Read(ctx, func(ctx context.Context, t sqldb.Tx) error {
		p, err = r.proposal(ctx, t, id)
		return err
	})
	return p, err
}

func (r *Record) proposal(ctx context.Context, t sqldb.Tx, id int64) (*Proposal, error) {
	all, err := r.proposals(ctx, t, `WHERE id = ?`, id)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, &NotFoundError{Proposal: id}
	}
	return &all[0], nil
}

func (r *Record) proposals(ctx context.Context, t sqldb.Tx, where string, args ...any) (all []Proposal, err error) {
	now := r.now()
	err = t.Each(ctx, func(row sqldb.Row) error {
		var p Proposal
		var body string
		var made, ends, decided int64
		if err := row.Scan(&p.ID, &p.App, &p.Action, &body, &p.Revision, &p.By.ID, &p.By.Name, &p.Reason, &made, &ends, &p.State,
			&p.Decided.ID, &p.Decided.Name, &decided, &p.Why); err != nil {
			return err
		}
		p.Made, p.Ends = time.UnixMicro(made).UTC(), time.UnixMicro(ends).UTC()
		if decided > 0 {
			p.DecidedAt = time.UnixMicro(decided).UTC()
		}
		if p.State == Open && !p.Ends.After(now) {
			p.State, p.Why = Ended, "nobody has approved it in time"
		}
		if err := json.Unmarshal([]byte(body), &p.Proposed); err != nil {
			return fmt.Errorf("proposal %d in the database is %.100q: %w", p.ID, body, err)
		}
		all = append(all, p)
		return nil
	}, `SELECT id, app, action, body, revision, person, shown, reason, made, ends, state, decided, decided_shown, decided_at, why
		FROM weir_proposals `+where, args...)
	return all, err
}

// change returns the change of a proposal.
func (p *Proposal) change() Change {
	c := Change{
		App: p.App, By: p.By, Reason: p.Reason, Action: p.Action, Force: p.Force, Back: p.Back, Beneath: p.Beneath,
		Settings: p.Settings, Reviewed: true, FromFiles: p.FromFiles,
	}
	for _, e := range p.Edits {
		c.Edits = append(c.Edits, Edit{Name: e.Name, Patch: &e.Patch, Base: e.Base, read: e.Revision})
	}
	return c
}

// Approval is the decision of a person on a proposal.
type Approval struct {
	ID     int64
	By     audit.Person
	Reason string
	// Permit decides on the apps that the change concerns, within the transaction, so that rights which were lost before are
	// none: whether this person may approve or reject, and whether the author of what is approved still may write. An error
	// of the kind *LapsedError ends the proposal.
	Permit func(ctx context.Context, t sqldb.Tx, p *Proposal, apps []string) error
	// Grants makes what the proposal says of rights.
	Grants func(ctx context.Context, c *sqldb.Change, p *Proposal) error
	// Announced are the rules of services, which the texts must fit.
	Announced []Announced
}

// LapsedError reports that the author of a proposal does not have the right to it any more.
type LapsedError struct{ Name string }

func (e *LapsedError) Error() string {
	return fmt.Sprintf("%s, who has proposed it, may not do it any more; propose it again", e.Name)
}

// Approve makes the change of an open proposal, if what it changes is as it was when it was made. Otherwise the proposal
// has ended.
func (r *Record) Approve(ctx context.Context, a Approval) (*Outcome, *Proposal, error) {
	p, err := r.Proposal(ctx, a.ID)
	if err != nil {
		return nil, nil, err
	}
	c := p.change()
	c.Announced = a.Announced
	prepared, err := r.Prepare(ctx, c)
	if err != nil {
		return nil, p, err
	}
	var outcome *Outcome
	err = r.db.Change(ctx, func(ctx context.Context, t *sqldb.Change) error {
		if err := r.decide(ctx, t, a, Approved); err != nil {
			return err
		}
		prepared.change.Permit = func(ctx context.Context, t sqldb.Tx) (Verdict, error) {
			return func(_ string, apps []string) error { return a.Permit(ctx, t, p, apps) }, nil
		}
		if outcome, err = prepared.Write(ctx, t); err != nil {
			return err
		}
		if p.Grants != nil {
			return a.Grants(ctx, t, p)
		}
		return nil
	})
	if errors.As(err, new(*StaleError)) || errors.As(err, new(*LapsedError)) {
		return nil, p, errors.Join(err, r.endProposal(ctx, a.ID, err.Error()))
	}
	return outcome, p, err
}

// Reject ends an open proposal. Its author may do that as well.
func (r *Record) Reject(ctx context.Context, a Approval) error {
	return r.db.Change(ctx, func(ctx context.Context, t *sqldb.Change) error {
		return r.decide(ctx, t, a, Rejected)
	})
}

// decide writes a decision on an open proposal.
func (r *Record) decide(ctx context.Context, t *sqldb.Change, a Approval, state ProposalState) error {
	p, err := r.proposal(ctx, t.Tx, a.ID)
	switch {
	case err != nil:
		return err
	case p.State != Open:
		return &DecidedError{ID: a.ID, State: string(p.State)}
	case state == Approved && p.By.ID == a.By.ID:
		return &DecidedError{ID: a.ID, Author: true}
	}
	if err := a.Permit(ctx, t.Tx, p, p.Apps); err != nil {
		return err
	}
	if err := checkReason(a.Reason); err != nil {
		return err
	}
	at, action := r.now(), "approve"
	if state == Rejected {
		action = "reject"
	}
	if _, err := t.Exec(ctx, `UPDATE weir_proposals SET state = ?, decided = ?, decided_shown = ?, decided_at = ?, why = ?
		WHERE id = ?`, string(state), a.By.ID, a.By.Name, at.UnixMicro(), a.Reason, a.ID); err != nil {
		return err
	}
	policy := ""
	if len(p.Edits) == 1 {
		policy = p.Edits[0].Name
	}
	return r.log.Append(ctx, t, audit.Row{
		At: at, By: a.By, App: p.App, Policy: policy, Action: action, Reason: a.Reason,
		Detail: fmt.Sprintf(`{"proposal":%d,"change":%q}`, p.ID, p.Action),
	})
}

// endProposal ends a proposal that nobody can approve any more.
func (r *Record) endProposal(ctx context.Context, id int64, why string) error {
	return r.db.Write(ctx, func(ctx context.Context, t sqldb.Tx) error {
		_, err := t.Exec(ctx, `UPDATE weir_proposals SET state = 'ended', decided_at = ?, why = ? WHERE id = ? AND state = 'open'`,
			r.now().UnixMicro(), cut(why, audit.MaxReason), id)
		return err
	})
}

// endProposals ends those of an app.
func (w *writer) endProposals(ctx context.Context, app, why string) error {
	_, err := w.Exec(ctx, `UPDATE weir_proposals SET state = 'ended', decided_at = ?, why = ? WHERE app = ? AND state = 'open'`,
		w.at.UnixMicro(), why, app)
	return err
}
