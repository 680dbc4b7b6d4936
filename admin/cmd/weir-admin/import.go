package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/ratetable"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/internal/adminapi"
)

type importCommand struct {
	database

	DSN    location `name:"dsn" required:"" placeholder:"LOCATION" help:"The database of the older limiter: mysql://user@host:3306/database, or @FILE, with the location in a file."`
	Owner  string   `required:"" help:"The app that the policies belong to. They name the other apps of the table."`
	Apply  bool     `help:"Write the policies. Without it, they are only shown."`
	Reason string   `default:"import of rate_limiter_info" help:"The reason, for the history."`
}

// Run plans the import, and makes it if it is asked to.
func (c *importCommand) Run(e *environment) (err error) {
	plan, from, err := c.plan(e.ctx)
	if err != nil {
		return err
	}
	o, err := c.open(e)
	if err != nil {
		return err
	}
	defer o.close(&err)
	change, err := c.change(e.ctx, o.Record, plan)
	if err != nil {
		return err
	}
	for _, p := range plan.Policies {
		fmt.Fprintf(e.out, "%s: %s%s (row %d)\n", p.Name, p.Policy.Text, users(p.Policy.Apps), p.Row.ID)
	}
	for _, d := range plan.Doubts {
		fmt.Fprintln(e.out, d)
	}
	done := "would be written; -apply writes them"
	if c.Apply {
		if err := o.Record.Import(e.ctx, change, from, report(plan, change)); err != nil {
			return err
		}
		done = "are written"
	}
	fmt.Fprintf(e.out, "%d policies of %d rows %s; %d doubts\n", len(change.Edits), len(plan.Policies), done, len(plan.Doubts))
	if len(change.Edits) > 0 {
		fmt.Fprintf(e.out, "each is one bucket for all callers: in the code, its rule has keyfunc.Const(%q) as its key\n", "all")
	}
	if len(plan.Doubts) > 0 {
		return status(found)
	}
	return nil
}

func users(apps []string) string {
	if len(apps) == 0 {
		return ""
	}
	return ", also for " + strings.Join(apps, ", ")
}

// plan reads the table, and returns its place as well.
func (c *importCommand) plan(ctx context.Context) (plan *ratetable.Plan, from string, err error) {
	at, err := c.DSN.read("-dsn")
	if err != nil {
		return nil, "", err
	}
	db, err := ratetable.Open(at)
	if err != nil {
		return nil, "", err
	}
	table, err := ratetable.Read(ctx, db)
	if err := errors.Join(err, db.Close()); err != nil {
		return nil, "", err
	}
	plan, err = ratetable.PlanOf(table, c.Owner)
	return plan, ratetable.Place(at), err
}

// report returns what the record keeps of an import.
func report(plan *ratetable.Plan, change record.Change) record.Imported {
	rows := map[string]int64{}
	for _, p := range plan.Policies {
		rows[p.Name] = p.Row.ID
	}
	out := record.Imported{Rows: plan.Rows, Held: len(plan.Policies) - len(change.Edits)}
	for _, e := range change.Edits {
		out.Taken = append(out.Taken, record.ImportedRow{Row: rows[e.Name], Name: e.Name, Text: e.Policy.Text})
	}
	for _, d := range plan.Doubts {
		out.Doubts = append(out.Doubts, record.ImportedRow{Row: d.Row.ID, Name: d.Row.Name, Why: d.Why, LeftOut: d.LeftOut})
	}
	return out
}

// change returns the change that writes a plan. What the record says already is left out, and what it says otherwise
// becomes a doubt.
func (c *importCommand) change(ctx context.Context, r *record.Record, plan *ratetable.Plan) (record.Change, error) {
	by := people.Console()
	change := record.Change{App: c.Owner, By: audit.Person{ID: by.ID, Name: by.Name}, Reason: c.Reason, Action: "import"}
	for _, p := range slices.Clone(plan.Policies) {
		one := change
		one.Edits = []record.Edit{{Name: p.Name, Policy: &p.Policy, Expect: record.Expect{Absent: true}}}
		held, _, err := r.Policy(ctx, c.Owner, p.Name)
		switch {
		case err == nil && adminapi.PolicyOf(held).Equal(adminapi.PolicyOf(p.Policy)):
			continue
		case err == nil:
			plan.Doubt(p, fmt.Sprintf("the record has %q of %q already; delete or rename one of the two", p.Name, c.Owner))
			continue
		case !errors.As(err, new(*record.NotFoundError)):
			return change, err
		}
		one.Dry = true
		switch _, err := r.Change(ctx, one); {
		case err == nil:
			change.Edits = append(change.Edits, one.Edits...)
		case errors.As(err, new(*record.TakenError)), errors.As(err, new(*record.FormError)), errors.As(err, new(*record.InvalidError)):
			plan.Doubt(p, err.Error())
		default:
			return change, err
		}
	}
	return change, nil
}
