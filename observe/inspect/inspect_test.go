package inspect_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/observe/inspect"
)

// fetch returns the answer to a request of this machine.
func fetch(t *testing.T, target string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	inspect.Handler(newObserver(t), inspect.Options{}).ServeHTTP(w, asked(http.MethodGet, target, "127.0.0.1:1", "localhost", "", headers...))
	return w
}

// Browsers get HTML, curl gets text, and a name goes before both.
func TestFormats(t *testing.T) {
	const browser = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	for _, c := range []struct{ target, accept, want string }{
		{"/", browser, "text/html; charset=utf-8"},
		{"/", "Accept: */*", "text/plain; charset=utf-8"},
		{"/", "", "text/plain; charset=utf-8"},
		{"/", "Accept: application/json", "application/json"},
		{"/?format=json", browser, "application/json"},
		{"/?format=text", browser, "text/plain; charset=utf-8"},
		{"/?format=html", "Accept: */*", "text/html; charset=utf-8"},
		{"/?format=exe", "Accept: */*", "text/plain; charset=utf-8"},
	} {
		assert.Equal(t, c.want, fetch(t, c.target, c.accept).Header().Get("Content-Type"), c)
	}
	var page map[string]any
	require.NoError(t, json.Unmarshal(fetch(t, "/?format=json").Body.Bytes(), &page))
	for _, field := range []string{"causes", "servers", "memory", "background", "policies", "guards", "worst", "refusals"} {
		assert.IsType(t, []any{}, page[field], "%s is a list, also of nothing", field)
	}
}

// The page has no script, loads nothing, and says so to the browser.
func TestHeaders(t *testing.T) {
	w := fetch(t, "/?format=html")
	policy := w.Header().Get("Content-Security-Policy")
	assert.Regexp(t, regexp.MustCompile(`^default-src 'none'; style-src 'sha256-[A-Za-z0-9+/]{43}='; form-action 'self'; frame-ancestors 'none'; base-uri 'none'$`), policy)
	for name, want := range map[string]string{
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Cache-Control": "no-store", "X-Frame-Options": "DENY",
		"Cross-Origin-Resource-Policy": "same-origin",
	} {
		assert.Equal(t, want, w.Header().Get(name), name)
	}
	html := w.Body.String()
	for _, never := range []string{"<script", "<link", "<img", "<iframe", " style=", " on", "http:", "https:"} {
		if never == " on" {
			assert.NotRegexp(t, regexp.MustCompile(`<[^>]* on[a-z]+=`), html)
			continue
		}
		assert.NotContains(t, html, never)
	}
	assert.Contains(t, html, `<meta http-equiv="refresh" content="5">`)
	assert.NotContains(t, fetch(t, "/?format=html&refresh=0").Body.String(), "http-equiv")
}

// The sections come in the order in which somebody looks who was woken by them.
func TestOrder(t *testing.T) {
	text := fetch(t, "/").Body.String()
	at := 0
	for _, title := range []string{"Nothing is known of a store", "\nSTORE\n", "\nBACKGROUND\n", "\nREFUSED MOST\n", "\nRULES\n", "\nWORST CALLERS\n", "\nLAST REFUSALS\n"} {
		i := strings.Index(text, title)
		require.Greater(t, i, at, "%q in\n%s", title, text)
		at = i
	}
}

// Without an Observer there is no page, and it says so.
func TestNoObserver(t *testing.T) {
	w := httptest.NewRecorder()
	inspect.Handler(nil, inspect.Options{}).ServeHTTP(w, asked(http.MethodGet, "/", "127.0.0.1:1", "localhost", ""))
	assert.Equal(t, http.StatusInternalServerError, w.Code)
	assert.Contains(t, w.Body.String(), "give Handler one that observe.New has returned")
}
