package manage

import (
	"context"

	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/internal/adminapi"
)

// Keys returns the keys of a policy that have numbers of their own, and those that use most.
func (m *Manager) Keys(_ context.Context, who *rights.Person, app, _ string) (*adminapi.Keys, int64, error) {
	if err := m.may(who, rights.ActionLook, app); err != nil {
		return nil, 0, err
	}
	return nil, 0, ErrNotYet
}

// PutKey gives a key numbers of its own, or takes them away.
func (m *Manager) PutKey(_ context.Context, who *rights.Person, app, _ string, _ adminapi.KeyNumbers, _ Write) (*adminapi.Written, error) {
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
func (m *Manager) Look(_ context.Context, who *rights.Person, app, _ string, _ string) (*adminapi.Looks, error) {
	if err := m.may(who, rights.ActionLook, app); err != nil {
		return nil, err
	}
	return nil, ErrNotYet
}
