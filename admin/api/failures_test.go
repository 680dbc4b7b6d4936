package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/api"
	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
	"github.com/weir-go/weir/internal/logtest"
)

// What a database says, in which there may be names of servers and contents of tables, is in the log and in no answer.
func TestFailuresAreForTheLog(t *testing.T) { sqltest.Each(t, failuresAreForTheLog) }

func failuresAreForTheLog(t *testing.T, location string) {
	db := sqltest.Open(t, location)
	audited := audit.New(db, audit.Options{})
	t.Cleanup(func() { assert.NoError(t, audited.Close()) })
	manager, err := manage.New(manage.Options{
		Record: record.New(db, audited), Audit: audited, Publisher: &quiet{},
		Services: func(context.Context, string) ([]*policies.Process, int, error) { return nil, 0, nil },
	})
	require.NoError(t, err)
	var log logtest.Log
	handler, err := api.New(api.Options{Manager: manager, Log: log.Logger(), Authenticate: func(*http.Request) (*rights.Person, error) {
		return &rights.Person{ID: "local:anna", Name: "anna", Admin: true}, nil
	}})
	require.NoError(t, err)
	require.NoError(t, db.Write(t.Context(), func(ctx context.Context, tx sqldb.Tx) error {
		_, err := tx.Exec(ctx, "ALTER TABLE weir_apps RENAME TO away")
		return err
	}))
	for method, path := range map[string]string{http.MethodGet: "/v1/apps", http.MethodPut: "/v1/apps/pay"} {
		w := httptest.NewRecorder()
		request := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		if method == http.MethodPut {
			request = httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(`{"title":"Pay"}`))
			request.Header.Set("If-None-Match", "*")
			request.Header.Set(adminapi.HeaderReason, "why")
			request.Header.Set("Content-Type", "application/json")
		}
		handler.ServeHTTP(w, request)
		assert.Equal(t, http.StatusServiceUnavailable, w.Code, w.Body)
		assert.NotContains(t, w.Body.String(), "weir_apps")
		assert.Contains(t, w.Body.String(), "the database does not answer")
	}
	assert.Len(t, log.With("weir_apps"), 2)
}
