package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/redissource"
	"github.com/weir-go/weir/internal/adminapi"
	"github.com/weir-go/weir/observe"
)

// send sends a request as it is and returns the status, the header and the body.
func (a admin) send(t *testing.T, method, path, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, a.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+a.Token)
	request.Header.Set(adminapi.HeaderReason, "a test")
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := a.HTTP.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, response.Header, string(data)
}

const apiPath = "/v1/apps/pay/policies/api"

// A change names the state that it replaces, and is refused if another one holds.
func TestIfMatch(t *testing.T) {
	a := start(t)
	steps := []struct {
		header []string
		body   string
		status int
		etag   string
	}{
		{nil, `{"text":"1/1m"}`, http.StatusPreconditionRequired, ""},
		{[]string{"If-Match", `"1"`}, `{"text":"1/1m"}`, http.StatusPreconditionFailed, ""},
		{[]string{"If-None-Match", "*"}, `{"text":"1/1m"}`, http.StatusOK, `"1"`},
		{[]string{"If-None-Match", "*"}, `{"text":"2/1m"}`, http.StatusPreconditionFailed, ""},
		{[]string{"If-Match", `"1"`}, `{"text":"2/1m"}`, http.StatusOK, `"2"`},
		{[]string{"If-Match", `"1"`}, `{"text":"3/1m"}`, http.StatusPreconditionFailed, ""},
		{[]string{"If-Match", `W/"2"`}, `{"text":"3/1m"}`, http.StatusPreconditionFailed, ""}, // weak tags match nothing
		{[]string{"If-Match", `"7", "2"`}, `{"text":"3/1m"}`, http.StatusOK, `"3"`},
		{[]string{"If-Match", `*`}, `{"text":"4/1m"}`, http.StatusOK, `"4"`},
		{[]string{"If-Match", `"4"`}, `{"text":"4/1m"}`, http.StatusOK, `"4"`}, // it says that already
		{[]string{"If-Match", `x`}, `{"text":"5/1m"}`, http.StatusBadRequest, ""},
		{[]string{"If-Match", `"4"`, "If-None-Match", "*"}, `{"text":"5/1m"}`, http.StatusBadRequest, ""},
		{[]string{"If-None-Match", `"4"`}, `{"text":"5/1m"}`, http.StatusBadRequest, ""},
	}
	for i, step := range steps {
		status, header, body := a.send(t, http.MethodPut, apiPath, step.body, step.header...)
		require.Equal(t, step.status, status, "step %d: %s", i, body)
		if step.etag != "" {
			assert.Equal(t, step.etag, header.Get("ETag"), "step %d", i)
		} else {
			assert.Equal(t, adminapi.ProblemType, header.Get("Content-Type"), "step %d", i)
		}
	}
	_, header, _ := a.send(t, http.MethodGet, apiPath, "")
	assert.Equal(t, `"4"`, header.Get("ETag"))
	_, err := a.Put(t.Context(), "pay", "api", policies.Policy{Text: "9/1m"}, adminapi.Write{Revision: 2, Reason: "a test"})
	var p *adminapi.Problem
	require.ErrorAs(t, err, &p)
	assert.Equal(t, int64(4), p.Current)
	assert.Contains(t, p.Detail, "changed by anna")
	status, _, _ := a.send(t, http.MethodDelete, apiPath, "", "If-Match", `"3"`)
	assert.Equal(t, http.StatusPreconditionFailed, status)
	status, _, _ = a.send(t, http.MethodDelete, apiPath, "", "If-Match", `"4"`)
	assert.Equal(t, http.StatusOK, status)
	status, _, _ = a.send(t, http.MethodGet, apiPath, "")
	assert.Equal(t, http.StatusNotFound, status)
}

// encoding/json would take the last of two names, and names in whatever case.
func TestNamesTwiceInABody(t *testing.T) {
	a := start(t)
	for _, body := range []string{
		`{"text":"1/1m","text":"1000/1m"}`,
		`{"text":"1/1m","Text":"1000/1m"}`,
		`{"TEXT":"1000/1m"}`,
		`{"text":"1/1m","tiers":{"pro":"5/1m","Pro":"unlimited"}}`,
		`{"text":"1/1m","redis":"redis://elsewhere"}`,
		`{"text":"1/1m"}{"text":"1000/1m"}`,
		`{"text":100}`,
		`{"text":null}`,
		`[]`, `"`, ``, "\xff",
	} {
		status, _, answer := a.send(t, http.MethodPut, apiPath, body, "If-Match", "*", "Content-Type", "application/json")
		assert.Contains(t, []int{http.StatusUnprocessableEntity, http.StatusBadRequest}, status, "%q: %s", body, answer)
	}
	status, _, _ := a.send(t, http.MethodPost, adminapi.PathApply,
		`{"format":1,"app":"pay","policies":{"api":{"text":"1/1m"},"API":{"text":"2/1m"}}}`, "If-Match", "*")
	assert.Equal(t, http.StatusUnprocessableEntity, status)
	status, _, _ = a.send(t, http.MethodPost, apiPath+"/rollback", `{"to":1,"To":2}`, "If-Match", "*")
	assert.Equal(t, http.StatusBadRequest, status)
	status, _, _ = a.send(t, http.MethodPut, apiPath, strings.Repeat(" ", 2<<20), "If-Match", "*")
	assert.Equal(t, http.StatusRequestEntityTooLarge, status)
	_, err := a.Document(t.Context(), "pay")
	assert.Equal(t, http.StatusNotFound, adminapi.StatusOf(err), "nothing was written")
}

// Every mistake at once, with its place, and what to do.
func TestMistakes(t *testing.T) {
	a := start(t)
	_, err := a.Put(t.Context(), "pay", "api", policies.Policy{
		Text: "1/1x", Tiers: map[string]string{"pro": "y"}, Keys: map[string]string{"user=1": "z"},
	}, adminapi.Write{Reason: "a test"})
	var p *adminapi.Problem
	require.ErrorAs(t, err, &p)
	assert.Equal(t, http.StatusUnprocessableEntity, p.Status)
	assert.Len(t, p.Errors, 3)
}

func TestHistoryAndRollback(t *testing.T) {
	a := start(t)
	for i, text := range []string{"1/1m", "2/1m; epoch 1", "3/1m; epoch 2"} {
		_, err := a.Put(t.Context(), "pay", "api", policies.Policy{Text: text}, adminapi.Write{Reason: fmt.Sprint("step ", i)})
		require.NoError(t, err)
	}
	written, err := a.Rollback(t.Context(), "pay", "api", 1, adminapi.Write{Revision: 3, Reason: "a test"})
	require.NoError(t, err)
	assert.Equal(t, int64(4), written.Revision)
	assert.True(t, written.Differences[0].Afresh)
	past, err := a.History(t.Context(), "pay", "api", 0, 0)
	require.NoError(t, err)
	require.Len(t, past, 4)
	assert.Equal(t, "rollback", past[0].Action)
	assert.Equal(t, "a test", past[0].Reason)
	assert.Equal(t, "1/1m", past[0].Policy.Text)
	assert.WithinDuration(t, time.Now(), past[0].At, time.Hour)
	past, err = a.History(t.Context(), "pay", "api", 3, 1)
	require.NoError(t, err)
	require.Len(t, past, 1)
	assert.Equal(t, int64(2), past[0].Revision)
	_, err = a.Rollback(t.Context(), "pay", "api", 77, adminapi.Write{Reason: "a test"})
	assert.Equal(t, http.StatusNotFound, adminapi.StatusOf(err))
	_, err = a.Rollback(t.Context(), "pay", "api", 2, adminapi.Write{Revision: 3, Reason: "a test"})
	assert.Equal(t, http.StatusPreconditionFailed, adminapi.StatusOf(err))
	status, _, _ := a.send(t, http.MethodPost, apiPath+"/rollback", `{"to":1,"rev":2}`, "If-Match", "*")
	assert.Equal(t, http.StatusUnprocessableEntity, status)
}

func TestApply(t *testing.T) {
	a := start(t)
	ctx := t.Context()
	_, err := a.Put(ctx, "pay", "old", policies.Policy{Text: "1/1m"}, adminapi.Write{Reason: "a test"})
	require.NoError(t, err)
	_, err = a.Put(ctx, "pay", "api", policies.Policy{Text: "1/1m"}, adminapi.Write{Reason: "a test"})
	require.NoError(t, err)
	document := []byte(`{"format":1,"app":"pay","policies":{"api":{"text":"2/1m"},"new":{"text":"3/1m"}}}`)

	names := func(w adminapi.Written) (all []string) {
		for _, d := range w.Differences {
			all = append(all, d.Name)
		}
		return all
	}
	dry, err := a.Apply(ctx, document, adminapi.Write{Dry: true, Prune: true, Reason: "a test"})
	require.NoError(t, err)
	assert.True(t, dry.Dry)
	assert.Equal(t, []string{"api", "new", "old"}, names(dry))
	published, err := a.Document(ctx, "pay")
	require.NoError(t, err)
	assert.Equal(t, int64(2), published.Version.Revision)

	written, err := a.Apply(ctx, document, adminapi.Write{Revision: 2, Reason: "a test"})
	require.NoError(t, err)
	assert.Equal(t, []string{"api", "new"}, names(written), "what the document does not have stays")
	assert.Equal(t, int64(3), written.Revision)
	_, err = a.Apply(ctx, document, adminapi.Write{Revision: 2, Reason: "a test"})
	assert.Equal(t, http.StatusPreconditionFailed, adminapi.StatusOf(err))
	written, err = a.Apply(ctx, document, adminapi.Write{Prune: true, Reason: "a test"})
	require.NoError(t, err)
	assert.Equal(t, []string{"old"}, names(written))
	written, err = a.Apply(ctx, document, adminapi.Write{Prune: true, Reason: "a test"})
	require.NoError(t, err)
	assert.Empty(t, written.Differences)
	assert.Equal(t, int64(4), written.Revision)
	_, err = a.Apply(ctx, []byte(`{"format":1,"policies":{"api":{"text":"2/1m"}}}`), adminapi.Write{Reason: "a test"})
	assert.Equal(t, http.StatusUnprocessableEntity, adminapi.StatusOf(err), "it is the document of no app")
}

// A service says what it has; what it could not use is refused, unless it is forced.
func TestServices(t *testing.T) {
	a := start(t)
	ctx := t.Context()
	announce := func(id string, v policies.Version, code string) {
		p := policies.Process{
			App: "pay", ID: id, Name: "host:" + id, Started: time.Now(), Version: v, Meaning: policies.Fleet,
			Rules: []policies.RuleState{{Policy: "api", Place: "GET /", Code: code, Now: code, Meaning: policies.Fleet}},
		}
		require.NoError(t, a.rdb.Set(ctx, redissource.ProcessKey("pay", id), p.Encode(), time.Minute).Err())
		require.NoError(t, a.rdb.ZAdd(ctx, redissource.ProcessIndex("pay"), redisZ(id)).Err())
	}
	_, err := a.Services(ctx, "pay")
	assert.Equal(t, http.StatusNotFound, adminapi.StatusOf(err))
	for _, app := range []string{policies.AllApps, "p y"} { // Redis is not to blame
		_, err = a.Services(ctx, app)
		assert.Equal(t, http.StatusUnprocessableEntity, adminapi.StatusOf(err), app)
	}
	_, err = a.PutApp(ctx, "pay", adminapi.Settings{}, adminapi.Write{Reason: "a test"})
	require.NoError(t, err)
	announce("a1", policies.Version{Generation: 1, Revision: 1}, "api: 10/1m")
	announce("b2", policies.Version{}, "api: 10/1m sliding-window")
	announce("c3", policies.Version{Generation: 7, Revision: 1}, "api: 10/1m")
	services, err := a.Services(ctx, "pay")
	require.NoError(t, err)
	require.Len(t, services.Processes, 3)
	got := map[string][2]bool{}
	for _, p := range services.Processes {
		got[p.ID] = [2]bool{p.Behind, p.Ahead}
	}
	assert.Equal(t, map[string][2]bool{"a1": {}, "b2": {true, false}, "c3": {false, true}}, got)

	_, err = a.Put(ctx, "pay", "api", policies.Policy{Text: "20/1m"}, adminapi.Write{Reason: "a test"})
	var p *adminapi.Problem
	require.ErrorAs(t, err, &p)
	assert.Equal(t, http.StatusUnprocessableEntity, p.Status)
	require.Len(t, p.CannotUse, 1)
	assert.Equal(t, "host:b2", p.CannotUse[0].Process)
	written, err := a.Put(ctx, "pay", "api", policies.Policy{Text: "20/1m"}, adminapi.Write{Force: true, Reason: "a test"})
	require.NoError(t, err)
	assert.Len(t, written.CannotUse, 1)
	assert.Empty(t, written.Unused)

	// A name that no process has is written all the same, and said at once and later.
	written, err = a.Put(ctx, "pay", "aip", policies.Policy{Text: "20/1m"}, adminapi.Write{Reason: "a test"})
	require.NoError(t, err)
	assert.Equal(t, []string{"aip"}, written.Unused)
	services, err = a.Services(ctx, "pay")
	require.NoError(t, err)
	assert.Equal(t, []string{"aip"}, services.Unused)
	_, err = a.Put(ctx, "pay", "aip", policies.Policy{Text: "20/1m", Apps: []string{"shop"}}, adminapi.Write{Reason: "a test"})
	require.NoError(t, err)
	services, err = a.Services(ctx, "pay")
	require.NoError(t, err)
	assert.Empty(t, services.Unused, "another app may have it")

	// Adopted, the app is later than what any process has, but for one that announces any number.
	announce("d4", policies.Version{Generation: math.MaxInt64, Revision: 1}, "api: 10/1m")
	announce("e5", policies.Version{Generation: math.MaxInt64 - 1, Revision: 1}, "api: 10/1m")
	written, err = a.Adopt(ctx, "pay", adminapi.Write{Reason: "restored"})
	require.NoError(t, err)
	assert.Equal(t, int64(8), written.Generation)
}

// The description of the API has all its paths.
func TestDescription(t *testing.T) {
	a := start(t)
	status, _, body := a.send(t, http.MethodGet, "/openapi.json", "")
	require.Equal(t, http.StatusOK, status)
	var description struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	require.NoError(t, json.Unmarshal([]byte(body), &description))
	for _, path := range []string{
		adminapi.PathApps, adminapi.PathApp, adminapi.PathAdopt, adminapi.PathPolicies, adminapi.PathPolicy,
		adminapi.PathHistory, adminapi.PathRollback, adminapi.PathApply, adminapi.PathServices,
		adminapi.PathSchema,
	} {
		assert.Contains(t, description.Paths, path)
	}
	status, header, body := a.send(t, http.MethodGet, adminapi.PathSchema, "")
	require.Equal(t, http.StatusOK, status)
	assert.Equal(t, "application/schema+json", header.Get("Content-Type"))
	assert.Equal(t, string(policies.Schema()), body)
}

// The worst callers are in the API only if the program says so, and any name of a policy, prefix and time may be asked for.
func TestTop(t *testing.T) {
	a := start(t)
	status, _, _ := a.send(t, http.MethodGet, "/v1/top/api", "")
	assert.Equal(t, http.StatusNotFound, status, "nobody said so")

	asked := ""
	var err error
	a = start(t, func(o *manage.Options) {
		o.Top = func(_ context.Context, prefix, policy string, last time.Duration, n int) ([]observe.Caller, uint64, error) {
			asked = fmt.Sprint(prefix, " ", policy, " ", last, " ", n)
			return []observe.Caller{{Policy: policy, Key: "user=7", Count: 12, Error: 2}}, 3, err
		}
	})
	top, err := a.Top(t.Context(), "api", "pay", 5, 10)
	require.NoError(t, err)
	assert.Equal(t, "pay api 5m0s 10", asked)
	assert.Equal(t, []adminapi.Caller{{Key: "user=7", Least: 10, Most: 12}}, top.Callers)
	assert.Equal(t, uint64(3), top.Rest)
	status, _, _ = a.send(t, http.MethodGet, "/v1/top/api", "")
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, "weir api 10m0s 20", asked)
	for _, path := range []string{"/v1/top/a%20b", "/v1/top/api?minutes=120", "/v1/top/api?minutes=-1", "/v1/top/api?limit=0", "/v1/top/api?limit=1001", "/v1/top/api?limit=x"} {
		status, _, _ := a.send(t, http.MethodGet, path, "")
		assert.Equal(t, http.StatusUnprocessableEntity, status, path)
	}
	err = errors.New("Redis is gone")
	status, _, body := a.send(t, http.MethodGet, "/v1/top/api", "")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Contains(t, body, "Redis is gone")
}

// No route answers a stranger, whatever the method, nor a page of another site.
func TestEveryRouteAsks(t *testing.T) {
	a := start(t)
	stranger := a
	stranger.Client = &adminapi.Client{URL: a.URL, HTTP: a.HTTP, Token: "not a token of anybody"}
	for _, path := range []string{"/v1/apps", "/v1/apps/pay", apiPath, apiPath + "/history", "/v1/apps/pay/services", "/v1/top/api", "/openapi.json", "/", "/docs"} {
		for _, method := range []string{"GET", "HEAD", "OPTIONS", "PUT", "POST", "DELETE", "PATCH"} {
			want := http.StatusUnauthorized
			if path == adminapi.PathOpenAPI && method == http.MethodGet {
				want = http.StatusOK // it says what the code says
			}
			status, _, _ := stranger.send(t, method, path, "")
			assert.Equal(t, want, status, "%s %s", method, path)
		}
	}
	status, _, _ := a.send(t, http.MethodPut, apiPath, `{"text":"1/1m"}`, "If-Match", "*", "Sec-Fetch-Site", "cross-site")
	assert.Equal(t, http.StatusForbidden, status)
}

// A policy of all apps, and one that is lent, are published for each app before the answer.
func TestOthersArePublished(t *testing.T) {
	a := start(t)
	ctx := t.Context()
	for _, app := range []string{"pay", "mail"} {
		_, err := a.PutApp(ctx, app, adminapi.Settings{}, adminapi.Write{Reason: "a test"})
		require.NoError(t, err)
	}
	_, err := a.Adopt(ctx, "mail", adminapi.Write{Reason: "a test"}) // of another generation
	require.NoError(t, err)
	has := func(app, text string) {
		t.Helper()
		require.Eventually(t, func() bool { // at once, on a machine that is not busy
			encoded, err := a.rdb.HGet(ctx, redissource.Key(app), redissource.FieldDocument).Bytes()
			if err != nil {
				return false
			}
			document, err := policies.Decode(encoded)
			require.NoError(t, err)
			return document.Policies["api"].Text == text
		}, 30*time.Second, 10*time.Millisecond)
	}
	written, err := a.Put(ctx, policies.AllApps, "api", policies.Policy{Text: "1/1m"}, adminapi.Write{Reason: "a test"})
	require.NoError(t, err)
	assert.Equal(t, policies.AllApps, written.App)
	has("pay", "1/1m")
	has("mail", "1/1m")
	_, err = a.Put(ctx, "pay", "api", policies.Policy{Text: "2/1m", Apps: []string{"mail"}}, adminapi.Write{Reason: "a test"})
	require.NoError(t, err)
	has("mail", "2/1m")

	owned, err := a.Owned(ctx, policies.AllApps)
	require.NoError(t, err)
	encoded, err := owned.Encode()
	require.NoError(t, err)
	same, err := a.Apply(ctx, encoded, adminapi.Write{Prune: true, Reason: "a test"})
	require.NoError(t, err)
	assert.Empty(t, same.Differences)
}
