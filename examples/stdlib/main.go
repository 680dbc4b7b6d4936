// Stdlib limits a program of net/http: all routes together and two routes more strictly, with an answer of its own over
// the limit. It sends itself a few requests:
//
//	go run ./examples/stdlib
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func slowDown(w http.ResponseWriter, _ *http.Request, v *guard.Verdict) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(v.Status)
	fmt.Fprintf(w, "{\"error\":\"slow down\",\"policy\":%q}", v.Policy)
}

func newApp(g *guard.Guard) http.Handler {
	answer := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
	}
	mux := http.NewServeMux()
	mux.Handle("GET /hello", answer("hello"))
	mux.Handle("POST /login", nethttp.Limit(g.With("login", "2/1m; fail closed"))(answer("welcome")))
	mux.Handle("GET /reports/{id}", nethttp.Limit(g.With("reports", "1/1m"))(answer("a report")))
	return nethttp.Limit(g)(mux)
}

func run(out io.Writer) error {
	g, err := guard.New(guard.Config{Rule: guard.Rule{
		Policy:    "100/1m",
		Key:       keyfunc.IP(),
		OverLimit: nethttp.Handle(slowDown),
	}})
	if err != nil {
		return err
	}
	app := newApp(g)
	for _, text := range []string{"GET /hello", "POST /login", "POST /login", "POST /login", "GET /reports/7", "GET /reports/8"} {
		method, path, _ := strings.Cut(text, " ")
		w := httptest.NewRecorder()
		app.ServeHTTP(w, httptest.NewRequest(method, path, http.NoBody))
		fmt.Fprintln(out, text, w.Code, strings.TrimSpace(w.Body.String()))
	}
	return nil
}
