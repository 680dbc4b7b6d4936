package observe_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/observe"
)

func Example() {
	o, err := observe.New(observe.Options{})
	if err != nil {
		panic(err)
	}
	g, err := guard.New(guard.Config{
		Rule:    guard.Rule{Policy: "login: 2/1h", Key: keyfunc.Header("X-User")},
		Observe: o.Observe,
	})
	if err != nil {
		panic(err)
	}
	o.Watch([]*guard.Guard{g})

	h := nethttp.Limit(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range 5 {
		r := httptest.NewRequest(http.MethodPost, "/login", nil)
		r.Header.Set("X-User", "7")
		h.ServeHTTP(httptest.NewRecorder(), r)
	}

	s := o.Snapshot()
	for _, d := range s.Decisions {
		fmt.Println(d.Policy, d.Outcome, d.Count)
	}
	for _, r := range o.Refusals()[:1] {
		fmt.Println(r.Policy, r.Key)
	}
	// Output:
	// login admitted 1
	// login at-limit 1
	// login refused 3
	// login header.x-user=7
}
