package reqctx_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/internal/reqctx"
)

type key struct{}

// copied returns a request and a copy with a context of its own.
func copied(target string) (outer, inner *http.Request) {
	outer = httptest.NewRequest(http.MethodGet, target, nil)
	return outer, outer.WithContext(context.WithValue(outer.Context(), key{}, "inside"))
}

func TestReturn(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /files/{dir}/{path...}", func(_ http.ResponseWriter, r *http.Request) { _ = r.FormValue("x") })
	mux.HandleFunc("GET /end/{id}/{$}", func(http.ResponseWriter, *http.Request) {})

	outer, inner := copied("/files/a/b/c?x=y")
	mux.ServeHTTP(httptest.NewRecorder(), inner)
	reqctx.Return(outer, inner)
	assert.Equal(t, "GET /files/{dir}/{path...}", outer.Pattern)
	assert.Equal(t, "a", outer.PathValue("dir"))
	assert.Equal(t, "b/c", outer.PathValue("path"))
	assert.Equal(t, url.Values{"x": {"y"}}, outer.Form)
	assert.Nil(t, outer.Context().Value(key{}))

	outer, inner = copied("/end/7/")
	mux.ServeHTTP(httptest.NewRecorder(), inner)
	reqctx.Return(outer, inner)
	assert.Equal(t, "7", outer.PathValue("id"))
	assert.Empty(t, outer.PathValue("$"))
}

// A mux may know fewer values than its pattern has wildcards.
func TestReturnMissingValues(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/{x}/{y}/{z...}", func(http.ResponseWriter, *http.Request) {})
	outer, inner := copied("/")
	outer.Method, inner.Method = http.MethodConnect, http.MethodConnect
	inner.URL = &url.URL{Host: "http:", Path: "//a.com/x"} // of "CONNECT http://a.com/x"
	mux.ServeHTTP(httptest.NewRecorder(), inner)
	assert.Equal(t, "/{x}/{y}/{z...}", inner.Pattern)
	reqctx.Return(outer, inner)
	assert.Equal(t, "/{x}/{y}/{z...}", outer.Pattern)
	assert.NotPanics(t, func() { outer.PathValue("z") }, "as it does with inner")
}

// What handlers do to their own copy stays there.
func TestReturnLeavesTheRest(t *testing.T) {
	outer, inner := copied("/a")
	before := outer.WithContext(outer.Context())
	inner.Method, inner.URL, inner.Header, inner.Body = http.MethodPost, &url.URL{Path: "/b"}, http.Header{"A": nil}, http.NoBody
	inner.Host, inner.RemoteAddr, inner.RequestURI = "b", "b", "b"
	reqctx.Return(outer, inner)
	assert.Equal(t, before, outer)
}

// Other goroutines read a request of which nothing was found: the race detector watches.
func TestReturnWritesNothing(t *testing.T) {
	outer, inner := copied("/a")
	outer.Pattern, inner.Pattern = "/a", "/a"
	read := make(chan http.Request)
	go func() { read <- *outer }()
	reqctx.Return(outer, inner)
	assert.Equal(t, "/a", (<-read).Pattern)
}

// Middleware outside finds what the handlers made of the request, but no context that ends before its own.
func TestLeave(t *testing.T) {
	outer, inner := copied("/a")
	inner.Method = http.MethodPost
	assert.Same(t, inner, reqctx.Leave(inner.Context(), outer, inner))

	ctx, cancel := context.WithCancel(inner.Context())
	left := reqctx.Leave(ctx, outer, inner.WithContext(ctx))
	cancel()
	assert.NoError(t, left.Context().Err())
	assert.Equal(t, http.MethodPost, left.Method)
}
