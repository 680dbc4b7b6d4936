package browsertest

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/admin/internal/sqldb"
	_ "github.com/weir-go/weir/admin/internal/sqldb/drivers" // SQLite
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/publish"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/admin/site"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/race"
)

// stage is an admin whose services say what a test wants them to say.
type stage struct {
	t      *testing.T
	url    string
	people *people.People
	record *record.Record
	server *httptest.Server

	mu        sync.Mutex
	processes []*policies.Process
}

// newStage returns an admin with a database of its own.
func newStage(t *testing.T) *stage {
	t.Helper()
	if race.Enabled {
		t.Skip("there is no SQLite with the race detector")
	}
	db, err := sqldb.Open(t.Context(), filepath.Join(t.TempDir(), "weir.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	log := slog.New(slog.DiscardHandler)
	rows := audit.New(db, audit.Options{Log: log})
	t.Cleanup(func() { require.NoError(t, rows.Close()) })
	s := &stage{t: t, record: record.New(db, rows)}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.url = "http://" + listener.Addr().String()
	stores, err := counts.New(counts.Options{})
	require.NoError(t, err)
	admin, err := site.New(t.Context(), site.Options{
		DB: db, Audit: rows, Record: s.record, PublicURL: s.url, Publisher: atOnce{s.record}, Services: s.services,
		Counts: stores, Log: log,
	})
	require.NoError(t, err)
	s.people = admin.People
	s.server = &httptest.Server{Listener: listener, Config: &http.Server{Handler: admin.Handler}} //nolint:gosec // of this test alone
	s.server.Start()
	t.Cleanup(s.server.Close)
	return s
}

func (s *stage) services(context.Context, string) ([]*policies.Process, int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.processes, 0, nil
}

// write writes the policy "search" of the app "pay".
func (s *stage) write(p policies.Policy) {
	s.t.Helper()
	_, err := s.record.Change(s.t.Context(), record.Change{
		App: "pay", By: audit.Person{ID: "local:stage", Name: "the stage"}, Reason: "the first one", Action: "set",
		Edits: []record.Edit{{Name: "search", Policy: &p}},
	})
	require.NoError(s.t, err)
}

// enter opens a tab of somebody with a role, by a link.
func (s *stage) enter(name string, role rights.Role) *tab {
	s.t.Helper()
	b := open(s.t, s.url)
	link, err := s.people.MakeLink(s.t.Context(), people.By{Person: people.Console(), Reason: "a test"},
		people.LocalPerson{Name: name, Role: role, App: rights.AllApps})
	require.NoError(s.t, err)
	b.enterBy(link.URL)
	return b
}

// enterBy follows a link and presses its button.
func (b *tab) enterBy(link string) {
	b.t.Helper()
	b.goTo(link[len(b.site):])
	b.await(`document.activeElement.textContent === "Log in"`)
	b.keys("\r")
	b.await(`location.pathname === "/" && document.querySelector("h1")`)
}

// atOnce is a publisher whose documents are there as soon as the record has them.
type atOnce struct{ record *record.Record }

func (atOnce) Wake() {}

func (atOnce) Wait(_ context.Context, _ string, v policies.Version) publish.State {
	return publish.State{Version: v}
}

func (p atOnce) State(app string) publish.State {
	head, _, err := p.record.Head(context.Background(), app)
	if err != nil {
		return publish.State{Alarm: err.Error()}
	}
	return publish.State{Version: head.Version}
}
