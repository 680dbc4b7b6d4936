package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/filesource"
)

type lintCommand struct {
	Before string   `help:"A file with the policies of now: changes that services could not use are mistakes." placeholder:"FILE"`
	Files  []string `arg:"" name:"file" help:"Files of policies; - is the standard input."`
}

// finding is a mistake or a warning in a file.
type finding struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
}

// findings are all of them.
type findings struct {
	Mistakes []finding `json:"mistakes"`
	Warnings []finding `json:"warnings"`
}

// Run checks the files.
func (c *lintCommand) Run(e *environment) error {
	all := findings{Mistakes: []finding{}, Warnings: []finding{}}
	var before *policies.Document
	if c.Before != "" {
		var err error
		if before, err = e.document(c.Before); err != nil {
			return err
		}
	}
	for _, file := range c.Files {
		d, err := e.document(file)
		var mistakes policies.Mistakes
		switch {
		case errors.As(err, &mistakes):
			for _, m := range mistakes {
				all.Mistakes = append(all.Mistakes, finding{file, m.Line, m.Column, m.Path, m.Err.Error()})
			}
			continue
		case err != nil:
			return err
		}
		all.look(file, d, before)
	}
	if e.json {
		e.print(all)
	} else {
		for _, f := range all.Mistakes {
			e.printf("%s\n", lines(f.String()))
		}
		for _, f := range all.Warnings {
			e.printf("%s\n", lines("warning: "+f.String()))
		}
		if len(all.Mistakes) == 0 {
			e.printf("%s without mistakes\n", count(len(c.Files), "file", "files"))
		}
	}
	if len(all.Mistakes) > 0 {
		return status(failed)
	}
	return nil
}

// String returns the finding as a line.
func (f finding) String() string {
	return policies.Mistake{File: f.File, Line: f.Line, Column: f.Column, Path: f.Path, Err: errors.New(f.Message)}.Error()
}

// document reads a file of policies.
func (e *environment) document(file string) (*policies.Document, error) {
	from := e.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, filesource.MaxSize+1)) // one byte too many is a mistake
	if err != nil {
		return nil, err
	}
	d, err := filesource.Parse(data)
	if mistakes, ok := errors.AsType[policies.Mistakes](err); ok {
		return nil, mistakes.In(file)
	}
	return d, err
}

// look finds what a reader of the file accepts, and its author might not want.
func (f *findings) look(file string, d, before *policies.Document) {
	mistake := func(path, format string, args ...any) {
		f.Mistakes = append(f.Mistakes, finding{File: file, Path: path, Message: fmt.Sprintf(format, args...)})
	}
	warn := func(path, format string, args ...any) {
		f.Warnings = append(f.Warnings, finding{File: file, Path: path, Message: fmt.Sprintf(format, args...)})
	}
	if _, err := d.Encode(); err != nil {
		warn("", "a program can read this file, but it cannot be applied: %v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Policies)) {
		p, path := d.Policies[name], "policies."+name
		if p.Text == "" {
			continue // what holds is in the code
		}
		policy := core.MustParse(p.Text) // which was read
		for _, of := range []struct {
			field string
			texts map[string]string
		}{{"tiers", p.Tiers}, {"keys", p.Keys}} {
			for _, entry := range slices.Sorted(maps.Keys(of.texts)) {
				text := of.texts[entry]
				at := fmt.Sprintf("%s.%s[%q]", path, of.field, entry)
				switch {
				case text == follow.Blocked && policy.Options().Shadow:
					warn(at, "the policy is on trial and refuses nobody, so that %q has no effect", text)
				case text == follow.Unlimited || text == follow.Blocked:
				default:
					if err := sameForm(policy, text); err != nil {
						mistake(at, "no service could use it: %s", withoutPackage(err))
					}
				}
			}
		}
		if before == nil || before.Policies[name].Text == "" {
			continue
		}
		code := core.MustParse(before.Policies[name].Text)
		now, err := enforce.Fits(code.Named(name), p.Text)
		switch {
		case err != nil:
			mistake(path+".text", "no service could use it: %s", withoutPackage(err))
		case policy.Options().Epoch < code.Options().Epoch:
			mistake(path+".text", "the epoch goes back from %d to %d, to counts that were given up; give at least %d",
				code.Options().Epoch, policy.Options().Epoch, code.Options().Epoch)
		case now.Spec().Shape() != code.Spec().Shape() && policy.Options().Epoch == code.Options().Epoch:
			warn(path+".text", "counting starts afresh for everybody: weir explain %q %q", code, p.Text)
		}
	}
}

func withoutPackage(err error) string { return strings.TrimPrefix(err.Error(), "enforce: ") }

// sameForm returns why a text cannot stand for a tier or key beside the text of its policy, whatever options the code
// has: a text that leaves one out has that of the code, which nobody knows here.
func sameForm(policy core.Policy, text string) error {
	tier, err := core.Parse(text)
	if err != nil {
		return err
	}
	bare := func(p core.Policy) (core.Policy, error) {
		return core.NewPolicy("", core.PolicyOptions{}, p.Limits()...)
	}
	if policy, err = bare(policy); err != nil {
		return err
	}
	if tier, err = bare(tier); err != nil {
		return err
	}
	_, err = enforce.FitsTier(policy, tier.String())
	return err
}
