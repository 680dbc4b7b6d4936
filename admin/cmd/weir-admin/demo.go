package main

import (
	"github.com/weir-go/weir/admin/demo"
)

type demoCommand struct {
	Addr string `default:"127.0.0.1:0" help:"The address to listen on."`
}

// Run runs a demo until the program is to end.
func (c *demoCommand) Run(e *environment) error {
	d, err := demo.Start(e.ctx, demo.Options{Address: c.Addr})
	if err != nil {
		return err
	}
	printLink(e.out, "you", d.Link)
	<-e.ctx.Done()
	return d.Close()
}
