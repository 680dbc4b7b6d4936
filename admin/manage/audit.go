package manage

import (
	"context"
	"time"

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
	App, Policy, Person, Action, Key string // "" is any
	Emergency                        bool   // only emergency changes
	Before                           int64  // the number of the row before which the list goes on; 0 is after the last one
	Limit                            int    // 0 is as many as there may be
}

// Audit returns what people did and were refused, the latest first.
func (*Manager) Audit(context.Context, *rights.Person, WhichAudit) (*Audit, error) {
	return nil, ErrNotYet
}

// Seen notes that somebody has looked at an emergency change.
func (*Manager) Seen(context.Context, *rights.Person, int64) error {
	return ErrNotYet
}
