package site

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/weir-go/weir/admin/api"
	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/page"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/usage"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/internal/adminapi"
	"github.com/weir-go/weir/observe"
)

// Options are those of New.
type Options struct {
	// DB is the open database, and Record and Audit those in it.
	DB     *sqldb.DB
	Record *record.Record
	Audit  *audit.Log
	// PublicURL is the URL by which browsers reach the handler.
	PublicURL string
	// OIDC is the provider that people log in with; nil leaves links as the only way.
	OIDC *people.OIDC
	// Trusted are the networks of the proxies in front; see keyfunc.ForwardedIP.
	Trusted []netip.Prefix
	// Publisher publishes what the record says.
	Publisher manage.Publisher
	// Services and Top are those of manage.Options.
	Services func(ctx context.Context, app string) (all []*policies.Process, unreadable int, err error)
	Top      func(ctx context.Context, prefix, policy string, last time.Duration, n int) ([]observe.Caller, uint64, error)
	// Usages calls f with what each process of an app has counted: redissource.Usages. It is called for each app every
	// UsageEvery, or 20 seconds. nil leaves it out.
	Usages     func(ctx context.Context, app string, f func(id string, u *stats.Usage, err error)) error
	UsageEvery time.Duration
	// Counts are the stores in which services count; nil leaves out what needs them.
	Counts *counts.Stores
	// Demo shows on each page that nothing of it is real.
	Demo bool
	// Log receives what no client sees; nil is slog.Default().
	Log *slog.Logger
}

// Site is the admin without a listener.
type Site struct {
	People  *people.People
	Manager *manage.Manager
	// Handler serves the API and the page.
	Handler http.Handler

	record    *record.Record
	publisher manage.Publisher
	usage     *usage.History // nil if there is none
	log       *slog.Logger
}

// New returns a Site. It does what is due by itself while Run runs.
func New(ctx context.Context, o Options) (*Site, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	who, err := people.New(ctx, people.Options{
		DB: o.DB, Audit: o.Audit, PublicURL: o.PublicURL, OIDC: o.OIDC, Trusted: o.Trusted, Log: o.Log,
		Render: page.Entry(page.EntryOptions{Demo: o.Demo}),
	})
	if err != nil {
		return nil, err
	}
	var history *usage.History
	if o.Usages != nil {
		if history, err = usage.New(usage.Options{Apps: appsOf(o.Record), Read: o.Usages, Every: o.UsageEvery, Log: o.Log}); err != nil {
			return nil, err
		}
	}
	manager, err := manage.New(manage.Options{
		Record: o.Record, Audit: o.Audit, People: who, Publisher: o.Publisher, Services: o.Services, Top: o.Top,
		Usage: history, Counts: o.Counts, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	programs, err := api.New(api.Options{Manager: manager, Authenticate: who.Authenticate, Trusted: o.Trusted, Log: o.Log})
	if err != nil {
		return nil, err
	}
	screens, err := page.New(page.Options{
		Manager: manager, Authenticate: who.Authenticate, Entry: who.Handler(), Demo: o.Demo, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", screens)
	for _, path := range []string{"/v1/", adminapi.PathOpenAPI, api.PathHealthz, api.PathReadyz} {
		mux.Handle(path, page.Protect(programs))
	}
	return &Site{
		People: who, Manager: manager, Handler: mux,
		record: o.Record, publisher: o.Publisher, usage: history, log: o.Log,
	}, nil
}

// appsOf returns a function that lists the apps of a record.
func appsOf(r *record.Record) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		all, err := r.Apps(ctx)
		names := make([]string, len(all))
		for i, a := range all {
			names[i] = a.App
		}
		return names, err
	}
}

// Times of Run.
const (
	between   = time.Second // between two looks for what is due
	logsAgain = time.Minute // an error that stays
)

// Run ends the temporary changes whose time is over, and reads what services announce and have counted, until ctx ends. Several
// processes may do so.
func (s *Site) Run(ctx context.Context) {
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() { s.Manager.Run(ctx) })
	if s.usage != nil {
		reading.Go(func() { s.usage.Run(ctx) })
	}
	tick := time.NewTicker(between)
	defer tick.Stop()
	var logged time.Time
	for {
		ended, err := s.record.EndDue(ctx)
		if len(ended) > 0 {
			s.publisher.Wake()
		}
		if err != nil && ctx.Err() == nil && time.Since(logged) >= logsAgain {
			s.log.Error("weir-admin: temporary changes are not ended at the moment", "error", err)
			logged = time.Now()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
