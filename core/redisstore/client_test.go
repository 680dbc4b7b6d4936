package redisstore_test

import (
	"fmt"
	"testing"
	"time"

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
	assert.True(t, o.ContextTimeoutEnabled)

	o, err = redisstore.ParseURL("rediss://10.0.0.1?addr=10.0.0.2:6379&addr=10.0.0.3:6379")
	require.NoError(t, err)
	assert.Equal(t, []string{"10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"}, o.Addrs)

	for text, says := range map[string]string{
		"10.0.0.1:6379":                                 "redis://user:password@",
		"http://10.0.0.1:6379":                          `give "redis", or "rediss"`,
		"redis://weir:sec ret@10.0.0.1:6379/0\n":        "redis://user:password@",
		"redis://:secret@10.0.0.1:6379/x":               "10.0.0.1:6379",
		"redis://:secret@10.0.0.1:6379?read_timeout=3s": "read_timeout",
		"":                                    "empty",
		"redis://:1234/secret@10.0.0.1:6379":  "escape",
		"redis://u:77/sec ret@10.0.0.1":       "escape",
		"redis://:12?secret@10.0.0.1":         "escape",
		"redis://:12#secret@10.0.0.1:6379":    "escape",
		"redis://10.0.0.1:6379,10.0.0.2:6379": "addr=10.0.0.2:6379",
		"redis://10.0.0.1:6379?addr=":         "without a value",
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

// The certificate of a server that is not in the URL is not looked at as if it were that of the one in it: of the master
// that Sentinels name, and of each node of a Cluster.
func TestParseURLOfOtherServers(t *testing.T) {
	t.Parallel()
	server := redistest.TLS(t)
	for name, text := range map[string]string{
		"Sentinels":          "rediss://sentinel-1:26379",
		"a Cluster":          "rediss://node-1:6379",
		"a Cluster of three": "rediss://node-1:6379?addr=node-2:6379&addr=node-3:6379",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, err := redisstore.ParseURL(text)
			require.NoError(t, err)
			o.TLSConfig.RootCAs, o.DialTimeout = server.Config.RootCAs, patient
			conn, err := o.Dialer(t.Context(), "tcp", server.TLSAddr)
			require.NoError(t, err)
			assert.NoError(t, conn.Close())
			o.TLSConfig.ServerName = "node-1" // if it is to be the same for all
			_, err = o.Dialer(t.Context(), "tcp", server.TLSAddr)
			assert.ErrorContains(t, err, "node-1")
		})
	}
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

// wrapped is a client of another type, as libraries for tracing have them.
type wrapped struct{ redis.UniversalClient }

// candidate is a client for New, and a part of the error with which New refuses it; "" if New takes it.
type candidate struct {
	rdb  redis.UniversalClient
	says string
}

// newWith gives each of the clients to New.
func newWith(t *testing.T, clients map[string]candidate) {
	t.Helper()
	for name, c := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer c.rdb.Close()
			_, err := redisstore.New(c.rdb, redisstore.Options{})
			if c.says == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, c.says)
			}
		})
	}
}

// New refuses a client that does not keep to the store's deadline, and says how to make one that does.
func TestClientsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	usable := redisstore.ClientOptions("127.0.0.1:1")
	usable.MinIdleConns = 0
	idle := usable.Simple()
	idle.ReadTimeout, idle.WriteTimeout = -2, -2
	ring := func(timeout bool, read time.Duration) redis.UniversalClient {
		return redis.NewRing(&redis.RingOptions{
			Addrs: map[string]string{"a": "127.0.0.1:1"}, ContextTimeoutEnabled: timeout, ReadTimeout: read,
		})
	}
	newWith(t, map[string]candidate{
		"options of ClientOptions":         {rdb: redis.NewUniversalClient(usable)},
		"a Ring":                           {rdb: ring(true, 0)},
		"a Ring that is timed by contexts": {rdb: ring(true, -1)},
		"a Ring without timeouts":          {ring(true, -2), "a ReadTimeout or WriteTimeout of -2"},
		"a plain client":                   {redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), "set ContextTimeoutEnabled"},
		"a plain cluster":                  {redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}), "set ContextTimeoutEnabled"},
		"a plain Ring":                     {ring(false, 0), "set ContextTimeoutEnabled"},
		"plain Sentinels":                  {redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "weir", SentinelAddrs: []string{"127.0.0.1:1"}}), "set ContextTimeoutEnabled"},
		"no timeouts":                      {redis.NewClient(idle), "a ReadTimeout or WriteTimeout of -2"},
		"a wrapper":                        {wrapped{redis.NewUniversalClient(usable)}, "redisstore_test.wrapped, and must be a *redis.Client"},
	})
}

// A Store that is logged shows nothing of the secret.
func TestStoreIsNamed(t *testing.T) {
	t.Parallel()
	rdb := redis.NewUniversalClient(redisstore.ClientOptions("127.0.0.1:1"))
	defer rdb.Close()
	s, err := redisstore.New(rdb, redisstore.Options{HashKeys: []byte("a secret of 32 bytes, or of more")})
	require.NoError(t, err)
	assert.Equal(t, "redisstore weir:1:", fmt.Sprint(s))
	assert.Equal(t, "redisstore weir:1:", fmt.Sprintf("%+v", s))
}
