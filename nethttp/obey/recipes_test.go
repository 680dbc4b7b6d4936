package obey_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/nethttp/obey"
)

// A limit of the program's own for somebody else's API, which sends no headers that say so. With "; wait 30s" in the
// policy requests wait for their turn, and with a store on Redis all processes share the limit.
func ExampleNew_ownLimit() {
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer api.Close()

	limiter, err := enforce.New(nil, core.MustParse("geocoder: 2/1h"), enforce.Options{})
	if err != nil {
		panic(err)
	}
	transport, err := obey.New(obey.Options{Limiter: limiter})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}

	for range 3 {
		resp, err := client.Get(api.URL)
		var over *enforce.OverLimitError
		if errors.As(err, &over) {
			fmt.Println("nothing was sent, over the limit:", over.Result.Limit, "an hour")
			continue
		}
		if err != nil {
			panic(err)
		}
		resp.Body.Close()
		fmt.Println(resp.StatusCode)
	}
	// Output:
	// 200
	// 200
	// nothing was sent, over the limit: 2 an hour
}
