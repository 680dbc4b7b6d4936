package nethttp_test

import (
	"cmp"
	"expvar"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

// hello stands for the program's own handlers.
var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })

// must panics on mistakes of the program.
func must(g *guard.Guard, err error) *guard.Guard {
	if err != nil {
		panic(err)
	}
	return g
}

// send prints the answers to requests such as "POST /login", with the API key that follows if there is one.
func send(h http.Handler, requests ...string) {
	for _, text := range requests {
		parts := strings.Fields(text)
		r := httptest.NewRequest(parts[0], parts[1], nil)
		if len(parts) > 2 {
			r.Header.Set("X-Api-Key", parts[2])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(text, w.Code)
	}
}

// Several routes in one place: one with a limit besides, one with another limit in the place of all, one with none.
func ExampleLimit_table() {
	g := must(guard.New(guard.Config{
		Rule: guard.Rule{Policy: "3/1m", Key: keyfunc.IP()},
		Routes: map[string]guard.Rule{
			"POST /login": {Policy: "1/1m; fail closed"},
			"/files/*":    {Policy: "1000/1m burst 50", Instead: true},
			"GET /health": {Instead: true},
		},
	}))
	mux := http.NewServeMux()
	for _, pattern := range []string{"POST /login", "GET /files/{name}", "GET /health", "GET /"} {
		mux.Handle(pattern, hello)
	}
	limit := nethttp.Limit(g)(mux)

	send(limit, "POST /login", "POST /login", "GET /", "GET /", "GET /", "GET /files/a", "GET /health")
	// Output:
	// POST /login 200
	// POST /login 429
	// GET / 200
	// GET / 200
	// GET / 429
	// GET /files/a 200
	// GET /health 200
}

// Customers have the numbers of what they have bought.
func ExampleLimit_tiers() {
	plans := map[string]string{"key-1": "pro", "key-2": "admin"}
	plan := func(r keyfunc.Request) string { return plans[strings.Join(r.Header("X-Api-Key"), "")] }
	g := must(guard.New(guard.Config{Rule: guard.Rule{
		Policy: "1/1h",
		Key:    keyfunc.FirstOf(keyfunc.Header("X-Api-Key"), keyfunc.IP()), // where a gateway has checked the keys
		Tier:   plan,
		Tiers:  map[string]string{"pro": "2/1h", "admin": "unlimited"},
	}}))
	limit := nethttp.Limit(g)(hello)

	send(limit, "GET /", "GET /", "GET / key-1", "GET / key-1", "GET / key-1", "GET / key-2", "GET / key-2")
	// Output:
	// GET / 200
	// GET / 429
	// GET / key-1 200
	// GET / key-1 200
	// GET / key-1 429
	// GET / key-2 200
	// GET / key-2 200
}

// Requests wait for their turn, two seconds at most, and fifty at most.
func ExampleLimit_queue() {
	g := must(guard.New(guard.Config{Rule: guard.Rule{
		Policy:  "100/1s burst 1; wait 2s",
		Waiting: 50,
		Key:     keyfunc.Const("search"),
	}}))
	defer g.Close() // refuses those that still wait
	limit := nethttp.Limit(g)(hello)

	send(limit, "GET /search", "GET /search", "GET /search")
	// Output:
	// GET /search 200
	// GET /search 200
	// GET /search 200
}

// Health checks are not counted.
func ExampleLimit_skip() {
	g, err := guard.New(guard.Config{Rule: guard.Rule{
		Policy: "1/1h",
		Key:    keyfunc.IP(),
		Skip:   func(r keyfunc.Request) bool { return r.Path() == "/health" },
	}})
	if err != nil {
		panic(err)
	}
	limit := nethttp.Limit(g)(hello)

	send(limit, "GET /health", "GET /health", "GET /", "GET /")
	// Output:
	// GET /health 200
	// GET /health 200
	// GET / 200
	// GET / 429
}

// CORS comes outside, so that browsers may read a 429, and answers preflights before they are counted.
func ExampleLimit_cors() {
	cors := func(next http.Handler) http.Handler { // or a library's
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", "https://app.example")
			w.Header().Set("Access-Control-Expose-Headers", "Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset")
			if r.Method != http.MethodOptions {
				next.ServeHTTP(w, r)
			}
		})
	}
	limit := cors(nethttp.Limit(guard.Must("1/1h", keyfunc.IP()))(hello))

	send(limit, "OPTIONS /", "GET /", "GET /")
	// Output:
	// OPTIONS / 200
	// GET / 200
	// GET / 429
}

// Counters of a metric: the labels have few values, which are the program's own. Prometheus takes the same three.
func ExampleLimit_metrics() {
	decisions := new(expvar.Map)
	g := must(guard.New(guard.Config{
		Rule: guard.Rule{Policy: "api: 1/1h", Key: keyfunc.IP()},
		Observe: func(e guard.Event) {
			if !e.Settled {
				decisions.Add(strings.Join([]string{e.Policy, e.Rule, e.Outcome.String()}, " "), 1)
			}
		},
	}))
	limit := nethttp.Limit(g)(hello)

	send(limit, "GET /", "GET /")
	fmt.Println(decisions)
	// Output:
	// GET / 200
	// GET / 429
	// {"api Rule at-limit": 1, "api Rule refused": 1}
}

// A limit is tried before it is enforced: it counts and is reported, and refuses nothing.
func ExampleLimit_trial() {
	refused := 0
	g := must(guard.New(guard.Config{
		Rule:  guard.Rule{Policy: "100/1m", Key: keyfunc.IP()},
		Rules: []guard.Rule{{Policy: "stricter: 2/1m; shadow"}},
		Observe: func(e guard.Event) {
			if e.Shadow && !e.Result.Allowed() {
				refused++
			}
		},
	}))
	limit := nethttp.Limit(g)(hello)

	send(limit, "GET /", "GET /", "GET /")
	fmt.Println("it would have refused", refused)
	// Output:
	// GET / 200
	// GET / 200
	// GET / 200
	// it would have refused 1
}

// A new limit is enforced for a tenth of all addresses, and is on trial for the others.
func ExampleLimit_rollOut() {
	percent := func(r keyfunc.Request) uint32 { return crc32.ChecksumIEEE(r.Peer().Addr().AsSlice()) % 100 }
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{Policy: "100/1m", Key: keyfunc.IP()},
		Rules: []guard.Rule{
			{Policy: "stricter: 1/1m", Skip: func(r keyfunc.Request) bool { return percent(r) >= 10 }},
			{Policy: "stricter.trial: 1/1m; shadow", Skip: func(r keyfunc.Request) bool { return percent(r) < 10 }},
		},
	})
	if err != nil {
		panic(err)
	}
	limit := nethttp.Limit(g)(hello)

	refused := 0
	for i := range 10_000 {
		for range 2 {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = fmt.Sprintf("10.0.%d.%d:1234", i/100, i%100)
			limit.ServeHTTP(w, r)
			if w.Code == http.StatusTooManyRequests {
				refused++
			}
		}
	}
	fmt.Println("about a tenth is refused:", 500 < refused && refused < 1500)
	// Output:
	// about a tenth is refused: true
}

// A page shows what is left.
func ExampleLimit_left() {
	g := must(guard.New(guard.Config{Rule: guard.Rule{Policy: "5/1h", Key: keyfunc.IP()}, Results: true}))
	page := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if res, ok := guard.FromContext(r.Context()); ok {
			fmt.Println(res.Remaining, "of", res.Limit, "left")
		}
	})
	limit := nethttp.Limit(g)(page)

	send(limit, "GET /")
	// Output:
	// 4 of 5 left
	// GET / 200
}

// Routes of chi, for a limit that stands before its router.
func ExampleRouter_chi() {
	router := chi.NewRouter()
	router.Get("/items/{id}", hello)
	g := must(guard.New(guard.Config{Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.Join(keyfunc.IP(), keyfunc.Route())}}))
	limit := nethttp.Limit(g, func(r *http.Request) string {
		return router.Find(chi.NewRouteContext(), r.Method, cmp.Or(r.URL.RawPath, r.URL.Path))
	})(router)

	send(limit, "GET /items/1", "GET /items/2", "GET /elsewhere")
	// Output:
	// GET /items/1 200
	// GET /items/2 429
	// GET /elsewhere 404
}

// Any other router that can say which route matches. What the finder answers must be the pattern, and never the path.
func ExampleRouter_other() {
	patterns := map[string]*regexp.Regexp{"/items/{id}": regexp.MustCompile(`^/items/\d+$`)}
	match := func(r *http.Request) string {
		for pattern, matches := range patterns {
			if matches.MatchString(r.URL.Path) {
				return pattern
			}
		}
		return ""
	}
	g := must(guard.New(guard.Config{Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.Join(keyfunc.IP(), keyfunc.Route())}}))
	limit := nethttp.Limit(g, match)(hello)

	send(limit, "GET /items/1", "GET /items/2")
	// Output:
	// GET /items/1 200
	// GET /items/2 429
}
