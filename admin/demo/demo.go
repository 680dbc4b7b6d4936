package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/admin/internal/sqldb"
	_ "github.com/weir-go/weir/admin/internal/sqldb/drivers" // SQLite
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/admin/site"
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/policies"
)

// Options are those of Start.
type Options struct {
	// Address is the one to listen on; "" means a free port of 127.0.0.1.
	Address string
	// Quiet leaves the made-up traffic out.
	Quiet bool
	// Log receives the lines of the admin and of the services; nil leaves them out.
	Log *slog.Logger
}

// Demo is an admin with two services, which runs until Close.
type Demo struct {
	// URL is that of the page, such as "http://127.0.0.1:41234".
	URL string
	// People are those of the admin, for further links and tokens.
	People *people.People
	// Link is a link that signs in the one admin, once, within ten minutes. Its Code does so where there are no scripts.
	Link people.Link

	ending []func() error // in the order of the start
}

// Start starts a Demo, which serves when Start returns.
func Start(ctx context.Context, o Options) (d *Demo, err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Address == "" {
		o.Address = "127.0.0.1:0"
	}
	d = &Demo{}
	defer func() {
		if err != nil {
			d, err = nil, errors.Join(fmt.Errorf("demo: %w", err), d.Close())
		}
	}()
	dir, err := os.MkdirTemp("", "weir-demo-")
	if err != nil {
		return d, err
	}
	d.atEnd(func() error { return os.RemoveAll(dir) })
	db, err := sqldb.Open(ctx, filepath.Join(dir, "weir.db"))
	if err != nil {
		return d, err
	}
	d.atEnd(db.Close)
	log := audit.New(db, audit.Options{Log: o.Log})
	d.atEnd(log.Close)
	r := record.New(db, log)
	x := newExchange()
	publisher := newPublisher(r, x, o.Log)
	d.run(ctx, publisher.Run)
	store, err := core.NewMemory(core.MemoryOptions{})
	if err != nil {
		return d, err
	}
	if err := d.services(ctx, x, store, o); err != nil {
		return d, err
	}
	if err := seed(ctx, r); err != nil {
		return d, err
	}
	publisher.Wake()
	if err := d.serve(ctx, db, r, log, publisher, x, store, o); err != nil {
		return d, err
	}
	d.Link, err = d.People.MakeLink(ctx, by, people.LocalPerson{Name: "you", Role: rights.Admin, App: rights.AllApps})
	return d, err
}

// by is the author of what the demo does.
var by = people.By{Person: people.Console(), Reason: "the demo"}

// services starts the two services and their callers.
func (d *Demo) services(ctx context.Context, x *exchange, store core.Store, o Options) error {
	urls := map[string]string{}
	for _, of := range []struct {
		app, process string
		program      program
	}{{"shop", "shop-1", shop}, {"partners", "partners-1", partners}} {
		s, err := startService(ctx, x, store, o.Log, of.app, of.process, of.program)
		if err != nil {
			return err
		}
		d.atEnd(s.close)
		urls[of.app] = s.url
	}
	if !o.Quiet {
		d.run(ctx, func(ctx context.Context) { traffic(ctx, urls) })
	}
	return nil
}

// seed writes what the fleet says at first: more searches, above all for one customer, and webhooks on trial.
func seed(ctx context.Context, r *record.Record) error {
	for _, c := range []struct {
		app, name, why string
		policy         policies.Policy
	}{
		{"shop", "search", "the new index is faster", policies.Policy{Text: "60/1m"}},
		{"shop", "search", "user 12 has a contract", policies.Policy{Text: "60/1m", Keys: map[string]string{"user=12": "300/1m"}}},
		{"partners", "webhooks", "would half of it be enough?", policies.Policy{Text: "1/1s burst 5; shadow"}},
	} {
		if _, err := r.Change(ctx, record.Change{
			App: c.app, By: audit.Person{ID: "local:demo", Name: "demo"}, Reason: c.why, Action: "set",
			Edits: []record.Edit{{Name: c.name, Policy: &c.policy}},
		}); err != nil {
			return err
		}
	}
	return nil
}

// serve serves the admin.
func (d *Demo) serve(
	ctx context.Context, db *sqldb.DB, r *record.Record, log *audit.Log, p *publisher, x *exchange, store core.Store, o Options,
) error {
	stores, err := counts.New(counts.Options{Process: store})
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Address)
	if err != nil {
		return err
	}
	d.URL = "http://" + listener.Addr().String()
	s, err := site.New(ctx, site.Options{DB: db, Record: r, Audit: log, PublicURL: d.URL, Publisher: p, Services: x.processes, Usages: x.usages, UsageEvery: 2 * time.Second, Counts: stores, Demo: true, Log: o.Log})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	d.People = s.People
	d.run(ctx, s.Run)
	server := &http.Server{
		Handler: s.Handler, ReadHeaderTimeout: 5 * time.Second,
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // until Close
	}()
	d.atEnd(func() error {
		err := server.Close()
		<-served
		return err
	})
	return nil
}

// run runs f until Close.
func (d *Demo) run(ctx context.Context, f func(context.Context)) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	d.atEnd(func() error {
		stop()
		running.Wait()
		return nil
	})
}

func (d *Demo) atEnd(f func() error) { d.ending = append(d.ending, f) }

// Close ends everything and removes the temporary folder.
func (d *Demo) Close() error {
	var errs []error
	for _, end := range slices.Backward(d.ending) {
		errs = append(errs, end())
	}
	d.ending = nil
	return errors.Join(errs...)
}
