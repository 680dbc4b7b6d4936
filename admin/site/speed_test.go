package site_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/api"
	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/page"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/publish"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/admin/usage"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/redissource"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(sqltest.Main(m)) }

// The fleet of these tests, which has 500 processes.
const (
	fleetApps     = 50
	fleetPolicies = 200 // of each app
	fewProcesses  = 8   // of each app but the first one
	manyProcesses = 500 - (fleetApps-1)*fewProcesses
)

// largest bounds a screen, and slow is the time of the server that a screen may take. Only the first one is asserted:
// the other is logged.
const (
	largest = 150 << 10
	slow    = 200 * time.Millisecond
)

// fleet is an admin of a large fleet: a database, what its services have announced in Redis, and the handlers.
type fleet struct {
	t       testing.TB
	handler http.Handler
	secret  string
	edited  int64 // the revision of the policy that requests change
	usage   *usage.History
	mu      sync.Mutex
	at      time.Time // at which the clock starts
	started time.Time // zero while it stands still
}

func (f *fleet) now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.started.IsZero() {
		return f.at
	}
	return f.at.Add(time.Since(f.started))
}

// start lets an hour pass, and starts the clock.
func (f *fleet) start() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.started = f.at.Add(time.Hour), time.Now()
}

func appName(i int) string { return fmt.Sprintf("service-%02d", i) }

// policyName returns a name that only one app has.
func policyName(app, i int) string { return fmt.Sprintf("orders-%02d-operation-%03d", app, i) }

// policyOf returns a policy of an app: one in four has tiers, and one in five keys with numbers.
func policyOf(i int) policies.Policy {
	p := policies.Policy{Text: fmt.Sprintf("%d/1m burst %d", 100+i, 20+i)}
	if i%4 == 0 {
		p.Tiers = map[string]string{"free": "10/1m", "pro": "500/1m", "partner": "5000/1m"}
	}
	if i%5 == 0 {
		p.Keys = map[string]string{"user=1007": "900/1m", "user=2007": "blocked"}
	}
	return p
}

func newFleet(t testing.TB) *fleet {
	t.Helper()
	if race.Enabled {
		t.Skip("there is no SQLite with the race detector")
	}
	if testing.Short() {
		t.Skip("it writes 10 000 policies")
	}
	f := &fleet{t: t, at: time.Now().Truncate(time.Minute)}
	quiet := slog.New(slog.DiscardHandler)
	db := sqltest.Open(t, sqltest.SQLite(t))
	rows := audit.New(db, audit.Options{Log: quiet})
	t.Cleanup(func() { assert.NoError(t, rows.Close()) })
	r := record.New(db, rows)
	who, err := people.New(t.Context(), people.Options{DB: db, Audit: rows, PublicURL: "http://127.0.0.1:7070", Log: quiet})
	require.NoError(t, err)
	rdb := redistest.Single(t).Client(t)
	stores, err := counts.New(counts.Options{Redis: rdb})
	require.NoError(t, err)
	f.usage, err = usage.New(usage.Options{
		Apps: func(context.Context) (names []string, err error) {
			for i := range fleetApps {
				names = append(names, appName(i))
			}
			return names, nil
		},
		Read: func(ctx context.Context, app string, tell func(string, *stats.Usage, error)) error {
			return redissource.Usages(ctx, rdb, app, tell)
		},
		Log: quiet, Now: f.now,
	})
	require.NoError(t, err)
	publisher := publish.New(r, rdb, quiet)
	m, err := manage.New(manage.Options{
		Record: r, Audit: rows, People: who, Publisher: publisher, Counts: stores, Usage: f.usage, Log: quiet, Now: f.now,
		Services: func(ctx context.Context, app string) ([]*policies.Process, int, error) {
			return redissource.Processes(ctx, rdb, app)
		},
	})
	require.NoError(t, err)
	screens, err := page.New(page.Options{Manager: m, Authenticate: who.Authenticate, Log: quiet, Now: f.now})
	require.NoError(t, err)
	programs, err := api.New(api.Options{Manager: m, Authenticate: who.Authenticate, Log: quiet})
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/", screens)
	mux.Handle("/v1/", programs)
	f.handler = mux

	f.settle(who)
	f.write(r)
	f.announce(rdb, 1)
	require.NoError(t, f.usage.Round(t.Context()))
	f.start()
	f.announce(rdb, 100) // an hour's counts, which are spread over its minutes
	require.NoError(t, f.usage.Round(t.Context()))
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { publisher.Run(ctx) })
	work.Go(func() { m.Run(ctx) })
	t.Cleanup(func() {
		stop()
		work.Wait()
	})
	require.Eventually(t, func() bool { // what services announce was read, and the documents are published
		w, _ := f.do(request{path: "/"})
		return strings.Contains(w.Body.String(), "Everything is obeyed") || strings.Contains(w.Body.String(), "behind")
	}, 2*time.Minute, 100*time.Millisecond)
	return f
}

// settle lets people and tokens in.
func (f *fleet) settle(who *people.People) {
	by := people.By{Person: people.Console(), Reason: "a large fleet"}
	for i := range 300 {
		person := people.LocalPerson{Name: fmt.Sprintf("somebody-with-a-name-%03d", i), Role: rights.Owner, App: appName(0)}
		if i == 0 {
			person.Role, person.App = rights.Admin, rights.AllApps
		}
		secret, _, err := who.MakeLocalToken(f.t.Context(), by, person,
			people.NewToken{Name: fmt.Sprintf("deploys of the app %03d", i), Apps: []string{person.App}, Role: person.Role, Days: 1})
		require.NoError(f.t, err)
		if i == 0 {
			f.secret = secret
		}
	}
}

// write writes the policies, and a history of one of them.
func (f *fleet) write(r *record.Record) {
	by := audit.Person{ID: "local:anna", Name: "anna"}
	for app := range fleetApps {
		c := record.Change{App: appName(app), By: by, Reason: "the numbers that were measured", Action: "apply"}
		for i := range fleetPolicies {
			p := policyOf(i)
			c.Edits = append(c.Edits, record.Edit{Name: policyName(app, i), Policy: &p})
		}
		_, err := r.Change(f.t.Context(), c)
		require.NoError(f.t, err)
	}
	for i := range 100 {
		p := policyOf(0)
		p.Text = fmt.Sprintf("%d/1m", 100+i)
		outcome, err := r.Change(f.t.Context(), record.Change{
			App: appName(0), By: by, Reason: strings.Repeat("a customer complains ", 8), Action: "set",
			Edits: []record.Edit{{Name: policyName(0, 0), Policy: &p}},
		})
		require.NoError(f.t, err)
		f.edited = outcome.Revision
	}
}

// announce writes what each process obeys and has counted.
func (f *fleet) announce(rdb *redis.Client, times uint64) {
	ctx := f.t.Context()
	for app := range fleetApps {
		of := fewProcesses
		if app == 0 {
			of = manyProcesses
		}
		pipe := rdb.Pipeline()
		for n := range of {
			p := &policies.Process{
				App: appName(app), ID: fmt.Sprintf("%s-%04d", appName(app), n), Name: fmt.Sprintf("%s-7f9c4d-%04d:1", appName(app), n),
				Started: f.now().Add(-time.Hour), Weir: "v0.9.0", Version: policies.Version{Generation: 1, Revision: 1}, Meaning: policies.Fleet,
			}
			u := &stats.Usage{For: f.now().Sub(time.Unix(0, 0))}
			for i := range fleetPolicies {
				name, text := policyName(app, i), policyOf(i).Text
				p.Rules = append(p.Rules, policies.RuleState{
					Policy: name, Place: fmt.Sprintf("GET /orders/%03d", i), Key: "user(uid)", OverLimit: "reject",
					Code: name + ": 10/1m", Now: name + ": " + text, Meaning: policies.Fleet, Location: stats.Location{Prefix: "weir"},
				})
				counted := stats.UsageCounts{Admitted: times * uint64(1000+i), Refused: times * uint64(i)}
				keys := stats.TopKeys{For: time.Hour}
				for k := range 20 * (1 - min(i%10, 1)) { // one in ten tells keys
					keys.Keys = append(keys.Keys, stats.KeyCount{Key: fmt.Sprintf("user=%d", 10_000+n*100+k), Count: times * uint64(100-k)})
				}
				u.Policies = append(u.Policies, stats.PolicyUsage{
					Policy: name, Tiers: []stats.TierUsage{{UsageCounts: counted}}, Busiest: keys, Refused: keys,
				})
			}
			pipe.Set(ctx, redissource.ProcessKey(p.App, p.ID), p.Encode(), 0)
			pipe.Set(ctx, redissource.UsageKey(p.App, p.ID), policies.EncodeUsage(u), 0)
			pipe.ZAdd(ctx, redissource.ProcessIndex(p.App), redis.Z{Score: float64(f.now().Unix()), Member: p.ID})
		}
		_, err := pipe.Exec(ctx)
		require.NoError(f.t, err)
	}
}

// request is one for a screen.
type request struct {
	screen, method, path string
	form                 url.Values
}

// requests returns one for each screen.
func (f *fleet) requests() []request {
	first, policy := "/apps/"+appName(0), "/apps/"+appName(0)+"/policies/"+policyName(0, 0)
	key := url.Values{"key": {"user=1007"}}
	draft := url.Values{"what": {"put"}, "text": {"77/1m"}, "revision": {strconv.FormatInt(f.edited, 10)}}
	return []request{
		{screen: "home", path: "/"},
		{screen: "app", path: first},
		{screen: "app of few processes", path: "/apps/" + appName(7)},
		{screen: "policy", path: policy},
		{screen: "new policy", path: first + "/new"},
		{screen: "while typing", method: http.MethodPost, path: policy + "/check", form: draft},
		{screen: "review", method: http.MethodPost, path: policy + "/review", form: draft},
		{screen: "search", method: http.MethodPost, path: "/search", form: url.Values{"text": {"operation"}}},
		{screen: "search of a key", method: http.MethodPost, path: "/search", form: url.Values{"text": {"user=1007"}}},
		{screen: "key", method: http.MethodPost, path: "/apps/" + appName(7) + "/key", form: key},
		{screen: "key of many processes", method: http.MethodPost, path: first + "/key", form: key},
		{screen: "changes", path: "/changes"},
		{screen: "changes of an app", path: "/changes?app=" + appName(0)},
		{screen: "settings", path: "/settings"},
		{screen: "settings of an app", path: "/settings/apps/" + appName(0)},
	}
}

// do answers a request, and returns the time that it took.
func (f *fleet) do(r request) (*httptest.ResponseRecorder, time.Duration) {
	method := r.method
	if method == "" {
		method = http.MethodGet
	}
	req := httptest.NewRequestWithContext(f.t.Context(), method, r.path, strings.NewReader(r.form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "Bearer "+f.secret)
	w := httptest.NewRecorder()
	began := time.Now()
	f.handler.ServeHTTP(w, req)
	return w, time.Since(began)
}

// Each screen of a large fleet is small. The times that it takes are logged: when it is shown for the first time, and when
// it is shown again.
func TestLargeFleet(t *testing.T) {
	f := newFleet(t)
	for _, r := range f.requests() {
		w, first := f.do(r)
		_, again := f.do(r)
		t.Logf("%-24s %4d ms, again %4d ms, %4d KiB", r.screen, first.Milliseconds(), again.Milliseconds(), w.Body.Len()>>10)
		if first > slow {
			t.Logf("%s is slow", r.screen)
		}
		assert.Equal(t, http.StatusOK, w.Code, r.screen)
		assert.LessOrEqual(t, w.Body.Len(), largest, r.screen)
	}
}

// BenchmarkScreens shows each screen of a large fleet again and again.
func BenchmarkScreens(b *testing.B) {
	f := newFleet(b)
	for _, r := range f.requests() {
		b.Run(strings.ReplaceAll(r.screen, " ", "-"), func(b *testing.B) {
			for b.Loop() {
				f.do(r)
			}
		})
	}
}
