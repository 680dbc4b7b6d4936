package manage

import (
	"context"
	"time"

	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/internal/adminapi"
)

// Preset is a text that is often wanted.
type Preset struct {
	Name  string            `json:"name"`
	Text  string            `json:"text"`
	Tiers map[string]string `json:"tiers,omitempty"`
	// Words has the reasons for its numbers.
	Words string `json:"words"`
}

// Presets answers PathPresets.
type Presets struct {
	Presets []Preset `json:"presets"`
}

// Checked answers PathCheck: what a policy says, while somebody writes it.
type Checked struct {
	// Words are sentences: what holds at once, and in the worst window.
	Words []string `json:"words,omitempty"`
	// Limits have the numbers of a picture.
	Limits []LimitShape `json:"limits,omitempty"`
	// Trial is whether the policy only counts.
	Trial bool `json:"trial,omitempty"`
	// Mistakes are those of the policy. There are no words then.
	Mistakes []adminapi.Mistake `json:"mistakes,omitempty"`
	// Warnings are sentences about texts that could be meant otherwise.
	Warnings []string `json:"warnings,omitempty"`
}

// LimitShape is a limit in numbers: Burst units at once, and Rate units for each Period.
type LimitShape struct {
	Text      string        `json:"text"`
	Algorithm string        `json:"algorithm"`
	Rate      int64         `json:"rate"`
	Period    time.Duration `json:"period"` // nanoseconds
	Burst     int64         `json:"burst"`
	// Worst is the most that any Period admits.
	Worst int64 `json:"worst,omitempty"`
}

// AskPreview is the body of PathPreview.
type AskPreview struct {
	Policy adminapi.Policy `json:"policy"`
	// Keys are looked at beside the busiest.
	Keys []string `json:"keys,omitempty" maxItems:"50"`
}

// Preview answers PathPreview: what a change would do. Nothing was changed.
type Preview struct {
	// Difference is nil if the policy says that already.
	Difference *adminapi.Difference `json:"difference,omitempty"`
	// Words and Kept are sentences, about the numbers after the change, and about the counts.
	Words []string `json:"words"`
	Kept  []string `json:"kept,omitempty"`
	// Keys are the busiest, and those that were asked for.
	Keys []KeyPreview `json:"keys"`
	// Refused is the number of these keys that would be refused now, and were not before.
	Refused int `json:"refused"`
	// CannotUse lists the rules of processes that could not use it.
	CannotUse []adminapi.CannotUse `json:"cannotUse,omitempty"`
	// Unused is whether no process has a policy of this name.
	Unused bool `json:"unused,omitempty"`
	// Why is the reason why no keys could be looked at, or "".
	Why string `json:"why,omitempty"`
}

// KeyPreview is a key before and after a change.
type KeyPreview struct {
	Key    string   `json:"key"`
	Prefix string   `json:"prefix,omitempty"`
	Before KeyState `json:"before"`
	After  KeyState `json:"after"`
	// Why is the reason why it is not known, or "".
	Why string `json:"why,omitempty"`
}

// KeyState is the answer that the next request of a key would get.
type KeyState struct {
	Allowed   bool  `json:"allowed"`
	Limit     int64 `json:"limit"`
	Remaining int64 `json:"remaining"`
	// RetryAfter is the time until a request is admitted, and ResetAfter until the key is as if unused: nanoseconds.
	RetryAfter time.Duration `json:"retryAfter,omitempty"`
	ResetAfter time.Duration `json:"resetAfter,omitempty"`
}

// Preview returns what a change of a policy would do, and changes nothing. Keys are looked at beside the busiest, for
// which the right to look is needed: a viewer gets the rest.
func (m *Manager) Preview(_ context.Context, who *rights.Person, app, _ string, _ AskPreview) (*Preview, error) {
	if err := m.may(who, rights.ActionView, app); err != nil {
		return nil, err
	}
	return nil, ErrNotYet
}

// Check returns what a policy says, while somebody writes it. Its mistakes are a part of the answer.
func (m *Manager) Check(_ context.Context, who *rights.Person, _ adminapi.Policy) (*Checked, error) {
	if who == nil {
		return nil, m.may(nil, rights.ActionView)
	}
	return nil, ErrNotYet
}

// Presets returns texts that are often wanted.
func (m *Manager) Presets(_ context.Context, who *rights.Person) (*Presets, error) {
	if who == nil {
		return nil, m.may(nil, rights.ActionView)
	}
	return nil, ErrNotYet
}
