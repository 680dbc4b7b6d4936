package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

var (
	apps  = []string{"pay", "mail", "web"}
	names = []string{"api", "login"}
)

// ledger has what the servers have acknowledged, and what may have been written though nobody said so.
type ledger struct {
	mu     sync.Mutex
	acked  map[[2]string]map[int64]string // app and name: revision: text
	maybe  map[[2]string][]string
	stale  map[string]bool // the texts that must not be written, because their revision was over
	number int             // so that no text is written twice

	writes, refused int // answers
	lost            int // answers that never came
}

func newLedger() *ledger {
	return &ledger{acked: map[[2]string]map[int64]string{}, maybe: map[[2]string][]string{}, stale: map[string]bool{}}
}

// How a person chooses the revision that a change replaces.
const (
	right    = iota // the one that holds when they look
	whatever        // whatever there is
	stale           // one that is over
	ways
)

// write changes a policy.
func (l *ledger) write(ctx context.Context, via *adminapi.Client, app, name string, way int) {
	l.mu.Lock()
	l.number++
	text := fmt.Sprintf("%d/1m", l.number)
	if way == stale {
		l.stale[text] = true
	}
	l.mu.Unlock()
	key := [2]string{app, name}
	held, err := via.Policy(ctx, app, name)
	if err != nil {
		pause(ctx, 50*time.Millisecond) // every policy is there: a server is not
		return
	}
	w := adminapi.Write{Revision: held.Revision, Reason: "a test"}
	switch way {
	case whatever:
		w.Revision = 0
	case stale:
		w.Revision--
	}
	written, err := via.Put(ctx, app, name, policies.Policy{Text: text}, w)
	l.mu.Lock()
	defer l.mu.Unlock()
	status := adminapi.StatusOf(err)
	switch {
	case err == nil:
		if l.acked[key] == nil {
			l.acked[key] = map[int64]string{}
		}
		l.acked[key][written.PolicyRevision] = text
		l.writes++
	case status == http.StatusPreconditionFailed:
		l.refused++
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable && !unknown(err):
	default: // the answer was lost
		l.maybe[key] = append(l.maybe[key], text)
		l.lost++
	}
}

// unknown reports whether a server does not know whether it has written.
func unknown(err error) bool {
	var p *adminapi.Problem
	return errors.As(err, &p) && strings.Contains(p.Detail, "not known")
}

// check compares the history, as the record has it, with what was acknowledged.
func (l *ledger) check(ctx context.Context, r *record.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, acked := range l.acked {
		versions, err := r.History(ctx, key[0], key[1], 0, math.MaxInt32)
		if err != nil {
			return err
		}
		past := map[int64]string{}
		for _, v := range versions {
			if past[v.Revision] = v.Policy.Text; l.stale[v.Policy.Text] {
				return fmt.Errorf("%w: %v: revision %d replaced one that was over", errBroken, key, v.Revision)
			}
		}
		for revision, text := range acked {
			if past[revision] != text {
				return fmt.Errorf("%w: %v: revision %d was acknowledged as %q, and the history has %q", errBroken, key, revision, text, past[revision])
			}
		}
		known := map[string]bool{}
		for _, text := range l.maybe[key] {
			known[text] = true
		}
		for revision, text := range past {
			if acked[revision] != text && !known[text] {
				return fmt.Errorf("%w: %v: revision %d is %q, which nobody has sent", errBroken, key, revision, text)
			}
		}
		held, revision, err := r.Policy(ctx, key[0], key[1])
		if err != nil {
			return err
		}
		if latest := versions[0].Revision; revision != latest || held.Text != past[latest] {
			return fmt.Errorf("%w: %v: revision %d holds, and the latest of the history is %d", errBroken, key, revision, latest)
		}
	}
	return nil
}

// people write until stop is called: two of them any policy, and the writers all at once the first one.
func (k *killing) people() (stop func()) {
	ctx, cancel := context.WithCancel(k.ctx)
	within := context.WithoutCancel(ctx) // an answer is waited for also at the end, so that it is known what was written
	var writing sync.WaitGroup
	for range 2 {
		random := rand.New(rand.NewPCG(k.random.Uint64(), 1))
		writing.Go(func() {
			for ctx.Err() == nil {
				via := k.servers[random.IntN(len(k.servers))].Client
				k.ledger.write(within, via, apps[random.IntN(len(apps))], names[random.IntN(len(names))], right)
			}
		})
	}
	for i, token := range k.writers {
		writing.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				via := *k.servers[n%len(k.servers)].Client
				via.Token = token
				k.ledger.write(within, &via, apps[0], names[0], n/len(k.servers)%ways)
			}
		})
	}
	return func() {
		cancel()
		writing.Wait()
	}
}

// enter makes the writers known, each with a token: the API has places for 48 requests of one person.
func (k *killing) enter(writers int) {
	db, err := sqldb.Open(k.ctx, k.location)
	if err != nil {
		k.Fatal(err)
	}
	defer db.Close()
	log := audit.New(db, audit.Options{})
	defer log.Close()
	who, err := people.New(k.ctx, people.Options{DB: db, Audit: log, PublicURL: "http://127.0.0.1"})
	if err != nil {
		k.Fatal(err)
	}
	by := people.By{Person: people.Console(), Reason: "soak"}
	for i := range writers {
		token, _, err := who.MakeLocalToken(k.ctx, by,
			people.LocalPerson{Name: fmt.Sprint("writer-", i), Role: rights.Owner, App: apps[0]},
			people.NewToken{Name: "soak", Apps: apps[:1], Role: rights.Owner, Days: 1})
		if err != nil {
			k.Fatal(err)
		}
		k.writers = append(k.writers, token)
	}
}

// forget forgets what was acknowledged after a revision, because the record was put back to it on purpose.
func (l *ledger) forget(after int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, acked := range l.acked {
		for revision := range acked {
			if revision > after {
				delete(acked, revision)
			}
		}
	}
}
