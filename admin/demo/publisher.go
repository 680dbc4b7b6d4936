package demo

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-go/weir/admin/publish"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/core/policies"
)

// publisher shows the documents of a record in an exchange, as a publish.Publisher does in Redis. There is one, so that
// nothing can be ahead of the record.
type publisher struct {
	record   *record.Record
	exchange *exchange
	log      *slog.Logger
	wake     chan struct{}

	mu    sync.Mutex
	round chan struct{} // closed at the end of each round
}

func newPublisher(r *record.Record, x *exchange, log *slog.Logger) *publisher {
	return &publisher{record: r, exchange: x, log: log, wake: make(chan struct{}, 1), round: make(chan struct{})}
}

// Run publishes what has changed when Wake is called, until ctx ends.
func (p *publisher) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := p.publish(ctx); err != nil && ctx.Err() == nil {
			p.log.Error("weir: policies cannot be published", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-time.After(2 * time.Second):
		}
	}
}

// Wake makes Run look at once.
func (p *publisher) Wake() {
	select {
	case p.wake <- struct{}{}:
	default: // it will
	}
}

// State returns what is published of an app.
func (p *publisher) State(app string) publish.State {
	return publish.State{Version: p.exchange.version(app)}
}

// Wait returns when a version of an app's document, or a later one, is published, or when ctx ends.
func (p *publisher) Wait(ctx context.Context, app string, v policies.Version) publish.State {
	for {
		p.mu.Lock()
		round := p.round
		p.mu.Unlock()
		if state := p.State(app); state.Version.Compare(v) >= 0 {
			return state
		}
		select {
		case <-ctx.Done():
			return p.State(app)
		case <-round:
		}
	}
}

// publish shows the documents that have changed.
func (p *publisher) publish(ctx context.Context) error {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		close(p.round)
		p.round = make(chan struct{})
	}()
	heads, err := p.record.Heads(ctx)
	if err != nil {
		return err
	}
	for _, h := range heads {
		if p.exchange.version(h.App) == h.Version {
			continue
		}
		made, encoded, err := p.record.Document(ctx, h.App)
		if err != nil {
			return err
		}
		d := document{version: made.Version, digest: policies.Digest(encoded), encoded: encoded}
		if err := p.exchange.publish(h.App, d); err != nil {
			return err
		}
	}
	return nil
}
