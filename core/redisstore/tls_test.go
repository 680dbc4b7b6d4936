package redisstore_test

import (
	"context"
	"crypto/tls"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// A TLSConfig that is set on what ClientOptions returned holds.
func TestTLS(t *testing.T) {
	t.Parallel()
	server := redistest.TLS(t)
	o := unhurried(redisstore.ClientOptions(server.TLSAddr))
	o.TLSConfig = server.Config
	rdb := redis.NewUniversalClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	s := newStore(t, rdb, redisstore.Options{Deadline: patient})
	res, err := s.Take(t.Context(), core.Take{Policy: core.MustParse("p: 2/1h"), Key: "k", Cost: 1})
	require.NoError(t, err)
	assert.EqualValues(t, 1, res.Remaining)

	o = unhurried(redisstore.ClientOptions(server.TLSAddr))
	o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12} // which does not trust the server
	stranger := redis.NewUniversalClient(o)
	t.Cleanup(func() { _ = stranger.Close() })
	_, err = newStore(t, stranger, redisstore.Options{Deadline: patient}).Take(t.Context(), core.Take{Policy: core.MustParse("p: 2/1h"), Key: "k", Cost: 1})
	var failed *core.StoreError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, core.ClassDown, failed.Class)
	assert.False(t, failed.MaybeExecuted)
	assert.ErrorContains(t, err, "certificate")
}

// New refuses options of which go-redis would ignore the TLSConfig, so that no password travels in plain text.
func TestIgnoredTLSConfig(t *testing.T) {
	t.Parallel()
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	own := func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
	before := func() *redis.UniversalOptions {
		o := redisstore.ClientOptions("127.0.0.1:1")
		o.TLSConfig, o.MinIdleConns = config, 0
		return o
	}
	after := func() *redis.UniversalOptions {
		o := redisstore.ClientOptions("127.0.0.1:1")
		o.MinIdleConns = 0
		return o
	}
	simple, cluster := after().Simple(), after().Cluster()
	simple.TLSConfig, cluster.TLSConfig = config, config
	sentinels := before()
	sentinels.MasterName = "weir"
	newWith(t, map[string]candidate{
		"on the options":           {rdb: redis.NewUniversalClient(before())},
		"before Simple":            {rdb: redis.NewClient(before().Simple())},
		"before Cluster":           {rdb: redis.NewClusterClient(before().Cluster())},
		"of Sentinels":             {rdb: redis.NewUniversalClient(sentinels)},
		"no TLS":                   {rdb: redis.NewUniversalClient(after())},
		"go-redis's own":           {rdb: redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, Addr: "127.0.0.1:1", TLSConfig: config})},
		"go-redis's own, cluster":  {rdb: redis.NewClusterClient(&redis.ClusterOptions{ContextTimeoutEnabled: true, Addrs: []string{"127.0.0.1:1"}, TLSConfig: config})},
		"go-redis's own, ring":     {rdb: redis.NewRing(&redis.RingOptions{ContextTimeoutEnabled: true, Addrs: map[string]string{"a": "127.0.0.1:1"}, TLSConfig: config})},
		"a Dialer alone":           {rdb: redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, Addr: "127.0.0.1:1", Dialer: own})},
		"after Simple":             {redis.NewClient(simple), "set it on what ClientOptions returned"},
		"after Cluster":            {redis.NewClusterClient(cluster), "set it on what ClientOptions returned"},
		"another Dialer":           {redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, Addr: "127.0.0.1:1", Dialer: own, TLSConfig: config}), "let the Dialer do TLS"},
		"another Dialer, a Ring":   {redis.NewRing(&redis.RingOptions{ContextTimeoutEnabled: true, Addrs: map[string]string{"a": "127.0.0.1:1"}, Dialer: own, TLSConfig: config}), "let the Dialer do TLS"},
		"another Dialer, by hand":  {redis.NewClusterClient(&redis.ClusterOptions{ContextTimeoutEnabled: true, Addrs: []string{"127.0.0.1:1"}, Dialer: own, TLSConfig: config}), "let the Dialer do TLS"},
		"our Dialer on other ones": {redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, Addr: "127.0.0.1:1", Dialer: after().Dialer, TLSConfig: config}), "set it on what ClientOptions returned"},
	})
}
