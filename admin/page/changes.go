package page

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/internal/adminapi"
)

// changesBody is the screen of changes: those that wait for somebody, and the audit.
type changesBody struct {
	Open    []proposalView
	Audit   []manage.AuditRow
	Filter  auditFilter
	Older   string // the address of the rows before, or ""
	Reasons []string
	Done    string
	Problem string
	Me      string
	// MayBack reports whether all policies of the app may be made what they were.
	MayBack bool
}

// proposalView is a proposal with the lines of its difference.
type proposalView struct {
	manage.Proposal
	Parts []proposalPart
	Mine  bool
}

// proposalPart is a policy that a proposal changes, or what else it does.
type proposalPart struct {
	Name  string
	Lines []line
}

// auditFilter selects rows of the audit. A key is not among it: it would stand in an address.
type auditFilter struct {
	App, Policy, Person, Action string
	Emergency                   bool
}

// auditPage is the number of rows that one page has.
const auditPage = 50

// changes shows what waits for somebody, and what was done.
func (s *server) changes(v *visit) error { return s.showChanges(v, "", "") }

func (s *server) showChanges(v *visit, done, problem string) error {
	ctx := v.r.Context()
	query := v.r.URL.Query()
	get := func(name string) string { return strings.TrimSpace(query.Get(name)) }
	filter := auditFilter{
		App: get("app"), Policy: get("policy"), Person: get("person"), Action: get("action"), Emergency: get("emergency") != "",
	}
	body := &changesBody{Filter: filter, Reasons: reasons, Done: done, Problem: problem, Me: v.who.ID}
	body.MayBack = filter.App != "" && rights.Decide(v.who, rights.ActionWrite, filter.App) == rights.Allowed
	open, err := s.Manager.Proposals(ctx, v.who, manage.WhichProposals{App: filter.App, State: "open", Limit: auditPage})
	if err != nil {
		return err
	}
	for _, p := range open.Proposals {
		body.Open = append(body.Open, proposalViewOf(p, v.who.ID))
	}
	before, err := strconv.ParseInt(query.Get("before"), 10, 64)
	if err != nil {
		before = 0
	}
	rows, err := s.Manager.Audit(ctx, v.who, manage.WhichAudit{
		App: filter.App, Policy: filter.Policy, Person: filter.Person, Action: filter.Action, Emergency: filter.Emergency,
		Before: before, Limit: auditPage + 1,
	})
	if err != nil {
		return err
	}
	body.Audit = rows.Rows
	if len(body.Audit) > auditPage {
		body.Audit = body.Audit[:auditPage]
		query.Set("before", strconv.FormatInt(body.Audit[auditPage-1].Seq, 10))
		body.Older = addressOf("/changes", query)
	}
	return s.show(v, http.StatusOK, "changes", frame{Title: "Changes", Section: "changes", Body: body})
}

func proposalViewOf(p manage.Proposal, me string) proposalView {
	view := proposalView{Proposal: p, Mine: p.By == me}
	for _, d := range p.Differences {
		view.Parts = append(view.Parts, proposalPart{d.Name, changed(difference(d.Before, d.After))})
	}
	if p.Settings != nil {
		view.Parts = append(view.Parts, proposalPart{"settings of " + p.App, settingsLines(*p.Settings)})
	}
	if len(p.Grants) > 0 {
		var lines []line
		for _, g := range p.Grants {
			lines = append(lines, line{"plus", grantLine(g)})
		}
		view.Parts = append(view.Parts, proposalPart{"rights on " + p.App, lines})
	}
	return view
}

// decide approves a proposal or rejects it.
func (s *server) decide(v *visit) error {
	ctx := v.r.Context()
	id, reason := v.r.PathValue("id"), v.reasonOf()
	var err error
	done := "The proposal was rejected. Nothing was written."
	if v.r.PostForm.Get("what") == "approve" {
		done = "The proposal was approved, and holds now."
		_, err = s.Manager.Approve(ctx, v.who, id, reason)
	} else {
		err = s.Manager.Reject(ctx, v.who, id, reason)
	}
	return s.afterChange(v, done, err)
}

// seen notes that somebody has looked at an emergency change.
func (s *server) seen(v *visit) error {
	return s.afterChange(v, "You have looked at it.", s.Manager.Seen(v.r.Context(), v.who, numberIn(v.r, "seq"), ""))
}

// afterChange shows the changes again. What could not be done is no page of its own: others may have been faster.
func (s *server) afterChange(v *visit, done string, err error) error {
	if err == nil {
		return s.showChanges(v, done, "")
	}
	if text, ok := refusedBy(err); ok {
		return s.showChanges(v, "", text)
	}
	return err
}

// rollbackBody is the screen before all policies of an app become what they were.
type rollbackBody struct {
	App      string
	To       int64
	Revision int64 // of the app as it is
	Parts    []proposalPart
	Force    bool // some processes cannot use it
	FourEyes bool
	Reasons  []string
	Wrong    []adminapi.Mistake
}

// rollbackApp shows the difference between all policies of an app and those of a revision, and makes them those when that
// was seen.
func (s *server) rollbackApp(v *visit) error {
	to, form := numberIn(v.r, "to"), v.r.PostForm
	if form.Get("what") != "write" {
		return s.reviewRollback(v, to, nil)
	}
	written, err := s.Manager.RollbackApp(v.r.Context(), v.who, v.app, to, false, manage.Write{
		Revision: numberIn(v.r, "revision"), Reason: v.reasonOf(), Force: form.Get("force") != "", Emergency: form.Get("emergency") != "",
	})
	if err != nil {
		switch p := manage.Problem(err); p.Status {
		case http.StatusPreconditionFailed, http.StatusConflict, http.StatusUnprocessableEntity:
			return s.reviewRollback(v, to, wrongOf(p))
		}
		return err
	}
	if written.Proposal != "" {
		v.goTo("/changes")
		return nil
	}
	v.goTo(pathTo("apps", v.app))
	return nil
}

func (s *server) reviewRollback(v *visit, to int64, wrong []adminapi.Mistake) error {
	ctx := v.r.Context()
	app, err := s.Manager.App(ctx, v.who, v.app)
	if err != nil {
		return err
	}
	if !v.may(rights.ActionWrite) {
		return &manage.RightError{Verdict: rights.Forbidden, Action: rights.ActionWrite, App: v.app}
	}
	would, err := s.Manager.RollbackApp(ctx, v.who, v.app, to, true, manage.Write{Revision: app.Revision, Force: true})
	if err != nil {
		return err
	}
	body := &rollbackBody{
		App: v.app, To: to, Revision: app.Revision, FourEyes: app.Settings.FourEyes, Reasons: reasons, Wrong: wrong,
		Force: len(would.CannotUse) > 0,
	}
	for _, d := range would.Differences {
		body.Parts = append(body.Parts, proposalPart{d.Name, changed(difference(d.Before, d.After))})
	}
	return s.show(v, http.StatusOK, "rollback", frame{Title: v.app + " as it was", Section: "changes", Body: body})
}
