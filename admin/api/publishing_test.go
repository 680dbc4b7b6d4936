package api_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/api"
	"github.com/weir-go/weir/admin/internal/recordtest"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/publish"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// asked is a Publisher that publishes at once, and notes for which documents somebody has waited.
type asked struct {
	wakes  int
	waited map[string]policies.Version
	alarm  string
}

func (a *asked) Wake() { a.wakes++ }

func (a *asked) Wait(_ context.Context, app string, v policies.Version) publish.State {
	a.waited[app] = v
	return publish.State{Version: v, Alarm: a.alarm}
}

func (a *asked) State(string) publish.State { return publish.State{} }

// An answer says that a change is published only if that is true of every app that it affects.
func TestAllAreWaitedFor(t *testing.T) {
	r, log := recordtest.WithAudit(t, sqltest.New(t))
	p := &asked{}
	manager, err := manage.New(manage.Options{
		Record: r, Audit: log, Publisher: p,
		Services: func(context.Context, string) ([]*policies.Process, int, error) { return nil, 0, nil },
	})
	require.NoError(t, err)
	handler, err := api.New(api.Options{Manager: manager, Authenticate: func(*http.Request) (*rights.Person, error) {
		return &rights.Person{ID: "anna", Name: "anna", Admin: true}, nil
	}})
	require.NoError(t, err)
	put := func(app, body string) string {
		p.wakes, p.waited = 0, map[string]policies.Version{}
		w := httptest.NewRecorder()
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/v1/apps/"+app+"/policies/api", strings.NewReader(body))
		request.Header.Set("If-Match", "*")
		request.Header.Set(adminapi.HeaderReason, "a test")
		handler.ServeHTTP(w, request)
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		assert.Equal(t, 1, p.wakes)
		return string(bytes.TrimSpace(w.Body.Bytes()))
	}
	v := func(revision int64) policies.Version { return policies.Version{Generation: 1, Revision: revision} }
	put("pay", `{"text":"1/1m","apps":["web"]}`)
	assert.Equal(t, map[string]policies.Version{"pay": v(1), "web": v(1)}, p.waited)
	put("*", `{"text":"2/1m"}`)
	assert.Equal(t, map[string]policies.Version{"pay": v(2), "web": v(2)}, p.waited)
	put("pay", `{"text":"1/1m","apps":["web"]}`) // which it says already
	assert.Equal(t, map[string]policies.Version{"pay": v(2)}, p.waited)
	p.alarm = "two databases"
	assert.Contains(t, put("pay", `{"text":"3/1m"}`), `"published":false,"alarm":"app \"pay\": two databases"`)
}

// quiet is a Publisher that publishes at once.
type quiet struct{}

func (quiet) Wake() {}

func (quiet) Wait(_ context.Context, _ string, v policies.Version) publish.State {
	return publish.State{Version: v}
}

func (quiet) State(string) publish.State { return publish.State{} }
