package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/rights"
)

// entry has the flags of the commands that let somebody in.
type entry struct {
	database

	Name string      `arg:"" help:"The name of the person or program, which stands in the history."`
	Role rights.Role `placeholder:"ROLE" help:"viewer, operator, owner or admin: the person is given it, unless they have more in the app. Without it, the roles that the person has."`
	App  string      `default:"*" help:"The app of the role; * is all apps."`
}

func (f entry) local(days int) people.LocalPerson {
	return people.LocalPerson{Name: f.Name, Role: f.Role, App: f.App, Days: days}
}

// by is the author of what a command does.
func by(reason string) people.By { return people.By{Person: people.Console(), Reason: reason} }

type linkCommand struct {
	entry

	PublicURL string `name:"public-url" default:"http://127.0.0.1:7070" placeholder:"URL" help:"The URL by which browsers reach the server."`
	Days      int    `default:"1" help:"Days until a role that is given ends; 0 for no end. The link must be used within ten minutes, and the session ends after a day."`
	Reason    string `default:"weir-admin link" help:"The reason, for the audit."`
}

// Run makes a link.
func (c *linkCommand) Run(e *environment) (err error) {
	o, err := c.open(e)
	if err != nil {
		return err
	}
	defer o.close(&err)
	who, err := people.New(e.ctx, people.Options{DB: o.DB, Audit: o.Audit, PublicURL: c.PublicURL})
	if err != nil {
		return err
	}
	link, err := who.MakeLink(e.ctx, by(c.Reason), c.local(c.Days))
	if err != nil {
		return err
	}
	printLink(e.out, c.Name, link)
	return nil
}

// printLink shows a link to whoever has started the program.
func printLink(out io.Writer, name string, link people.Link) {
	fmt.Fprintf(out, "To log in as %s, once and until %s, open\n  %s\nor, without scripts, type the code at %s\n  %s\n",
		name, link.Ends.Local().Format("15:04"), link.URL, strings.TrimSuffix(link.URL, "#"+link.Code), link.Code)
}

type tokenCommand struct {
	entry

	For    string `default:"cli" help:"The name of the token, such as the program that uses it, which stands in the history as well."`
	Days   int    `default:"90" help:"Days until the token ends, and a role that is given with it, at most 365."`
	Reason string `default:"weir-admin token" help:"The reason, for the audit."`
}

// Run makes a token, and prints nothing else.
func (c *tokenCommand) Run(e *environment) (err error) {
	o, err := c.open(e)
	if err != nil {
		return err
	}
	defer o.close(&err)
	who, err := people.New(e.ctx, people.Options{DB: o.DB, Audit: o.Audit, PublicURL: "http://127.0.0.1"}) // it makes no link
	if err != nil {
		return err
	}
	secret, _, err := who.MakeLocalToken(e.ctx, by(c.Reason), c.local(c.Days),
		people.NewToken{Name: c.For, Apps: []string{c.App}, Role: c.Role, Days: c.Days})
	if err != nil {
		return err
	}
	fmt.Fprintln(e.out, secret)
	return nil
}
