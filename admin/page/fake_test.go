package page_test

import (
	"cmp"
	"context"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/page"
	"github.com/weir-go/weir/admin/preview"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/explain"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

var _ page.Manager = (*fake)(nil)

// fake is a Manager of one app, in memory, with rights as the real one decides them.
type fake struct {
	office
	mu        sync.Mutex
	now       func() time.Time
	apps      []manage.App
	versions  map[string][]adminapi.Past // the latest first
	processes []adminapi.Process
	code      []manage.CodeLimit
	settings  adminapi.Settings
	busiest   []adminapi.Caller
	left      int64
	looks     []manage.Look // in place of those by left
	// gaps makes what only services can tell fail.
	gaps error
	// writes are the changes that were asked for.
	writes []manage.Write
	until  time.Time
}

func (f *fake) lock() func() {
	f.mu.Lock()
	return f.mu.Unlock
}

func (f *fake) may(who *rights.Person, a rights.Action, app string) error {
	if verdict := rights.Decide(who, a, app); verdict != rights.Allowed {
		return &manage.RightError{Verdict: verdict, Action: a, App: app}
	}
	return nil
}

func (f *fake) Apps(_ context.Context, who *rights.Person, after string, limit int) (*manage.Apps, error) {
	defer f.lock()()
	out := &manage.Apps{}
	for _, app := range f.apps {
		if app.App.App > after && len(out.Apps) < limit && rights.Decide(who, rights.ActionView, app.App.App) == rights.Allowed {
			out.Apps = append(out.Apps, app)
		}
	}
	return out, nil
}

func (f *fake) Search(_ context.Context, _ *rights.Person, text string) (*manage.Found, error) {
	defer f.lock()()
	out := &manage.Found{}
	for _, app := range f.apps {
		if strings.Contains(app.App.App, text) {
			out.Apps = append(out.Apps, app.App.App)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.versions)) {
		if strings.Contains(name, text) {
			out.Policies = append(out.Policies, manage.OfApp{App: "pay", Name: name})
		}
	}
	if strings.Contains(text, "=") {
		out.Key, out.KeyApps = text, []string{"pay"}
	}
	return out, nil
}

func (f *fake) held(name string) (*manage.Held, error) {
	past := f.versions[name]
	if len(past) == 0 || past[0].Policy == nil {
		return nil, &adminapi.Problem{Status: http.StatusNotFound, Title: "Not Found"}
	}
	return &manage.Held{Held: adminapi.Held{App: "pay", Name: name, Revision: past[0].Revision, Policy: *past[0].Policy}}, nil
}

func (f *fake) App(_ context.Context, who *rights.Person, name string) (*manage.AppView, error) {
	defer f.lock()()
	if err := f.may(who, rights.ActionView, name); err != nil {
		return nil, err
	}
	for _, app := range f.apps {
		if app.App.App != name {
			continue
		}
		out := &manage.AppView{App: app, Code: f.code}
		out.Settings = f.settings
		out.Role = who.Role(name).String()
		for _, policy := range slices.Sorted(maps.Keys(f.versions)) {
			held, err := f.held(policy)
			if err != nil {
				continue
			}
			v := manage.PolicyView{
				Held: *held, Owner: name, Words: []string{"50 at once", "99 in any minute at most"},
				Origins: map[string]int{}, Changed: &f.versions[policy][0], Usage: f.usage(),
			}
			for _, p := range f.processes {
				for _, r := range p.Rules {
					if r.Policy == policy {
						v.Origins[string(r.Meaning)]++
						v.Why = cmp.Or(v.Why, r.Why)
					}
				}
			}
			out.Policies = append(out.Policies, v)
		}
		return out, nil
	}
	return nil, &manage.RightError{Verdict: rights.Hidden, App: name}
}

func (f *fake) Settings(ctx context.Context, who *rights.Person, app string) (adminapi.Settings, error) {
	view, err := f.App(ctx, who, app)
	if err != nil {
		return adminapi.Settings{}, err
	}
	return view.Settings, nil
}

func (f *fake) Services(context.Context, *rights.Person, string) (*adminapi.Services, error) {
	defer f.lock()()
	if f.gaps != nil {
		return nil, f.gaps
	}
	return &adminapi.Services{App: "pay", Processes: f.processes}, nil
}

func (f *fake) Policy(_ context.Context, who *rights.Person, app, name string) (*manage.Held, error) {
	defer f.lock()()
	if err := f.may(who, rights.ActionView, app); err != nil {
		return nil, err
	}
	return f.held(name)
}

func (f *fake) History(_ context.Context, _ *rights.Person, _, name string, before int64, limit int) (*adminapi.History, error) {
	defer f.lock()()
	out := &adminapi.History{}
	for _, past := range f.versions[name] {
		if (before == 0 || past.Revision < before) && len(out.Versions) < limit {
			out.Versions = append(out.Versions, past)
		}
	}
	return out, nil
}

func (f *fake) usage() []manage.UsagePoint {
	var points []manage.UsagePoint
	for i := range 60 {
		p := manage.UsagePoint{At: f.now().Truncate(time.Minute).Add(time.Duration(i-60) * time.Minute)}
		p.Admitted = uint64(40 + 25*math.Sin(float64(i)/9))
		if i > 42 {
			p.Refused = uint64(i - 42)
		}
		points = append(points, p)
	}
	return points
}

func (f *fake) Usage(_ context.Context, _ *rights.Person, app, name string, _ time.Time) (*manage.Usage, error) {
	if f.gaps != nil {
		return nil, f.gaps
	}
	return &manage.Usage{App: app, Policy: name, Points: f.usage(), Processes: len(f.processes)}, nil
}

func (f *fake) Check(_ context.Context, _ *rights.Person, p adminapi.Policy) (*manage.Checked, error) {
	out := &manage.Checked{}
	if p.Text == "" {
		return out, nil
	}
	policy, err := core.Parse(p.Text)
	if err != nil {
		out.Mistakes = []adminapi.Mistake{{Location: "text", Message: err.Error()}}
		return out, nil //nolint:nilerr // the error is the answer
	}
	out.Trial = policy.Options().Shadow
	out.Words = []string{"at once 50 units", "in any minute 99 units at most", "while the store fails, each process counts for itself"}
	out.Pictures = preview.Check(preview.Draft{Text: p.Text}).Pictures
	return out, nil
}

func (f *fake) Presets(context.Context, *rights.Person) (*manage.Presets, error) {
	return &manage.Presets{Presets: []manage.Preset{
		{Name: "login", Text: "5/1m, 20/1h sliding-log", Words: "Slows guessing down, and lets somebody who has forgotten go on."},
	}}, nil
}

func (f *fake) Preview(_ context.Context, _ *rights.Person, _, name string, ask manage.AskPreview) (*manage.Preview, error) {
	defer f.lock()()
	if f.gaps != nil {
		return nil, f.gaps
	}
	out := &manage.Preview{Words: []string{"at once 500 units"}, Kept: []string{"the fraction in use is kept"}, Refused: 1}
	if held, err := f.held(name); err == nil {
		out.Difference = &adminapi.Difference{Name: name, Before: &held.Policy, After: &ask.Policy}
	}
	out.Keys = []manage.KeyPreview{
		{Key: "user=7", Before: manage.KeyState{Policy: "50/1m", Allowed: true, Limit: 50, Remaining: 3}, After: manage.KeyState{Policy: "20/1m", Limit: 20, RetryAfter: 12 * time.Second}},
		{Key: "user=12", Before: manage.KeyState{Policy: "50/1m", Allowed: true, Limit: 50, Remaining: 44}, After: manage.KeyState{Policy: "20/1m", Allowed: true, Limit: 20, Remaining: 17}},
	}
	for _, key := range ask.Keys {
		out.Keys = append(out.Keys, manage.KeyPreview{Key: key, Before: out.Keys[1].Before, After: out.Keys[1].After})
	}
	return out, nil
}

func (f *fake) put(who *rights.Person, app, name, action string, p *adminapi.Policy, w manage.Write) (*adminapi.Written, error) {
	defer f.lock()()
	if err := f.may(who, rights.ActionWrite, app); err != nil {
		return nil, err
	}
	if w.Reason == "" {
		return nil, manage.Problem(manage.ErrNoReason)
	}
	if f.refuse != nil {
		return nil, f.refuse
	}
	var now, last int64
	if held, err := f.held(name); err == nil {
		now = held.Revision
	}
	for _, past := range f.versions {
		last = max(last, past[0].Revision)
	}
	if !w.Any && w.Revision != now {
		return nil, &adminapi.Problem{Status: http.StatusPreconditionFailed, Title: "Precondition Failed", Current: now}
	}
	f.writes = append(f.writes, w)
	past := adminapi.Past{Revision: last + 1, At: f.now(), Who: who.Name, Reason: w.Reason, Action: action, Policy: p}
	f.versions[name] = append([]adminapi.Past{past}, f.versions[name]...)
	return &adminapi.Written{App: app, Revision: past.Revision, Published: true}, nil
}

func (f *fake) PutPolicy(_ context.Context, who *rights.Person, app, name string, p adminapi.Policy, w manage.Write) (*adminapi.Written, error) {
	return f.put(who, app, name, "set", &p, w)
}

func (f *fake) DeletePolicy(_ context.Context, who *rights.Person, app, name string, w manage.Write) (*adminapi.Written, error) {
	return f.put(who, app, name, "delete", nil, w)
}

func (f *fake) Rollback(_ context.Context, who *rights.Person, app, name string, to int64, w manage.Write) (*adminapi.Written, error) {
	for _, past := range f.versions[name] {
		if past.Revision == to {
			return f.put(who, app, name, "rollback", past.Policy, w)
		}
	}
	return nil, &adminapi.Problem{Status: http.StatusNotFound}
}

func (f *fake) TakeOver(_ context.Context, who *rights.Person, app, name string, w manage.Write) (*adminapi.Written, error) {
	return f.put(who, app, name, "take-over", &adminapi.Policy{Text: "10/1m"}, w)
}

func (f *fake) CodeOf(_ context.Context, who *rights.Person, app, name string) (*adminapi.Policy, error) {
	if err := f.may(who, rights.ActionView, app); err != nil {
		return nil, err
	}
	if len(f.code) == 0 || f.code[0].Name != name {
		return nil, &adminapi.Problem{Status: http.StatusNotFound}
	}
	if len(f.code[0].Texts) > 1 {
		return nil, &adminapi.Problem{Status: http.StatusConflict, Detail: "processes have different texts"}
	}
	return &adminapi.Policy{Text: "10/1m", Tiers: map[string]string{"pro": "90/1m"}}, nil
}

func (f *fake) TrialOf(_ context.Context, who *rights.Person, app, name string, on bool) (string, error) {
	defer f.lock()()
	if err := f.may(who, rights.ActionTrial, app); err != nil {
		return "", err
	}
	held, err := f.held(name)
	if err != nil {
		return "", err
	}
	text, _, _ := strings.Cut(held.Policy.Text, "; shadow")
	if on {
		text += "; shadow"
	}
	return text, nil
}

func (f *fake) Trial(
	ctx context.Context, who *rights.Person, app, name string, on bool, until time.Time, w manage.Write,
) (*adminapi.Written, error) {
	held, err := f.Policy(ctx, who, app, name)
	if err != nil {
		return nil, err
	}
	p := held.Policy
	p.Text, _, _ = strings.Cut(p.Text, ";")
	if on {
		p.Text += "; shadow"
	}
	f.until = until
	return f.put(who, app, name, "trial", &p, w)
}

func (f *fake) EndTemporary(_ context.Context, who *rights.Person, app, name string, w manage.Write) (*adminapi.Written, error) {
	f.mu.Lock()
	f.until = time.Time{}
	f.mu.Unlock()
	return f.put(who, app, name, "end", &adminapi.Policy{Text: "50/1m"}, w)
}

func (f *fake) Keys(_ context.Context, who *rights.Person, app, _ string) (*manage.Keys, int64, error) {
	if err := f.may(who, rights.ActionLook, app); err != nil {
		return nil, 0, err
	}
	if f.gaps != nil {
		return nil, 0, f.gaps
	}
	return &manage.Keys{Busiest: f.busiest, Refused: f.busiest}, 0, nil
}

func (f *fake) Look(_ context.Context, who *rights.Person, app, key, _ string) (*manage.Looks, error) {
	defer f.lock()()
	if err := f.may(who, rights.ActionLook, app); err != nil {
		return nil, err
	}
	if f.looks != nil {
		return &manage.Looks{App: app, Key: key, Looks: f.looks}, nil
	}
	result := core.Result{Outcome: core.Admitted, Limit: 50, Remaining: f.left}
	if f.left == 0 {
		result.Outcome, result.RetryAfter = core.Refused, 9*time.Second
	}
	return &manage.Looks{App: app, Key: key, Looks: []manage.Look{
		{
			Policy: "search", Place: "GET /search", Revision: 4, Left: f.left, Of: 50, Explanation: &explain.Explanation{Policy: "50/1m", Key: key, Result: result}, Words: "refused",
			Tiers: []counts.Tier{{Tier: "pro", Explanation: explain.Explanation{Policy: "500/1m"}, Left: 450, Of: 500}}, MoreTiers: 2,
			Unused: []counts.Unused{{Entry: `Tiers["search"]["free"]`, Text: "1/1m sliding-log", Why: "it differs in more than numbers"}},
		},
		{Policy: "login", Why: "it is counted in the processes, where nobody else can look"},
	}}, nil
}

func (f *fake) PutKey(
	_ context.Context, who *rights.Person, app, name string, numbers manage.KeyNumbers, w manage.Write,
) (*adminapi.Written, error) {
	p := adminapi.Policy{Text: "50/1m", Keys: map[string]string{numbers.Key: numbers.Text}}
	f.until = numbers.Until
	return f.put(who, app, name, "key", &p, w)
}

func (f *fake) ResetKey(_ context.Context, who *rights.Person, app, _, _ string, w manage.Write) error {
	defer f.lock()()
	f.writes = append(f.writes, w)
	f.left = 50
	return f.may(who, rights.ActionResetKey, app)
}

// newFake returns a Manager with an app of three policies.
func newFake(now func() time.Time) *fake {
	f := &fake{now: now, versions: map[string][]adminapi.Past{}, busiest: []adminapi.Caller{
		{Key: "user=7", Least: 4000, Most: 4210}, {Key: "user=12", Least: 900, Most: 1111}, {Key: "ip=2001:db8:12:34::/64", Most: 12},
	}}
	text := func(text string) *adminapi.Policy { return &adminapi.Policy{Text: text} }
	past := func(revision int64, ago time.Duration, who, reason, action string, p *adminapi.Policy) adminapi.Past {
		return adminapi.Past{Revision: revision, At: now().Add(-ago), Who: who, Reason: reason, Action: action, Policy: p}
	}
	f.versions["search"] = []adminapi.Past{
		past(4, 3*time.Minute, "anna", "customer complains: search is slow at noon", "set",
			&adminapi.Policy{Text: "50/1m", Tiers: map[string]string{"pro": "500/1m"}, Keys: map[string]string{"user=12": "300/1m"}, Apps: []string{"billing"}}),
		past(2, 26*time.Hour, "ben", "trying numbers out", "set", text("50/1m; shadow")),
		past(1, 300*time.Hour, "anna", "the first one", "take-over", text("100/1m")),
	}
	f.versions["login"] = []adminapi.Past{past(3, 50*time.Hour, "ben", "attack", "set", text("5/1m sliding-log; fail closed"))}
	f.versions["webhooks"] = []adminapi.Past{past(5, time.Hour, "chris", "would half of it be enough?", "trial", text("1/1s burst 5; shadow"))}
	rule := func(name, place, key, now string, m policies.Meaning, why string) adminapi.Rule {
		return adminapi.Rule{Policy: name, Place: place, Key: key, Now: now, Meaning: m, Why: why}
	}
	for i, host := range []string{"pay-7f9c:1", "pay-7f9c:2", "pay-b811:1"} {
		p := adminapi.Process{ID: host, Name: host, Started: now().Add(-time.Duration(i+1) * 7 * time.Hour), Weir: "v0.9.0", Generation: 1, Revision: 5, Meaning: "fleet"}
		p.Rules = []adminapi.Rule{
			rule("search", "GET /search", "user(user)", "50/1m", "fleet", ""),
			rule("login", "POST /login", "ip", "5/1m sliding-log", "fleet", ""),
			rule("webhooks", "Sender", "tenant", "1/1s burst 5; shadow", "trial", ""),
		}
		if i == 2 {
			p.Behind, p.Revision = true, 3
			p.Rules[0] = rule("search", "GET /search", "user(user)", "100/1m", "unusable", "this version of the program cannot count by gcra here")
		}
		f.processes = append(f.processes, p)
	}
	f.code = []manage.CodeLimit{{Name: "export", Texts: []string{"export: 10/1m"}, Places: []string{"GET /export"}, Processes: 3}}
	f.apps = []manage.App{
		{App: adminapi.App{App: "billing", Revision: 12, Published: true}, Settings: adminapi.Settings{Title: "Invoices and dunning"}, Health: &manage.Health{Processes: 4, Admitted: 80}},
		{App: adminapi.App{App: "pay", Revision: 5, Published: true}, Settings: adminapi.Settings{Title: "Payments"}, Health: &manage.Health{Processes: 3, Behind: 1, Unusable: 1, Trials: 1, Admitted: 1204, Refused: 17}},
		{App: adminapi.App{App: "reports", Revision: 31, Published: true}, Health: &manage.Health{Trials: 1}},
		{App: adminapi.App{App: "shop", Revision: 7, Published: true}, Settings: adminapi.Settings{Title: "The shop"}, Health: &manage.Health{Processes: 12, Behind: 2, Refused: 12044}},
	}
	f.settings = f.apps[1].Settings
	return f
}
