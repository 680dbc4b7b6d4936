package page

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/weir-go/weir/admin/manage"
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
		body.Older = "/changes?" + query.Encode()
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
	return s.afterChange(v, "You have looked at it.", s.Manager.Seen(v.r.Context(), v.who, numberIn(v.r, "seq")))
}

// afterChange shows the changes again. What could not be done is no page of its own: others may have been faster.
func (s *server) afterChange(v *visit, done string, err error) error {
	if err == nil {
		return s.showChanges(v, done, "")
	}
	switch p := manage.Problem(err); p.Status {
	case http.StatusPreconditionFailed, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusForbidden:
		return s.showChanges(v, "", wrongOf(p)[0].Message)
	}
	return err
}
