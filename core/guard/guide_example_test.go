package guard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

// ask sends a request to a handler, and prints its status.
func ask(handler http.Handler, method, path string) {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	fmt.Println(method, path, w.Code)
}

// One limit for all routes, in the process.
func Example() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })

	limit := nethttp.Limit(guard.Must("2/1m", keyfunc.IP()))
	handler := limit(mux)

	for range 3 {
		ask(handler, "GET", "/hello")
	}
	// Output:
	// GET /hello 200
	// GET /hello 200
	// GET /hello 429
}

// A table of routes, beside the rule that holds everywhere, and an annotation for one route.
func Example_routes() {
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{Policy: "100/1m", Key: keyfunc.IP()},
		Routes: map[string]guard.Rule{
			"POST /login": {Policy: "3/1m; fail closed"},
			"GET /health": {Instead: true}, // no limit
		},
	})
	if err != nil {
		panic(err)
	}
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	mux := http.NewServeMux()
	mux.Handle("POST /login", ok)
	mux.Handle("GET /health", ok)
	mux.Handle("POST /report", nethttp.Limit(g.With("report", "1/1h"))(ok))
	handler := nethttp.Limit(g)(mux)
	for range 4 {
		ask(handler, "POST", "/login")
	}
	ask(handler, "GET", "/health")
	ask(handler, "POST", "/report")
	ask(handler, "POST", "/report")
	// Output:
	// POST /login 200
	// POST /login 200
	// POST /login 200
	// POST /login 429
	// GET /health 200
	// POST /report 200
	// POST /report 429
}

// tierOf would look up what the customer pays.
func tierOf(r keyfunc.Request) string {
	if keys := r.Header("X-Api-Key"); len(keys) == 1 && strings.HasPrefix(keys[0], "pro-") {
		return "pro"
	}
	return ""
}

// Each customer is counted by its key, with the numbers of its tier, and all of them together by a second rule.
func Example_tiers() {
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{
			Policy: "user: 60/1h",
			Key:    keyfunc.Header("X-Api-Key"),
			Tier:   tierOf,
			Tiers:  map[string]string{"pro": "5000/1h", "staff": "unlimited"},
		},
		Rules: []guard.Rule{{Policy: "everybody: 10000/1s", Key: keyfunc.Const("all")}},
	})
	if err != nil {
		panic(err)
	}
	for _, key := range []string{"free-1", "pro-1"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Api-Key", key)
		w := httptest.NewRecorder()
		nethttp.Limit(g)(http.NotFoundHandler()).ServeHTTP(w, r)
		fmt.Println(key, w.Header().Get("X-RateLimit-Remaining"), "of", w.Header().Get("X-RateLimit-Limit"))
	}
	// Output:
	// free-1 59 of 60
	// pro-1 4999 of 5000
}

// A policy is raised and put on trial while the program runs, one customer is given more, and then the policy is
// enforced, and another customer kept out.
func Example_changing() {
	sets := new(atomic.Pointer[guard.Set])
	g, err := guard.New(guard.Config{
		Rule:   guard.Rule{Policy: "api: 1/1h fixed-window", Key: keyfunc.Header("X-Customer")},
		Source: sets,
	})
	if err != nil {
		panic(err)
	}
	handler := nethttp.Limit(g)(http.NotFoundHandler())
	ask := func() {
		for _, customer := range []string{"6", "7", "8"} {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("X-Customer", customer)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			fmt.Printf("%s: %d, limit %q\n", customer, w.Code, w.Header().Get("X-RateLimit-Limit"))
		}
	}
	sets.Store(&guard.Set{
		Revision: "1",
		Policies: map[string]string{"api": "2/1h fixed-window; shadow"},
		Keys:     map[string]map[string]string{"api": {"header.x-customer=7": "500/1h fixed-window"}},
	})
	ask()
	ask()
	sets.Store(&guard.Set{
		Revision: "2",
		Policies: map[string]string{"api": "2/1h fixed-window"},
		Keys: map[string]map[string]string{"api": {
			"header.x-customer=7": "500/1h fixed-window", "header.x-customer=8": "blocked",
		}},
	})
	ask()
	fmt.Print(g.Describe(nil))
	// Output:
	// 6: 404, limit ""
	// 7: 404, limit ""
	// 8: 404, limit ""
	// 6: 404, limit ""
	// 7: 404, limit ""
	// 8: 404, limit ""
	// 6: 429, limit "2"
	// 7: 404, limit "500"
	// 8: 429, limit ""
	// revision 2
	// all others  Rule  api: 2/1h fixed-window  by header(X-Customer)  reject(429)  2 keys
}

// Four processes count together in Redis. While it fails, each of them admits a quarter.
func Example_redis() {
	fmt.Println(countInRedis())
	// Output:
	// [api: 100/1m; fail local 1/4] <nil>
}

func countInRedis() (string, error) {
	rdb := redis.NewUniversalClient(redisstore.ClientOptions("127.0.0.1:6379"))
	store, err := redisstore.New(rdb, redisstore.Options{})
	if err != nil {
		return "", err
	}
	g, err := guard.New(guard.Config{
		Rule:  guard.Rule{Policy: "api: 100/1m; fail local 1/4", Key: keyfunc.IP()}, // in each of four processes
		Store: store,
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprint(g.Policies()), nil
}

// A request is charged an estimate before the handler, and what the handler has reported after it.
func Example_costs() {
	g, err := guard.New(guard.Config{Rule: guard.Rule{
		Policy:    "tokens: 1000/1h debt 500",
		Key:       keyfunc.User(userKey{}),
		Cost:      func(keyfunc.Request) int64 { return 300 }, // an estimate
		Settle:    guard.Reported,                             // what handlers report
		OverLimit: guard.Break(guard.BreakOptions{Refusals: 20, Open: time.Minute}),
	}})
	if err != nil {
		panic(err)
	}
	handler := nethttp.Limit(g)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		guard.Report(r.Context(), 650)
	}))
	for range 3 {
		r := httptest.NewRequest("POST", "/complete", nil)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, "u7")))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"), "left before what it reported")
	}
	// Output:
	// 200 700 left before what it reported
	// 200 50 left before what it reported
	// 429 0 left before what it reported
}

// The code in the package's documentation is that of the examples, which are compiled and run.
func TestGuide(t *testing.T) {
	lines := func(file string) (all []string) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			all = append(all, line)
		}
		return all
	}
	plain := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	examples := plain(strings.Join(lines("guide_example_test.go"), " "))
	var blocks []string
	inside := false
	for _, line := range lines("doc.go") {
		code, is := strings.CutPrefix(line, "//\t")
		switch {
		case is && inside:
			blocks[len(blocks)-1] += code
		case is:
			blocks = append(blocks, code)
		}
		inside = is
	}
	assert.Len(t, blocks, 7)
	for _, block := range blocks {
		assert.Contains(t, strings.ReplaceAll(examples, `return "", err`, "return err"), plain(block))
	}
}
