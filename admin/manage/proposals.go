package manage

import (
	"context"

	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/internal/adminapi"
)

// WhichProposals selects proposals.
type WhichProposals struct {
	App   string // "" is all that the person may see
	State string // "open", "approved", "rejected", "ended", or "" for all
	After string // the id after which the list goes on
	Limit int    // 0 is as many as there may be
}

// Proposals returns changes that wait for another owner, or did, the latest first.
func (*Manager) Proposals(context.Context, *rights.Person, WhichProposals) (*adminapi.Proposals, error) {
	return nil, ErrNotYet
}

// Approve makes the change of a proposal, if nobody has changed what it changes meanwhile. Who has made the proposal
// cannot approve it.
func (*Manager) Approve(context.Context, *rights.Person, string, string) (*adminapi.Written, error) {
	return nil, ErrNotYet
}

// Reject ends a proposal.
func (*Manager) Reject(context.Context, *rights.Person, string, string) error {
	return ErrNotYet
}
