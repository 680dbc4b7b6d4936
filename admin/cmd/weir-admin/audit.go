package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/people"
)

type auditCommand struct {
	Verify verifyCommand `cmd:"" help:"Compare the audit with its chain, and find rows that were changed, removed or exchanged."`
	Forget forgetCommand `cmd:"" help:"Delete the keys, which may be persons, of all rows before a day. The rows stay, and so does the chain."`
}

type verifyCommand struct {
	database

	Log  []string `placeholder:"FILE" help:"A file with what servers have written on their standard output, kept where those who can write to the database cannot. May be repeated."`
	Head string   `placeholder:"SEQ:HASH" help:"A row and its hash that somebody has kept, such as those that this command prints."`
}

// Run verifies the audit. Without -log and -head, whoever can write to the database can also compute its chain anew.
func (c *verifyCommand) Run(e *environment) (err error) {
	kept, err := c.kept()
	if err != nil {
		return err
	}
	o, err := c.open(e)
	if err != nil {
		return err
	}
	defer o.close(&err)
	report, err := o.Audit.Verify(e.ctx, kept...)
	if err != nil {
		return err
	}
	if report.Fault != nil {
		fmt.Fprintf(e.out, "row %d %s\n", report.Fault.Seq, report.Fault.Text)
		return status(found)
	}
	fmt.Fprintf(e.out, "%d rows are as they were written, %d of them compared with what was kept; the last is %d:%s\n",
		report.Rows, len(kept), report.End.Seq, report.End.Hash)
	return nil
}

// kept returns the links that the flags name.
func (c *verifyCommand) kept() (kept []sqldb.Link, err error) {
	for _, name := range c.Log {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("-log: %w", err)
		}
		links, err := audit.Links(file)
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("-log %s: %w", name, err)
		}
		if len(links) == 0 {
			return nil, fmt.Errorf("-log %s: found no row of the audit; give what serve has written on its standard output", name)
		}
		kept = append(kept, links...)
	}
	if c.Head == "" {
		return kept, nil
	}
	text, hash, _ := strings.Cut(c.Head, ":")
	seq, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seq < 1 || hash == "" {
		return nil, fmt.Errorf("-head is %.100q; give a row and its hash, such as 17:96554e65", c.Head)
	}
	return append(kept, sqldb.Link{Seq: seq, Hash: hash}), nil
}

type forgetCommand struct {
	database

	Before string `required:"" placeholder:"DAY" help:"The first day whose keys are kept, such as 2026-01-31, in UTC."`
	Reason string `required:"" help:"The reason, for the audit."`
}

// Run forgets keys.
func (c *forgetCommand) Run(e *environment) (err error) {
	before, err := time.Parse(time.DateOnly, c.Before)
	if err != nil {
		return fmt.Errorf("-before is %.40q; give a day such as 2026-01-31", c.Before)
	}
	o, err := c.open(e)
	if err != nil {
		return err
	}
	defer o.close(&err)
	console := people.Console()
	n, err := o.Audit.ForgetKeys(e.ctx, audit.Person{ID: console.ID, Name: console.Name}, c.Reason, before)
	if err != nil {
		return err
	}
	kept, err := o.Record.ForgetKeys(e.ctx, before)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.out, "the keys of %d rows are deleted, and of %d versions that hold no longer\n", n, kept)
	return nil
}
