package manage

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/admin/usage"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// Usage answers PathUsage: what services have counted of a policy.
type Usage struct {
	App    string `json:"app"`
	Policy string `json:"policy"`
	// Since is the time from which on something is known.
	Since time.Time `json:"since,omitzero"`
	// Points has a point for each whole minute in which something was counted, and for the last one in any case, the
	// first one first.
	Points []UsagePoint `json:"points"`
	// Tiers has the sums of the tiers since TiersSince.
	Tiers      map[string]UsageCounts `json:"tiers,omitempty"`
	TiersSince time.Time              `json:"tiersSince,omitzero"`
	// Processes is the number of those that tell their usage.
	Processes int `json:"processes"`
	// Missed has sentences about what the server has not heard.
	Missed []string `json:"missed,omitempty"`
}

// UsagePoint is a minute, or ten.
type UsagePoint struct {
	At time.Time `json:"at"`
	// Minutes is 10 where only the sum of so many is known, and 0 for one minute.
	Minutes int `json:"minutes,omitempty"`
	UsageCounts
}

// UsageCounts are numbers of requests. Each is one of Admitted, Refused and Trial.
type UsageCounts struct {
	Admitted uint64 `json:"admitted"`
	Refused  uint64 `json:"refused"`
	// Trial counts requests that would have been refused, and passed because the policy is on trial.
	Trial uint64 `json:"trial,omitempty"`
	// Failed counts requests for which the store has failed, Local those of them that the process has decided alone, and
	// Waited requests that have waited for their turn.
	Failed uint64 `json:"failed,omitempty"`
	Local  uint64 `json:"local,omitempty"`
	Waited uint64 `json:"waited,omitempty"`
}

// errNoUsage reports that a program does not read what services have counted.
var errNoUsage = refusal(http.StatusServiceUnavailable, "this server does not read what services have counted")

// Usage returns what services have counted of a policy since a time.
func (m *Manager) Usage(_ context.Context, who *rights.Person, app, name string, since time.Time) (*Usage, error) {
	if err := m.may(who, rights.ActionView, app); err != nil {
		return nil, err
	}
	if m.o.Usage == nil {
		return nil, errNoUsage
	}
	s := m.o.Usage.Policy(app, name, since)
	out := &Usage{
		App: app, Policy: name, Since: s.Missed.Since, Points: m.points(s.Points, s.Missed), TiersSince: s.TiersSince,
		Processes: s.Missed.Processes, Missed: m.missed(s.Missed, since),
	}
	for tier, c := range s.Tiers {
		if out.Tiers == nil {
			out.Tiers = map[string]UsageCounts{}
		}
		out.Tiers[tier] = UsageCounts(c)
	}
	return out, nil
}

// points returns the points of whole minutes, the last one of them in any case if it is known.
func (m *Manager) points(points []usage.Point, missed usage.Missed) []UsagePoint {
	out := []UsagePoint{}
	now := m.o.Now().UTC().Truncate(time.Minute)
	for _, p := range points {
		if !p.At.Before(now) {
			continue
		}
		point := UsagePoint{At: p.At, UsageCounts: UsageCounts(p.UsageCounts)}
		if p.Minutes > 1 {
			point.Minutes = p.Minutes
		}
		out = append(out, point)
	}
	last := now.Add(-time.Minute)
	known := !missed.Since.IsZero() && !missed.Since.After(last) && !missed.Read.Before(last)
	if known && (len(out) == 0 || out[len(out)-1].At.Before(last)) {
		out = append(out, UsagePoint{At: last})
	}
	return out
}

// missed returns sentences about the time since then of which not all is known.
func (m *Manager) missed(of usage.Missed, since time.Time) (all []string) {
	say := func(is bool, format string, args ...any) {
		if is {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	clock := func(t time.Time) string { return t.Format("15:04") + " UTC" }
	if of.Read.IsZero() {
		return []string{"Nothing has been read yet."}
	}
	say(of.Processes == 0, "No process tells what it counts: a program does with redissource.Options.Usage.")
	say(of.Since.After(since), "Nothing is known of the time before %s.", clock(of.Since))
	say(of.Fine.After(of.Since) && of.Fine.After(since), "Before %s only the sums of ten minutes are known.", clock(of.Fine))
	say(of.Minutes > 0, "Nothing was read for %s: what was counted then is spread over them evenly.", count(of.Minutes, "minute", "minutes"))
	say(of.Ended > 0, "%s: what each has counted last, for up to 20 seconds, is not known.",
		count(of.Ended, "process has ended", "processes have ended"))
	say(of.Full > 0, "There is no room for %s of this app.", count(of.Full, "process", "processes"))
	say(of.Policies > 0, "There is no room for %s of this app.", count(of.Policies, "policy of a process", "policies of processes"))
	say(of.Unreadable > 0, "What %s cannot be read.", count(of.Unreadable, "process tells", "processes tell"))
	say(of.Omitted > 0, "Processes have left %s out, for which there was no room in what they announce.", count(of.Omitted, "policy", "policies"))
	return all
}

// count returns a number with its noun.
func count(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", several)
}

// busiest adds to k the keys of a policy that use most and that are refused most.
func (m *Manager) busiest(app, name string, k *Keys) {
	if m.o.Usage == nil {
		k.Why = "This server does not read what services have counted."
		return
	}
	callers := func(keys []usage.Key, counted time.Duration) (all []adminapi.Caller) {
		for _, key := range keys {
			all = append(all, adminapi.Caller(key))
		}
		k.Counted = max(k.Counted, int(counted/time.Second))
		return all
	}
	k.Busiest, k.Refused = callers(m.o.Usage.Busiest(app, name)), callers(m.o.Usage.Refused(app, name))
	if len(k.Busiest)+len(k.Refused) > 0 {
		return
	}
	if m.o.Usage.Policy(app, name, m.o.Now()).Missed.Processes == 0 {
		k.Why = "No process tells what it counts: a program does with redissource.Options.Usage."
		return
	}
	k.Why = "No process tells keys that count: a program does with observe.Options.UsageKeys, once a key was seen twice."
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
