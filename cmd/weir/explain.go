package main

import (
	"strings"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/internal/inwords"
)

type explainCommand struct {
	Text string `arg:"" help:"A policy, such as \"20/1s, 1000/1d\"."`
	Then string `arg:"" optional:"" help:"What its text becomes."`
}

// Run explains one text, or two and the change.
func (c *explainCommand) Run(e *environment) error {
	policy, err := core.Parse(c.Text)
	if err != nil {
		return err
	}
	answer := struct {
		inwords.Policy
		Then   *inwords.Policy `json:"then,omitempty"`
		Change *inwords.Change `json:"change,omitempty"`
	}{Policy: withBytes(policy)}
	if c.Then != "" {
		then, err := policy.ParseLike(c.Then)
		if err != nil {
			return err
		}
		next, turn := withBytes(then), inwords.Between(policy, then, c.Then)
		answer.Then, answer.Change = &next, &turn
	}
	if e.json {
		e.print(answer)
		return nil
	}
	e.inWords(answer.Policy)
	if answer.Then != nil {
		e.inWords(*answer.Then)
		e.printf("the change\n  %s\n", strings.Join(answer.Change.Lines(), "\n  "))
	}
	return nil
}

// withBytes returns p in words, with what its keys take in Redis.
func withBytes(p core.Policy) inwords.Policy {
	x := inwords.Of(p)
	x.Bytes = inwords.StateBytes(p)
	return x
}

// inWords writes x for people.
func (e *environment) inWords(x inwords.Policy) {
	e.printf("%s\n", x.Text)
	var rows [][]string
	for _, row := range x.Rows() {
		rows = append(rows, []string{"  " + row[0], row[1]})
	}
	e.table(rows)
	for _, note := range x.Notes {
		e.printf("  %s\n", note)
	}
}
