package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/publish"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/redissource"
)

type adoptCommand struct {
	database
	published

	App    string `arg:"" help:"The app."`
	Reason string `default:"weir-admin adopt" help:"The reason, for the audit."`
}

// Run makes the record's document of an app later than all that its services have seen.
func (c *adoptCommand) Run(e *environment) (err error) {
	rdb, _, err := c.connect()
	if err != nil {
		return err
	}
	defer rdb.Close()
	o, err := c.open(e)
	if err != nil {
		return err
	}
	defer o.close(&err)
	publisher := publish.New(o.Record, rdb, slog.New(slog.DiscardHandler)) // somebody adopts because of an alarm
	if err := publisher.Round(e.ctx); err != nil {
		return err
	}
	m, err := manage.New(manage.Options{
		Record: o.Record, Audit: o.Audit, Publisher: publisher,
		Services: func(ctx context.Context, app string) ([]*policies.Process, int, error) {
			return redissource.Processes(ctx, rdb, app)
		},
	})
	if err != nil {
		return err
	}
	var work sync.WaitGroup
	publishing, stop := context.WithCancel(e.ctx)
	work.Go(func() { publisher.Run(publishing) })
	defer work.Wait()
	defer stop()
	w, err := m.Adopt(e.ctx, people.Console(), c.App, manage.Write{Any: true, Reason: c.Reason})
	if err != nil {
		return err
	}
	state := "published"
	switch {
	case w.Alarm != "":
		state = w.Alarm
	case !w.Published:
		state = "not published yet; a server does it as soon as Redis answers"
	}
	fmt.Fprintf(e.out, "%s %d.%d: %s\n", w.App, w.Generation, w.Revision, state)
	return nil
}
