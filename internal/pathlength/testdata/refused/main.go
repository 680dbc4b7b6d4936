// Command refused serves requests that are refused, in net/http and with the counts in the Redis at os.Args[1],
// remembers os.Args[3] refusals, and writes to the directory os.Args[2] which lines the last request passed through. It
// is built with -cover -covermode=atomic.
package main

import (
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/coverage"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

func main() {
	remembered, err := strconv.Atoi(os.Args[3])
	check(err)
	const patient = 30 * time.Second // however busy the machine is, the store does not fail
	o := redisstore.ClientOptions(os.Args[1])
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = patient, patient, patient, patient
	client := redis.NewUniversalClient(o)
	store, err := redisstore.New(client, redisstore.Options{DenyCache: remembered, Deadline: patient})
	check(err)
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "1/24h", Key: keyfunc.IP()}, Store: store})
	check(err)
	handler := nethttp.Limit(g)(http.NotFoundHandler())
	ask := func() int {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		return w.Code
	}
	for range 200 { // what a guard and a client do at first is over
		ask()
	}
	check(coverage.ClearCounters())
	status := ask()
	check(coverage.WriteMetaDir(os.Args[2]))
	check(coverage.WriteCountersDir(os.Args[2]))
	if status != http.StatusTooManyRequests {
		log.Fatalf("the request was answered with %d", status)
	}
	os.Exit(0) // without the report of the whole run
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
