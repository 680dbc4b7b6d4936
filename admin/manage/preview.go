package manage

import (
	"context"

	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/internal/adminapi"
)

// Preview returns what a change of a policy would do, and changes nothing. Keys are looked at beside the busiest, for
// which the right to look is needed: a viewer gets the rest.
func (m *Manager) Preview(_ context.Context, who *rights.Person, app, _ string, _ adminapi.AskPreview) (*adminapi.Preview, error) {
	if err := m.may(who, rights.ActionView, app); err != nil {
		return nil, err
	}
	return nil, ErrNotYet
}

// Check returns what a policy says in JSON, while somebody writes it. Its mistakes are a part of the answer.
func (m *Manager) Check(_ context.Context, who *rights.Person, _ []byte) (*adminapi.Checked, error) {
	if who == nil {
		return nil, m.may(nil, rights.ActionView)
	}
	return nil, ErrNotYet
}

// Presets returns texts that are often wanted.
func (m *Manager) Presets(_ context.Context, who *rights.Person) (*adminapi.Presets, error) {
	if who == nil {
		return nil, m.may(nil, rights.ActionView)
	}
	return nil, ErrNotYet
}
