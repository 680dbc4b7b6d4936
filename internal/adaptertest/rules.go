package adaptertest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// A table of routes goes by what the framework has registered, whatever paths and methods clients
// claim.
func testTable(t *testing.T, a Adapter) {
	g := newGuard(t, "100/1h", guard.Config{
		Routes: map[string]guard.Rule{
			"POST " + a.Pattern("/items/{id}"): {Policy: "writing: 2/1h"},
			a.Pattern("/files/{name}"):         {Policy: "files: 3/1h", Instead: true},
			"/health":                          {Instead: true},
		},
	})
	s := serve(t, a, App{Guards: []*guard.Guard{g}, Routes: []Route{
		a.items(),
		{Method: http.MethodPost, Pattern: "/items/{id}"},
		{Method: http.MethodGet, Pattern: "/files/{name}"},
		{Method: http.MethodGet, Pattern: "/health"},
	}})
	s.get("/items/1").admitted(t, 100, 99)
	s.do(http.MethodPost, "/items/1").admitted(t, 2, 1)
	s.do(http.MethodPost, "/items/2", "X-HTTP-Method-Override", "GET", "X-HTTP-Method", "GET", "X-Method-Override", "GET").admitted(t, 2, 0)
	s.do(http.MethodPost, "/items/3").refused(t, 2)
	s.get("/items/1").admitted(t, 100, 96)
	for remaining := 2; remaining >= 0; remaining-- {
		s.get("/files/"+strings.Repeat("x", remaining+1)).admitted(t, 3, remaining)
	}
	s.get("/files/y").refused(t, 3)
	for range 200 {
		s.get("/health").has(t, http.StatusOK, uncounted())
	}
	s.get("/items/1").admitted(t, 100, 95)
}

// Several rules hold together, each for a key of its own, and tiers have their own numbers.
func testRules(t *testing.T, a Adapter) {
	header := func(kind, name string) keyfunc.Func {
		return keyfunc.Custom(kind, func(r keyfunc.Request) (string, error) { return strings.Join(r.Header(name), ""), nil })
	}
	g := newGuard(t, "user: 2/1h", guard.Config{
		Rule: guard.Rule{
			Key:   header("uid", "X-User"),
			Tier:  func(r keyfunc.Request) string { return strings.Join(r.Header("X-Tier"), "") },
			Tiers: map[string]string{"pro": "4/1h", "admin": "unlimited"},
		},
		Rules: []guard.Rule{{Policy: "tenant: 8/1h", Key: header("tenant", "X-Tenant")}},
	})
	s := serve(t, a, hello(Handler{}, g))
	by := func(user, tier string) answer {
		return s.get("/hello", "X-User", user, "X-Tier", tier, "X-Tenant", "acme")
	}
	by("ann", "").admitted(t, 2, 1)
	by("ann", "").admitted(t, 2, 0)
	by("ann", "").refused(t, 2)
	for remaining := 3; remaining >= 0; remaining-- {
		by("bob", "pro").admitted(t, 4, remaining)
	}
	by("root", "admin").admitted(t, 8, 1)
	by("root", "admin").admitted(t, 8, 0)
	by("root", "admin").refused(t, 8)
	by("carl", "").refused(t, 8)
}
