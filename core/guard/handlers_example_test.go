package guard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

// A body of the program's own, for everybody.
func ExampleReject() {
	g, err := guard.New(guard.Config{Rule: guard.Rule{
		Policy: "1/1m",
		Key:    keyfunc.IP(),
		OverLimit: guard.Reject(guard.RejectOptions{
			Body:   `{"code":"slow-down"}`,
			Header: map[string]string{"Content-Type": "application/json"},
		}),
	}})
	if err != nil {
		panic(err)
	}
	handler := nethttp.Limit(g)(http.NotFoundHandler())
	for range 2 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code, w.Header().Get("Content-Type"), strings.TrimSpace(w.Body.String()))
	}
	// Output:
	// 404 text/plain; charset=utf-8 404 page not found
	// 429 application/json {"code":"slow-down"}
}

// Over its limit a search goes on, with less to do.
func ExampleDegrade() {
	g, err := guard.New(guard.Config{Rule: guard.Rule{
		Policy:    "1/1m",
		Key:       keyfunc.IP(),
		OverLimit: guard.Degrade(),
	}})
	if err != nil {
		panic(err)
	}
	search := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if guard.Degraded(r.Context()) {
			fmt.Fprint(w, "from the cache")
			return
		}
		fmt.Fprint(w, "from the index")
	})
	handler := nethttp.Limit(g)(search)
	for range 2 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/search", nil))
		fmt.Println(w.Body)
	}
	// Output:
	// from the index
	// from the cache
}

// A client that does not stop is turned away for a minute, then for two, and so on, without asking the store.
func ExampleBreak() {
	g, err := guard.New(guard.Config{Rule: guard.Rule{
		Policy:    "1/1h",
		Key:       keyfunc.IP(),
		OverLimit: guard.Break(guard.BreakOptions{Refusals: 3, Open: time.Minute, MaxOpen: time.Hour}),
	}})
	if err != nil {
		panic(err)
	}
	handler := nethttp.Limit(g)(http.NotFoundHandler())
	for range 5 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Printf("%d retry-after=%q\n", w.Code, w.Header().Get("Retry-After"))
	}
	// Output:
	// 404 retry-after=""
	// 429 retry-after="3600"
	// 429 retry-after="3600"
	// 429 retry-after="3600"
	// 429 retry-after="60"
}

// As fail2ban does: of an address that has failed to log in too often, nothing is heard for a while.
func ExampleBreak_fail2ban() {
	g, err := guard.New(guard.Config{Rule: guard.Rule{
		Policy: "2/10m",
		Key:    keyfunc.IP(),
		Settle: func(f guard.Final, taken int64) int64 { // only failures count
			if f.Status == 401 {
				return taken
			}
			return 0
		},
		OverLimit: guard.Break(guard.BreakOptions{
			Refusals: 2, Within: 10 * time.Minute, // after two failures, and two more attempts
			Open: time.Hour, MaxOpen: 24 * time.Hour,
			Then: guard.Reject(guard.RejectOptions{Status: 403, Body: "banned\n"}),
		}),
	}})
	if err != nil {
		panic(err)
	}
	for range 5 {
		verdict := g.Check(from("203.0.113.7"))
		if verdict.Action == guard.Pass {
			fmt.Println("a wrong password")
		} else {
			fmt.Printf("%d %s", verdict.Status, verdict.Body)
		}
		verdict.Finish(guard.Final{Status: 401})
	}
	// Output:
	// a wrong password
	// a wrong password
	// 429 too many requests
	// 403 banned
	// 403 banned
}

// An answer that no other handler gives: over the limit, clients are sent to a page that explains it.
func ExampleHandlerFunc() {
	moved := guard.HandlerFunc("explain", func(x *guard.Refusal) guard.Verdict {
		if x.Result.Limit == 0 { // nothing was decided: x.Err says why
			return guard.Verdict{Action: guard.Reply, Status: 503}
		}
		v := guard.Verdict{Action: guard.Reply, Status: 429, Body: []byte("see /limits\n")}
		v.SetField("Link", `</limits>; rel="help"`)
		return v
	})
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.IP(), OverLimit: moved}})
	if err != nil {
		panic(err)
	}
	handler := nethttp.Limit(g)(http.NotFoundHandler())
	for range 2 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code, w.Header().Get("Link"), strings.TrimSpace(w.Body.String()))
	}
	// Output:
	// 404  404 page not found
	// 429 </limits>; rel="help" see /limits
}

// Requests without a user are counted together, and may be few; NoKeyDefault, the zero NoKey, would refuse them.
func ExampleNoKey() {
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.Header("X-Api-Key"), NoKey: guard.NoKeyShared}})
	if err != nil {
		panic(err)
	}
	for _, key := range []string{"a", "", "b", ""} {
		r := httptest.NewRequest("GET", "/", nil)
		if key != "" {
			r.Header.Set("X-Api-Key", key)
		}
		w := httptest.NewRecorder()
		nethttp.Limit(g)(http.NotFoundHandler()).ServeHTTP(w, r)
		fmt.Printf("%q %d\n", key, w.Code)
	}
	// Output:
	// "a" 404
	// "" 404
	// "b" 404
	// "" 429
}

// Downloads are charged by the kilobytes that were sent, and one that has failed is free.
func ExampleFinal() {
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{
			Policy: "traffic: 1000/1h debt 1000",
			Key:    keyfunc.IP(),
			After: func(f guard.Final) int64 {
				if f.Panicked || f.Status >= 500 {
					return 0
				}
				return f.Bytes / 1000
			},
		},
		Observe: func(e guard.Event) {
			if e.Settled {
				fmt.Println(e.Policy, "used", e.Used)
			}
		},
	})
	if err != nil {
		panic(err)
	}
	handler := nethttp.Limit(g)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, strings.Repeat("x", 64_000))
	}))
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	// Output:
	// traffic used 64
}
