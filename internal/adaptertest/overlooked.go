package adaptertest

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/logtest"
	"github.com/weir-go/weir/keyfunc"
)

// Overlooked is an application in which an entry of a table does not hold for the requests that it is meant for.
type Overlooked struct {
	Entry string
	// Method and Path are those of a request that reaches the handler of a login.
	Method, Path string
	// Found is the route that is found for it, and Taken the one that it takes, if the framework says so.
	Found, Taken string
	// Build makes the application with a limiter, and returns what sends it a request and returns the answer's status.
	// The handler of the login answers 401 and counts its runs.
	Build func(g *guard.Guard, runs *int) func(*http.Request) int
}

// Send returns what sends requests to h.
func Send(h http.Handler) func(*http.Request) int {
	return func(r *http.Request) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
}

// Run tests that an entry of a table is noticed which does not hold for the requests that it is meant for, and
// that StrictRoutes refuses them.
func (o Overlooked) Run(t *testing.T) {
	t.Helper()
	for _, strict := range []bool{false, true} {
		said := new(logtest.Log)
		g, err := guard.New(guard.Config{
			Rule:         guard.Rule{Policy: "1000/1h", Key: keyfunc.Const("all")},
			Routes:       map[string]guard.Rule{o.Entry: {Policy: "login: 3/1h"}},
			StrictRoutes: strict,
			Log:          said.Logger(),
		})
		require.NoError(t, err)
		var runs int
		statuses := map[int]int{}
		send := o.Build(g, &runs)
		for range 20 {
			r := httptest.NewRequest(o.Method, "http://example.com/", nil)
			r.URL.Path, r.RequestURI = o.Path, o.Path
			statuses[send(r)]++
		}
		lines := said.With("")
		require.Len(t, lines, 1, "it is said once")
		assert.Contains(t, lines[0], fmt.Sprintf(" entry=%q found=%s ", fmt.Sprintf("Routes[%q]", o.Entry), cmp.Or(o.Found, `""`)))
		assert.Contains(t, lines[0], " code=overlooked-entry")
		if strict {
			assert.LessOrEqual(t, runs, 1, "the first request shows it, at the latest")
			assert.Equal(t, 20-runs, statuses[http.StatusServiceUnavailable])
			continue
		}
		if o.Taken != "" {
			assert.Contains(t, lines[0], " taken="+o.Taken+" ")
		}
		assert.Equal(t, map[int]int{http.StatusUnauthorized: 20}, statuses)
	}
}
