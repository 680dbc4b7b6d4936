package usage

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-go/weir/core/stats"
)

// Options are those of New.
type Options struct {
	// Apps returns the names of the apps to read.
	Apps func(context.Context) ([]string, error)
	// Read calls f with what each process of an app has counted, or with the reason why that cannot be read:
	// redissource.Usages. Processes that do not tell it are left out.
	Read func(ctx context.Context, app string, f func(id string, u *stats.Usage, err error)) error
	// Budget bounds the memory in bytes, which all apps share equally; 0 means 64 MiB.
	Budget int
	// Every is the time between two readings of an app; 0 means 20 seconds, in which each process announces once.
	Every time.Duration
	// Log receives a line a minute at most while apps cannot be read; nil is slog.Default().
	Log *slog.Logger
	// Now is the time; nil is time.Now.
	Now func() time.Time
}

const (
	usualBudget = 64 << 20
	usualEvery  = 20 * time.Second
	patience    = 10 * time.Second // for the processes of one app
	logsAgain   = time.Minute
	kept        = 24 * 60 // minutes
)

// History has what services have counted. It is safe for concurrent use.
type History struct {
	o Options

	mu   sync.Mutex
	apps map[string]*app
}

// New returns a History, which reads while Run runs.
func New(o Options) (*History, error) {
	if o.Apps == nil || o.Read == nil {
		return nil, errors.New("usage: Apps or Read is missing; give both")
	}
	if o.Budget == 0 {
		o.Budget = usualBudget
	}
	if o.Every == 0 {
		o.Every = usualEvery
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &History{o: o, apps: map[string]*app{}}, nil
}

// Run reads all apps in turn, again and again, until ctx ends.
func (h *History) Run(ctx context.Context) {
	var logged time.Time
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		began := time.Now()
		if err := h.Round(ctx); err != nil && ctx.Err() == nil && time.Since(logged) >= logsAgain {
			h.o.Log.Warn("weir-admin: what services have counted cannot be read at the moment, and is missing on the page", "error", err)
			logged = time.Now()
		}
		next.Reset(max(h.o.Every-time.Since(began), h.o.Every/10))
	}
}

// Round reads each app once. The error is the first one; the other apps are read all the same.
func (h *History) Round(ctx context.Context) error {
	names, err := h.o.Apps(ctx)
	if err != nil {
		return err
	}
	h.choose(names)
	for _, name := range names {
		if failed := h.read(ctx, name); failed != nil && err == nil {
			err = failed
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return err
}

// choose forgets the apps that are none any more, and gives each its part of the budget.
func (h *History) choose(names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	chosen := make(map[string]*app, len(names))
	for _, name := range names {
		a := h.apps[name]
		if a == nil {
			a = newApp()
		}
		chosen[name] = a
	}
	h.apps = chosen
	for _, a := range chosen {
		a.budget = h.o.Budget / len(chosen)
	}
}

// read reads an app. What is shown changes at the end of a reading that has succeeded.
func (h *History) read(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	h.mu.Lock()
	r := h.apps[name].begin(h.o.Now())
	h.mu.Unlock()
	err := h.o.Read(ctx, name, func(id string, u *stats.Usage, err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		r.process(id, u, err)
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		r.end()
	}
	r.fit()
	return err
}
