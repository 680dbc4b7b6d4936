package page_test

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/internal/adminapi"
)

// office has what a fake knows of rights, people, proposals and the audit.
type office struct {
	open     []manage.Proposal
	rows     []manage.AuditRow
	grants   []manage.Grant
	granted  int64
	people   []manage.Somebody
	tokens   []manage.Token
	imports  []manage.Import
	settings adminapi.Settings
	done     []string
	refuse   error
}

func (o *office) do(what, reason string) error {
	if reason == "" {
		return manage.ErrNoReason
	}
	if o.refuse != nil {
		return o.refuse
	}
	o.done = append(o.done, what+", "+reason)
	return nil
}

func (o *office) Proposals(context.Context, *rights.Person, manage.WhichProposals) (*manage.Proposals, error) {
	return &manage.Proposals{Proposals: o.open}, nil
}

func (o *office) Approve(_ context.Context, _ *rights.Person, id, reason string) (*adminapi.Written, error) {
	return &adminapi.Written{}, o.do("approve "+id, reason)
}

func (o *office) Reject(_ context.Context, _ *rights.Person, id, reason string) error {
	return o.do("reject "+id, reason)
}

func (o *office) Audit(_ context.Context, _ *rights.Person, which manage.WhichAudit) (*manage.Audit, error) {
	out := &manage.Audit{}
	for _, row := range o.rows {
		if (which.App == "" || row.App == which.App) && (which.Before == 0 || row.Seq < which.Before) &&
			(which.Action == "" || row.Action == which.Action) && len(out.Rows) < which.Limit {
			out.Rows = append(out.Rows, row)
		}
	}
	return out, nil
}

func (o *office) Imports(context.Context, *rights.Person) (*manage.Imports, error) {
	return &manage.Imports{Imports: o.imports}, nil
}

func (o *office) Seen(context.Context, *rights.Person, int64, string) error { return o.do("seen", "-") }

func (o *office) PutApp(_ context.Context, _ *rights.Person, app string, s adminapi.Settings, w manage.Write) (*adminapi.Written, error) {
	o.settings = s
	return &adminapi.Written{}, o.do("settings of "+app, w.Reason)
}

func (o *office) DeleteApp(_ context.Context, _ *rights.Person, app string, w manage.Write) (*adminapi.Written, error) {
	return &adminapi.Written{}, o.do("delete "+app, w.Reason)
}

func (o *office) Grants(_ context.Context, who *rights.Person, app string) (*manage.Grants, int64, error) {
	if verdict := rights.Decide(who, rights.ActionGrant, app); verdict != rights.Allowed {
		return nil, 0, &manage.RightError{Verdict: verdict, Action: rights.ActionGrant, App: app}
	}
	return &manage.Grants{Grants: slices.Clone(o.grants)}, o.granted, nil
}

func (o *office) PutGrants(
	ctx context.Context, who *rights.Person, app string, all []manage.Grant, w manage.Write,
) (*manage.Grants, int64, error) {
	if err := o.do("grants of "+app, w.Reason); err != nil {
		return nil, 0, err
	}
	o.grants = all
	o.granted++
	return o.Grants(ctx, who, app)
}

func (o *office) People(context.Context, *rights.Person, string, int) (*manage.People, error) {
	return &manage.People{People: o.people}, nil
}

func (o *office) Bar(_ context.Context, _ *rights.Person, id string, barred bool, reason string) error {
	if barred {
		return o.do("bar "+id, reason)
	}
	return o.do("admit "+id, reason)
}

func (o *office) EndSessions(_ context.Context, _ *rights.Person, id, reason string) error {
	return o.do("sessions of "+id, reason)
}

func (o *office) Tokens(context.Context, *rights.Person, int64, int) (*manage.Tokens, error) {
	return &manage.Tokens{Tokens: o.tokens}, nil
}

func (o *office) MakeToken(_ context.Context, _ *rights.Person, n manage.NewToken, reason string) (*manage.MadeToken, error) {
	if err := o.do("token "+n.Name, reason); err != nil {
		return nil, err
	}
	t := manage.Token{ID: 7, Name: n.Name, Apps: n.Apps, Role: n.Role, Ends: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}
	return &manage.MadeToken{Token: t, Secret: "weir_secret"}, nil
}

func (o *office) DeleteToken(_ context.Context, _ *rights.Person, _ int64, reason string) error {
	return o.do("end a token", reason)
}

// problem is a refusal with a text.
func problem(status int, detail string) error {
	return &adminapi.Problem{Status: status, Title: http.StatusText(status), Detail: detail}
}

func (o *office) RollbackApp(
	_ context.Context, _ *rights.Person, app string, _ int64, dry bool, w manage.Write,
) (*adminapi.Written, error) {
	out := &adminapi.Written{Dry: dry, Differences: []adminapi.Difference{{
		Name: "search", Before: &adminapi.Policy{Text: "50/1m"}, After: &adminapi.Policy{Text: "100/1m"},
	}, {Name: "login", Before: &adminapi.Policy{Text: "5/1m"}}}}
	if dry {
		return out, nil
	}
	return out, o.do("back, "+app, w.Reason)
}
