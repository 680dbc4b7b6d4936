package inspect_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/observe/inspect"
)

// A program that limits requests and shows operators on its machine what it limits.
func ExampleHandler() {
	o, err := observe.New(observe.Options{})
	if err != nil {
		panic(err)
	}
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "api: 2/1h", Key: keyfunc.IP()}, Observe: o.Observe})
	if err != nil {
		panic(err)
	}
	o.Watch([]*guard.Guard{g})
	mux := http.NewServeMux()
	mux.Handle("/", nethttp.Limit(g)(http.NotFoundHandler()))
	mux.Handle("/debug/weir", inspect.Handler(o, inspect.Options{}))

	server := httptest.NewServer(mux)
	defer server.Close()
	get := func(path string) string {
		res, err := server.Client().Get(server.URL + path)
		if err != nil {
			panic(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			panic(err)
		}
		return string(text)
	}
	for range 3 {
		get("/orders")
	}
	for line := range strings.Lines(get("/debug/weir")) {
		if strings.Contains(line, "api") && strings.Contains(line, "refused") {
			fields := strings.Fields(line)
			fmt.Println(strings.Join(fields[1:7], " "))
		}
	}
	// Output: api Rule / ip=127.0.0.0/24 refused process
}
