package envoyrls_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/grpcmw/envoyrls"
)

// get returns the status and the body of an answer.
func get(t testing.TB, h http.Handler, method, path, body string) (int, string) {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	res, err := server.Client().Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	if strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
		var v any
		require.NoError(t, json.Unmarshal(text, &v)) // protojson writes spaces at random
		text, err = json.Marshal(v)
		require.NoError(t, err)
	}
	return res.StatusCode, string(text)
}

func TestJSON(t *testing.T) {
	s := newServer(t, envoyrls.Config{Headers: envoyrls.Headers{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining"}}, basic)
	const closed = `{"domain":"edge","descriptors":[{"entries":[{"key":"closed","value":"1"}],"hitsAddend":"2"}]}`
	const free = `{"domain":"edge","descriptors":[{"entries":[{"key":"free","value":"1"}]},{"entries":[{"key":"nobody"}]}]}`
	for name, test := range map[string]struct {
		body   string
		status int
		want   string
	}{
		"OK":                 {free, 200, `{"overallCode":"OK","statuses":[{"code":"OK","limitRemaining":4294967295},{"code":"OK"}]}`},
		"not JSON":           {`{`, 400, "Bad Request\n"},
		"a name too many":    {`{"domain":"edge","users":[]}`, 400, "Bad Request\n"},
		"no descriptors":     {`{"domain":"edge"}`, 400, "Bad Request\n"},
		"an empty body":      {``, 400, "Bad Request\n"},
		"a descriptor null":  {`{"domain":"edge","descriptors":[null]}`, 400, "Bad Request\n"},
		"more than 1 MiB":    {`{"domain":"edge"` + strings.Repeat(" ", 1<<20) + `}`, 400, "Bad Request\n"},
		"a unit nobody uses": {`{"domain":"edge","descriptors":[{"limit":{"unit":99}}]}`, 400, "Bad Request\n"},
	} {
		code, text := get(t, s.Handler(), "POST", "/json", test.body)
		require.Equal(t, test.status, code, name)
		require.Equal(t, test.want, text, name)
	}
	code, text := get(t, s.Handler(), "POST", "/json", closed)
	require.Equal(t, 429, code)
	require.Contains(t, text, `"overallCode":"OVER_LIMIT"`)
	require.Contains(t, text, `"currentLimit":{"unit":"YEAR"}`)
	require.Contains(t, text, `"responseHeadersToAdd":[{"key":"RateLimit-Limit","value":"0"},{"key":"RateLimit-Remaining","value":"0"}]`)
	require.Regexp(t, `"durationUntilReset":"[0-9.]+s"`, text)
}

// What a page of another origin makes a browser send changes nothing.
func TestOtherOrigins(t *testing.T) {
	s := newServer(t, envoyrls.Config{}, basic)
	const body = `{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}`
	send := func(h http.Handler, path, name, value string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://limits.example"+path, strings.NewReader(body))
		r.Header.Set(name, value)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for path, h := range map[string]http.Handler{"/json": s.Handler(), "/reset": s.ResetHandler()} {
		for value, name := range map[string]string{
			"cross-site": "Sec-Fetch-Site", "same-site": "Sec-Fetch-Site", "https://evil.example": "Origin", "null": "Origin",
		} {
			require.Equal(t, 403, send(h, path, name, value), "%s: %s %s", path, name, value)
		}
	}
	code, text := get(t, s.Handler(), "POST", "/json", body)
	require.Equal(t, 200, code)
	require.Contains(t, text, `"limitRemaining":2`, "nothing was counted before")
	for value, name := range map[string]string{"same-origin": "Sec-Fetch-Site", "none": "Sec-Fetch-Site", "http://limits.example": "Origin"} {
		require.Equal(t, 200, send(s.ResetHandler(), "/reset", name, value), value)
		require.Equal(t, 200, send(s.Handler(), "/json", name, value), value)
	}
}

func TestHealthcheck(t *testing.T) {
	s, err := envoyrls.New(memory(t), envoyrls.Config{})
	require.NoError(t, err)
	check := func() int {
		code, _ := get(t, s.Handler(), "GET", "/healthcheck", "")
		return code
	}
	require.Equal(t, 500, check(), "nothing was loaded")
	require.Error(t, s.Load(filesOf("domain: [")...))
	require.Equal(t, 500, check())
	require.NoError(t, s.Load(filesOf(basic)...))
	require.Equal(t, 200, check())
	require.Error(t, s.Load(filesOf("domain: [")...))
	require.Equal(t, 200, check(), "the last good one stays")
	s.Drain()
	require.Equal(t, 500, check())
	require.NoError(t, s.Load(filesOf(basic)...))
	require.Equal(t, 500, check(), "it drains for good")
}

func TestDump(t *testing.T) {
	s := newServer(t, envoyrls.Config{}, `
domain: edge
descriptors:
  - key: user
    value: alice
    rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 3}
    descriptors:
      - key: path
        shadow_mode: true
        rate_limit: {policy: "paths: 100/1m gcra; fail closed"}
  - key: free
    quota_mode: true
    rate_limit: {unlimited: true}
  - key: closed
    rate_limit: {unit: year, requests_per_unit: 0}
`)
	_, text := get(t, s.Handler(), "GET", "/rlconfig", "")
	require.Equal(t, `edge.user_alice: unit=MINUTE requests_per_unit=3, shadow_mode: false, quota_mode: false, unit_multiplier: 5
edge.user_alice.path: unit=MINUTE requests_per_unit=100, shadow_mode: true, quota_mode: false, policy: paths: 100/1m; fail closed
edge.free: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: true
edge.closed: unit=YEAR requests_per_unit=0, shadow_mode: false, quota_mode: false
`, text)
	s, err := envoyrls.New(memory(t), envoyrls.Config{})
	require.NoError(t, err)
	_, text = get(t, s.Handler(), "GET", "/rlconfig", "")
	require.Empty(t, text)
}
