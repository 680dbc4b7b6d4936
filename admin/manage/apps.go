package manage

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/admin/usage"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// Health has numbers of the processes of an app, as they announce themselves.
type Health struct {
	// Read is the time at which their announcements were read.
	Read      time.Time `json:"read"`
	Processes int       `json:"processes"`
	// Behind, Unusable and Stale are the numbers of processes that have an earlier document, that cannot use a text of
	// it, and that cannot read it any more.
	Behind   int `json:"behind,omitempty"`
	Unusable int `json:"unusable,omitempty"`
	Stale    int `json:"stale,omitempty"`
	// Trials is the number of policies that only count.
	Trials int `json:"trials,omitempty"`
	// Admitted and Refused are the numbers of requests in the last whole minute.
	Admitted uint64 `json:"admitted,omitempty"`
	Refused  uint64 `json:"refused,omitempty"`
}

// App is an app that a person may see.
type App struct {
	adminapi.App
	// Role is that of the person: "viewer", "operator", "owner" or "admin".
	Role     string            `json:"role"`
	Settings adminapi.Settings `json:"settings"`
	// SettingsRevision is that of the settings, 0 if they were never written. It is the ETag of PathApp.
	SettingsRevision int64 `json:"settingsRevision,omitempty"`
	// Health is nil where the processes have not been read.
	Health *Health `json:"health,omitempty"`
	// Stuck is the number of temporary changes that could not be ended at their time, and are tried again.
	Stuck int `json:"stuck,omitempty"`
}

// Apps is a list of apps, by name.
type Apps struct {
	Apps []App `json:"apps"`
}

// AppView answers PathApp: an app on one page.
type AppView struct {
	App
	Policies []PolicyView `json:"policies"`
	// Code are the limits that only the code has.
	Code []CodeLimit `json:"code,omitempty"`
	// Proposals is the number of those that wait for somebody.
	Proposals int `json:"proposals,omitempty"`
	// Emergencies are the emergency changes at which nobody has looked yet.
	Emergencies []AuditRow `json:"emergencies,omitempty"`
}

// PolicyView is a policy of an app, its own or one that another app lends it.
type PolicyView struct {
	Held
	// Owner is the app to which it belongs, "*" for one of all apps.
	Owner string `json:"owner"`
	// Words are those of Checked.
	Words []string `json:"words,omitempty"`
	// Origins are the numbers of rules of processes by what they obey: "fleet", "code", "trial", "unusable".
	Origins map[string]int `json:"origins,omitempty"`
	// Why is the reason why a process cannot use it, or "".
	Why string `json:"why,omitempty"`
	// Changed is the last change of it.
	Changed *adminapi.Past `json:"changed,omitempty"`
	// Usage is its last hour, by the minute.
	Usage []UsagePoint `json:"usage,omitempty"`
}

// CodeLimit is a limit of the code of a service, which the record does not have.
type CodeLimit struct {
	Name string `json:"name"`
	// Texts are those of the processes: several while a new version is rolled out.
	Texts  []string `json:"texts"`
	Places []string `json:"places,omitempty"` // such as "GET /orders"
	// Processes is the number of those that have it.
	Processes int `json:"processes"`
}

// Search is the body of PathSearch: a key stands in no URL.
type Search struct {
	Text string `json:"text"`
}

// Found answers PathSearch.
type Found struct {
	Apps     []string `json:"apps,omitempty"`
	Policies []OfApp  `json:"policies,omitempty"`
	// Key is the text if it has the form of a key, such as "user=7", and KeyApps are the apps in which it may be looked at.
	Key     string   `json:"key,omitempty"`
	KeyApps []string `json:"keyApps,omitempty"`
}

// OfApp is a policy of an app.
type OfApp struct {
	App  string `json:"app"`
	Name string `json:"name"`
}

// limited returns the number of entries that a list has if limit are wanted: 0 are as many as there may be.
func limited(limit int) int {
	if limit <= 0 {
		return adminapi.MaxLimit
	}
	return min(limit, adminapi.MaxLimit)
}

// Apps returns up to limit apps that a person may see, by name, those after a name.
func (m *Manager) Apps(ctx context.Context, who *rights.Person, after string, limit int) (*Apps, error) {
	all, err := m.o.Record.Apps(ctx)
	if err != nil {
		return nil, err
	}
	stuck, err := m.stuck(ctx)
	if err != nil {
		return nil, err
	}
	out := &Apps{Apps: []App{}}
	for _, h := range all {
		if len(out.Apps) == limited(limit) {
			break
		}
		if h.App > after && visible(who, h.App) {
			standing := m.standing(ctx, h.App)
			app := m.app(who, h, &standing)
			app.Stuck = stuck[h.App]
			out.Apps = append(out.Apps, app)
		}
	}
	return out, nil
}

func (m *Manager) app(who *rights.Person, h record.App, s *standing) App {
	state := m.o.Publisher.State(h.App)
	health := s.health(h.Version)
	if health != nil && m.o.Usage != nil {
		minute := m.o.Usage.Minute(h.App)
		health.Admitted, health.Refused = minute.Admitted, minute.Refused
	}
	return App{
		App: adminapi.App{
			App: h.App, Generation: h.Version.Generation, Revision: h.Version.Revision,
			Published: state.Version == h.Version && state.Alarm == "", Alarm: state.Alarm,
		},
		Role: who.Role(h.App).String(), Health: health, Settings: settingsOf(h.Settings), SettingsRevision: h.Revision,
	}
}

// maxFound bounds the apps and the policies that a search finds.
const maxFound = 50

// Search finds apps and policies by a part of their names, and tells in which apps a text may be a key.
func (m *Manager) Search(ctx context.Context, who *rights.Person, text string) (*Found, error) {
	if who == nil {
		return nil, m.may(nil, rights.ActionView)
	}
	text = strings.TrimSpace(text)
	heads, err := m.o.Record.Apps(ctx)
	if err != nil {
		return nil, err
	}
	names, err := m.o.Record.Names(ctx)
	if err != nil {
		return nil, err
	}
	kind, _, isKey := strings.Cut(text, "=")
	isKey = isKey && counts.CheckKey(text) == nil
	out := &Found{}
	if isKey {
		out.Key = text
	}
	part := strings.ToLower(text)
	for _, h := range heads {
		if text == "" || !visible(who, h.App) {
			continue
		}
		if strings.Contains(strings.ToLower(h.App), part) && len(out.Apps) < maxFound {
			out.Apps = append(out.Apps, h.App)
		}
		s := m.standing(ctx, h.App)
		if isKey && seesKeys(who, h.App) && s.counts(kind) {
			out.KeyApps = append(out.KeyApps, h.App)
		}
		all := names[h.App]
		for name := range s.policies {
			if !slices.Contains(all, name) && policies.CheckName(name) == nil {
				all = append(all, name)
			}
		}
		slices.Sort(all)
		for _, name := range all {
			if strings.Contains(strings.ToLower(name), part) && len(out.Policies) < maxFound {
				out.Policies = append(out.Policies, OfApp{App: h.App, Name: name})
			}
		}
	}
	return out, nil
}

// counts reports whether a rule may count by keys of a kind. Kinds that processes do not tell may be any.
func (s *standing) counts(kind string) bool {
	if len(s.rules) == 0 {
		return true
	}
	return slices.ContainsFunc(s.rules, func(r counts.Rule) bool {
		return len(r.Keys) == 0 || slices.ContainsFunc(r.Keys, func(of string) bool { return strings.Contains(of, kind) })
	})
}

// App returns an app on one page.
func (m *Manager) App(ctx context.Context, who *rights.Person, app string) (*AppView, error) {
	if err := m.may(who, rights.ActionView, app); err != nil {
		return nil, err
	}
	head, known, err := m.o.Record.Head(ctx, app)
	if err != nil {
		return nil, err
	}
	standing := m.standing(ctx, app)
	if !known && (standing.processes == 0 || !who.Admin) {
		return nil, &record.NotFoundError{App: app}
	}
	uses, err := m.o.Record.Uses(ctx, app)
	if err != nil {
		return nil, err
	}
	last, err := m.o.Record.Last(ctx, app)
	if err != nil {
		return nil, err
	}
	state, err := m.o.Record.State(ctx, app)
	if err != nil && (known || !notFound(err)) { // it is deleted
		return nil, err
	}
	temporary, err := m.temporaryOf(ctx, who, app)
	if err != nil {
		return nil, err
	}
	open, err := m.o.Record.Proposals(ctx, record.WhichProposals{App: app, State: record.Open})
	if err != nil {
		return nil, err
	}
	out := &AppView{
		App: m.app(who, record.App{Head: head, State: state}, &standing), Policies: []PolicyView{}, Proposals: len(open),
	}
	var counted map[string][]usage.Point
	var missed usage.Missed
	if m.o.Usage != nil {
		counted, missed = m.o.Usage.App(app, m.o.Now().Add(-time.Hour))
	}
	for _, name := range slices.Sorted(maps.Keys(uses)) {
		u := uses[name]
		v := PolicyView{Held: heldFor(who, u.Owner, name, u.Revision, u.Policy), Owner: u.Owner, Words: words(u.Policy.Text)}
		if !visible(who, u.Owner) {
			v.Owner, v.App = "another app", "another app"
		}
		if u.Owner == app {
			v.Temporary = temporary[name]
		}
		if past, ok := last[name]; ok && u.Owner == app {
			changed := pastOf(who, app, past)
			v.Changed = &changed
		}
		if a := standing.policies[name]; a != nil {
			v.Origins, v.Why = a.origins, a.why
		}
		if len(counted[name]) > 0 {
			v.Usage = m.points(counted[name], missed)
		}
		out.Policies = append(out.Policies, v)
	}
	for _, name := range slices.Sorted(maps.Keys(standing.policies)) {
		if _, has := uses[name]; has || policies.CheckName(name) != nil {
			continue
		}
		a := standing.policies[name]
		out.Code = append(out.Code, CodeLimit{Name: name, Texts: a.texts, Places: a.places, Processes: a.processes})
	}
	emergencies, err := m.o.Audit.List(ctx, audit.Filter{Apps: []string{app}, Emergency: true, Unseen: true, Limit: maxEmergencies})
	for _, row := range emergencies {
		out.Emergencies = append(out.Emergencies, rowFor(who, row))
	}
	return out, err
}

// maxEmergencies bounds those that an app shows at once.
const maxEmergencies = 10

// maxLeap bounds how far processes can raise a generation: somebody has to adopt an app a thousand times for that, and
// after the last number that there is nobody could adopt it any more.
const maxLeap = 1000

// Adopt makes the record's document of an app later than all that its services have seen, after the record was restored
// from a backup or replaced.
func (m *Manager) Adopt(ctx context.Context, who *rights.Person, app string, w Write) (*adminapi.Written, error) {
	if err := m.may(who, rights.ActionAdopt, app); err != nil {
		return nil, err
	}
	head, found, err := m.o.Record.Head(ctx, app)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, &record.NotFoundError{App: app}
	}
	// Later than anything that anybody has seen, so that the processes take it as well.
	known := max(head.Version.Generation, m.o.Publisher.State(app).Version.Generation)
	processes, _, err := m.processes(ctx, app)
	if err != nil {
		return nil, err
	}
	generation := known
	for _, p := range processes {
		if p.Version.Generation > known+maxLeap { // anybody can announce the last number that there is
			m.o.Log.Warn("weir-admin: a process announces a generation that no record has given, and is left out",
				"app", app, "process", cmp.Or(p.Name, p.ID), "version", p.Version.String())
			continue
		}
		generation = max(generation, p.Version.Generation)
	}
	return m.change(ctx, who, record.Change{App: app, Action: "adopt", Generation: generation}, w)
}
