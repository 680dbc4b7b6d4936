package nethttp_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/adaptertest"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, adaptertest.Adapter{
		Name:      "nethttp",
		Serve:     serve,
		Handle:    handle,
		HandleNil: func() guard.OverLimit { return nethttp.Handle(nil) },
		Pattern:   func(pattern string) string { return pattern },
		IsNative:  func(r any) bool { _, ok := r.(*http.Request); return ok },
	})
}

func serve(t testing.TB, app adaptertest.App) string {
	t.Helper()
	mux := http.NewServeMux()
	for _, r := range app.Routes {
		pattern := r.Pattern
		if pattern == "/" {
			pattern = "/{$}"
		}
		mux.Handle(r.Method+" "+pattern, limited(handler(r.Handler), r.Guards))
	}
	h := limited(mux, app.Guards, nethttp.Mux(mux))
	return adaptertest.ServeHTTP(t, recovering(app.Recovered, leaving(app.Left, login(h))))
}

func limited(h http.Handler, guards []*guard.Guard, find ...nethttp.Router) http.Handler {
	for _, g := range slices.Backward(guards) {
		h = nethttp.Limit(g, find...)(h)
	}
	return h
}

func recovering(recovered func(any), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if value := recover(); value != nil {
				if recovered != nil {
					recovered(value)
				}
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func leaving(left func(context.Context), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if left != nil {
			defer func() { left(r.Context()) }()
		}
		next.ServeHTTP(w, r)
	})
}

// login stores the user in the context: net/http has no other store.
func login(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user := r.Header.Get(adaptertest.UserInStore); user != "" {
			r = r.WithContext(context.WithValue(r.Context(), adaptertest.StoreKey, user)) //nolint:staticcheck // a string, as frameworks have it
		}
		if user := r.Header.Get(adaptertest.UserInContext); user != "" {
			r = r.WithContext(context.WithValue(r.Context(), adaptertest.ContextKey{}, user))
		}
		if peer := r.Header.Get(adaptertest.RewrittenPeer); peer != "" {
			r.RemoteAddr = peer
		}
		next.ServeHTTP(w, r)
	})
}

func handler(h adaptertest.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.Called(r.Context(), r.Context())
		if h.Upload != nil {
			err := r.ParseMultipartForm(0)
			h.Upload(r.MultipartForm, err)
		}
		h.Header.Each(w.Header().Set)
		switch {
		case h.Panic != nil:
			panic(h.Panic)
		case h.Hijack != nil:
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				defer conn.Close()
				h.Hijack(r.Context(), conn)
			}
		case h.Stream != nil:
			_, _ = w.Write([]byte("first"))
			_ = http.NewResponseController(w).Flush()
			<-h.Stream
			_, _ = w.Write([]byte("last"))
		case h.Fail && h.Status == 0:
			http.Error(w, "failed", http.StatusInternalServerError)
		case h.Fail:
			http.Error(w, "failed", h.Status)
		default:
			w.WriteHeader(h.Code())
			_, _ = w.Write([]byte("ok"))
		}
	})
}

func handle(n adaptertest.Native) guard.OverLimit {
	return nethttp.Handle(func(w http.ResponseWriter, _ *http.Request, v *guard.Verdict) {
		w.Header().Set("X-Native", v.Policy)
		n.Header.Each(w.Header().Set)
		n.Edit(v)
		switch {
		case n.Panic != nil:
			panic(n.Panic)
		case n.Fail:
			http.Error(w, "failed", n.Status)
		case n.Body != "":
			_, _ = w.Write([]byte(n.Body))
		case n.Status != 0:
			w.WriteHeader(n.Status)
			_, _ = w.Write([]byte("native"))
		}
	})
}

func BenchmarkLimit(b *testing.B) { adaptertest.Benchmark(b, loop) }

func TestAllocations(t *testing.T) { adaptertest.TestAllocations(t, loop, 2, 3) }

var loop = adaptertest.LoopHTTP(func(g *guard.Guard) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	if g == nil {
		return mux
	}
	return nethttp.Limit(g)(mux)
})

// guard counts by what key makes, and reports the keys that it has counted.
func newGuard(t *testing.T, key keyfunc.Func, c guard.Config) (g *guard.Guard, keys func() []string) {
	t.Helper()
	m, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	store := &recorder{Store: m}
	c.Store, c.Key, c.Policy = store, key, "1000/1h"
	c.Log = slog.New(slog.DiscardHandler)
	g, err = guard.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	return g, func() []string {
		keys := store.keys
		store.keys = nil
		return keys
	}
}

type recorder struct {
	core.Store
	keys []string
}

func (r *recorder) Take(ctx context.Context, t core.Take) (core.Result, error) {
	r.keys = append(r.keys, t.Key)
	return r.Store.Take(ctx, t)
}

var ok = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) })

// A unix socket has no peer: such a request has no key by address.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	g, keys := newGuard(t, keyfunc.IP(), guard.Config{})
	server := httptest.NewUnstartedServer(nethttp.Limit(g)(ok))
	require.NoError(t, server.Listener.Close())
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)

	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport}).Get("http://socket/")
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	assert.Equal(t, http.StatusForbidden, res.StatusCode)
	assert.Empty(t, keys())
}

// A peer is an address and a port, or an address that a middleware has put there.
func TestPeer(t *testing.T) {
	g, keys := newGuard(t, keyfunc.IP(), guard.Config{Rule: guard.Rule{NoKey: guard.NoKeyPass}})
	h := nethttp.Limit(g)(ok)
	for remote, want := range map[string][]string{
		"203.0.113.7:1234":          {"ip=203.0.113.7"},
		"[2001:db8::1]:1234":        {"ip=2001:db8::/64"},
		"[::ffff:203.0.113.7]:1234": {"ip=203.0.113.7"},
		"[fe80::1%eth0]:1234":       {"ip=fe80::/64"},
		"203.0.113.7":               {"ip=203.0.113.7"},
		"2001:db8::1":               {"ip=2001:db8::/64"},
		"[2001:db8::1]":             {"ip=2001:db8::/64"},
		"@":                         nil,
		"":                          nil,
		"somebody":                  nil,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = remote
		h.ServeHTTP(httptest.NewRecorder(), r)
		assert.Equal(t, want, keys(), remote)
	}
}

// Where a Verdict asks for nothing, the handler gets the server's own writer and
// request; where it does, the writer can do what it could.
func TestWriter(t *testing.T) {
	g, _ := newGuard(t, keyfunc.IP(), guard.Config{})
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
	nethttp.Limit(g)(http.HandlerFunc(func(got http.ResponseWriter, request *http.Request) {
		assert.Same(t, w, got)
		assert.Same(t, r, request)
	})).ServeHTTP(w, r)

	finals := make(chan guard.Final, 1)
	g, _ = newGuard(t, keyfunc.IP(), guard.Config{Rule: guard.Rule{After: func(f guard.Final) int64 { finals <- f; return 0 }}})
	for name, c := range map[string]struct {
		do   http.HandlerFunc
		want guard.Final
	}{
		"nothing":     {func(http.ResponseWriter, *http.Request) {}, guard.Final{Status: 200}},
		"status":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204); w.WriteHeader(500) }, guard.Final{Status: 204}},
		"early hints": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(404) }, guard.Final{Status: 404}},
		"write":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("four")) }, guard.Final{Status: 200, Bytes: 4}},
		"print":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "four") }, guard.Final{Status: 200, Bytes: 4}},
		"string": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.(interface{ WriteString(string) (int, error) }).WriteString("four")
		}, guard.Final{Status: 200, Bytes: 4}},
		"copy": {func(w http.ResponseWriter, _ *http.Request) { _, _ = strings.NewReader("four").WriteTo(w) }, guard.Final{Status: 200, Bytes: 4}},
		"file": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			http.ServeFile(w, r, "doc.go")
		}, guard.Final{Status: 202, Bytes: size(t, "doc.go")}},
		"flush":            {func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, guard.Final{Status: 200}},
		"controlled flush": {func(w http.ResponseWriter, _ *http.Request) { assert.NoError(t, http.NewResponseController(w).Flush()) }, guard.Final{Status: 200}},
		"deadline": {func(w http.ResponseWriter, _ *http.Request) {
			assert.NoError(t, http.NewResponseController(w).EnableFullDuplex())
			w.WriteHeader(http.StatusAccepted)
		}, guard.Final{Status: 202}},
		"answered, then panicked": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			panic(http.ErrAbortHandler)
		}, guard.Final{Status: 202, Panicked: true}},
		"aborted": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, guard.Final{Status: 500, Panicked: true}},
		"ended":   {func(http.ResponseWriter, *http.Request) { runtime.Goexit() }, guard.Final{Status: 500, Panicked: true}},
		"hijacked": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if assert.NoError(t, err) {
				assert.NoError(t, conn.Close())
			}
		}, guard.Final{Status: 101}},
		"hijacked by type": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if assert.NoError(t, err) {
				assert.NoError(t, conn.Close())
			}
		}, guard.Final{Status: 101}},
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan struct{})
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(done)
				nethttp.Limit(g)(c.do).ServeHTTP(w, r)
			}))
			server.Config.ErrorLog = log.New(io.Discard, "", 0) // some answer twice, on purpose
			server.Start()
			t.Cleanup(server.CloseClientConnections)
			ctx, leave := context.WithCancel(t.Context())
			go func() { // where nothing is answered, nothing is waited for
				<-done
				if name == "ended" {
					leave()
				}
			}()
			defer leave()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
			require.NoError(t, err)
			if res, err := server.Client().Do(r); err == nil {
				require.NoError(t, res.Body.Close())
			}
			<-done
			c.want.Reported = -1 // by no handler
			assert.Equal(t, c.want, <-finals)
		})
	}
}

type (
	bare     struct{ http.ResponseWriter }
	flushing struct {
		http.ResponseWriter
		http.Flusher
	}
	hijacking struct {
		flushing
		http.Hijacker
	}
	pushing struct {
		flushing
		http.Pusher
	}
	pushes []string
)

func (p *pushes) Push(target string, _ *http.PushOptions) error {
	*p = append(*p, target)
	return nil
}

// The wrapper has the optional methods of the writer inside, and no others.
func TestWriterKinds(t *testing.T) {
	finals := make(chan guard.Final, 1)
	g, _ := newGuard(t, keyfunc.IP(), guard.Config{Rule: guard.Rule{After: func(f guard.Final) int64 { finals <- f; return 0 }}})
	recorder, pushed := httptest.NewRecorder(), &pushes{}
	flushes := flushing{recorder, recorder}
	for name, c := range map[string]struct {
		w    http.ResponseWriter
		want [3]bool // Flusher, Hijacker, Pusher
	}{
		"none":   {bare{recorder}, [3]bool{}},
		"flush":  {flushes, [3]bool{true}},
		"hijack": {hijacking{flushes, nil}, [3]bool{true, true, false}},
		"push":   {pushing{flushes, pushed}, [3]bool{true, false, true}},
	} {
		nethttp.Limit(g)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var got [3]bool
			_, got[0] = w.(http.Flusher)
			_, got[1] = w.(http.Hijacker)
			pusher, ok := w.(http.Pusher)
			got[2] = ok
			assert.Equal(t, c.want, got, name)
			assert.Equal(t, c.w, w.(interface{ Unwrap() http.ResponseWriter }).Unwrap(), name)
			if ok {
				assert.NoError(t, pusher.Push("/style.css", nil))
			}
			if !got[0] { // a refused flush is no answer
				assert.ErrorIs(t, http.NewResponseController(w).Flush(), http.ErrNotSupported)
				w.WriteHeader(http.StatusTeapot)
			}
		})).ServeHTTP(c.w, httptest.NewRequest(http.MethodGet, "/", nil))
		want := http.StatusOK
		if !c.want[0] {
			want = http.StatusTeapot
		}
		assert.Equal(t, want, (<-finals).Status, name)
	}
	assert.Equal(t, pushes{"/style.css"}, *pushed)
}

func size(t *testing.T, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	require.NoError(t, err)
	return info.Size()
}

func TestLimitNeedsGuard(t *testing.T) {
	assert.Panics(t, func() { nethttp.Limit(nil) })
	limit := nethttp.Limit(guard.Must("1/1h", keyfunc.IP()))
	assert.PanicsWithValue(t, "nethttp: Limit(g)(nil): give the handler to limit, such as http.DefaultServeMux", func() { limit(nil) })
}

// Copying nothing writes nothing.
func TestNativeCopiesNothing(t *testing.T) {
	over := nethttp.Handle(func(w http.ResponseWriter, _ *http.Request, _ *guard.Verdict) {
		_, _ = io.Copy(w, strings.NewReader(""))
	})
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.Const("all"), OverLimit: over}})
	require.NoError(t, err)
	h := nethttp.Limit(g)(http.NotFoundHandler())
	for _, want := range []int{404, 429} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		assert.Equal(t, want, w.Code)
	}
}

// A goroutine of middleware outside may read the request while the handler runs: the race
// detector watches. What the handler changes of its own copy stays inside.
func TestRequestOutsideIsLeftAlone(t *testing.T) {
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "5 concurrent", Key: keyfunc.IP()}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	h := nethttp.Limit(g)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		r.URL, r.RemoteAddr = &url.URL{Path: "/inside"}, "inside"
	}))
	r := httptest.NewRequest(http.MethodGet, "/outside", nil)
	want := r.Method + r.URL.Path + r.RemoteAddr
	read := make(chan string)
	go func() { read <- r.Method + r.URL.Path + r.RemoteAddr }()
	h.ServeHTTP(httptest.NewRecorder(), r)
	assert.Equal(t, want, <-read)
	assert.Equal(t, want, r.Method+r.URL.Path+r.RemoteAddr)
}

// To a client of gRPC a refusal is an answer of trailers alone: a header that ends the stream.
func TestGRPC(t *testing.T) {
	g := guard.Must("1/1h", keyfunc.Const("all"))
	server := httptest.NewUnstartedServer(nethttp.Limit(g)(ok))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	transport := &http.Transport{Protocols: server.Config.Protocols}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	post := func() (res *http.Response) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/mail.Service/Send", strings.NewReader("message"))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/grpc")
		r.Header.Set("Te", "trailers")
		res, err = client.Do(r)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res
	}
	first := post() //nolint:bodyclose // post has
	require.Equal(t, http.StatusNoContent, first.StatusCode)
	res := post() //nolint:bodyclose // post has
	assert.Equal(t, 2, res.ProtoMajor)
	assert.Equal(t, http.StatusOK, res.StatusCode)
	assert.Equal(t, "8", res.Header.Get("Grpc-Status"))
	assert.Equal(t, "too many requests", res.Header.Get("Grpc-Message"))
	assert.Equal(t, "application/grpc", res.Header.Get("Content-Type"))
	assert.Contains(t, fmt.Sprintf("%T", res.Body), "noBody", "the header has ended the stream")
}

// However a native handler writes, its answer is a refusal unless it says otherwise.
func TestNativeAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		over   func(http.ResponseWriter)
		status int
	}{
		"write":     {func(w http.ResponseWriter) { _, _ = w.Write([]byte("less")) }, http.StatusTooManyRequests},
		"string":    {func(w http.ResponseWriter) { _, _ = io.WriteString(w, "less") }, http.StatusTooManyRequests},
		"copy":      {func(w http.ResponseWriter) { _, _ = io.Copy(w, strings.NewReader("less")) }, http.StatusTooManyRequests},
		"read from": {func(w http.ResponseWriter) { _, _ = io.CopyN(w, endless{}, 4) }, http.StatusTooManyRequests},
		"flush":     {func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }, http.StatusTooManyRequests},
		"status":    {func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK); _, _ = w.Write([]byte("less")) }, http.StatusOK},
		"hints": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = w.Write([]byte("less"))
		}, http.StatusTooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			over := func(w http.ResponseWriter, _ *http.Request, _ *guard.Verdict) { c.over(w) }
			g, _ := newGuard(t, keyfunc.Const("all"), guard.Config{Rule: guard.Rule{Cost: func(keyfunc.Request) int64 { return 1001 }, OverLimit: nethttp.Handle(over)}})
			server := httptest.NewServer(nethttp.Limit(g)(ok))
			t.Cleanup(server.Close)
			res, err := server.Client().Get(server.URL)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			assert.Equal(t, c.status, res.StatusCode)
		})
	}
}

// endless is a source without an end, of a kind that a writer may read from.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
