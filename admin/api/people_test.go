package api_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/api"
	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// startPeople starts an API with people, who enter by tokens, and with no services.
func startPeople(t *testing.T) (*people.People, *httptest.Server, *audit.Log) {
	t.Helper()
	db := sqltest.Open(t, sqltest.New(t))
	log := audit.New(db, audit.Options{Lines: io.Discard})
	t.Cleanup(func() { assert.NoError(t, log.Close()) })
	known, err := people.New(t.Context(), people.Options{DB: db, Audit: log, PublicURL: "https://weir.example.com"})
	require.NoError(t, err)
	r := record.New(db, log)
	manager, err := manage.New(manage.Options{
		Record: r, Audit: log, People: known, Publisher: &quiet{},
		Services: func(context.Context, string) ([]*policies.Process, int, error) { return nil, 0, nil },
	})
	require.NoError(t, err)
	handler, err := api.New(api.Options{Manager: manager, Authenticate: known.Authenticate})
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return known, server, log
}

// An admin puts somebody out who has a role by a group that nobody can leave, and lets them in again; an owner sees
// people to give them roles, and their roles in the owner's apps alone.
func TestPeople(t *testing.T) {
	known, server, log := startPeople(t)

	console := people.By{Person: people.Console(), Reason: "test"}
	token := func(name string, role rights.Role, app string) string {
		secret, _, err := known.MakeLocalToken(t.Context(), console, people.LocalPerson{Name: name, Role: role, App: app},
			people.NewToken{Name: "test", Apps: []string{app}, Role: role, Days: 1})
		require.NoError(t, err)
		return secret
	}
	root, anna, bob := token("root", rights.Admin, "*"), token("anna", rights.Owner, "pay"), token("bob", rights.Viewer, "shop")
	send := func(token, method, path string, into any) int {
		t.Helper()
		path, reason, _ := strings.Cut(path, " because ")
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
		require.NoError(t, err)
		r.Header.Set(adminapi.HeaderReason, reason)
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := server.Client().Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		if into != nil {
			require.NoError(t, json.NewDecoder(resp.Body).Decode(into))
		}
		return resp.StatusCode
	}

	var list manage.People
	require.Equal(t, http.StatusOK, send(root, http.MethodGet, "/v1/people", &list))
	require.Len(t, list.People, 3)
	assert.Equal(t, "anna", list.People[0].Name)
	assert.Equal(t, map[string]string{"shop": "viewer"}, list.People[1].Roles)
	assert.True(t, list.People[2].Admin)
	list = manage.People{}
	require.Equal(t, http.StatusOK, send(anna, http.MethodGet, "/v1/people?limit=2", &list))
	require.Len(t, list.People, 2)
	assert.Equal(t, map[string]string{"pay": "owner"}, list.People[0].Roles)
	assert.Empty(t, list.People[1].Roles, "an app of somebody else")
	list = manage.People{}
	require.Equal(t, http.StatusOK, send(anna, http.MethodGet, "/v1/people?limit=2&after=local:bob", &list))
	require.Len(t, list.People, 1)
	assert.Equal(t, http.StatusForbidden, send(bob, http.MethodGet, "/v1/people", nil))

	const out = "/v1/people/local:bob/barred"
	assert.Equal(t, http.StatusForbidden, send(anna, http.MethodPut, out+" because x", nil))
	assert.Equal(t, http.StatusUnprocessableEntity, send(root, http.MethodPut, out, nil), "a reason is missing")
	assert.Equal(t, http.StatusNoContent, send(root, http.MethodPut, out+" because she%20left 100%25: für immer", nil))
	assert.Equal(t, http.StatusUnauthorized, send(bob, http.MethodGet, "/v1/me", nil))
	assert.Equal(t, http.StatusNoContent, send(root, http.MethodDelete, out+" because back", nil))
	assert.Equal(t, http.StatusOK, send(bob, http.MethodGet, "/v1/me", nil))
	assert.Equal(t, http.StatusNoContent, send(root, http.MethodPut, "/v1/people/local:eve/barred because left", nil), "before she was seen")
	assert.Equal(t, http.StatusNotFound, send(root, http.MethodPut, "/v1/people/eve/barred because x", nil), "no id")
	assert.Equal(t, http.StatusNotFound, send(root, http.MethodDelete, "/v1/people/local:carl/barred because x", nil))
	assert.Equal(t, http.StatusConflict, send(root, http.MethodPut, "/v1/people/local:root/barred because x", nil), "the last admin")

	assert.Equal(t, http.StatusNoContent, send(bob, http.MethodDelete, "/v1/people/local:bob/sessions because lost", nil))
	assert.Equal(t, http.StatusForbidden, send(bob, http.MethodDelete, "/v1/people/local:anna/sessions because x", nil))
	assert.Equal(t, http.StatusNoContent, send(root, http.MethodDelete, "/v1/people/local:anna/sessions because x", nil))
	rows, err := log.List(t.Context(), audit.Filter{Action: "bar"})
	require.NoError(t, err)
	require.Len(t, rows, 2)
	assert.Equal(t, `{"person":"local:eve"}`, rows[0].Detail)
	assert.Equal(t, "she left 100%: für immer", rows[1].Reason)
}
