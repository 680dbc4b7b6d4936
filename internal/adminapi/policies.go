package adminapi

import (
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/core/policies"
)

// Policy is a [policies.Policy] as JSON.
type Policy struct {
	Text  string            `json:"text,omitempty"`
	Tiers map[string]string `json:"tiers,omitempty"`
	Keys  map[string]string `json:"keys,omitempty"`
	Apps  []string          `json:"apps,omitempty"`
}

// PolicyOf returns p as JSON has it.
func PolicyOf(p policies.Policy) Policy { return Policy(p) }

// Value returns the policy that p says.
func (p Policy) Value() policies.Policy { return policies.Policy(p) }

// Equal reports whether p and q say the same.
func (p Policy) Equal(q Policy) bool {
	return p.Text == q.Text && maps.Equal(p.Tiers, q.Tiers) && maps.Equal(p.Keys, q.Keys) &&
		slices.Equal(slices.Sorted(slices.Values(p.Apps)), slices.Sorted(slices.Values(q.Apps)))
}

// Held is a policy as the record has it.
type Held struct {
	App  string `json:"app"`
	Name string `json:"name"`
	// Revision is that of the change that wrote it, and its ETag.
	Revision int64  `json:"revision"`
	Policy   Policy `json:"policy"`
}

// Written answers a change.
type Written struct {
	App string `json:"app"`
	// Generation and Revision are the version of the app's document now.
	Generation int64 `json:"generation"`
	Revision   int64 `json:"revision"`
	// PolicyRevision is that of the policy, of a change of one: its ETag.
	PolicyRevision int64 `json:"policyRevision,omitempty"`
	// Proposal is the id of the proposal that the change has become, because the app wants another owner to approve it.
	// Nothing was written then, and the status is 202.
	Proposal string `json:"proposal,omitempty"`
	// Published reports whether the services can read it. If it is false, it will be published as soon as Redis answers.
	Published bool `json:"published"`
	// Alarm is the reason why it is not published, or "".
	Alarm string `json:"alarm,omitempty"`
	// Dry reports whether nothing was written, because the request asked for no more than the differences.
	Dry bool `json:"dry,omitempty"`
	// Differences are the policies that were changed, by name.
	Differences []Difference `json:"differences"`
	// CannotUse lists the rules that cannot use it, of a change that was forced.
	CannotUse []CannotUse `json:"cannotUse,omitempty"`
	// Unused are the names of policies of the change that no process has: mistakes of spelling, mostly, or policies of
	// programs that do not run yet. It is empty where it is not known what processes have.
	Unused []string `json:"unused,omitempty"`
	// Ended are temporary changes of the same parts of policies, which are over now. Beneath are those that go on: what was
	// written beneath them holds when they end.
	Ended   []Temporarily `json:"ended,omitempty"`
	Beneath []Temporarily `json:"beneath,omitempty"`
	// SettingsRevision is that of the app's settings, of a change of these: their ETag.
	SettingsRevision int64 `json:"settingsRevision,omitempty"`
}

// Temporarily is a change of one part of a policy that ends by itself: then the former text holds again.
type Temporarily struct {
	Policy string `json:"policy"`
	// Key is the key whose numbers it changes, or "" for the policy's text.
	Key string `json:"key,omitempty"`
	// Text holds until then, and Former after. "" is none.
	Text   string    `json:"text,omitempty"`
	Former string    `json:"former,omitempty"`
	Began  time.Time `json:"began"`
	Until  time.Time `json:"until"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	// Why is the reason why it could not be ended at its time, or "".
	Why string `json:"why,omitempty"`
}

// Difference is a policy before and after a change.
type Difference struct {
	Name string `json:"name"`
	// Before is nil if there was none, After if there is none any more.
	Before *Policy `json:"before,omitempty"`
	After  *Policy `json:"after,omitempty"`
	// Afresh reports whether the counts begin anew for everybody, because the new numbers cannot share the old ones.
	Afresh bool `json:"afresh,omitempty"`
}

// CannotUse is a rule of a service that would not use a text.
type CannotUse struct {
	App     string `json:"app,omitempty"`
	Process string `json:"process,omitempty"`
	Policy  string `json:"policy"`
	Entry   string `json:"entry,omitempty"` // "tier pro" or "key user=7"; "" for the policy's text
	Why     string `json:"why"`
}

// History answers PathHistory, the latest version first.
type History struct {
	Versions []Past `json:"versions"`
}

// Past is a version of a policy.
type Past struct {
	Revision int64     `json:"revision"`
	At       time.Time `json:"at"`
	Who      string    `json:"who"`
	Reason   string    `json:"reason,omitempty"`
	Action   string    `json:"action"` // "set", "delete", "apply", "rollback", and the like
	Forced   bool      `json:"forced,omitempty"`
	Policy   *Policy   `json:"policy,omitempty"` // nil if the version is that it was deleted
}

// Rollback is the body of PathRollback and PathAppRollback.
type Rollback struct {
	// To is the revision of the version that holds again.
	To int64 `json:"to" minimum:"1"`
}
