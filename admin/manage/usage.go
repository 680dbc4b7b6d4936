package manage

import (
	"context"
	"net/http"
	"time"

	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// Usage answers PathUsage: what services have counted of a policy.
type Usage struct {
	App    string `json:"app"`
	Policy string `json:"policy"`
	// Points has a point for each minute of which something is known, the first one first.
	Points []UsagePoint `json:"points"`
	// Tiers has the sums of the tiers.
	Tiers map[string]UsageCounts `json:"tiers,omitempty"`
	// Processes is the number of those that tell their usage.
	Processes int `json:"processes"`
	// Missed has sentences about what the server has not heard.
	Missed []string `json:"missed,omitempty"`
}

// UsagePoint is a minute.
type UsagePoint struct {
	At time.Time `json:"at"`
	UsageCounts
}

// UsageCounts are numbers of requests.
type UsageCounts struct {
	Admitted uint64 `json:"admitted"`
	Refused  uint64 `json:"refused"`
	// Failed is of those for which the store has failed, Local of those that the process has decided alone, and Waited
	// of those that have waited for their turn.
	Failed uint64 `json:"failed,omitempty"`
	Local  uint64 `json:"local,omitempty"`
	Waited uint64 `json:"waited,omitempty"`
}

// Usage returns what services have counted of a policy since a time.
func (m *Manager) Usage(_ context.Context, who *rights.Person, app, _ string, _ time.Time) (*Usage, error) {
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
