package audit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/core/policies"
)

// Bounds of the refused attempts of a minute. What is beyond is counted together.
const (
	maxAttempts = 100 // rows of a minute
	maxOfPerson = 10  // of them, of one person
)

// other is the action of a row that counts attempts for which there is no room.
const other = "other"

// attempt is something that a person has no right to.
type attempt struct {
	person, action, app string
}

// refused has the attempts of a minute, which become rows when it is over.
type refused struct {
	mu     sync.Mutex
	counts map[attempt]*tally
	people map[string]int // rows of each person
	timer  *time.Timer    // nil if there are no attempts
	closed bool
}

// tally counts one attempt.
type tally struct {
	name  string // of the person
	since time.Time
	n     int64
}

// Refused counts an attempt to do something without the right to it. Attempts are in the audit within a minute, as one
// row for a person, action and app with their number; after 10 rows of one person, and 100 in all, the further ones are
// counted together. An app that is no name counts as "".
func (l *Log) Refused(by Person, action, app string) {
	if app != policies.AllApps && policies.CheckApp(app) != nil {
		app = ""
	}
	r := &l.refused
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.add(attempt{line(by.ID, maxLine), line(action, maxName), app}, tally{line(by.Name, maxLine), l.now(), 1})
	r.arm(l)
}

// arm sees to it that the attempts are written. r is locked.
func (r *refused) arm(l *Log) {
	if r.timer == nil {
		r.timer = time.AfterFunc(l.minute, func() {
			_ = r.flush(context.Background(), l) //nolint:forbidigo // nobody waits for it, and its error is in the log
		})
	}
}

// add counts attempts, with others where there is no room. r is locked.
func (r *refused) add(a attempt, t tally) {
	if r.counts == nil {
		r.counts, r.people = map[attempt]*tally{}, map[string]int{}
	}
	_, there := r.counts[a]
	if !there && r.people[a.person] >= maxOfPerson-1 {
		a.action, a.app = other, ""
		_, there = r.counts[a]
	}
	if !there && len(r.counts) >= maxAttempts-1 {
		a, t.name = attempt{action: other}, ""
		_, there = r.counts[a]
	}
	if !there {
		r.counts[a] = &tally{name: t.name, since: t.since}
		r.people[a.person]++
	}
	r.counts[a].n += t.n
}

// flush writes the attempts. If it cannot, they are kept for the next minute.
func (r *refused) flush(ctx context.Context, l *Log) error {
	r.mu.Lock()
	counts := r.counts
	r.counts, r.people, r.timer = nil, nil, nil
	r.mu.Unlock()
	if len(counts) == 0 {
		return nil
	}
	order := slices.SortedFunc(maps.Keys(counts), func(a, b attempt) int { return counts[a].since.Compare(counts[b].since) })
	err := l.db.Change(ctx, func(ctx context.Context, c *sqldb.Change) error {
		for _, a := range order {
			t := counts[a]
			if err := l.Append(ctx, c, Row{
				At: t.since, By: Person{a.person, t.name}, App: a.app, Action: a.action, Outcome: Refused,
				Detail: fmt.Sprintf(`{"attempts":%d}`, t.n),
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		return nil
	}
	l.log.Warn("weir-admin: the refused attempts are not in the audit yet", "rows", len(counts), "error", err)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range order {
		r.add(a, *counts[a])
	}
	if !r.closed {
		r.arm(l)
	}
	return err
}

// close writes what is left.
func (r *refused) close(l *Log) error {
	r.mu.Lock()
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	return r.flush(context.Background(), l) //nolint:forbidigo // the program ends
}
