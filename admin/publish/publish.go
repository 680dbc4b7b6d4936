package publish

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/core/policies"
)

// Record is the part of a [record.Record] that a Publisher needs.
type Record interface {
	Heads(ctx context.Context) ([]record.Head, error)
	Head(ctx context.Context, app string) (record.Head, bool, error)
	Document(ctx context.Context, app string) (*policies.Document, []byte, error)
	Known(ctx context.Context, app string, v policies.Version, digest string) (bool, error)
}

// Times of a Publisher.
const (
	between    = 2 * time.Second // rounds that nobody asked for
	maxRound   = 30 * time.Second
	maxCommand = 5 * time.Second
	logsAgain  = time.Minute // an error that stays
)

// Publisher writes the documents of a record to Redis. It is safe for concurrent use.
type Publisher struct {
	record Record
	rdb    redis.UniversalClient
	log    *slog.Logger

	wake chan struct{}
	once sync.Mutex // one round at a time

	mu     sync.Mutex
	states map[string]State
	round  chan struct{} // closed at the end of each round
	failed string        // the error of the last round, as it was logged
	logged time.Time
}

// State is the published document of an app, as the last round found it.
type State struct {
	// Version is that of the document in Redis; the zero Version if there is none.
	Version policies.Version
	// Alarm is the reason why nothing more is published until somebody has looked at it, or "".
	Alarm string
	// Record is the version that the record had when the Alarm was raised.
	Record policies.Version
}

// New returns a Publisher. The client must not repeat commands: give it MaxRetries -1, since a transaction that is
// repeated on another connection no longer watches its key.
func New(r Record, rdb redis.UniversalClient, log *slog.Logger) *Publisher {
	if log == nil {
		log = slog.Default()
	}
	return &Publisher{
		record: r, rdb: rdb, log: log,
		wake: make(chan struct{}, 1), states: map[string]State{}, round: make(chan struct{}),
	}
}

// Run compares and writes every two seconds, and when Wake is called, until ctx ends.
func (p *Publisher) Run(ctx context.Context) {
	tick := time.NewTicker(between)
	defer tick.Stop()
	for ctx.Err() == nil {
		p.report(p.Round(ctx))
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-p.wake:
		}
	}
}

// Wake makes Run compare at once.
func (p *Publisher) Wake() {
	select {
	case p.wake <- struct{}{}:
	default: // it will
	}
}

// report logs the error of a round, once a minute while it stays the same.
func (p *Publisher) report(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil && p.failed != "":
		p.log.Info("weir: policies are published again")
		p.failed = ""
	case err == nil || errors.Is(err, context.Canceled):
	case err.Error() != p.failed || time.Since(p.logged) >= logsAgain:
		p.log.Error("weir: policies cannot be published; services keep what they have", "error", err)
		p.failed, p.logged = err.Error(), time.Now()
	}
}

// State returns what the last round found of an app.
func (p *Publisher) State(app string) State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.states[app]
}

// Wait returns when the document of an app is published in a version, or in a later one, or will not be because of an
// alarm, or when ctx ends.
func (p *Publisher) Wait(ctx context.Context, app string, v policies.Version) State {
	for {
		p.mu.Lock()
		state, round := p.states[app], p.round
		p.mu.Unlock()
		// An alarm from before the change says nothing of it, such as the one that an adoption is to end.
		if state.Alarm != "" && state.Record.Compare(v) >= 0 || state.Alarm == "" && state.Version.Compare(v) >= 0 {
			return state
		}
		select {
		case <-ctx.Done():
			return state
		case <-round:
		}
	}
}

// Round compares all documents once, and writes those that differ.
func (p *Publisher) Round(ctx context.Context) error {
	p.once.Lock()
	defer p.once.Unlock()
	ctx, cancel := context.WithTimeout(ctx, maxRound)
	defer cancel()
	heads, err := p.record.Heads(ctx)
	if err != nil {
		return err
	}
	states, err := p.compare(ctx, heads)

	p.mu.Lock()
	defer p.mu.Unlock()
	known := make(map[string]bool, len(heads))
	for _, h := range heads {
		known[h.App] = true
		state, seen := states[h.App]
		if !seen { // Redis did not answer; what it had is not known
			continue
		}
		if before := p.states[h.App]; state.Alarm != before.Alarm {
			p.alarm(h.App, state.Alarm)
		}
		p.states[h.App] = state
	}
	maps.DeleteFunc(p.states, func(app string, _ State) bool { return !known[app] })
	close(p.round)
	p.round = make(chan struct{})
	return err
}

func (p *Publisher) alarm(app, text string) {
	if text == "" {
		p.log.Info("weir: an app's policies are published again", "app", app)
		return
	}
	p.log.Error("weir: an app's policies are not published any more", "app", app, "reason", text)
}
