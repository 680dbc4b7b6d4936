package manage

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// change makes a change and waits until it is published, but not for long: it will be.
func (m *Manager) change(ctx context.Context, who *rights.Person, c record.Change, w Write) (*adminapi.Written, error) {
	if err := w.reasoned(); err != nil && !c.Dry {
		return nil, err
	}
	c.By, c.Reason, c.Force, c.Emergency = by(who), w.Reason, c.Force || w.Force, w.Emergency
	var whole bool
	var err error
	if c.Announced, whole, err = m.announced(ctx, c); err != nil {
		return nil, err
	}
	c.Reviewed = c.Reviewed || c.Dry
	outcome, err := m.o.Record.Change(ctx, c)
	if errors.As(err, new(*record.ReviewError)) {
		return m.propose(ctx, who, c, nil)
	}
	if err != nil {
		return nil, m.refused(ctx, who, c, err)
	}
	out := writtenOf(who, c, outcome)
	if whole {
		out.Unused = unused(outcome.Differences, c.Announced)
	}
	if !c.Dry {
		out.Published, out.Alarm = m.published(ctx, who, outcome)
	}
	return out, nil
}

// writtenOf returns the result of a change as a person may see it.
func writtenOf(who *rights.Person, c record.Change, outcome *record.Outcome) *adminapi.Written {
	out := &adminapi.Written{
		App: c.App, Dry: c.Dry, Differences: []adminapi.Difference{},
		Generation: outcome.Head.Version.Generation, Revision: outcome.Head.Version.Revision,
		SettingsRevision: outcome.Settings,
		CannotUse:        cannotUseFor(who, c.App, outcome.CannotUse),
		Ended:            temporarily(who, c.App, outcome.Ended),
		Beneath:          temporarily(who, c.App, outcome.Beneath),
	}
	for _, d := range outcome.Differences {
		out.Differences = append(out.Differences, adminapi.Difference{
			Name: d.Name, Before: pastFor(who, c.App, d.Before), After: pastFor(who, c.App, d.After), Afresh: d.Afresh,
		})
	}
	if c.Action != "apply" && len(c.Edits) == 1 {
		out.PolicyRevision = outcome.Revision // what the next change of this policy expects
	}
	return out
}

// published waits until the documents of all apps that a change affects are published, or the one of its app if it
// affects none, but for no longer than a moment, and returns the first alarm.
func (m *Manager) published(ctx context.Context, who *rights.Person, outcome *record.Outcome) (all bool, alarm string) {
	m.o.Publisher.Wake()
	ctx, cancel := context.WithTimeout(ctx, publishing)
	defer cancel()
	documents := outcome.Affected
	if own := outcome.Head; len(documents) == 0 && own.App != policies.AllApps && own.Version.Revision > 0 {
		documents = []record.Head{own}
	}
	all = true
	for _, d := range documents {
		state := m.o.Publisher.Wait(ctx, d.App, d.Version)
		all = all && state.Alarm == "" && state.Version.Compare(d.Version) >= 0
		if alarm == "" && state.Alarm != "" {
			alarm = fmt.Sprintf("app %q: %s", d.App, state.Alarm)
			if !visible(who, d.App) {
				alarm = "another app that uses the policy has an alarm; ask an admin"
			}
		}
	}
	return all, alarm
}

// refused returns the error of a change as the person may see it, with the policy that holds if another revision of one
// was expected.
func (m *Manager) refused(ctx context.Context, who *rights.Person, c record.Change, err error) error {
	var stale *record.StaleError
	if !errors.As(err, &stale) || stale.Name == "" || stale.Current == 0 {
		return m.shown(who, c.App, err)
	}
	p := Problem(err)
	if held, err := m.Policy(ctx, who, c.App, stale.Name); err == nil {
		p.Held, p.Current = &held.Held, held.Revision
	}
	return p
}
