package adminapi

import "time"

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
	// SeenBy is who has looked at an emergency change, or "".
	SeenBy string `json:"seenBy,omitempty"`
}

// Proposals answers PathProposals, the latest first.
type Proposals struct {
	Proposals []Proposal `json:"proposals"`
}

// Proposal is a change that waits for another owner.
type Proposal struct {
	ID  string `json:"id"`
	App string `json:"app"`
	// Action is that of the change, such as "set".
	Action      string       `json:"action"`
	Differences []Difference `json:"differences"`
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
