package manage

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// inventory reads what the processes of an app have announced. It may be 32 MiB, so that one is read at a time. What it
// has found is kept in short for all who ask next.
func (m *Manager) inventory(ctx context.Context, app string) ([]*policies.Process, int, error) {
	select {
	case m.reading <- struct{}{}:
		defer func() { <-m.reading }()
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	all, unreadable, err := m.o.Services(ctx, app)
	m.standings.take(app, m.o.Now(), all, unreadable, err)
	return all, unreadable, err
}

// processes is inventory for a request that needs it. Few wait for it, and not for long: it is asked again and again while
// Redis does not answer, and changes need the places.
func (m *Manager) processes(ctx context.Context, app string) (all []*policies.Process, unreadable int, err error) {
	select {
	case m.readers <- struct{}{}:
		defer func() { <-m.readers }()
	default:
		return nil, 0, refusal(http.StatusServiceUnavailable, "others ask for processes, and wait for them; try again")
	}
	ctx, cancel := context.WithTimeout(ctx, reading)
	defer cancel()
	all, unreadable, err = m.inventory(ctx, app)
	if err != nil {
		err = refusal(http.StatusServiceUnavailable, "the processes could not be read from Redis: %v; try again", err)
	}
	return all, unreadable, err
}

// Services returns the processes of an app, and what they obey.
func (m *Manager) Services(ctx context.Context, who *rights.Person, app string) (*adminapi.Services, error) {
	if app == policies.AllApps {
		return nil, refusal(http.StatusUnprocessableEntity, `"*" stands for all apps, and no process is of it; give the name of one app`)
	}
	if err := policies.CheckApp(app); err != nil {
		return nil, refusal(http.StatusUnprocessableEntity, "%v", err)
	}
	if err := m.may(who, rights.ActionView, app); err != nil {
		return nil, err
	}
	head, known, err := m.o.Record.Head(ctx, app)
	if err != nil {
		return nil, err
	}
	processes, unreadable, kept := m.standings.list(app, m.o.Now())
	if !kept {
		if processes, unreadable, err = m.processes(ctx, app); err != nil {
			return nil, err
		}
	}
	if !known && len(processes) == 0 {
		return nil, &record.NotFoundError{App: app}
	}
	out := &adminapi.Services{
		App: app, Generation: head.Version.Generation, Revision: head.Version.Revision,
		Processes: make([]adminapi.Process, len(processes)), Unreadable: unreadable,
	}
	seen := len(processes) > 0 && unreadable == 0
	has := map[string]bool{}
	for i, p := range processes {
		out.Processes[i] = process(p, head.Version)
		seen = seen && p.Omitted == 0
		for _, r := range p.Rules {
			has[r.Policy] = true
		}
	}
	if !seen || !known {
		return out, nil
	}
	owned, err := m.o.Record.Owned(ctx, app)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(owned)) {
		if !has[name] && len(owned[name].Apps) == 0 {
			out.Unused = append(out.Unused, name)
		}
	}
	return out, nil
}

func process(p *policies.Process, now policies.Version) adminapi.Process {
	order := p.Version.Compare(now)
	out := adminapi.Process{
		ID: p.ID, Name: p.Name, Started: p.Started.UTC(), Weir: p.Weir,
		Generation: p.Version.Generation, Revision: p.Version.Revision, Behind: order < 0, Ahead: order > 0,
		Meaning: p.Meaning, Why: p.Why, Omitted: p.Omitted,
	}
	for _, r := range p.Rules {
		out.Rules = append(out.Rules, adminapi.Rule{
			Policy: r.Policy, Place: r.Place, Key: r.Key, OverLimit: r.OverLimit,
			Code: r.Code, Now: r.Now, Meaning: r.Meaning, Why: r.Why,
		})
	}
	return out
}

// announcing bounds how long a change waits to learn what services have: it must be possible while Redis is gone.
const announcing = 2 * time.Second

// announced returns the rules of the services that a change concerns, those of each app that uses one of its policies.
// Those of an app that cannot be read are not known, and the change is judged without them. whole is false if there may
// be rules that are not among them.
func (m *Manager) announced(ctx context.Context, c record.Change) (all []record.Announced, whole bool, err error) {
	apps := map[string]bool{c.App: true}
	for _, e := range c.Edits {
		p := e.Policy
		if e.Patch != nil {
			now, _, err := m.o.Record.Policy(ctx, c.App, e.Name)
			if err != nil && !notFound(err) {
				return nil, false, err
			}
			p = e.Patch.On(&now)
		}
		if p != nil {
			for _, app := range p.Apps {
				apps[app] = true
			}
		}
	}
	if apps[policies.AllApps] {
		heads, err := m.o.Record.Heads(ctx)
		if err != nil {
			return nil, false, err
		}
		delete(apps, policies.AllApps)
		for _, h := range heads {
			apps[h.App] = true
		}
	}
	names := map[string]bool{}
	for _, e := range c.Edits {
		names[e.Name] = e.Policy != nil || e.Patch != nil
	}
	ctx, cancel := context.WithTimeout(ctx, announcing)
	defer cancel()
	whole = true
	for app := range apps {
		if policies.CheckApp(app) != nil { // the record will say so
			continue
		}
		processes, unreadable, err := m.inventory(ctx, app)
		if err != nil {
			m.o.Log.Warn("weir-admin: what services use is not known, and a change is made without it", "app", app, "error", err)
			whole = false
			if ctx.Err() != nil {
				break
			}
			continue // what stands in the place of an app's inventory is its affair alone
		}
		whole = whole && unreadable == 0
		for _, p := range processes {
			whole = whole && p.Omitted == 0
			for _, r := range p.Rules {
				if !names[r.Policy] {
					continue
				}
				all = append(all, record.Announced{App: app, Process: cmp.Or(p.Name, p.ID), Policy: r.Policy, Code: r.Code})
			}
		}
	}
	return all, whole, nil
}

// unused returns the names of policies of a change that no process has announced.
func unused(differences []record.Difference, announced []record.Announced) (names []string) {
	known := map[string]bool{}
	for _, a := range announced {
		known[a.Policy] = true
	}
	for _, d := range differences {
		if d.After != nil && !known[d.Name] {
			names = append(names, d.Name)
		}
	}
	return names
}
