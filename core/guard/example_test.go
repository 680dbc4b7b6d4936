package guard_test

import (
	"fmt"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

func ExampleNew() {
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{
			Policy: "2/1h",
			Key:    keyfunc.Join(keyfunc.IP(), keyfunc.Route()),
		},
	})
	if err != nil {
		panic(err)
	}
	defer g.Close()

	// Without an adapter; nethttp.Limit and the others call Serve, which does this and more.
	for range 3 {
		verdict := g.Check(from("203.0.113.7"))
		answer := header{}
		verdict.SetHeaders(answer)
		fmt.Println(verdict.Action == guard.Pass, verdict.Status, answer["X-Ratelimit-Remaining"])
		verdict.Finish(guard.Final{Status: 200})
	}
	// Output:
	// true 0 1
	// true 0 0
	// false 429 0
}
