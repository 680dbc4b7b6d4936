package page_test

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/page"
	"github.com/weir-go/weir/admin/rights"
)

var owner = &rights.Person{ID: "local:anna", Name: "anna", Roles: map[string]rights.Role{"*": rights.Owner}}

// serve returns the handler of pages for a person.
func serve(t *testing.T, m *fake, who *rights.Person) http.Handler {
	t.Helper()
	h, err := page.New(page.Options{
		Manager: m, Authenticate: func(*http.Request) (*rights.Person, error) { return who, nil }, Now: m.now,
		Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	return h
}
