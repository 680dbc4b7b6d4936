package api

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// inventory reads what the processes of an app have announced. It may be 32 MiB, so that one is read at a time.
func (s *server) inventory(ctx context.Context, app string) ([]*policies.Process, int, error) {
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	return s.Services(ctx, app)
}

// look is inventory for a request that needs it. Few wait for it, and not for long: it is asked again and again while
// Redis does not answer, and changes need the places.
func (s *server) look(ctx context.Context, app string) (all []*policies.Process, unreadable int, err error) {
	select {
	case s.readers <- struct{}{}:
		defer func() { <-s.readers }()
	default:
		return nil, 0, refusal(http.StatusServiceUnavailable, "others ask for processes, and wait for them; try again")
	}
	ctx, cancel := context.WithTimeout(ctx, reading)
	defer cancel()
	all, unreadable, err = s.inventory(ctx, app)
	if err != nil {
		err = refusal(http.StatusServiceUnavailable, fmt.Sprintf("the processes could not be read from Redis: %v; try again", err))
	}
	return all, unreadable, err
}

func (s *server) services(ctx context.Context, in *struct{ OfApp }) (*answer[adminapi.Services], error) {
	if in.App == policies.AllApps {
		return nil, refusal(http.StatusUnprocessableEntity, `"*" stands for all apps, and no process is of it; give the name of one app`)
	}
	if err := policies.CheckApp(in.App); err != nil {
		return nil, refusal(http.StatusUnprocessableEntity, err.Error())
	}
	head, known, err := s.Record.Head(ctx, in.App)
	if err != nil {
		return nil, err
	}
	processes, unreadable, err := s.look(ctx, in.App)
	if err != nil {
		return nil, err
	}
	if !known && len(processes) == 0 {
		return nil, &record.NotFoundError{App: in.App}
	}
	out := adminapi.Services{
		App: in.App, Generation: head.Version.Generation, Revision: head.Version.Revision,
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
		return &answer[adminapi.Services]{Body: out}, nil
	}
	owned, err := s.Record.Owned(ctx, in.App)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(owned)) {
		if !has[name] && len(owned[name].Apps) == 0 {
			out.Unused = append(out.Unused, name)
		}
	}
	return &answer[adminapi.Services]{Body: out}, nil
}

// AskTop is a question about the worst callers of a fleet.
type AskTop struct {
	Policy  string `path:"policy" doc:"Name of a policy"`
	Prefix  string `query:"prefix" default:"weir" doc:"Prefix of the store that counts"`
	Minutes int    `query:"minutes" default:"10" minimum:"0" maximum:"119" doc:"Minutes to look back"`
	Limit   int    `query:"limit" default:"20" minimum:"1" maximum:"1000" doc:"Most callers to return"`
}

func (s *server) top(ctx context.Context, in *AskTop) (*answer[adminapi.Top], error) {
	if err := policies.CheckName(in.Policy); err != nil {
		return nil, refusal(http.StatusUnprocessableEntity, err.Error())
	}
	now := time.Now()
	callers, rest, err := s.Top(ctx, in.Prefix, in.Policy, time.Duration(in.Minutes)*time.Minute, in.Limit)
	if err != nil {
		return nil, refusal(http.StatusServiceUnavailable, fmt.Sprintf("the worst callers could not be read from Redis: %v", err))
	}
	return &answer[adminapi.Top]{Body: adminapi.TopOf(in.Policy, in.Minutes, callers, rest, now)}, nil
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
func (s *server) announced(ctx context.Context, c record.Change) (all []record.Announced, whole bool, err error) {
	apps := map[string]bool{c.App: true}
	for _, e := range c.Edits {
		if e.Policy != nil {
			for _, app := range e.Policy.Apps {
				apps[app] = true
			}
		}
	}
	if apps[policies.AllApps] {
		heads, err := s.Record.Heads(ctx)
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
		names[e.Name] = e.Policy != nil
	}
	ctx, cancel := context.WithTimeout(ctx, announcing)
	defer cancel()
	whole = true
	for app := range apps {
		if policies.CheckApp(app) != nil { // the record will say so
			continue
		}
		processes, unreadable, err := s.inventory(ctx, app)
		if err != nil {
			s.Log.Warn("weir-admin: what services use is not known, and a change is made without it", "app", app, "error", err)
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
