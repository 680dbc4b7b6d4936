package manage

import (
	"context"
	"time"

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
	Action      string                `json:"action"`
	Differences []adminapi.Difference `json:"differences"`
	// Base is the revision that it changes.
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
	// Why is the reason of that person.
	Why string `json:"why,omitempty"`
}

// WhichProposals selects proposals.
type WhichProposals struct {
	App   string // "" is all that the person may see
	State string // "open", "approved", "rejected", "ended", or "" for all
	After string // the id after which the list goes on
	Limit int    // 0 is as many as there may be
}

// Proposals returns changes that wait for another owner, or did, the latest first.
func (*Manager) Proposals(context.Context, *rights.Person, WhichProposals) (*Proposals, error) {
	return nil, ErrNotYet
}

// Approve makes the change of a proposal, if nobody has changed what it changes meanwhile. It takes another owner
// than the one who has made the proposal.
func (*Manager) Approve(context.Context, *rights.Person, string, string) (*adminapi.Written, error) {
	return nil, ErrNotYet
}

// Reject ends a proposal.
func (*Manager) Reject(context.Context, *rights.Person, string, string) error {
	return ErrNotYet
}
