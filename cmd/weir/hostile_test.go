package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/filesource"
	"github.com/weir-go/weir/internal/adminapi"
)

// No answer of a server reaches the terminal with what a terminal obeys.
func TestHostileServer(t *testing.T) {
	t.Parallel()
	const evil = "\x1b]0;evil\a\x1b[2J\u202e\u009b31m\r\n\t\U000E0041"
	p := adminapi.Policy{
		Text: evil, Tiers: map[string]string{evil: evil}, Keys: map[string]string{evil: evil}, Apps: []string{evil},
	}
	no := []adminapi.CannotUse{{App: evil, Process: evil, Policy: evil, Entry: evil, Why: evil}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/apply"):
			w.WriteHeader(http.StatusUnprocessableEntity)
			answer = adminapi.Problem{
				Title: evil, Status: 422, Detail: evil, Errors: []adminapi.Mistake{{Location: evil, Message: evil}}, CannotUse: no,
			}
		case r.Method == http.MethodPost:
			answer = adminapi.Written{
				App: evil, Alarm: evil, CannotUse: no, Unused: []string{evil}, Proposal: evil,
				Ended: []adminapi.Temporarily{{Policy: evil}}, Beneath: []adminapi.Temporarily{{Policy: evil, Key: evil, Text: evil}},
				Differences: []adminapi.Difference{{Name: evil, Before: &p, After: &adminapi.Policy{Text: "1/1m"}}, {Name: evil, After: &p}},
			}
		case path == adminapi.PathApps:
			answer = adminapi.Apps{Apps: []adminapi.App{{App: evil, Alarm: evil}, {App: "pay", Alarm: evil}}}
		case strings.HasSuffix(path, "/history"):
			answer = adminapi.History{Versions: []adminapi.Past{{Who: evil, Reason: evil, Action: evil, Policy: &p}}}
		case strings.HasSuffix(path, "/services"):
			answer = adminapi.Services{App: evil, Processes: []adminapi.Process{{
				ID: evil, Name: evil, Meaning: evil, Why: evil,
				Rules: []adminapi.Rule{{Policy: evil, Place: evil, Key: evil, Code: evil, Now: evil, Meaning: evil, Why: evil}},
			}}}
		case strings.HasSuffix(path, "/policies"):
			answer = json.RawMessage(`{"format":1,"policies":{"api":{"tiers":{"pro\u202e\ud83d\ude00\udb40\udc41":"5/1m"}}}}`)
		default:
			answer = adminapi.Held{App: evil, Name: evil, Policy: p}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer server.Close()
	env := []string{"WEIR_SERVER=" + server.URL, "WEIR_TOKEN_FILE=" + file(t, "anna:0123456789abcdefghij")}
	for _, args := range [][]string{
		{"get"},
		{"get", "pay"},
		{"get", "-published", "pay"},
		{"get", "pay", "api"},
		{"history", "pay", "api"},
		{"services", "pay"},
		{"rollback", "pay", "api", "3"},
		{"adopt", "pay"},
		{"apply", file(t, good)},
	} {
		r := weir(t, env, args...)
		assert.Equal(t, lines(r.out), r.out, "%q", args)
		assert.Equal(t, lines(r.err), r.err, "%q", args)
		r = weir(t, env, append([]string{"-json"}, args...)...)
		assert.Equal(t, lines(r.out), r.out, "-json %q", args)
		assert.True(t, json.Valid([]byte(r.out)), "%q: %s", args, r.out)
		assert.Empty(t, r.err, "-json %q", args)
	}
	d, err := filesource.Parse([]byte(weir(t, env, "get", "pay").out))
	require.NoError(t, err) // but for the comment of the alarm
	assert.Equal(t, map[string]policies.Policy{"api": {Tiers: map[string]string{"pro\u202e\U0001F600\U000E0041": "5/1m"}}}, d.Policies)
}
