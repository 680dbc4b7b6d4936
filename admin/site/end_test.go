package site_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/publish"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/admin/site"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/internal/redistest"
)

// An operator ends by a button what would end by itself: a trial, and the numbers of a key.
func TestEndNow(t *testing.T) {
	t.Parallel()
	quiet := slog.New(slog.DiscardHandler)
	db := sqltest.Open(t, sqltest.New(t))
	rows := audit.New(db, audit.Options{Log: quiet})
	t.Cleanup(func() { assert.NoError(t, rows.Close()) })
	r := record.New(db, rows)
	rdb := redistest.Single(t).Client(t)
	stores, err := counts.New(counts.Options{Redis: rdb})
	require.NoError(t, err)
	s, err := site.New(t.Context(), site.Options{
		DB: db, Record: r, Audit: rows, PublicURL: "http://127.0.0.1:7070", Publisher: publish.New(r, rdb, quiet), Counts: stores, Log: quiet,
		Services: func(context.Context, string) ([]*policies.Process, int, error) {
			return []*policies.Process{{App: "pay", ID: "a", Meaning: policies.Fleet, Rules: []policies.RuleState{{
				Policy: "search", Place: "GET /search", Key: "user(uid)", Code: "search: 10/1m", Now: "search: 50/1m", Meaning: policies.Fleet,
				Location: stats.Location{Prefix: "weir"},
			}}}}, 0, nil
		},
	})
	require.NoError(t, err)
	_, err = r.Change(t.Context(), record.Change{
		App: "pay", By: audit.Person{ID: "local:anna", Name: "anna"}, Reason: "a test", Action: "set",
		Edits: []record.Edit{{Name: "search", Policy: &policies.Policy{Text: "50/1m"}}},
	})
	require.NoError(t, err)
	secret, _, err := s.People.MakeLocalToken(t.Context(), people.By{Person: people.Console(), Reason: "a test"},
		people.LocalPerson{Name: "olga", Role: rights.Operator, App: "pay"},
		people.NewToken{Name: "test", Apps: []string{"pay"}, Role: rights.Operator, Days: 1})
	require.NoError(t, err)
	do := func(method, path string, form url.Values) *httptest.ResponseRecorder {
		t.Helper()
		req := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(form.Encode()))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Authorization", "Bearer "+secret)
		w := httptest.NewRecorder()
		s.Handler.ServeHTTP(w, req)
		return w
	}
	const screen = "/apps/pay/policies/search"
	// form returns the hidden fields of the form with the button "End it now".
	form := func(body string) url.Values {
		t.Helper()
		before, _, has := strings.Cut(body, "End it now")
		require.True(t, has, "there is no button to end it")
		fields := url.Values{"reason": {"maintenance"}}
		for _, m := range regexp.MustCompile(`type="hidden" name="([^"]*)" value="([^"]*)"`).
			FindAllStringSubmatch(before[strings.LastIndex(before, "<form"):], -1) {
			fields.Set(m[1], m[2])
		}
		return fields
	}
	text := func() policies.Policy {
		t.Helper()
		p, _, err := r.Policy(t.Context(), "pay", "search")
		require.NoError(t, err)
		return p
	}

	body := do(http.MethodGet, screen, nil).Body.String()
	assert.NotContains(t, body, "End it now")
	revision := regexp.MustCompile(`name="revision" value="(\d+)"`).FindStringSubmatch(body)[1]
	w := do(http.MethodPost, screen+"/trial", url.Values{"on": {"true"}, "revision": {revision}, "end": {"1h"}, "reason": {"attack"}})
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
	require.Equal(t, "50/1m; shadow", text().Text)
	end := form(do(http.MethodGet, screen, nil).Body.String())
	assert.Equal(t, "end", end.Get("what"))
	w = do(http.MethodPost, screen+"/trial", end)
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
	require.Equal(t, "50/1m", text().Text)
	last, err := rows.List(t.Context(), audit.Filter{Apps: []string{"pay"}, Limit: 1})
	require.NoError(t, err)
	assert.Equal(t, "end", last[0].Action)
	assert.False(t, last[0].Forced, "nobody has insisted")
	body = do(http.MethodGet, screen, nil).Body.String()
	assert.NotContains(t, body, "End it now")

	revision = regexp.MustCompile(`name="revision" value="(\d+)"`).FindStringSubmatch(body)[1]
	asked := url.Values{
		"key": {"user=7"}, "policy": {"search"}, "text": {"blocked"}, "revision": {revision}, "end": {"1d"}, "reason": {"attack"},
	}
	w = do(http.MethodPost, "/apps/pay/key/numbers", asked)
	require.Equal(t, http.StatusOK, w.Code)
	assert.Contains(t, w.Body.String(), `</span>user=7: the numbers of all others</li>`)
	assert.Contains(t, w.Body.String(), `</span>user=7: blocked until `)
	require.Empty(t, text().Keys, "it only shows what would change")
	asked.Set("text", "many")
	w = do(http.MethodPost, "/apps/pay/key/numbers", asked)
	assert.Contains(t, w.Body.String(), `value="many"`, "what was typed stays")
	assert.Contains(t, w.Body.String(), "Nothing was changed")
	asked.Set("text", "blocked")
	asked.Set("what", "write")
	w = do(http.MethodPost, "/apps/pay/key/numbers", asked)
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "blocked", text().Keys["user=7"])
	w = do(http.MethodPost, "/apps/pay/key/numbers", form(w.Body.String()))
	require.Equal(t, http.StatusOK, w.Code)
	assert.Contains(t, w.Body.String(), "has the numbers of the others again")
	assert.NotContains(t, w.Body.String(), "End it now")
	assert.Empty(t, text().Keys)
}
