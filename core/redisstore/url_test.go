package redisstore_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	o, err := redisstore.ParseURL("rediss://weir:s%2Fcret@redis.internal:6380/2?client_name=shop")
	require.NoError(t, err)
	assert.Equal(t, []string{"redis.internal:6380"}, o.Addrs)
	assert.Equal(t, "weir", o.Username)
	assert.Equal(t, "s/cret", o.Password)
	assert.Equal(t, 2, o.DB)
	assert.Equal(t, "shop", o.ClientName)
	require.NotNil(t, o.TLSConfig)
	assert.Equal(t, "redis.internal", o.TLSConfig.ServerName)
	assert.True(t, o.ContextTimeoutEnabled)

	o, err = redisstore.ParseURL("rediss://10.0.0.1?addr=10.0.0.2:6379&addr=10.0.0.3:6379")
	require.NoError(t, err)
	assert.Equal(t, []string{"10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"}, o.Addrs)
	assert.Empty(t, o.TLSConfig.ServerName)

	for text, says := range map[string]string{
		"10.0.0.1:6379":                                 "redis://user:password@",
		"http://10.0.0.1:6379":                          `give "redis", or "rediss"`,
		"redis://weir:sec ret@10.0.0.1:6379/0\n":        "redis://user:password@",
		"redis://:secret@10.0.0.1:6379/x":               "10.0.0.1:6379",
		"redis://:secret@10.0.0.1:6379?read_timeout=3s": "read_timeout",
	} {
		_, err := redisstore.ParseURL(text)
		require.ErrorContains(t, err, says, text)
		assert.NotContains(t, err.Error(), "secret")
		assert.NotContains(t, err.Error(), "sec ret")
	}

	server := redistest.Single(t)
	o, err = redisstore.ParseURL("redis://" + server.Addr())
	require.NoError(t, err)
	rdb := redis.NewUniversalClient(unhurried(o))
	t.Cleanup(func() { _ = rdb.Close() })
	res, err := newStore(t, rdb, redisstore.Options{Deadline: patient}).
		Take(t.Context(), core.Take{Policy: core.MustParse("p: 5/1h"), Key: "k", Cost: 1})
	require.NoError(t, err)
	assert.EqualValues(t, 4, res.Remaining)
}

// A URL in the place of an address is a mistake that New reports, and a Sentinel's the first decision.
func TestURLAsAddress(t *testing.T) {
	t.Parallel()
	const text = "redis://:secret@127.0.0.1:6379"
	single, cluster := redisstore.ClientOptions(text), redisstore.ClientOptions(text, text)
	single.MinIdleConns, cluster.MinIdleConns = 0, 0
	for _, rdb := range []redis.UniversalClient{
		redis.NewUniversalClient(single), redis.NewUniversalClient(cluster),
		redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": text}}),
	} {
		_, err := redisstore.New(rdb, redisstore.Options{})
		require.ErrorContains(t, err, "redisstore.ParseURL", "%T", rdb)
		assert.NotContains(t, err.Error(), "secret")
		assert.NoError(t, rdb.Close())
	}
}

// A plain client works, and the log says once how to make a better one.
func TestPlainClientWarns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rdb   redis.UniversalClient
		lines int
	}{
		{redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), 1},
		{redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}), 1},
		{redis.NewUniversalClient(redisstore.ClientOptions("127.0.0.1:1")), 0},
	} {
		var said bytes.Buffer
		_, err := redisstore.New(c.rdb, redisstore.Options{Log: slog.New(slog.NewTextHandler(&said, nil))})
		require.NoError(t, err)
		assert.Equal(t, c.lines, strings.Count(said.String(), "redisstore.ClientOptions(addr)"), "%T: %s", c.rdb, said.String())
		assert.NoError(t, c.rdb.Close())
	}
}
