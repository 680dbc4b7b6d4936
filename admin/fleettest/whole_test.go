package fleettest

import (
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/redissource"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/keyfunc"
)

// TestOneServiceObeys: a PUT at weir-admin, and a service that runs goes by the new numbers.
func TestOneServiceObeys(t *testing.T) {
	f := startFleet(t)
	f.setUser("pay") // and no rights besides
	rdb := f.client(func(o *redis.UniversalOptions) { o.Username, o.Password = "pay", "secret" })
	store, err := redisstore.New(rdb, redisstore.Options{Prefix: "pay", Deadline: patience})
	require.NoError(t, err)
	source := f.sourceOf(rdb, "pay", redissource.Options{})
	g, err := guard.New(guard.Config{Store: store, Source: source, Rule: guard.Rule{Policy: "api: 1000/1h", Key: keyfunc.IP()}})
	require.NoError(t, err)
	url := frameworks["nethttp"](t, g)
	limit := func(want string) func(int, http.Header) bool {
		return func(_ int, h http.Header) bool { return h.Get("X-RateLimit-Limit") == want }
	}
	await(t, url, limit("1000"), "the code says so")
	f.put(t, "pay", "api", policies.Policy{Text: "2000/1h"})
	require.NoError(t, source.Ready(t.Context()))
	await(t, url, limit("2000"), "a first document")

	var longest time.Duration
	for _, text := range []string{"3000", "4000", "5000"} {
		written := f.put(t, "pay", "api", policies.Policy{Text: text + "/1h"})
		assert.True(t, written.Published)
		took := await(t, url, limit(text), "a change")
		longest = max(longest, took)
	}
	t.Logf("obeyed at the latest %v after the answer to the PUT", longest)
	assert.Less(t, longest, 10*time.Second) // a second on a machine that is not busy
}
