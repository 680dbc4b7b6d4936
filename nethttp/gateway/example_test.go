package gateway_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp/gateway"
)

// The check of nginx on the same machine, for any service behind it.
func ExampleNew() {
	g, err := guard.New(guard.Config{
		Rule:   guard.Rule{Policy: "api: 100/1m", Key: keyfunc.IP()},
		Routes: map[string]guard.Rule{"POST /login": {Policy: "login: 1/1m"}},
	})
	if err != nil {
		panic(err)
	}
	check, err := gateway.New(g, gateway.Options{
		Style:   gateway.Nginx,
		Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Deny:    http.StatusForbidden, // nginx makes a 500 of 429
	})
	if err != nil {
		panic(err)
	}
	for range 2 {
		r := httptest.NewRequest(http.MethodGet, "/", nil) // as nginx sends it
		r.RemoteAddr = "127.0.0.1:41000"
		r.Header.Set("X-Original-Method", "POST")
		r.Header.Set("X-Original-URI", "//login?next=/")
		r.Header.Set("X-Original-Host", "example.com")
		r.Header.Set("X-Original-Address", "203.0.113.7")
		w := httptest.NewRecorder()
		check.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get(gateway.StatusHeader), w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200  0
	// 403 429 0
}
