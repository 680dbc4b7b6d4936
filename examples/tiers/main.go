// Tiers gives the holders of API keys the numbers of their plan, sends itself a burst for each, and prints what comes
// back:
//
//	go run ./examples/tiers
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// account is the owner of an API key.
type account struct{ name, plan string }

// accounts stand for a database. A key that is not in it is no key.
var accounts = map[string]account{
	"key-1": {"ann", "free"},
	"key-2": {"bob", "pro"},
	"key-3": {"eve", "admin"},
}

// accountOf returns the account whose key r has.
func accountOf(r keyfunc.Request) account {
	if lines := r.Header("X-Api-Key"); len(lines) == 1 {
		return accounts[lines[0]]
	}
	return account{}
}

// handler counts accounts by name, and requests without one by address.
func handler() (http.Handler, error) {
	byAccount := keyfunc.Custom("account", func(r keyfunc.Request) (string, error) { return accountOf(r).name, nil })
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{
			Policy: "api: 3/1h",
			Key:    keyfunc.FirstOf(byAccount, keyfunc.IP()),
			Tier:   func(r keyfunc.Request) string { return accountOf(r).plan },
			Tiers:  map[string]string{"free": "4/1h", "pro": "6/1h", "admin": "unlimited"},
		},
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /data", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "data") })
	return nethttp.Limit(g)(mux), nil
}

// run sends eight requests with each key, and prints how many were served.
func run(out io.Writer) error {
	h, err := handler()
	if err != nil {
		return err
	}
	for _, key := range []string{"", "made-up", "key-1", "key-2", "key-3"} {
		served := 0
		for range 8 {
			r := httptest.NewRequest(http.MethodGet, "/data", nil)
			r.Header.Set("X-Api-Key", key)
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code == http.StatusOK {
				served++
			}
		}
		fmt.Fprintf(out, "%-10q %d of 8 served\n", key, served)
	}
	return nil
}
