package manage

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/rights"
)

// Audit answers PathAudit, the latest row first.
type Audit struct {
	Rows []AuditRow `json:"rows"`
}

// AuditRow is something that somebody did, or was refused.
type AuditRow struct {
	Seq    int64     `json:"seq"`
	At     time.Time `json:"at"`
	Person string    `json:"person,omitempty"` // the id
	Name   string    `json:"name,omitempty"`
	App    string    `json:"app,omitempty"`
	Policy string    `json:"policy,omitempty"`
	Action string    `json:"action"`
	Reason string    `json:"reason,omitempty"`
	// Revision is the one that was written, and Was the one before, or 0.
	Revision  int64  `json:"revision,omitempty"`
	Was       int64  `json:"was,omitempty"`
	Forced    bool   `json:"forced,omitempty"`
	Emergency bool   `json:"emergency,omitempty"`
	Key       string `json:"key,omitempty"`
	Detail    string `json:"detail,omitempty"`
	Outcome   string `json:"outcome"` // "done" or "refused"
	// SeenBy is the name of the first person who has looked at an emergency change, or "".
	SeenBy string `json:"seenBy,omitempty"`
}

// WhichAudit selects rows of the audit.
type WhichAudit struct {
	App, Policy, Person, Action string // "" is any
	Emergency                   bool   // only emergency changes
	Before                      int64  // the number of the row before which the list goes on; 0 is after the last one
	Limit                       int    // 0 is as many as there may be
}

// Audit returns what people did and were refused, the latest first. Of an app it is for those who may see the app; all
// of it, and what concerns no app, is for admins.
func (m *Manager) Audit(ctx context.Context, who *rights.Person, which WhichAudit) (*Audit, error) {
	if who == nil {
		return nil, m.may(nil, rights.ActionView)
	}
	if which.App != "" {
		if err := m.may(who, rights.ActionView, which.App); err != nil {
			return nil, err
		}
	}
	filter := audit.Filter{
		Policy: which.Policy, Person: which.Person, Action: which.Action, Emergency: which.Emergency,
		Before: which.Before, Limit: limited(which.Limit),
	}
	switch {
	case which.App != "":
		filter.Apps = []string{which.App}
	case rights.Decide(who, rights.ActionAuditAll) != rights.Allowed:
		heads, err := m.o.Record.Apps(ctx)
		if err != nil {
			return nil, err
		}
		filter.Apps = []string{}
		for _, h := range heads {
			if visible(who, h.App) {
				filter.Apps = append(filter.Apps, h.App)
			}
		}
	}
	rows, err := m.o.Audit.List(ctx, filter)
	if err != nil {
		return nil, err
	}
	out := &Audit{Rows: []AuditRow{}}
	for _, row := range rows {
		out.Rows = append(out.Rows, rowFor(who, row))
	}
	return out, nil
}

// rowFor returns a row as a person may see it: with its key only if they may look at keys of the app.
func rowFor(who *rights.Person, r audit.Row) AuditRow {
	row := AuditRow{
		Seq: r.Seq, At: r.At, Person: r.By.ID, Name: r.By.Name, App: r.App, Policy: r.Policy, Action: r.Action, Reason: r.Reason,
		Revision: r.Revision, Was: r.Was, Forced: r.Forced, Emergency: r.Emergency, Detail: detailFor(who, r.Detail),
		Outcome: r.Outcome,
		SeenBy:  r.SeenBy.Name,
	}
	if r.App == rights.AllApps && r.Action == string(rights.ActionGrant) && rights.Decide(who, rights.ActionGroups) != rights.Allowed {
		row.Detail = "" // who the admins are, and what the provider's groups are called
	}
	if seesKeys(who, r.App) {
		row.Key = r.Key
	}
	return row
}

// Seen notes that somebody has looked at an emergency change: another one of those who may approve changes of its app.
// The reason may be "".
func (m *Manager) Seen(ctx context.Context, who *rights.Person, seq int64, reason string) error {
	if who == nil {
		return m.may(nil, rights.ActionApprove)
	}
	missing := refusal(http.StatusNotFound, "the audit has no emergency change %d", seq)
	err := m.o.Audit.Seen(ctx, seq, by(who), reason, func(ctx context.Context, t sqldb.Tx, row audit.Row) error {
		now, err := m.now(ctx, t, who)
		if err != nil {
			return err
		}
		if !visible(now, row.App) {
			return missing
		}
		if err := m.may(now, rights.ActionApprove, row.App); err != nil {
			return err
		}
		if row.By.ID == who.ID {
			return refusal(http.StatusForbidden, "you have made this change; somebody else looks at it")
		}
		return nil
	})
	if errors.Is(err, audit.ErrNoEmergency) {
		return missing
	}
	return err
}
