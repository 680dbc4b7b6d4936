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

// Metrics for a system that has no reader here: each family has a name, a kind, and points with values of its attributes.
func ExampleSnapshot_Families() {
	o, err := observe.New(observe.Options{})
	if err != nil {
		panic(err)
	}
	g, err := guard.New(guard.Config{
		Rule:    guard.Rule{Policy: "login: 1/1h", Key: keyfunc.IP()},
		Observe: o.Observe,
	})
	if err != nil {
		panic(err)
	}
	h := nethttp.Limit(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range 3 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/login", nil))
	}

	write := func(f observe.Family, p observe.Point) {
		fmt.Print(f.Prometheus())
		for i, attribute := range f.Attributes {
			switch attribute {
			case observe.AttrPolicy, observe.AttrOutcome:
				fmt.Printf(" %s=%s", observe.Label(attribute), p.Values[i])
			}
		}
		fmt.Println("", p.Value)
	}
	s := o.Snapshot()
	for _, f := range s.Families() {
		for _, p := range f.Points {
			switch f.Kind {
			case observe.Counter, observe.Gauge:
				write(f, p)
			case observe.Histograms: // p.Histogram.Classic(f.Bounds), or Native
			}
		}
	}
	// Output:
	// weir_decisions_total weir_policy=login weir_outcome=at-limit 1
	// weir_decisions_total weir_policy=login weir_outcome=refused 2
}
