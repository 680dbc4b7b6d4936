package recipes

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/rs/cors"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

// CORS by a library: it stands outside, so that browsers may read a 429, and answers preflights before they are counted.
// Which headers scripts may read, the guard says itself.
func Example_cors() {
	g, err := guard.New(guard.Config{
		Rule:    guard.Rule{Policy: "1/1h", Key: keyfunc.IP()},
		Headers: guard.Headers{Expose: true},
	})
	if err != nil {
		panic(err)
	}
	handler := cors.New(cors.Options{AllowedOrigins: []string{"https://app.example"}}).Handler(nethttp.Limit(g)(hello))

	for _, method := range []string{http.MethodOptions, http.MethodGet, http.MethodGet} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(method, "/", nil)
		r.Header.Set("Origin", "https://app.example")
		if method == http.MethodOptions {
			r.Header.Set("Access-Control-Request-Method", http.MethodGet)
		}
		handler.ServeHTTP(w, r)
		fmt.Printf("%s %d %q %q\n", method, w.Code, w.Header().Get("Access-Control-Allow-Origin"), w.Header().Get("Access-Control-Expose-Headers"))
	}
	// Output:
	// OPTIONS 204 "https://app.example" ""
	// GET 200 "https://app.example" "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After"
	// GET 429 "https://app.example" "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After"
}
