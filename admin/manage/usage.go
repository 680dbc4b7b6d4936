package manage

import (
	"context"
	"net/http"
	"time"

	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// Usage returns what services have counted of a policy in the last time.
func (m *Manager) Usage(_ context.Context, who *rights.Person, app, _ string, _ time.Duration) (*adminapi.Usage, error) {
	if err := m.may(who, rights.ActionView, app); err != nil {
		return nil, err
	}
	return nil, ErrNotYet
}

// HasTop reports whether the program serves Top.
func (m *Manager) HasTop() bool { return m.o.Top != nil }

// Top returns the n callers of a policy that all processes whose stores have a prefix have refused most in the last
// minutes. A prefix is of no app, and so it is for admins.
func (m *Manager) Top(ctx context.Context, who *rights.Person, policy, prefix string, minutes, n int) (*adminapi.Top, error) {
	if err := m.may(who, rights.ActionAuditAll); err != nil {
		return nil, err
	}
	if err := policies.CheckName(policy); err != nil {
		return nil, refusal(http.StatusUnprocessableEntity, "%v", err)
	}
	now := m.o.Now()
	callers, rest, err := m.o.Top(ctx, prefix, policy, time.Duration(minutes)*time.Minute, n)
	if err != nil {
		return nil, refusal(http.StatusServiceUnavailable, "the worst callers could not be read from Redis: %v", err)
	}
	top := adminapi.TopOf(policy, minutes, callers, rest, now)
	return &top, nil
}
