package adaptertest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// patience bounds every wait. It is only ever used up by a failure.
const patience = 20 * time.Second

// guard builds a Guard that counts by address, unless c says otherwise.
func newGuard(t testing.TB, policy string, c guard.Config) *guard.Guard {
	t.Helper()
	c.Policy = policy
	if c.Key.String() == "" {
		c.Key = keyfunc.IP()
	}
	g, err := guard.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	return g
}

// hello is an App of one route, GET /hello.
func hello(h Handler, guards ...*guard.Guard) App {
	return App{Guards: guards, Routes: []Route{{Method: http.MethodGet, Pattern: "/hello", Handler: h}}}
}

// server is an App that is served, and a client of its own.
type server struct {
	t      testing.TB
	url    string
	client *http.Client
}

func serve(t testing.TB, a Adapter, app App) *server {
	t.Helper()
	return (&server{t: t, url: a.Serve(t, app)}).another()
}

// another is s with a client that shares no connection with others.
func (s *server) another() *server {
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 128}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &server{t: s.t, url: s.url, client: &http.Client{
		Transport:     transport,
		Timeout:       patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// ServeHTTP serves h by HTTP/1 and, without TLS, HTTP/2, on a free port until the test ends, and returns the URL.
func ServeHTTP(t testing.TB, h http.Handler) string {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.Protocols = protocols(1, 2)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// protocols are versions of HTTP, without TLS.
func protocols(versions ...int) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(slices.Contains(versions, 1))
	p.SetUnencryptedHTTP2(slices.Contains(versions, 2))
	return p
}

// overHTTP2 is s with a client that speaks HTTP/2.
func (s *server) overHTTP2() *server {
	transport := &http.Transport{DisableCompression: true, Protocols: protocols(2)}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &server{t: s.t, url: s.url, client: &http.Client{Transport: transport, Timeout: patience}}
}

func (s *server) addr() string { return strings.TrimPrefix(s.url, "http://") }

// answer is the response that a client got.
type answer struct {
	*http.Response
	body string
}

// try sends a request. Headers are pairs of a name and a value.
func (s *server) try(ctx context.Context, method, path string, body io.Reader, headers ...string) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, body)
	if err != nil {
		return answer{}, err
	}
	for pair := range slices.Chunk(headers, 2) {
		r.Header.Add(pair[0], pair[1])
	}
	res, err := s.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	read, err := io.ReadAll(res.Body)
	return answer{res, string(read)}, err
}

func (s *server) do(method, path string, headers ...string) answer {
	s.t.Helper()
	a, err := s.try(s.t.Context(), method, path, nil, headers...)
	require.NoError(s.t, err)
	return a
}

func (s *server) get(path string, headers ...string) answer {
	s.t.Helper()
	return s.do(http.MethodGet, path, headers...)
}

// The headers that weir sets, and with which frameworks answer anyhow.
const (
	limitHeader     = "X-Ratelimit-Limit"
	remainingHeader = "X-Ratelimit-Remaining"
	resetHeader     = "X-Ratelimit-Reset"
	retryHeader     = "Retry-After"
	cacheHeader     = "Cache-Control"
	varyHeader      = "Vary"
)

var unrelated = []string{"Date", "Content-Length", "Content-Type", "Server", "Connection", "X-Content-Type-Options"}

// any stands for the value of a header that is checked apart.
const anything = "*"

// has checks all the headers of an answer: those of want have exactly one line each,
// and no other is there.
func (a answer) has(t testing.TB, status int, want map[string]string) {
	t.Helper()
	require.Equal(t, status, a.StatusCode, a.body)
	for name, value := range want {
		if assert.Len(t, a.Header[name], 1, name) && value != anything {
			assert.Equal(t, value, a.Header[name][0], name)
		}
	}
	for name, lines := range a.Header {
		if _, ok := want[name]; !ok && !slices.Contains(unrelated, name) {
			assert.Fail(t, "a header that must not be there", "%s: %q", name, lines)
		}
	}
}

// admitted checks an answer from a handler with status 200.
func (a answer) admitted(t testing.TB, limit, remaining int) {
	t.Helper()
	a.has(t, http.StatusOK, numbers(limit, remaining))
}

// refused checks the plain refusal.
func (a answer) refused(t testing.TB, limit int) {
	t.Helper()
	want := numbers(limit, 0)
	want[retryHeader], want[cacheHeader], want[varyHeader] = anything, "no-store", "Accept"
	a.has(t, http.StatusTooManyRequests, want)
	assert.GreaterOrEqual(t, a.integer(t, retryHeader), int64(1))
}

func numbers(limit, remaining int) map[string]string {
	return map[string]string{
		limitHeader:     strconv.Itoa(limit),
		remainingHeader: strconv.Itoa(remaining),
		resetHeader:     anything,
	}
}

// uncounted are the headers of an answer for which nothing was counted.
func uncounted() map[string]string { return map[string]string{} }

// integer is the value of a header that must be a plain integer.
func (a answer) integer(t testing.TB, name string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(a.Header.Get(name), 10, 64)
	require.NoError(t, err, name)
	assert.Equal(t, strconv.FormatInt(n, 10), a.Header.Get(name), name)
	return n
}

// recorder is a store that remembers what it was asked for.
type recorder struct {
	core.Store
	mu    sync.Mutex
	takes []core.Take
}

func newRecorder(t testing.TB) *recorder {
	t.Helper()
	m, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	return &recorder{Store: m}
}

func (r *recorder) Take(ctx context.Context, t core.Take) (core.Result, error) {
	r.mu.Lock()
	r.takes = append(r.takes, t)
	r.mu.Unlock()
	return r.Store.Take(ctx, t)
}

// keys are the different keys that were asked for since the last call, sorted.
func (r *recorder) keys() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var keys []string
	for _, t := range r.takes {
		keys = append(keys, t.Key)
	}
	r.takes = nil
	slices.Sort(keys)
	return slices.Compact(keys)
}

// counts returns how often each policy was asked for.
func (r *recorder) counts() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := map[string]int{}
	for _, t := range r.takes {
		counts[t.Policy.Name()]++
	}
	return counts
}

// broken is a store that fails.
type broken struct{}

var errDown = &core.StoreError{Class: core.ClassDown, Err: errors.New("connection refused")}

func (broken) Take(context.Context, core.Take) (core.Result, error) { return core.Result{}, errDown }

func (broken) Refund(context.Context, []core.Refund) error { return errDown }

func (broken) Reset(context.Context, core.Policy, string) error { return errDown }

// receive waits for a value.
func receive[T any](t testing.TB, c <-chan T, message string) (value T) {
	t.Helper()
	select {
	case value = <-c:
	case <-time.After(patience):
		require.FailNow(t, message)
	}
	return value
}
