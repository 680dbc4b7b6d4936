package manage

import (
	"context"

	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/internal/adminapi"
)

// WhichAudit selects rows of the audit.
type WhichAudit struct {
	App, Policy, Person, Action, Key string // "" is any
	Emergency                        bool   // only emergency changes
	Before                           int64  // the number of the row before which the list goes on; 0 is after the last one
	Limit                            int    // 0 is as many as there may be
}

// Audit returns what people did and were refused, the latest first.
func (*Manager) Audit(context.Context, *rights.Person, WhichAudit) (*adminapi.Audit, error) {
	return nil, ErrNotYet
}

// Seen notes that somebody has looked at an emergency change.
func (*Manager) Seen(context.Context, *rights.Person, int64) error {
	return ErrNotYet
}
