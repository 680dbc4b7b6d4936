package obey_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/nethttp/obey"
)

// A client that sends more than its server admits, and waits instead of being refused.
func ExampleNew() {
	g, err := guard.New(guard.Config{
		Rule:    guard.Rule{Policy: "api: 20/1s", Key: keyfunc.Const("all")},
		Headers: guard.Headers{RateLimit: true},
	})
	if err != nil {
		panic(err)
	}
	api := httptest.NewServer(nethttp.Limit(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	defer api.Close()

	transport, err := obey.New(obey.Options{})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}

	answers := map[int]int{}
	for range 25 {
		res, err := client.Get(api.URL)
		if err != nil {
			panic(err)
		}
		res.Body.Close()
		answers[res.StatusCode]++
	}
	fmt.Println(answers)
	// Output: map[200:25]
}

// A server that asks for an hour of silence: the next request fails at once, and is not sent.
func ExampleWaitError() {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer api.Close()

	transport, err := obey.New(obey.Options{})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}

	for range 2 {
		res, err := client.Get(api.URL)
		var tooLate *obey.WaitError
		if errors.As(err, &tooLate) {
			fmt.Println("not sent; half an hour is not enough:", tooLate.Wait.Minutes() > 30)
			continue
		}
		if err != nil {
			panic(err)
		}
		res.Body.Close()
		fmt.Println(res.StatusCode)
	}
	// Output:
	// 429
	// not sent; half an hour is not enough: true
}
