package manage

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/publish"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/admin/usage"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/observe"
)

// Publisher is the part of a [publish.Publisher] that a Manager needs.
type Publisher interface {
	Wake()
	Wait(ctx context.Context, app string, v policies.Version) publish.State
	State(app string) publish.State
}

// Options are those of New.
type Options struct {
	Record *record.Record
	Audit  *audit.Log
	// People are those who have rights. nil leaves grants and tokens out.
	People    *people.People
	Publisher Publisher
	// Services returns what the processes of an app have announced, and the number of announcements that cannot be read:
	// redissource.Processes.
	Services func(ctx context.Context, app string) (all []*policies.Process, unreadable int, err error)
	// Top returns the n callers of a policy that all processes whose stores have a prefix have counted most in the last
	// minutes; see observe.FleetWorst. nil leaves them out: keys may be addresses and names of people.
	Top func(ctx context.Context, prefix, policy string, last time.Duration, n int) (callers []observe.Caller, rest uint64, err error)
	// Usage has what services have counted. nil leaves it out.
	Usage *usage.History
	// Counts are the stores in which services count. nil leaves out what needs them: looking at keys, and resetting them.
	Counts *counts.Stores
	// Log receives what nobody else sees; nil is slog.Default().
	Log *slog.Logger
	// Now is the time; nil is time.Now.
	Now func() time.Time
}

// Bounds of a Manager.
const (
	maxReaders = 8                // calls that read an inventory or wait for it, but for changes
	reading    = 20 * time.Second // for one of them: a thousand processes have up to 32 MiB
	publishing = time.Second      // a change waits for it
)

// Manager does what people ask for, if they may. It is safe for concurrent use.
type Manager struct {
	o Options

	reading chan struct{} // held while an inventory is read
	readers chan struct{} // held while a call reads an inventory, or waits for that

	standings standings
	looks     struct {
		sync.Mutex
		at map[aLook]time.Time // maxLooks at most
	}
}

// New returns a Manager.
func New(o Options) (*Manager, error) {
	if o.Record == nil || o.Audit == nil || o.Publisher == nil || o.Services == nil {
		return nil, errors.New("manage: Record, Audit, Publisher or Services is missing; give all of them")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	m := &Manager{
		o: o, reading: make(chan struct{}, 1), readers: make(chan struct{}, maxReaders),
		standings: standings{
			apps: map[string]*standing{}, lists: map[string]*list{}, wanted: map[string]bool{}, wake: make(chan struct{}, 1),
		},
	}
	m.looks.at = map[aLook]time.Time{}
	return m, nil
}

// may returns a *RightError if a person may not do something to all of the apps, which the audit then counts.
func (m *Manager) may(who *rights.Person, a rights.Action, apps ...string) error {
	verdict := rights.Decide(who, a, apps...)
	if verdict == rights.Allowed {
		return nil
	}
	refused := &RightError{Verdict: verdict, Action: a}
	for _, app := range apps {
		if rights.Decide(who, a, app) == verdict {
			refused.App = app
			break
		}
	}
	if who != nil {
		m.o.Audit.Refused(by(who), string(a), refused.App)
	}
	return refused
}

// permit returns the Permit of a record.Change: it decides by the rights that the person has as the change is written,
// for which a request may have waited long.
func (m *Manager) permit(
	who *rights.Person, a rights.Action, named ...string,
) func(context.Context, sqldb.Tx) (record.Verdict, error) {
	return func(ctx context.Context, t sqldb.Tx) (record.Verdict, error) {
		now, err := m.now(ctx, t, who)
		if err != nil {
			return nil, err
		}
		return m.verdict(now, a, named...), nil
	}
}

// now returns a person with the rights that they have in a transaction.
func (m *Manager) now(ctx context.Context, t sqldb.Tx, who *rights.Person) (*rights.Person, error) {
	if m.o.People == nil {
		return who, nil
	}
	return m.o.People.Now(ctx, t, who)
}

// verdict decides on all apps that use a policy before or after a change. named are those that the request names, and
// of which the answer may say that they are the reason.
func (m *Manager) verdict(who *rights.Person, a rights.Action, named ...string) record.Verdict {
	return func(name string, apps []string) error {
		err := m.may(who, a, apps...)
		var refused *RightError
		if errors.As(err, &refused) && !slices.Contains(named, refused.App) {
			return &RightError{Verdict: rights.Forbidden, Action: a, App: named[0], Lent: name}
		}
		return err
	}
}

// by returns a person as the audit has them.
func by(who *rights.Person) audit.Person { return audit.Person{ID: who.ID, Name: who.Name} }

// Ready returns an error if the database does not answer.
func (m *Manager) Ready(ctx context.Context) error {
	_, _, err := m.o.Record.Head(ctx, policies.AllApps)
	return err
}

// NoRevision is a Write.Revision that no policy has.
const NoRevision = -1

// Write says on what condition a change is made, and how.
type Write struct {
	// Revision is the one that was read: the change is refused if another one holds by now. Any expects nothing of it,
	// and Create that there is none yet. One of the three is needed.
	Revision    int64
	Any, Create bool
	// Reason is kept in the audit. A change without one is refused.
	Reason string
	// Force writes what services said they cannot use.
	Force bool
	// Emergency writes at once where the app wants another owner to approve.
	Emergency bool
}

// reasoned returns an error if there is no reason.
func (w *Write) reasoned() error {
	if strings.TrimSpace(w.Reason) == "" {
		return ErrNoReason
	}
	return nil
}

// expect returns the condition, without which the last of two people who change one policy would win unseen.
func (w *Write) expect() (record.Expect, error) {
	switch {
	case w.Create:
		return record.Expect{Absent: true}, nil
	case w.Any:
		return record.Expect{}, nil
	case w.Revision == 0:
		return record.Expect{}, ErrNoRevision
	}
	return record.Expect{Revision: w.Revision}, nil
}
