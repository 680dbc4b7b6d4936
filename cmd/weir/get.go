package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"

	"gopkg.in/yaml.v3"

	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/filesource"
	"github.com/weir-go/weir/internal/adminapi"
)

type getCommand struct {
	App       string `arg:"" optional:"" help:"The app; without it, all apps are listed."`
	Name      string `arg:"" optional:"" help:"The policy; without it, the policies of the app are shown, as weir apply takes them."`
	Published bool   `help:"Show the document as the services read it, with the policies that other apps share."`
}

// Run shows what the record has. The exit status is 3 if an app that it shows has an alarm.
func (c *getCommand) Run(e *environment) error {
	client, err := e.client()
	if err != nil {
		return err
	}
	apps, err := client.Apps(e.ctx)
	if err != nil {
		return err
	}
	switch {
	case c.App == "":
		return e.apps(apps)
	case c.Name != "":
		err = c.policy(e, client)
	default:
		err = c.document(e, client)
	}
	if err != nil {
		return err
	}
	for _, a := range apps {
		if a.App == c.App && a.Alarm != "" {
			if !e.json {
				e.printf("# not published: %s\n", strings.ReplaceAll(shown(a.Alarm), "\n", " "))
			}
			return status(alarmed)
		}
	}
	return nil
}

// apps lists apps.
func (e *environment) apps(apps []adminapi.App) error {
	alarm := false
	rows := [][]string{{"app", "version", "published"}}
	for _, a := range apps {
		published := "yes"
		switch {
		case a.Alarm != "":
			alarm, published = true, "alarm: "+shown(a.Alarm)
		case !a.Published:
			published = "not yet"
		}
		rows = append(rows, []string{shown(a.App), policies.Version{Generation: a.Generation, Revision: a.Revision}.String(), published})
	}
	if e.json {
		e.print(adminapi.Apps{Apps: apps})
	} else {
		e.table(rows)
	}
	if alarm {
		return status(alarmed)
	}
	return nil
}

// policy shows one policy.
func (c *getCommand) policy(e *environment, client *adminapi.Client) error {
	held, err := client.Policy(e.ctx, c.App, c.Name)
	if err != nil {
		return err
	}
	if e.json {
		e.print(held)
		return nil
	}
	e.printf("# revision %d\n%s", held.Revision, asYAML(&policies.Document{
		App: c.App, Policies: map[string]policies.Policy{c.Name: held.Policy.Value()},
	}))
	return nil
}

// document shows the document of an app.
func (c *getCommand) document(e *environment, client *adminapi.Client) error {
	read := client.Owned
	if c.Published {
		read = client.Document
	}
	d, err := read(e.ctx, c.App)
	if err != nil {
		return err
	}
	if !e.json {
		e.printf("%s", asYAML(d))
		return nil
	}
	data, err := d.Encode()
	if err != nil {
		return err
	}
	e.print(json.RawMessage(data))
	return nil
}

// document is a document as a file of YAML has it.
type document struct {
	Format     int               `yaml:"format"`
	App        string            `yaml:"app,omitempty"`
	Generation int64             `yaml:"generation,omitempty"`
	Revision   int64             `yaml:"revision,omitempty"`
	Policies   map[string]policy `yaml:"policies"`
}

type policy struct {
	Text  string            `yaml:"text,omitempty"`
	Tiers map[string]string `yaml:"tiers,omitempty"`
	Keys  map[string]string `yaml:"keys,omitempty"`
	Apps  []string          `yaml:"apps,omitempty,flow"`
}

// asYAML returns d as a file for weir apply: YAML, or JSON, which is YAML too, if the writer of YAML writes a name that
// our reader refuses, or one that a terminal would not show as it is.
func asYAML(d *policies.Document) string {
	f := document{policies.Format, d.App, d.Version.Generation, d.Version.Revision, map[string]policy{}}
	for name, p := range d.Policies {
		f.Policies[name] = policy(p)
	}
	var b strings.Builder
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(f); err == nil {
		text := b.String()
		if again, err := filesource.Parse([]byte(text)); err == nil && reflect.DeepEqual(again, d) && lines(text) == text {
			return text
		}
	}
	data, err := d.Encode()
	if err != nil {
		return "# " + strings.ReplaceAll(lines(err.Error()), "\n", "\n# ") + "\n"
	}
	b.Reset()
	for _, r := range string(data) {
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r) // which JSON has not, and YAML has
		}
	}
	return b.String() + "\n"
}

type historyCommand struct {
	App    string `arg:"" help:"The app."`
	Name   string `arg:"" help:"The policy."`
	Before int64  `help:"Show the versions before a revision." placeholder:"REVISION"`
	Limit  int    `help:"The most versions to show." default:"20"`
}

// Run shows the versions of a policy.
func (c *historyCommand) Run(e *environment) error {
	client, err := e.client()
	if err != nil {
		return err
	}
	versions, err := client.History(e.ctx, c.App, c.Name, c.Before, c.Limit)
	before := ""
	if c.Before > 0 {
		before = fmt.Sprintf(" before revision %d", c.Before)
	}
	switch {
	case err != nil:
		return err
	case e.json:
		e.print(adminapi.History{Versions: versions})
		return nil
	case len(versions) == 0:
		return fmt.Errorf("the record has no version of the policy %q of the app %q%s; weir get %s lists its policies", c.Name, c.App, before, c.App)
	}
	rows := [][]string{{"revision", "when", "who", "what", "policy", "why"}}
	for _, v := range versions {
		what := v.Action
		if v.Forced {
			what += ", forced"
		}
		rows = append(rows, []string{
			strconv.FormatInt(v.Revision, 10), v.At.UTC().Format(time.DateTime), shown(v.Who), shown(what), summary(v.Policy), shown(v.Reason),
		})
	}
	e.table(rows)
	return nil
}

// summary returns a policy in a few words.
func summary(p *adminapi.Policy) string {
	if p == nil {
		return "deleted"
	}
	parts := []string{cmp.Or(shown(p.Text), "as the code says")}
	for _, of := range []struct {
		n         int
		one, many string
	}{{len(p.Tiers), "tier", "tiers"}, {len(p.Keys), "key", "keys"}, {len(p.Apps), "further app", "further apps"}} {
		if of.n > 0 {
			parts = append(parts, count(of.n, of.one, of.many))
		}
	}
	return strings.Join(parts, ", ")
}

type servicesCommand struct {
	App string `arg:"" optional:"" help:"The app; without it, all apps."`
}

// Run shows who obeys what.
func (c *servicesCommand) Run(e *environment) error {
	client, err := e.client()
	if err != nil {
		return err
	}
	names := []string{c.App}
	if c.App == "" {
		apps, err := client.Apps(e.ctx)
		if err != nil {
			return err
		}
		names = nil
		for _, a := range apps {
			if a.App != policies.AllApps { // no process is of it
				names = append(names, a.App)
			}
		}
	}
	all := make([]adminapi.Services, 0, len(names))
	for _, name := range names {
		s, err := client.Services(e.ctx, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, s)
	}
	switch {
	case e.json && c.App != "":
		e.print(all[0])
	case e.json:
		e.print(all)
	case len(all) == 0:
		e.printf("the record knows no app yet; weir services APP shows the processes of one, by the name that they follow\n")
	default:
		for _, s := range all {
			e.services(s)
		}
	}
	return nil
}

// services writes the processes of an app for people. All that a process says of itself is quoted where need be: it may
// be anybody's text.
func (e *environment) services(s adminapi.Services) {
	version := policies.Version{Generation: s.Generation, Revision: s.Revision}
	obey := 0
	for _, p := range s.Processes {
		if !p.Behind && !p.Ahead {
			obey++
		}
	}
	with := ""
	if len(s.Processes) > 0 && version != (policies.Version{}) {
		with = fmt.Sprintf(", %d of them with this version", obey)
	}
	e.printf("%s %s: %s%s\n", shown(s.App), cmp.Or(version.String(), "(no document)"),
		count(len(s.Processes), "process", "processes"), with)
	e.unused(s.App, s.Unused)
	if s.Unreadable > 0 {
		e.printf("  %s could not be read\n", count(s.Unreadable, "announcement", "announcements"))
	}
	for _, p := range s.Processes {
		e.process(p)
	}
}

func (e *environment) process(p adminapi.Process) {
	has := policies.Version{Generation: p.Generation, Revision: p.Revision}
	e.printf("  %s  %s", shown(cmp.Or(p.Name, p.ID)), cmp.Or(has.String(), "(no document)"))
	switch {
	case p.Ahead:
		e.printf("  ahead of the record")
	case p.Behind:
		e.printf("  behind")
	}
	if p.Meaning != "" && p.Meaning != policies.Fleet {
		e.printf("  %s", shown(string(p.Meaning)))
	}
	if p.Why != "" {
		e.printf("  %s", shown(p.Why))
	}
	e.printf("\n")
	rows := make([][]string, 0, len(p.Rules))
	for _, r := range p.Rules {
		row := []string{"    " + shown(string(r.Meaning)), shown(r.Policy), shown(r.Place), shown(r.Key), shown(cmp.Or(r.Now, r.Code)), shown(r.Why)}
		rows = append(rows, row)
	}
	e.table(rows)
	if p.Omitted > 0 {
		e.printf("    and %s that had no place in its announcement\n", count(p.Omitted, "rule", "rules"))
	}
}
