package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/api"
	"github.com/weir-go/weir/admin/internal/recordtest"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// The API stands behind weir: 600 in a minute for a token, and 60 for an address without one. A refusal says when the
// next request is admitted, nobody else is refused for it, and the paths of health stand outside.
func TestLimits(t *testing.T) {
	manager := managerOf(t)
	synctest.Test(t, func(t *testing.T) {
		handler, err := api.New(api.Options{Manager: manager, Authenticate: func(r *http.Request) (*rights.Person, error) {
			id, _ := strconv.ParseInt(r.Header.Get("Authorization"), 10, 64)
			if id == 0 {
				return nil, nil //nolint:nilnil // a stranger
			}
			return &rights.Person{ID: "anna", Token: id}, nil
		}})
		require.NoError(t, err)
		send := func(path, token, address string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
			r.Header.Set("Authorization", token)
			r.RemoteAddr = address
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			return w
		}
		const one, other = "192.0.2.1:1", "192.0.2.2:1"
		for range 600 {
			require.Equal(t, http.StatusOK, send(adminapi.PathSchema, "1", one).Code)
		}
		for range 60 {
			require.Equal(t, http.StatusUnauthorized, send(adminapi.PathSchema, "", one).Code)
		}
		for _, token := range []string{"1", ""} {
			w := send(adminapi.PathSchema, token, one)
			require.Equal(t, http.StatusTooManyRequests, w.Code)
			assert.Equal(t, adminapi.ProblemType, w.Header().Get("Content-Type"))
			assert.NotEmpty(t, w.Header().Get("Retry-After"))
			var p adminapi.Problem
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
			assert.Equal(t, adminapi.TypeTooMany, p.Type)
		}
		assert.Equal(t, http.StatusOK, send(adminapi.PathSchema, "2", one).Code)
		assert.Equal(t, http.StatusUnauthorized, send(adminapi.PathSchema, "", other).Code)
		for range 1000 {
			require.Equal(t, http.StatusNoContent, send(api.PathHealthz, "", one).Code)
		}
	})
}

// Ready asks the database, at most once in a second.
func TestReady(t *testing.T) {
	handler, err := api.New(api.Options{
		Manager: managerOf(t), Authenticate: func(*http.Request) (*rights.Person, error) { return nil, nil }, //nolint:nilnil // a stranger
	})
	require.NoError(t, err)
	for range 100 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, api.PathReadyz, nil))
		require.Equal(t, http.StatusNoContent, w.Code)
	}
}

// managerOf returns a Manager of an empty record, of which nobody announces anything.
func managerOf(t *testing.T, mods ...func(*manage.Options)) *manage.Manager {
	t.Helper()
	r, log := recordtest.WithAudit(t, sqltest.New(t))
	o := manage.Options{
		Record: r, Audit: log, Publisher: &quiet{},
		Services: func(context.Context, string) ([]*policies.Process, int, error) { return nil, 0, nil },
	}
	for _, mod := range mods {
		mod(&o)
	}
	m, err := manage.New(o)
	require.NoError(t, err)
	return m
}
