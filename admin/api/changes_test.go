package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/internal/adminapi"
)

// An admin adds an app that asks for four eyes, one owner proposes, another one approves, an operator helps a caller for
// an hour, and the app is deleted again: each with the tags that the answers before had.
func TestFourEyesAndTemporaryChanges(t *testing.T) {
	known, server, _ := startPeople(t)
	console := people.By{Person: people.Console(), Reason: "test"}
	token := func(name string, role rights.Role, app string) string {
		secret, _, err := known.MakeLocalToken(t.Context(), console, people.LocalPerson{Name: name, Role: role, App: app},
			people.NewToken{Name: "test", Apps: []string{app}, Role: role, Days: 1})
		require.NoError(t, err)
		return secret
	}
	send := func(token, method, path, condition, body string, into any) (status int, tag string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set(adminapi.HeaderReason, "because")
		if body != "" {
			request.Header.Set("Content-Type", "application/json")
		}
		switch condition {
		case "":
		case "new":
			request.Header.Set("If-None-Match", "*")
		default:
			request.Header.Set("If-Match", condition)
		}
		resp, err := server.Client().Do(request)
		require.NoError(t, err)
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		if into != nil {
			require.NoError(t, json.Unmarshal(data, into), "%s", data)
		}
		return resp.StatusCode, resp.Header.Get("ETag")
	}
	root, anna, ben := token("root", rights.Admin, "*"), token("anna", rights.Owner, "pay"), token("ben", rights.Owner, "pay")
	operator := token("eva", rights.Operator, "pay")
	const app, policy = "/v1/apps/pay", "/v1/apps/pay/policies/api"
	put, get, post, remove := http.MethodPut, http.MethodGet, http.MethodPost, http.MethodDelete

	status, _ := send(anna, put, app, "new", `{"fourEyes": true}`, nil)
	assert.Equal(t, http.StatusForbidden, status)
	status, settings := send(root, put, app, "new", `{"fourEyes": true, "counts": ["pay"]}`, nil)
	assert.Equal(t, http.StatusOK, status)
	status, tag := send(anna, get, app, "", "", nil)
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, settings, tag)
	status, _ = send(root, put, app, "new", `{}`, nil)
	assert.Equal(t, http.StatusPreconditionFailed, status)
	status, _ = send(root, put, app, "", `{}`, nil)
	assert.Equal(t, http.StatusPreconditionRequired, status)

	var written adminapi.Written
	status, tag = send(anna, put, policy, "new", `{"text": "100/1m"}`, &written)
	assert.Equal(t, http.StatusAccepted, status)
	assert.Empty(t, tag)
	require.NotEmpty(t, written.Proposal)
	var list manage.Proposals
	status, _ = send(ben, get, "/v1/proposals?app=pay&state=open", "", "", &list)
	assert.Equal(t, http.StatusOK, status)
	require.Len(t, list.Proposals, 1)
	assert.True(t, list.Proposals[0].MayApprove)
	decide := "/v1/proposals/" + url.PathEscape(written.Proposal)
	status, _ = send(anna, post, decide+"/approve", "", "", nil)
	assert.Equal(t, http.StatusConflict, status)
	status, _ = send(operator, post, decide+"/approve", "", "", nil)
	assert.Equal(t, http.StatusForbidden, status)
	status, _ = send(ben, post, decide+"/approve", "", "", nil)
	assert.Equal(t, http.StatusOK, status)
	status, _ = send(ben, post, decide+"/reject", "", "", nil)
	assert.Equal(t, http.StatusConflict, status)
	status, _ = send(ben, post, "/v1/proposals/none/reject", "", "", nil)
	assert.Equal(t, http.StatusNotFound, status)

	var held manage.Held
	status, tag = send(operator, get, policy, "", "", &held)
	assert.Equal(t, http.StatusOK, status)
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	status, _ = send(operator, put, policy+"/keys", tag, `{"key": "user=7", "text": "blocked"}`, nil)
	assert.Equal(t, http.StatusForbidden, status, "without an end")
	status, _ = send(operator, put, policy+"/keys", tag, `{"key": "user=7", "text": "blocked", "until": "`+until+`"}`, nil)
	assert.Equal(t, http.StatusOK, status)
	status, _ = send(operator, put, policy+"/temporary", tag, `{"trial": true, "until": "`+until+`"}`, nil)
	assert.Equal(t, http.StatusOK, status, "the text that was read holds")
	status, _ = send(operator, put, policy+"/temporary", tag, `{"text": "200/1m", "until": "`+until+`"}`, nil)
	assert.Equal(t, http.StatusPreconditionFailed, status, "and now it is not")
	status, tag = send(operator, get, policy, "", "", &held)
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, "100/1m; shadow", held.Policy.Text)
	assert.Len(t, held.Temporary, 2)
	status, _ = send(operator, remove, policy+"/temporary", tag, "", nil)
	assert.Equal(t, http.StatusOK, status)
	status, _ = send(operator, remove, policy+"/temporary", tag, "", nil)
	assert.Equal(t, http.StatusNotFound, status)

	status, _ = send(ben, post, app+"/rollback", "*", `{"to": 100000}`, nil)
	assert.Equal(t, http.StatusNotFound, status)
	written = adminapi.Written{}
	status, _ = send(ben, put, policy+"?emergency=true", "*", `{"text": "1/1m"}`, &written)
	assert.Equal(t, http.StatusOK, status)
	assert.Len(t, written.Ended, 1, "the block")
	status, _ = send(ben, remove, app, settings, "", nil)
	assert.Equal(t, http.StatusForbidden, status)
	status, _ = send(root, remove, app, settings, "", nil)
	assert.Equal(t, http.StatusOK, status)
	status, _ = send(root, get, app, "", "", nil)
	assert.Equal(t, http.StatusNotFound, status)
}
