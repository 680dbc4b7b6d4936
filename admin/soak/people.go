package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

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
	number int // so that no text is written twice
	writes int
	lost   int // answers
}

func newLedger() *ledger {
	return &ledger{acked: map[[2]string]map[int64]string{}, maybe: map[[2]string][]string{}}
}

// write changes one policy through one of the servers.
func (l *ledger) write(ctx context.Context, via *adminapi.Client, random *rand.Rand) {
	app, name := apps[random.IntN(len(apps))], names[random.IntN(len(names))]
	l.mu.Lock()
	l.number++
	text := fmt.Sprintf("%d/1m", l.number)
	l.mu.Unlock()
	key := [2]string{app, name}
	w := adminapi.Write{Create: true, Reason: "a test"}
	held, err := via.Policy(ctx, app, name)
	switch {
	case err == nil:
		w = adminapi.Write{Revision: held.Revision, Reason: "a test"}
	case adminapi.StatusOf(err) != http.StatusNotFound:
		pause(ctx, 10*time.Millisecond)
		return
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
		l.acked[key][written.Revision] = text
		l.writes++
	case status == http.StatusPreconditionFailed || status == http.StatusTooManyRequests ||
		status == http.StatusServiceUnavailable && !unknown(err):
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

// check compares the history with what was acknowledged.
func (l *ledger) check(ctx context.Context, via *adminapi.Client) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, acked := range l.acked {
		past := map[int64]string{}
		var latest int64
		before := int64(0)
		for {
			page, err := via.History(ctx, key[0], key[1], before, 0)
			if err != nil {
				return err
			}
			if len(page) == 0 {
				break
			}
			for _, p := range page {
				latest = max(latest, p.Revision)
				if p.Policy != nil {
					past[p.Revision] = p.Policy.Text
				}
			}
			before = page[len(page)-1].Revision
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
		held, err := via.Policy(ctx, key[0], key[1])
		if err != nil {
			return err
		}
		if held.Revision != latest || held.Policy.Text != past[latest] {
			return fmt.Errorf("%w: %v: revision %d holds, and the latest of the history is %d", errBroken, key, held.Revision, latest)
		}
	}
	return nil
}

// people write until stop is called.
func people(ctx context.Context, l *ledger, servers []*server, seed uint64) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var writing sync.WaitGroup
	for i := range 2 {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		writing.Go(func() {
			for ctx.Err() == nil {
				// An answer is waited for also at the end, so that it is known what was written.
				l.write(context.WithoutCancel(ctx), servers[random.IntN(len(servers))].Client, random)
			}
		})
	}
	return func() {
		cancel()
		writing.Wait()
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
