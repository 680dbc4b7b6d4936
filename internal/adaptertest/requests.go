package adaptertest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/logtest"
	"github.com/weir-go/weir/keyfunc"
)

// key is the text of a key of pairs of a kind and a part.
func key(pairs ...string) string {
	var k keyfunc.Key
	for i := 0; i < len(pairs); i += 2 {
		k.Add(pairs[i], pairs[i+1])
	}
	return k.String()
}

func (a Adapter) items() Route {
	return Route{Method: http.MethodGet, Pattern: "/items/{id}"}
}

// Whatever form a path has, it is its route's, or nobody's.
func testRoute(t *testing.T, a Adapter) {
	store := newRecorder(t)
	g := newGuard(t, "1000/1h", guard.Config{Rule: guard.Rule{Key: keyfunc.Join(keyfunc.IP(), keyfunc.Route())}, Store: store})
	items := a.items()
	for name, app := range map[string]App{
		"around everything": {Guards: []*guard.Guard{g}, Routes: []Route{items, {Method: http.MethodPost, Pattern: "/items/{id}"}, {Method: http.MethodGet, Pattern: "/"}}},
		"on the route":      {Routes: []Route{{Method: items.Method, Pattern: items.Pattern, Guards: []*guard.Guard{g}}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, a, app)
			mine := key("ip", "127.0.0.1", "route", a.Pattern("/items/{id}"))
			remaining := int(s.get("/items/1").integer(t, remainingHeader))
			s.get("/items/2").admitted(t, 1000, remaining-1)
			s.get("/items/1?x=1")
			s.do(http.MethodHead, "/items/3")
			assert.Equal(t, []string{mine}, store.keys())

			nobodys := key("ip", "127.0.0.1", "route", "")
			for _, path := range []string{
				"/items/1/", "/ITEMS/1", "/Items/1", "//items/1", "/items//1", "/items/a%2Fb", "/items/%31",
				"/items/1;a=b", "/./items/1", "/items/x/../1", "/items/1%00", "/it%65ms/1", "/items/1//", "/items/\u00fc",
			} {
				s.get(path)
				assert.Subset(t, []string{mine, nobodys}, store.keys(), path)
			}
			s.do(http.MethodConnect, "/items/1/")
			assert.Subset(t, []string{mine, nobodys}, store.keys())
		})
	}
}

// All requests that match no route share a count.
func testNoRoute(t *testing.T, a Adapter) {
	store := newRecorder(t)
	g := newGuard(t, "5/1h", guard.Config{Rule: guard.Rule{Key: keyfunc.Join(keyfunc.IP(), keyfunc.Route())}, Store: store})
	s := serve(t, a, App{Guards: []*guard.Guard{g}, Routes: []Route{a.items()}})
	for i := range 5 {
		res := s.get(fmt.Sprintf("/nothing/%d", i))
		res.has(t, http.StatusNotFound, numbers(5, 4-i))
	}
	s.get("/nothing/else").refused(t, 5)
	s.get("/neither").refused(t, 5)
	assert.Equal(t, []string{key("ip", "127.0.0.1", "route", "")}, store.keys())
	s.get("/items/1").admitted(t, 5, 4)
}

// Nobody gets new keys by inventing methods.
func testMethods(t *testing.T, a Adapter) {
	store := newRecorder(t)
	g := newGuard(t, "1000/1h", guard.Config{Rule: guard.Rule{Key: keyfunc.Join(keyfunc.Method(), keyfunc.Route())}, Store: store})
	s := serve(t, a, App{Guards: []*guard.Guard{g}, Routes: []Route{a.items()}})
	s.get("/items/1")
	s.do(http.MethodHead, "/items/1")
	assert.Equal(t, []string{key("method", "GET", "route", a.Pattern("/items/{id}"))}, store.keys())
	for _, method := range []string{"BREW", "FROTH", "get", "Head"} {
		s.do(method, "/items/1") // a framework may refuse to hear of it
	}
	for _, k := range store.keys() {
		assert.True(t, strings.HasPrefix(k, "method=OTHER&"), k)
	}
}

// view is a request as a key function saw it.
type view struct {
	Method, Host, Path, Route string
	Peer                      netip.Addr
	Port                      bool
	Lines, None               []string
	Length                    int64
	Native                    bool
}

func testRequest(t *testing.T, a Adapter) {
	views := make(chan view, 1)
	g := newGuard(t, "1000/1h", guard.Config{
		Rule: guard.Rule{
			Key: keyfunc.Custom("probe", func(r keyfunc.Request) (string, error) {
				if r.Context() == nil || r.Context().Err() != nil || r.Value("nothing") != nil {
					return "", fmt.Errorf("context %v, value %v", r.Context(), r.Value("nothing"))
				}
				views <- view{
					r.Method(), r.Host(), r.Path(), r.Route(), r.Peer().Addr(), r.Peer().Port() != 0, r.Header("X-Lines"), r.Header("X-None"),
					r.ContentLength(), a.IsNative(r.Native()),
				}
				return "key", nil
			}),
		},
	})
	post := Route{Method: http.MethodPost, Pattern: "/items/{id}"}
	s := serve(t, a, App{Guards: []*guard.Guard{g}, Routes: []Route{a.items(), post}})

	want := view{
		Method: http.MethodGet, Host: s.addr(), Path: "/items/a b", Route: a.Pattern("/items/{id}"),
		Peer: netip.MustParseAddr("127.0.0.1"), Lines: []string{"one", "two, three"}, Port: true, Native: true,
	}
	see := func() view {
		v := receive(t, views, "the key function was not called")
		if len(v.None) == 0 {
			v.None = nil
		}
		return v
	}
	s.get("/items/a%20b?q=1", "X-Lines", "one", "X-Lines", "two, three").admitted(t, 1000, 999)
	assert.Equal(t, want, see())
	s.do(http.MethodHead, "/items/a%20b", "x-lines", "one", "X-LINES", "two, three")
	want.Method = http.MethodHead
	assert.Equal(t, want, see())

	want.Method, want.Lines = http.MethodPost, nil
	for length, body := range map[int64]io.Reader{0: nil, 5: strings.NewReader("12345"), -1: io.MultiReader(strings.NewReader("12345"))} {
		_, err := s.try(t.Context(), http.MethodPost, "/items/a%20b", body)
		require.NoError(t, err)
		got := see()
		if len(got.Lines) == 0 {
			got.Lines = nil
		}
		want.Length = length
		assert.Equal(t, want, got)
	}
}

// What a key function keeps is not overwritten by later requests.
func testStrings(t *testing.T, a Adapter) {
	var mu sync.Mutex
	var kept [][]string
	g := newGuard(t, "1000/1h", guard.Config{
		Rule: guard.Rule{
			Key: keyfunc.Custom("probe", func(r keyfunc.Request) (string, error) {
				user, _ := r.Value(StoreKey).(string)
				mu.Lock()
				defer mu.Unlock()
				kept = append(kept, append([]string{r.Method(), r.Host(), r.Path(), r.Route(), user}, r.Header("X-Line")...))
				return r.Path(), nil
			}),
		},
	})
	post := Route{Method: http.MethodPost, Pattern: "/items/{id}"}
	s := serve(t, a, App{Guards: []*guard.Guard{g}, Routes: []Route{a.items(), post}})
	var want [][]string
	for i := range 20 {
		letter := strings.Repeat(string(rune('a'+i)), 20)
		method := []string{http.MethodGet, http.MethodPost}[i%2]
		s.do(method, "/items/"+letter, "X-Line", letter, UserInStore, letter).admitted(t, 1000, 999)
		want = append(want, []string{method, s.addr(), "/items/" + letter, a.Pattern("/items/{id}"), letter, letter})
	}
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, want, kept)
}

// Whatever stands in the first line of a request, nothing panics, not even after the handler.
func testTargets(t *testing.T, a Adapter) {
	var recovered atomic.Value
	app := App{
		Guards:    []*guard.Guard{newGuard(t, "1000/1h", guard.Config{Results: true})}, // which derives a context
		Recovered: func(v any) { recovered.Store(fmt.Sprint(v)) },
	}
	for _, method := range []string{http.MethodGet, http.MethodConnect} {
		app.Routes = append(app.Routes, Route{Method: method, Pattern: "/{x}/{y}/{z...}"})
	}
	s := serve(t, a, app)
	for _, target := range []string{
		"CONNECT http://a.com/x", "CONNECT http://a.com/x/y/z", "CONNECT a.com:443", "CONNECT /a/b/c", "CONNECT //a//b", "CONNECT ///",
		"GET http://a.com/x", "GET //a.com/x", "GET ///", "GET /%2F/%2F/%2F", "GET /a//", "GET http:///", "GET ?", "OPTIONS *",
	} {
		conn, err := net.Dial("tcp", s.addr())
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, err = io.WriteString(conn, target+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		require.NoError(t, err)
		line, err := bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err, target)
		assert.True(t, strings.HasPrefix(line, "HTTP/1.1 "), "%s: %s", target, line)
		assert.Nil(t, recovered.Load(), target)
		require.NoError(t, conn.Close())
	}
}

func testUser(t *testing.T, a Adapter) {
	store := newRecorder(t)
	g := newGuard(t, "2/1h", guard.Config{
		Rule: guard.Rule{
			Key: keyfunc.FirstOf(keyfunc.User(StoreKey), keyfunc.User(ContextKey{}), keyfunc.IP()),
		},
		Store: store,
	})
	s := serve(t, a, hello(Handler{}, g))
	s.get("/hello", UserInStore, "ann").admitted(t, 2, 1)
	s.get("/hello", UserInContext, "bob").admitted(t, 2, 1)
	s.get("/hello", UserInContext, "ann").admitted(t, 2, 0)
	s.get("/hello").admitted(t, 2, 1)
	s.get("/hello", UserInStore, "ann", UserInContext, "bob").refused(t, 2)
	s.get("/hello", UserInStore, "127.0.0.1").admitted(t, 2, 1)
	assert.Equal(t, []string{"ip=127.0.0.1", "user=127.0.0.1", "user=ann", "user=bob"}, store.keys())
}

// Of what a header claims, only what trusted proxies have written is believed.
func testForwarded(t *testing.T, a Adapter) {
	store := newRecorder(t)
	trusted := netip.MustParsePrefix("127.0.0.0/8")
	behind := newGuard(t, "1000/1h", guard.Config{Rule: guard.Rule{Key: keyfunc.ForwardedIP(trusted)}, Store: store})
	direct, err := behind.WithRule(guard.Rule{Policy: "direct: 1000/1h", Key: keyfunc.IP()})
	require.NoError(t, err)
	s := serve(t, a, App{Routes: []Route{
		{Method: http.MethodGet, Pattern: "/behind", Guards: []*guard.Guard{behind}},
		{Method: http.MethodGet, Pattern: "/direct", Guards: []*guard.Guard{direct}},
	}})
	for _, forged := range []string{"6.6.6.6", "7.7.7.7, 8.8.8.8"} {
		headers := []string{"X-Forwarded-For", forged, "X-Forwarded-For", "203.0.113.7, 127.0.0.9", "X-Real-IP", forged}
		s.get("/behind", headers...)
		assert.Equal(t, []string{"ip=203.0.113.7"}, store.keys())
		s.get("/direct", headers...)
		assert.Equal(t, []string{"ip=127.0.0.1"}, store.keys())
	}
}

// An address that a middleware has put in the place of the socket's is taken, and the
// log says once that it is not the socket's.
func testRewrittenPeer(t *testing.T, a Adapter) {
	store, said := newRecorder(t), new(logtest.Log)
	g := newGuard(t, "1/1h", guard.Config{Store: store, Log: said.Logger()})
	s := serve(t, a, hello(Handler{}, g, g.With("more", "10/1h")))
	s.get("/hello")
	assert.Empty(t, said.With("no port"))
	for _, address := range []string{"203.0.113.7", "203.0.113.8", "2001:db8::1"} {
		s.get("/hello", RewrittenPeer, address).admitted(t, 1, 0)
		s.get("/hello", RewrittenPeer, address).refused(t, 1)
	}
	assert.Equal(t, []string{"ip=127.0.0.1", "ip=2001:db8::/64", "ip=203.0.113.7", "ip=203.0.113.8"}, store.keys())
	assert.Len(t, said.With("no port"), 1)
}
