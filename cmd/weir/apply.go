package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

type applyCommand struct {
	File   string `arg:"" help:"A file of policies; - is the standard input."`
	App    string `help:"The app, if the file does not name it."`
	DryRun bool   `help:"Show the differences and change nothing. The exit status is 2 if there are any."`
	Prune  bool   `help:"Also delete the policies of the app that are not in the file."`
	Force  bool   `help:"Change also what services say they cannot use."`
	Reason string `help:"The reason, for the history and the audit. Without one it is the name of the command."`

	Emergency bool `help:"Write at once where the app wants another owner to approve. It stands out until somebody has looked at it."`
}

// Run applies the file in one change: all of it, or nothing.
func (c *applyCommand) Run(e *environment) error {
	d, err := e.document(c.File)
	if err != nil {
		return err
	}
	switch {
	case d.App == "" && c.App == "":
		return errors.New("the file has no app; give -app, or add a line such as \"app: pay\" to it")
	case d.App != "" && c.App != "" && d.App != c.App:
		return fmt.Errorf("the file is for the app %q, and -app is %q; leave one out", d.App, c.App)
	case d.App == "":
		d.App = c.App
	}
	// What has a revision was read from the record: the change is refused if another one came meanwhile.
	reason := cmp.Or(c.Reason, "weir apply "+filepath.Base(c.File))
	w := adminapi.Write{Revision: d.Version.Revision, Reason: reason, Force: c.Force, Prune: c.Prune, Emergency: c.Emergency, Dry: true}
	d.Version = policies.Version{}
	document, err := d.Encode()
	if err != nil {
		return err
	}
	client, err := e.client()
	if err != nil {
		return err
	}
	if w.Revision == 0 { // the document that was compared is written, or none
		if w.Revision, err = revisionOf(e.ctx, client, d.App); err != nil {
			return err
		}
	}
	written, err := client.Apply(e.ctx, document, w)
	if err != nil {
		return c.refused(err, w.Revision)
	}
	if !c.DryRun && len(written.Differences) > 0 {
		w.Dry = false
		if written, err = client.Apply(e.ctx, document, w); err != nil {
			return c.refused(err, w.Revision)
		}
	}
	if e.json {
		e.print(written)
	} else {
		e.written(written)
	}
	switch {
	case written.Alarm != "":
		return status(alarmed)
	case c.DryRun && len(written.Differences) > 0:
		return status(different)
	}
	return nil
}

// revisionOf returns the revision of an app, and 0 if the record does not know it.
func revisionOf(ctx context.Context, client *adminapi.Client, app string) (int64, error) {
	apps, err := client.Apps(ctx)
	for _, a := range apps {
		if a.App == app {
			return a.Revision, err
		}
	}
	return 0, err
}

// refused adds to the error of a change that came too late what to do.
func (c *applyCommand) refused(err error, revision int64) error {
	if p := problemIn(err); p != nil && p.Status == http.StatusPreconditionFailed && p.Current > 0 {
		return fmt.Errorf("%w\nthe policies have changed since revision %d; read them again (weir get), or leave the revision out of the file", err, revision)
	}
	return err
}

type rollbackCommand struct {
	App      string `arg:"" help:"The app."`
	Name     string `arg:"" help:"The policy."`
	Revision int64  `arg:"" help:"The revision of the version that shall hold again; weir history lists them."`
	Force    bool   `help:"Change also what services say they cannot use."`
	Reason   string `help:"The reason, for the history and the audit. Without one it is the name of the command."`

	Emergency bool `help:"Write at once where the app wants another owner to approve. It stands out until somebody has looked at it."`
}

// Run writes an earlier version as a change of now.
func (c *rollbackCommand) Run(e *environment) error {
	client, err := e.client()
	if err != nil {
		return err
	}
	return e.change(client.Rollback(e.ctx, c.App, c.Name, c.Revision, adminapi.Write{
		Force: c.Force, Emergency: c.Emergency, Reason: cmp.Or(c.Reason, fmt.Sprintf("weir rollback to %d", c.Revision)),
	}))
}

type adoptCommand struct {
	App    string `arg:"" help:"The app."`
	Reason string `help:"The reason, for the history and the audit. Without one it is the name of the command."`
}

// Run raises the generation of an app.
func (c *adoptCommand) Run(e *environment) error {
	client, err := e.client()
	if err != nil {
		return err
	}
	return e.change(client.Adopt(e.ctx, c.App, adminapi.Write{Reason: cmp.Or(c.Reason, "weir adopt")}))
}

// change shows what a change has written.
func (e *environment) change(w adminapi.Written, err error) error {
	if err != nil {
		return err
	}
	if e.json {
		e.print(w)
	} else {
		e.written(w)
	}
	if w.Alarm != "" {
		return status(alarmed)
	}
	return nil
}

// written writes what has changed, or would, for people.
func (e *environment) written(w adminapi.Written) {
	version := policies.Version{Generation: w.Generation, Revision: w.Revision}
	for _, d := range w.Differences {
		for _, line := range differences(d) {
			e.printf("%s\n", shown(line))
		}
	}
	for _, no := range w.CannotUse {
		e.printf("cannot use it: %s\n", shown(no.String()))
	}
	e.unused(w.App, w.Unused)
	for _, t := range w.Beneath {
		e.printf("%s: holds when what is temporary there ends, on %s\n", shown(partOf(t)), t.Until.Format(time.DateTime))
	}
	for _, t := range w.Ended {
		e.printf("%s: is not temporary any more\n", shown(partOf(t)))
	}
	switch {
	case w.Alarm != "":
		e.printf("%s %s: not published: %s\n", shown(w.App), version, lines(w.Alarm))
	case w.Proposal != "":
		e.printf("%s %s: nothing is written yet; another owner has to approve proposal %s\n", shown(w.App), version, shown(w.Proposal))
	case w.Dry && len(w.Differences) == 0, len(w.Differences) == 0 && !w.Published:
		e.printf("%s %s: no difference\n", shown(w.App), version)
	case w.Dry:
		e.printf("%s %s: %s would change\n", shown(w.App), version, count(len(w.Differences), "policy", "policies"))
	case w.App == policies.AllApps:
		e.printf("%s %s: written; it is published to each app\n", w.App, version)
	case !w.Published:
		e.printf("%s %s: written; it will be published as soon as Redis answers\n", shown(w.App), version)
	default:
		e.printf("%s %s: published\n", shown(w.App), version)
	}
}

// partOf names the part of a policy that a temporary change is of.
func partOf(t adminapi.Temporarily) string {
	if t.Key == "" {
		return t.Policy
	}
	return t.Policy + ": key " + t.Key
}

// unused warns of policies of an app that no process has.
func (e *environment) unused(app string, names []string) {
	const most = 10
	if len(names) == 0 {
		return
	}
	more := ""
	if len(names) > most {
		names, more = names[:most], fmt.Sprintf(" and %d more", len(names)-most)
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = shown(name)
	}
	what := "services " + app
	if app == policies.AllApps {
		what = "services"
	}
	e.printf("warning: no process has a policy named %s%s; weir %s lists what they have\n", strings.Join(quoted, ", "), more, shown(what))
}

// differences returns a line for each text that has changed.
func differences(d adminapi.Difference) (all []string) {
	var before, after adminapi.Policy
	if d.Before != nil {
		before = *d.Before
	}
	if d.After != nil {
		after = *d.After
	}
	switch {
	case d.After == nil:
		all = append(all, d.Name+": deleted; the code's numbers hold")
	case d.Before == nil && after.Text == "" && len(after.Tiers)+len(after.Keys)+len(after.Apps) == 0:
		all = append(all, d.Name+": as the code says")
	}
	line := func(what, before, after string) {
		if before != after && d.After != nil {
			all = append(all, fmt.Sprintf("%s: %s -> %s", what, orNone(before), orNone(after)))
		}
	}
	line(d.Name, before.Text, after.Text)
	for _, of := range []struct {
		what          string
		before, after map[string]string
	}{{"tier", before.Tiers, after.Tiers}, {"key", before.Keys, after.Keys}} {
		names := map[string]bool{}
		for name := range of.before {
			names[name] = true
		}
		for name := range of.after {
			names[name] = true
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			line(fmt.Sprintf("%s, %s %s", d.Name, of.what, name), of.before[name], of.after[name])
		}
	}
	line(d.Name+", further apps", list(before.Apps), list(after.Apps))
	if d.Afresh {
		all = append(all, d.Name+": counting starts afresh for everybody")
	}
	return all
}

func orNone(text string) string {
	if text == "" {
		return "(none)"
	}
	return text
}

func list(apps []string) string {
	if len(apps) == 0 {
		return ""
	}
	return fmt.Sprint(apps)
}
