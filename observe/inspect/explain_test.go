package inspect_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/observe/inspect"
)

// The form explains a key as the next request then finds it, and takes nothing.
func TestExplain(t *testing.T) {
	o := newObserver(t)
	g, err := guard.New(guard.Config{
		Rule:    guard.Rule{Policy: "api: 3/1h", Key: keyfunc.HeaderInClear("User"), Tiers: map[string]string{"pro": "30/1h"}, Tier: func(keyfunc.Request) string { return "" }},
		Observe: o.Observe,
	})
	require.NoError(t, err)
	o.Watch([]*guard.Guard{g})
	app := nethttp.Limit(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	take := func() int {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Header.Set("User", "anna")
		w := httptest.NewRecorder()
		app.ServeHTTP(w, r)
		return w.Code
	}
	h := inspect.Handler(o, inspect.Options{})
	explain := func(accept string, pairs ...string) *httptest.ResponseRecorder {
		values := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			values.Set(pairs[i], pairs[i+1])
		}
		r := httptest.NewRequest(http.MethodPost, "/debug/weir?explain", strings.NewReader(values.Encode()))
		r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost:6060"
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Accept", accept)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Header.Set("Origin", "http://localhost:6060")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	const key = "header.user=anna"
	outcome := func(pairs ...string) string {
		w := explain("application/json", pairs...)
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		var x struct{ Policy, Outcome, Key string }
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &x))
		return x.Outcome
	}
	for _, want := range []string{"admitted", "admitted", "at-limit"} {
		for range 10 {
			assert.Equal(t, want, outcome("policy", "api", "key", key), "nothing is taken")
		}
		require.Equal(t, http.StatusOK, take())
	}
	assert.Equal(t, "refused", outcome("policy", "api", "key", key))
	assert.Equal(t, http.StatusTooManyRequests, take())
	assert.Equal(t, "admitted", outcome("policy", "api", "key", "header.user=bert"))
	assert.Equal(t, "never", outcome("policy", "api", "key", "header.user=bert", "cost", "20"))
	assert.Equal(t, "admitted", outcome("policy", "api", "key", "header.user=bert", "cost", "20", "tier", "pro"))
	assert.Equal(t, "never", outcome("policy", "api", "key", key, "cost", "4"))

	text := explain("*/*", "policy", "api", "key", key)
	assert.Equal(t, "text/plain; charset=utf-8", text.Header().Get("Content-Type"))
	assert.Contains(t, text.Body.String(), "refused")
	html := explain("text/html", "policy", "api", "key", key).Body.String()
	assert.Contains(t, html, "<pre>")
	assert.Contains(t, html, key, "it can be sent again")
	assert.NotContains(t, html, "http-equiv", "an answer that refreshed itself would ask the store each time")

	hostile := explain("text/html", "policy", "api", "key", "<script>alert(1)</script>\x1b[31m").Body.String()
	assert.NotContains(t, hostile, "<script")
	for name, c := range map[string]struct {
		pairs []string
		says  string
	}{
		"no policy":       {[]string{"key", key}, "the policy or the key is missing"},
		"no key":          {[]string{"policy", "api"}, "the policy or the key is missing"},
		"unknown policy":  {[]string{"policy", "x", "key", key}, `has the policy "x"`},
		"unknown tier":    {[]string{"policy", "api", "key", key, "tier", "gold"}, `no tier "gold"`},
		"no number":       {[]string{"policy", "api", "key", key, "cost", "many"}, `the cost is "many"`},
		"a negative cost": {[]string{"policy", "api", "key", key, "cost", "-1"}, `the cost is "-1"`},
		"too large":       {[]string{"policy", "api", "key", strings.Repeat("x", 1<<17)}, "cannot be read"},
	} {
		w := explain("text/html", c.pairs...)
		assert.Equal(t, http.StatusBadRequest, w.Code, name)
		w = explain("*/*", c.pairs...)
		assert.Equal(t, http.StatusBadRequest, w.Code, name)
		assert.Contains(t, w.Body.String(), c.says, name)
	}
}

// The form stands still while somebody types, and never has a key in its address.
func TestForm(t *testing.T) {
	w := fetch(t, "/?explain=<script>", "Accept: text/html")
	html := w.Body.String()
	assert.Contains(t, html, `<form method="post" action="?explain">`)
	assert.Contains(t, html, `value="&lt;script&gt;"`)
	assert.NotContains(t, html, "http-equiv")
	assert.Contains(t, fetch(t, "/", "Accept: text/html").Body.String(), `<a href="?explain">`)
}
