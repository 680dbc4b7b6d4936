package api_test

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/api"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// Whatever is refused, the answer is a problem (the transport of a looks), and has no value of what was sent.
func TestEveryRefusalIsAProblem(t *testing.T) {
	a := start(t)
	const secret = "s3cr3t-value"
	typeOf := map[int]string{ // of 400, 405, 413 and 415 the status says all
		404: adminapi.TypeNotFound, 422: adminapi.TypeInvalid, 503: adminapi.TypeUnavailable,
	}
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/v1/nothing", "", 404},
		{"GET", "/", "", 404},
		{"PATCH", apiPath, "{}", 405},
		{"POST", adminapi.PathApps, "{}", 405},
		{"GET", "/v1//apps", "", 404},
		{"GET", "/v1/apps/../apps", "", 404},
		{"PUT", apiPath, `{"text":"1/1m","` + secret + `":1}`, 422},
		{"PUT", apiPath + "/temporary", `{"text":7,"until":"` + secret + `"}`, 422},
		{"PUT", apiPath + "/temporary", `{"text":"1/1m","until":"2030-01-01T00:00:00Z","more":"` + secret + `"}`, 422},
		{"PUT", apiPath + "/temporary", `{"text":"` + secret + `"`, 400},
		{"GET", adminapi.PathApps + "?limit=" + secret, "", 422},
		{"GET", adminapi.PathApps + "?more=" + secret, "", 422},
		{"GET", api.PathAudit + "?after=" + secret, "", 422},
		{"POST", "/v1/apps/pay/keys/look", `{"key":"` + secret + `"}`, 503}, // it counts nowhere
		{"PUT", apiPath, `{"text":"` + strings.Repeat(" ", 256<<10) + `1/1m"}`, 413},
	} {
		status, _, body := a.send(t, c.method, c.path, c.body, "If-Match", "*")
		assert.Equal(t, c.status, status, "%s %s: %s", c.method, c.path, body)
		if !strings.Contains(c.body, `,"`+secret) { // a name is said
			assert.NotContains(t, body, secret, "%s %s", c.method, c.path)
		}
		var p adminapi.Problem
		require.NoError(t, json.Unmarshal([]byte(body), &p))
		assert.Equal(t, typeOf[c.status], p.Type, "%s %s", c.method, c.path)
	}
	status, header, _ := a.send(t, http.MethodPatch, apiPath, "")
	assert.Equal(t, http.StatusMethodNotAllowed, status)
	assert.Contains(t, header.Get("Allow"), "PUT")
	status, _, _ = a.send(t, http.MethodPut, apiPath, "text=1/1m", "If-Match", "*", "Content-Type", "application/x-www-form-urlencoded")
	assert.Equal(t, http.StatusUnsupportedMediaType, status)
}

// Each type of a problem is the address of its row in the documentation.
func TestTypesAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/admin.md")
	require.NoError(t, err)
	for _, of := range []string{
		adminapi.TypeNotFound, adminapi.TypeNobody, adminapi.TypeForbidden, adminapi.TypeNoRevision, adminapi.TypeStale,
		adminapi.TypeNoReason, adminapi.TypeInvalid, adminapi.TypeCannotUse, adminapi.TypeTaken, adminapi.TypeUnavailable,
		adminapi.TypeUnknown, adminapi.TypeTooMany,
	} {
		_, anchor, _ := strings.Cut(of, "#")
		assert.Contains(t, string(text), `<a id="`+anchor+`">`)
	}
}

// A mistake in a policy's text has its column, a stale change the policy that holds, and one without a reason is refused.
func TestProblemsHelp(t *testing.T) {
	a := start(t)
	_, err := a.Put(t.Context(), "pay", "api", policies.Policy{Text: "100/1m, 5/1x"}, adminapi.Write{Reason: "a test"})
	var p *adminapi.Problem
	require.ErrorAs(t, err, &p)
	assert.Equal(t, adminapi.TypeInvalid, p.Type)
	require.Len(t, p.Errors, 1)
	assert.Equal(t, 12, p.Errors[0].Column)

	_, err = a.Put(t.Context(), "pay", "api", policies.Policy{Text: "1/1m"}, adminapi.Write{})
	require.ErrorAs(t, err, &p)
	assert.Equal(t, adminapi.TypeNoReason, p.Type)

	written, err := a.Put(t.Context(), "pay", "api", policies.Policy{Text: "1/1m"}, adminapi.Write{Reason: "a test"})
	require.NoError(t, err)
	_, err = a.Put(t.Context(), "pay", "api", policies.Policy{Text: "2/1m"}, adminapi.Write{Create: true, Reason: "a test"})
	require.ErrorAs(t, err, &p)
	assert.Equal(t, adminapi.TypeStale, p.Type)
	assert.Equal(t, written.PolicyRevision, p.Current)
	require.NotNil(t, p.Held)
	assert.Equal(t, "1/1m", p.Held.Policy.Text)
}

// Lists go on where Link says.
func TestLinks(t *testing.T) {
	a := start(t)
	var names []string
	for _, app := range []string{"a", "b", "c", "d", "e"} {
		_, err := a.PutApp(t.Context(), app, adminapi.Settings{}, adminapi.Write{Create: true, Reason: "a test"})
		require.NoError(t, err)
		names = append(names, `"app":"`+app+`"`)
	}
	var all string
	path := adminapi.PathApps + "?limit=2"
	for pages := 1; ; pages++ {
		status, header, body := a.send(t, http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, status, body)
		all += body
		link := header.Get("Link")
		if link == "" {
			assert.Equal(t, 3, pages)
			break
		}
		require.True(t, strings.HasPrefix(link, "<") && strings.HasSuffix(link, `>; rel="next"`), link)
		path = strings.TrimSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
	}
	for _, name := range names {
		assert.Equal(t, 1, strings.Count(all, name), name)
	}
}
