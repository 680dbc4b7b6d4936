package rightstest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/api"
	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/admin/internal/apitest"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/page"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/publish"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/admin/site"
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/internal/adminapi"
	"github.com/weir-go/weir/observe"
)

// The kinds of people. The demoted one has a token that was made as an owner, and is a viewer now.
const (
	nobody   = "nobody"
	stranger = "other app's owner"
	viewer   = "viewer"
	operator = "operator"
	owner    = "owner"
	admin    = "admin"
	expired  = "expired token"
	demoted  = "token of a demoted maker"
)

var kinds = []string{nobody, stranger, viewer, operator, owner, admin, expired, demoted}

// roles are those of the kinds in the app.
var roles = map[string]rights.Role{
	viewer: rights.Viewer, operator: rights.Operator, owner: rights.Owner, admin: rights.Admin, demoted: rights.Viewer,
}

// row is a verb of a path, and the least role in the app that it needs.
type row struct {
	verb, path string
	least      rights.Role
	// anyApp reports whether it is of no app: whoever is known may do it, if least is None, or else only an admin, and
	// others get 403.
	anyApp bool
	// open reports whether it needs no rights.
	open bool
	// query, body and form are sent. PROPOSAL, TOKEN and the like in the path are filled in.
	query, body string
	form        url.Values
	ok          []int
}

const (
	needsNothing = rights.None
	policyBody   = `{"text":"20/1m"}`
)

var until = time.Now().Add(time.Hour).UTC().Format(time.RFC3339)

// table has a row for each path and verb of the API.
var table = []row{
	{verb: "GET", path: api.PathHealthz, open: true},
	{verb: "GET", path: api.PathReadyz, open: true},
	{verb: "GET", path: adminapi.PathOpenAPI, open: true},

	{verb: "GET", path: adminapi.PathApps, anyApp: true},
	{verb: "GET", path: adminapi.PathApp, least: rights.Viewer},
	{verb: "PUT", path: adminapi.PathApp, least: rights.Owner, body: `{"title":"Payments"}`},
	{verb: "DELETE", path: adminapi.PathApp, least: rights.Admin, ok: []int{409}}, // a process runs
	{verb: "POST", path: adminapi.PathAdopt, least: rights.Admin},
	{verb: "POST", path: api.PathAppRollback, least: rights.Owner, body: `{"to":REVISION}`},
	{verb: "GET", path: adminapi.PathServices, least: rights.Viewer},
	{verb: "GET", path: api.PathGrants, least: rights.Owner},
	{verb: "PUT", path: api.PathGrants, least: rights.Owner, body: "GRANTS"},
	{verb: "POST", path: api.PathLook, least: rights.Operator, body: `{"key":"user=7"}`},

	{verb: "GET", path: adminapi.PathPolicies, least: rights.Viewer},
	{verb: "GET", path: adminapi.PathPolicy, least: rights.Viewer},
	{verb: "PUT", path: adminapi.PathPolicy, least: rights.Owner, body: policyBody},
	{verb: "DELETE", path: adminapi.PathPolicy, least: rights.Owner},
	{verb: "GET", path: adminapi.PathHistory, least: rights.Viewer},
	{verb: "POST", path: api.PathPreview, least: rights.Viewer, body: `{"policy":{"text":"20/1m"}}`},
	{verb: "POST", path: adminapi.PathRollback, least: rights.Owner, body: `{"to":REVISION}`},
	{verb: "POST", path: api.PathTakeOver, least: rights.Owner, ok: []int{412}}, // the record has it already
	{verb: "PUT", path: api.PathTemporary, least: rights.Operator, body: `{"trial":true,"until":"` + until + `"}`},
	{verb: "DELETE", path: api.PathTemporary, least: rights.Operator},
	{verb: "GET", path: api.PathUsage, least: rights.Viewer, ok: []int{503}}, // this site reads none
	{verb: "GET", path: api.PathKeys, least: rights.Operator},
	{verb: "PUT", path: api.PathKeys, least: rights.Operator, body: `{"key":"user=7","text":"blocked","until":"` + until + `"}`},
	{verb: "POST", path: api.PathReset, least: rights.Operator, body: `{"key":"user=7"}`, ok: []int{204}},

	{verb: "POST", path: adminapi.PathApply, least: rights.Owner, body: `{"format":1,"app":"pay","policies":{"api":{"text":"10/1m"}}}`},
	{verb: "GET", path: api.PathProposals, anyApp: true},
	{verb: "POST", path: api.PathApprove, least: rights.Owner},
	{verb: "POST", path: api.PathReject, least: rights.Owner, ok: []int{204}},

	{verb: "GET", path: api.PathAudit, anyApp: true},
	{verb: "GET", path: api.PathAudit, query: "app=pay", least: rights.Viewer},
	{verb: "POST", path: api.PathSeen, least: rights.Owner, ok: []int{204}},
	{verb: "GET", path: api.PathTokens, anyApp: true},
	{verb: "GET", path: api.PathImports, least: rights.Admin, anyApp: true},
	{verb: "POST", path: api.PathTokens, least: rights.Owner, body: `{"name":"ci","apps":["pay"],"role":"viewer","days":1}`},
	{verb: "DELETE", path: api.PathToken, least: rights.Admin, anyApp: true, ok: []int{204, 404}},
	{verb: "GET", path: api.PathPeople, anyApp: true, ok: []int{200, 403}},
	{verb: "PUT", path: api.PathBarred, least: rights.Admin, anyApp: true, ok: []int{204}},
	{verb: "DELETE", path: api.PathBarred, least: rights.Admin, anyApp: true, ok: []int{204}},
	{verb: "DELETE", path: api.PathSessions, least: rights.Admin, anyApp: true, ok: []int{204}},
	{verb: "GET", path: api.PathPresets, anyApp: true},
	{verb: "GET", path: api.PathMe, anyApp: true},
	{verb: "POST", path: api.PathSearch, anyApp: true, body: `{"text":"pay"}`},
	{verb: "POST", path: api.PathCheck, anyApp: true, body: policyBody},
	{verb: "GET", path: adminapi.PathTop, least: rights.Admin, anyApp: true},
	{verb: "GET", path: adminapi.PathSchema, anyApp: true},
}

// screens has a row for each route of the page. Its forms say too little for most of what they would do: the test
// asks whether anything of it may be done.
var screens = []row{
	{verb: "GET", path: "/{$}", anyApp: true},
	{verb: "POST", path: "/search", anyApp: true, form: url.Values{"text": {"pay"}}},
	{verb: "GET", path: "/apps/{app}", least: rights.Viewer},
	{verb: "GET", path: "/apps/{app}/new", least: rights.Owner},
	{verb: "GET", path: "/apps/{app}/policies/{name}", least: rights.Viewer},
	{verb: "POST", path: "/apps/{app}/rollback", least: rights.Owner, form: url.Values{"to": {"REVISION"}}},
	{verb: "POST", path: "/apps/{app}/policies/{name}/check", least: rights.Viewer, form: url.Values{"text": {"20/1m"}}},
	{verb: "POST", path: "/apps/{app}/policies/{name}/edit", least: rights.Viewer, form: url.Values{"text": {"20/1m"}}},
	{verb: "POST", path: "/apps/{app}/policies/{name}/review", least: rights.Owner, form: url.Values{"what": {"set"}, "text": {"20/1m"}}},
	{verb: "POST", path: "/apps/{app}/policies/{name}/write", least: rights.Owner, form: url.Values{"what": {"set"}, "text": {"20/1m"}}},
	{verb: "POST", path: "/apps/{app}/policies/{name}/trial", least: rights.Operator, form: url.Values{"on": {"true"}}},
	{verb: "POST", path: "/apps/{app}/key", least: rights.Operator, form: url.Values{"key": {"user=7"}}},
	{verb: "POST", path: "/apps/{app}/key/reset", least: rights.Operator, form: url.Values{"key": {"user=7"}, "policy": {"api"}}},
	{verb: "POST", path: "/apps/{app}/key/numbers", least: rights.Operator, form: url.Values{"key": {"user=7"}, "policy": {"api"}, "text": {"blocked"}}},
	{verb: "GET", path: "/changes", anyApp: true},
	{verb: "POST", path: "/changes/seen", least: rights.Owner, form: url.Values{"seq": {"SEQ"}}},
	{verb: "POST", path: "/proposals/{id}", least: rights.Owner, form: url.Values{"what": {"approve"}}},
	{verb: "GET", path: "/settings", anyApp: true},
	{verb: "POST", path: "/settings/tokens", least: rights.Owner, form: url.Values{"name": {"ci"}, "apps": {"pay"}, "role": {"viewer"}, "days": {"1"}}},
	{verb: "POST", path: "/settings/tokens/end", least: rights.Admin, form: url.Values{"token": {"TOKEN"}}},
	{verb: "POST", path: "/settings/people", least: rights.Admin, form: url.Values{"person": {"PERSON"}, "what": {"sessions"}}},
	{verb: "POST", path: "/settings/apps", least: rights.Admin, form: url.Values{"app": {"new"}}},
	{verb: "GET", path: "/settings/apps/{app}", least: rights.Owner},
	{verb: "POST", path: "/settings/apps/{app}", least: rights.Owner, form: url.Values{"what": {"write"}, "title": {"Payments"}}},
	{verb: "POST", path: "/settings/apps/{app}/grants", least: rights.Owner, form: url.Values{"what": {"write"}}},
	{verb: "POST", path: "/settings/apps/{app}/delete", least: rights.Admin, form: url.Values{"what": {"write"}}},
}

// world is a whole admin, with an app "pay" that has people of all kinds, and an app "shop" that has another owner.
type world struct {
	*site.Site
	t       *testing.T
	url     string
	client  *http.Client
	audit   *audit.Log
	console *rights.Person
	tokens  map[string]string
	second  adminapiMe // another owner of pay, who makes proposals and emergencies
	fill    map[string]string
	sent    int
}

type adminapiMe struct {
	ID    string `json:"id"`
	Token int64  `json:"token"`
}

type unpublished struct{}

func (unpublished) Wake() {}

func (unpublished) Wait(_ context.Context, _ string, v policies.Version) publish.State {
	return publish.State{Version: v}
}

func (unpublished) State(string) publish.State { return publish.State{} }

func newWorld(t *testing.T) *world {
	t.Helper()
	db := sqltest.Open(t, sqltest.New(t))
	log := audit.New(db, audit.Options{Lines: io.Discard})
	t.Cleanup(func() { assert.NoError(t, log.Close()) })
	memory, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	stores, err := counts.New(counts.Options{Process: memory})
	require.NoError(t, err)
	w := &world{t: t, audit: log, console: people.Console(), tokens: map[string]string{nobody: ""}, fill: map[string]string{}}
	var handler http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { handler.ServeHTTP(rw, r) }))
	t.Cleanup(server.Close)
	w.url = server.URL
	w.Site, err = site.New(t.Context(), site.Options{
		DB: db, Record: record.New(db, log), Audit: log, PublicURL: server.URL, Publisher: unpublished{}, Counts: stores,
		Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Services: func(_ context.Context, app string) ([]*policies.Process, int, error) {
			if app != "pay" {
				return nil, 0, nil
			}
			return []*policies.Process{{App: "pay", ID: "p1", Rules: []policies.RuleState{{
				Policy: "api", Code: "api: 10/1m", Now: "api: 10/1m", Key: "user", Meaning: policies.Code, Location: stats.Location{Process: true},
			}}}}, 0, nil
		},
		Top: func(context.Context, string, string, time.Duration, int) ([]observe.Caller, uint64, error) {
			return nil, 0, nil
		},
	})
	require.NoError(t, err)
	handler = w.Handler
	w.client = &http.Client{
		Transport:     apitest.Check(t, http.DefaultTransport, server.URL),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	ctx := t.Context()
	for _, app := range []string{"pay", "shop"} {
		_, err := w.Manager.PutApp(ctx, w.console, app, adminapi.Settings{}, write())
		require.NoError(t, err)
	}
	w.policy()
	held, err := w.Manager.Policy(ctx, w.console, "pay", "api")
	require.NoError(t, err)
	w.fill["REVISION"] = fmt.Sprint(held.Revision)
	for kind, role := range map[string]rights.Role{
		viewer: rights.Viewer, operator: rights.Operator, owner: rights.Owner, expired: rights.Owner, demoted: rights.Owner, "second": rights.Owner,
	} {
		w.tokens[kind] = w.token(strings.Fields(kind)[0], "pay", role)
	}
	w.tokens[stranger] = w.token("other", "shop", rights.Owner)
	w.tokens[admin] = w.token("root", rights.AllApps, rights.Admin)
	status, body := w.send("GET", api.PathMe, w.tokens["second"], "", nil)
	require.Equal(t, http.StatusOK, status, body)
	require.NoError(t, json.Unmarshal([]byte(body), &w.second))
	w.fill["PERSON"] = w.second.ID
	w.demote(db)
	return w
}

func (w *world) token(name, app string, role rights.Role) string {
	secret, _, err := w.People.MakeLocalToken(w.t.Context(), people.By{Person: w.console, Reason: "a test"},
		people.LocalPerson{Name: name, Role: role, App: app}, people.NewToken{Name: name, Apps: []string{app}, Role: role, Days: 1})
	require.NoError(w.t, err)
	return secret
}

// demote makes the owner whose name is "token" a viewer, and ends the token of "expired".
func (w *world) demote(db *sqldb.DB) {
	ctx := w.t.Context()
	require.NoError(w.t, db.Write(ctx, func(ctx context.Context, t sqldb.Tx) error {
		n, err := t.Exec(ctx, `UPDATE weir_tokens SET ends = 1 WHERE name = 'expired'`)
		assert.Equal(w.t, int64(1), n)
		return err
	}))
	grants, revision, err := w.People.Grants(ctx, "pay")
	require.NoError(w.t, err)
	found := false
	for i := range grants {
		if strings.Contains(grants[i].Name, "token") {
			grants[i].Role, found = rights.Viewer, true
		}
	}
	require.True(w.t, found, grants)
	_, err = w.People.SetGrants(ctx, people.By{Person: w.console, Reason: "a test"}, "pay", grants, revision)
	require.NoError(w.t, err)
	all, _, err := w.Manager.Grants(ctx, w.console, "pay")
	require.NoError(w.t, err)
	data, err := json.Marshal(all)
	require.NoError(w.t, err)
	w.fill["GRANTS"] = string(data)
}

func write() manage.Write { return manage.Write{Any: true, Reason: "a test", Emergency: true} }

// policy makes the policy what it was at first.
func (w *world) policy() {
	_, err := w.Manager.PutPolicy(w.t.Context(), w.console, "pay", "api", adminapi.Policy{Text: "10/1m"}, write())
	require.NoError(w.t, err)
}

// prepare makes what a row is about.
func (w *world) prepare(r *row) (undo func()) {
	ctx := w.t.Context()
	w.policy()
	author := &rights.Person{ID: w.second.ID, Name: "second", Roles: map[string]rights.Role{"pay": rights.Owner}}
	undo = func() {}
	switch {
	case strings.Contains(r.path, "proposals/{id}"):
		eyes := func(on bool) {
			_, err := w.Manager.PutApp(ctx, w.console, "pay", adminapi.Settings{FourEyes: on}, write())
			require.NoError(w.t, err)
		}
		eyes(true)
		undo = func() { eyes(false) }
		out, err := w.Manager.PutPolicy(ctx, author, "pay", "api", adminapi.Policy{Text: "30/1m"}, manage.Write{Any: true, Reason: "a test"})
		require.NoError(w.t, err)
		require.NotEmpty(w.t, out.Proposal)
		w.fill["{id}"] = out.Proposal
	case strings.Contains(r.path, "seen"):
		_, err := w.Manager.PutPolicy(ctx, author, "pay", "api", adminapi.Policy{Text: "40/1m"}, write())
		require.NoError(w.t, err)
		rows, err := w.audit.List(ctx, audit.Filter{Person: author.ID, Emergency: true, Limit: 1})
		require.NoError(w.t, err)
		require.Len(w.t, rows, 1)
		w.fill["{seq}"], w.fill["SEQ"] = fmt.Sprint(rows[0].Seq), fmt.Sprint(rows[0].Seq)
	case strings.HasSuffix(r.path, "/temporary") && r.verb == "DELETE":
		_, err := w.Manager.Trial(ctx, author, "pay", "api", true, time.Now().Add(time.Hour), manage.Write{Any: true, Reason: "a test"})
		require.NoError(w.t, err)
	case strings.Contains(r.path, "tokens/"):
		_, made, err := w.People.MakeToken(ctx, people.By{Person: w.console, Reason: "a test"},
			people.NewToken{Name: "gone", Apps: []string{"pay"}, Role: rights.Viewer, Days: 1})
		require.NoError(w.t, err)
		w.fill["{id}"], w.fill["TOKEN"] = fmt.Sprint(made.ID), fmt.Sprint(made.ID)
	}
	return undo
}

// send sends a request, each from an address of its own, since addresses of strangers are limited.
func (w *world) send(method, path, token, body string, form url.Values) (int, string) {
	w.t.Helper()
	content := "application/json"
	if form != nil {
		body, content = form.Encode(), "application/x-www-form-urlencoded"
	}
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	require.NoError(w.t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", content)
	}
	w.sent++
	r.Header.Set("X-Forwarded-For", fmt.Sprintf("192.0.%d.%d", w.sent/256, w.sent%256))
	r.Header.Set("If-Match", "*")
	r.Header.Set(adminapi.HeaderReason, "a test")
	response, err := w.client.Do(r)
	require.NoError(w.t, err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	require.NoError(w.t, err)
	return response.StatusCode, string(data)
}

// filled fills in what a row has names for.
func (w *world) filled(text string) string {
	pairs := []string{"{app}", "pay", "{name}", "api", "{policy}", "api", "{person}", w.second.ID, "{$}", ""}
	for name, value := range w.fill {
		pairs = append(pairs, name, value)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// try sends the request of a row as one kind of person.
func (w *world) try(r *row, kind string) (int, string) {
	path := w.filled(r.path)
	if r.query != "" {
		path += "?" + r.query
	}
	var form url.Values
	if r.form != nil {
		form = url.Values{"reason": {"a test"}, "end": {"1h"}, "revision": {"1"}}
		for name, values := range r.form {
			form.Set(name, w.filled(values[0]))
		}
	}
	return w.send(r.verb, path, w.tokens[kind], w.filled(r.body), form)
}

// may reports whether a kind of person may do what a row is about.
func (r *row) may(kind string) bool {
	switch {
	case r.open:
		return true
	case kind == nobody || kind == expired:
		return false
	case r.anyApp:
		return r.least == needsNothing || kind == admin
	}
	return roles[kind] >= r.least
}

// Every path and verb, as every kind of person.
func TestAPI(t *testing.T) {
	w := newWorld(t)
	cells := 0
	for i := range table {
		r := &table[i]
		for _, kind := range kinds {
			cells++
			undo := w.prepare(r)
			status, body := w.try(r, kind)
			undo()
			cell := fmt.Sprintf("%s %s as %s: %.300s", r.verb, r.path, kind, body)
			switch {
			case r.may(kind):
				if len(r.ok) > 0 {
					assert.Contains(t, r.ok, status, cell)
				} else {
					assert.Contains(t, []int{http.StatusOK, http.StatusNoContent}, status, cell)
				}
			case kind == nobody || kind == expired:
				assert.Equal(t, http.StatusUnauthorized, status, cell)
			case kind == stranger && !r.anyApp && strings.Contains(r.path, "tokens"):
				assert.Equal(t, http.StatusNotFound, status, cell)
			case r.anyApp:
				assert.Contains(t, []int{http.StatusForbidden, http.StatusNotFound}, status, cell)
			case kind == stranger:
				assert.Equal(t, http.StatusNotFound, status, cell)
			default:
				assert.Equal(t, http.StatusForbidden, status, cell)
			}
		}
	}
	t.Logf("%d cells", cells)
}

// Every screen, as every kind of person. What may not be done is not done: the audit has no row of it.
func TestPage(t *testing.T) {
	w := newWorld(t)
	cells := 0
	for i := range screens {
		r := &screens[i]
		for _, kind := range kinds {
			cells++
			undo := w.prepare(r)
			before := w.did(kind)
			status, body := w.try(r, kind)
			after := w.did(kind)
			undo()
			cell := fmt.Sprintf("%s %s as %s: %d %.200s", r.verb, r.path, kind, status, body)
			switch {
			case r.may(kind):
				assert.NotContains(t, []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound}, status, cell)
				assert.Less(t, status, http.StatusInternalServerError, cell)
				continue
			case kind == nobody || kind == expired:
				assert.Contains(t, []int{http.StatusUnauthorized, http.StatusSeeOther}, status, cell)
			case kind == stranger && strings.Contains(r.path, "{app}"):
				assert.Equal(t, http.StatusNotFound, status, cell)
			case r.verb == http.MethodGet:
				assert.Equal(t, http.StatusForbidden, status, cell)
			}
			assert.Equal(t, before, after, cell)
		}
	}
	t.Logf("%d cells", cells)
}

// did returns the number of things that a kind of person has done.
func (w *world) did(kind string) int {
	rows, err := w.audit.List(w.t.Context(), audit.Filter{Limit: audit.MaxLimit})
	require.NoError(w.t, err)
	n := 0
	for _, row := range rows {
		by := row.By.Name
		if row.Outcome == audit.Done &&
			(by == strings.Fields(kind)[0] || kind == admin && by == "root" || kind == stranger && by == "other") {
			n++
		}
	}
	return n
}

// A path without a row fails.
func TestEveryPathHasARow(t *testing.T) {
	w := newWorld(t)
	_, body := w.send("GET", adminapi.PathOpenAPI, "", "", nil)
	var description struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	require.NoError(t, json.Unmarshal([]byte(body), &description))
	rows := map[string]bool{}
	for _, r := range table {
		rows[r.verb+" "+r.path] = true
	}
	paths := map[string]bool{"GET " + api.PathHealthz: true, "GET " + api.PathReadyz: true, "GET " + adminapi.PathOpenAPI: true}
	for path, verbs := range description.Paths {
		for verb := range verbs {
			paths[strings.ToUpper(verb)+" "+path] = true
		}
	}
	assert.Equal(t, paths, rows)
	rows, paths = map[string]bool{}, map[string]bool{}
	for _, r := range screens {
		rows[r.verb+" "+r.path] = true
	}
	for _, route := range page.Routes() {
		paths[route] = true
	}
	assert.Equal(t, paths, rows)
}

// An app that somebody may not see is as one that is not there, to the byte.
func TestHiddenIsMissing(t *testing.T) {
	w := newWorld(t)
	for i := range table {
		r := &table[i]
		if !strings.Contains(r.path, "{app}") {
			continue
		}
		status, hidden := w.try(r, stranger)
		other := *r
		other.path = strings.Replace(r.path, "{app}", "nix", 1)
		otherStatus, missing := w.try(&other, stranger)
		assert.Equal(t, http.StatusNotFound, status, "%s %s", r.verb, r.path)
		assert.Equal(t, otherStatus, status, "%s %s", r.verb, r.path)
		assert.Equal(t, strings.ReplaceAll(missing, "nix", "pay"), hidden, "%s %s", r.verb, r.path)
	}
}
