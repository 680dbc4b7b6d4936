package inspect_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/observe/inspect"
)

// lost are boards that cannot be reached.
type lost struct{}

func (lost) AddScores(context.Context, []stats.Scores) error { return errors.New("no way <there>") }

func (lost) Scores(context.Context, []string, int) ([]stats.Score, int64, error) {
	return nil, 0, errors.New("no way <there>")
}

// What is not shared is a cause on the page, with the reason.
func TestSharingFails(t *testing.T) {
	o := newObserver(t)
	require.NoError(t, o.Share(lost{}))
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "api: 1/1h", Key: keyfunc.IP()}, Observe: o.Observe})
	require.NoError(t, err)
	app := nethttp.Limit(g)(http.NotFoundHandler())
	for range 3 {
		app.ServeHTTP(httptest.NewRecorder(), asked(http.MethodGet, "/", "203.0.113.7:1", "localhost", ""))
	}
	require.NoError(t, o.Close()) // adds the rest
	w := httptest.NewRecorder()
	inspect.Handler(o, inspect.Options{}).ServeHTTP(w, asked(http.MethodGet, "/", "127.0.0.1:1", "localhost", ""))
	assert.Contains(t, w.Body.String(), "lack what this process has counted: no way <there>; since ")
}

// What other processes were sent is on the page, with bounds, as soon as this program shares its own.
func TestFleet(t *testing.T) {
	server := redistest.Single(t)
	rdb := server.Client(t)
	store, err := redisstore.New(rdb, redisstore.Options{})
	require.NoError(t, err)
	o := newObserver(t)
	h := inspect.Handler(o, inspect.Options{})
	get := func(target, accept string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, asked(http.MethodGet, target, "127.0.0.1:1", "localhost", "", "Accept: "+accept))
		return w
	}
	assert.Equal(t, http.StatusNotFound, get("/?fleet", "*/*").Code)
	assert.NotContains(t, get("/", "text/html").Body.String(), "?fleet")

	require.NoError(t, o.Share(store, "api"))
	t.Cleanup(func() { require.NoError(t, o.Close()) })
	board := fmt.Sprintf("api:%d", time.Now().Unix()/60)
	require.NoError(t, store.AddScores(t.Context(), []stats.Scores{
		{Board: board, Source: "one", Units: map[string]int64{"ip=203.0.113.7": 50, "ip=198.51.100.1": 3}, Missed: 1},
		{Board: board, Source: "two", Units: map[string]int64{"ip=203.0.113.7": 40}, Missed: 2},
	}))
	assert.Contains(t, get("/", "text/html").Body.String(), `<a href="?fleet">`)
	text := get("/?fleet=api", "*/*").Body.String()
	assert.Contains(t, strings.Join(strings.Fields(text), " "), "api ip=203.0.113.0/24 90 93 ")
	assert.Contains(t, strings.Join(strings.Fields(text), " "), "any other 3")
	assert.NotContains(t, text, "203.0.113.7")
	html := get("/?fleet=api", "text/html").Body.String()
	assert.Contains(t, html, "ip=203.0.113.0/24")
	assert.NotContains(t, html, "http-equiv", "each look asks Redis")
	var f struct {
		Worst []struct {
			Policy  string
			Rest    uint64
			Callers []struct{ Least, Most uint64 }
		}
	}
	require.NoError(t, json.Unmarshal(get("/?fleet=api", "application/json").Body.Bytes(), &f))
	require.Len(t, f.Worst, 1)
	assert.Equal(t, uint64(3), f.Worst[0].Rest)
	assert.Contains(t, get("/?fleet=login", "*/*").Body.String(), "Nobody was refused lately")
	assert.Equal(t, http.StatusServiceUnavailable, get("/?fleet="+strings.Repeat("x", 300), "*/*").Code)

	server.Kill()
	w := get("/?fleet=api", "*/*")
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Contains(t, w.Body.String(), "cannot be read")
	assert.Equal(t, http.StatusOK, get("/", "*/*").Code, "the page asks no store")
}
