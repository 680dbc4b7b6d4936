package nethttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

// Tokens of a language model: an estimate first, and what the handler has reported when the request is over. What is
// beyond the estimate goes into the debt that the policy allows, and has to drain before the next one passes.
func ExampleLimit_tokens() {
	g, err := guard.New(guard.Config{Rule: guard.Rule{
		Policy: "10000/1m debt 5000",
		Key:    keyfunc.IP(),
		Cost:   func(keyfunc.Request) int64 { return 2000 },
		Settle: guard.Reported,
	}})
	if err != nil {
		panic(err)
	}
	chat := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { guard.Report(r.Context(), 12000) })
	server := httptest.NewServer(nethttp.Limit(g)(chat))
	defer server.Close()
	for range 2 {
		res, err := http.Get(server.URL)
		if err != nil {
			panic(err)
		}
		res.Body.Close()
		fmt.Printf("%d retry-after=%q\n", res.StatusCode, res.Header.Get("Retry-After"))
	}
	// Output:
	// 200 retry-after=""
	// 429 retry-after="12"
}

// Logins that failed are counted, and no others: the rule looks first, and counts when the answer is known.
func ExampleLimit_failedLogins() {
	g, err := guard.New(guard.Config{Rule: guard.Rule{
		Policy: "login: 2/1m", Key: keyfunc.IP(),
		After: func(f guard.Final) int64 {
			if f.Status == http.StatusUnauthorized {
				return 1
			}
			return 0
		},
	}})
	if err != nil {
		panic(err)
	}
	login := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("password") != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	server := httptest.NewServer(nethttp.Limit(g)(login))
	defer server.Close()
	for _, password := range []string{"secret", "guess", "secret", "guess", "secret"} {
		res, err := http.Get(server.URL + "/login?password=" + password)
		if err != nil {
			panic(err)
		}
		res.Body.Close()
		fmt.Println(res.StatusCode)
	}
	// Output:
	// 200
	// 401
	// 200
	// 401
	// 429
}
