package nethttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

// Two requests a minute from each address to each route.
func ExampleLimit() {
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{
			Policy: "2/1m",
			Key:    keyfunc.Join(keyfunc.IP(), keyfunc.Route()),
		},
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "item") })

	server := httptest.NewServer(nethttp.Limit(g)(mux))
	defer server.Close()
	for _, path := range []string{"/items/1", "/items/2", "/items/3"} {
		res, err := http.Get(server.URL + path)
		if err != nil {
			panic(err)
		}
		res.Body.Close()
		fmt.Printf("%d remaining=%q retry-after=%q\n", res.StatusCode, res.Header.Get("X-RateLimit-Remaining"), res.Header.Get("Retry-After"))
	}
	// Output:
	// 200 remaining="1" retry-after=""
	// 200 remaining="0" retry-after=""
	// 429 remaining="0" retry-after="30"
}

// An annotation: logins have a limit of their own, besides the one around everything.
func ExampleLimit_annotation() {
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{
			Policy: "100/1m",
			Key:    keyfunc.IP(),
		},
	})
	if err != nil {
		panic(err)
	}
	login := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "welcome") })
	mux := http.NewServeMux()
	mux.Handle("POST /login", nethttp.Limit(g.With("login", "1/1m"))(login))

	server := httptest.NewServer(nethttp.Limit(g)(mux))
	defer server.Close()
	for range 2 {
		res, err := http.Post(server.URL+"/login", "", nil)
		if err != nil {
			panic(err)
		}
		res.Body.Close()
		fmt.Println(res.StatusCode, "limit:", res.Header.Get("X-RateLimit-Limit"))
	}
	// Output:
	// 200 limit: 1
	// 429 limit: 1
}

// An answer of the program's own: JSON instead of text.
func ExampleHandle() {
	g, err := guard.New(guard.Config{Rule: guard.Rule{
		Policy: "1/1m",
		Key:    keyfunc.IP(),
		OverLimit: nethttp.Handle(func(w http.ResponseWriter, r *http.Request, v *guard.Verdict) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(v.Status)
			fmt.Fprintf(w, `{"policy": %q}`, v.Policy)
		}),
	}})
	if err != nil {
		panic(err)
	}
	handler := nethttp.Limit(g)(http.NotFoundHandler())
	for range 2 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 404 404 page not found
	//
	// 429 {"policy": "default"}
}
