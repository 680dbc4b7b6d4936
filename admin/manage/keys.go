package manage

import (
	"context"
	"time"

	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/internal/adminapi"
)

// OfKey is the body of PathLook and PathReset: a key, which is counted, such as "user=7".
type OfKey struct {
	Key string `json:"key"`
}

// Keys answers PathKeys.
type Keys struct {
	// Numbers are those of the policy's keys that have some of their own.
	Numbers map[string]string `json:"numbers"`
	// Temporary are those of them that end by themselves.
	Temporary []Temporarily `json:"temporary,omitempty"`
	// Busiest and Refused are the keys that use most and that are refused most, as far as services tell.
	Busiest []adminapi.Caller `json:"busiest,omitempty"`
	Refused []adminapi.Caller `json:"refused,omitempty"`
	// Why is the reason why there are no busiest keys, or "".
	Why string `json:"why,omitempty"`
}

// KeyNumbers is the body of PathKeys.
type KeyNumbers struct {
	Key string `json:"key"`
	// Text are the numbers of the key, "blocked", "unlimited", or "" for those of the others.
	Text string `json:"text,omitempty"`
	// Until is the time at which the former numbers hold again. Only an owner may leave it out.
	Until time.Time `json:"until,omitzero"`
}

// Looks answers PathLook.
type Looks struct {
	App   string `json:"app"`
	Key   string `json:"key"`
	Looks []Look `json:"looks"`
}

// Look is a key as one policy counts it, by one store.
type Look struct {
	Policy string `json:"policy"`
	// Revision is that of the policy if it belongs to the app, or 0.
	Revision int64 `json:"revision,omitempty"`
	// Place is that of the rule in the code, such as "GET /orders".
	Place string `json:"place,omitempty"`
	// Prefix is that of the store.
	Prefix string `json:"prefix,omitempty"`
	// Numbers are those that the key has of its own, "" if it has those of the others.
	Numbers string `json:"numbers,omitempty"`
	// Temporary is the end of these numbers, if they end by themselves.
	Temporary *Temporarily `json:"temporary,omitempty"`
	// Explanation has the answer that a request would get now. It is nil where nobody can look.
	Explanation *enforce.Explanation `json:"explanation,omitempty"`
	// Words is the explanation as text.
	Words string `json:"words,omitempty"`
	// Why is the reason why nobody can look, or "".
	Why string `json:"why,omitempty"`
}

// Keys returns the keys of a policy that have numbers of their own, and those that use most.
func (m *Manager) Keys(_ context.Context, who *rights.Person, app, _ string) (*Keys, int64, error) {
	if err := m.may(who, rights.ActionLook, app); err != nil {
		return nil, 0, err
	}
	return nil, 0, ErrNotYet
}

// PutKey gives a key numbers of its own, or takes them away.
func (m *Manager) PutKey(_ context.Context, who *rights.Person, app, _ string, _ KeyNumbers, _ Write) (*adminapi.Written, error) {
	if err := m.may(who, rights.ActionSetKey, app); err != nil {
		return nil, err
	}
	return nil, ErrNotYet
}

// ResetKey gives a key the whole limit of a policy back.
func (m *Manager) ResetKey(_ context.Context, who *rights.Person, app, _, _ string, _ Write) error {
	if err := m.may(who, rights.ActionResetKey, app); err != nil {
		return err
	}
	return ErrNotYet
}

// Look returns a key as each policy of an app counts it. The audit gets a row.
func (m *Manager) Look(_ context.Context, who *rights.Person, app, _ string, _ string) (*Looks, error) {
	if err := m.may(who, rights.ActionLook, app); err != nil {
		return nil, err
	}
	return nil, ErrNotYet
}
