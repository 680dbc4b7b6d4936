package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// topology is one way in which Redis is run, with a client of its own kind.
type topology struct {
	name    string
	servers func() []*redistest.Server
	// client makes a client that dials through proxy, with the options of
	// ClientOptions or with go-redis's own.
	client func(t *testing.T, proxy *redistest.Proxy, tuned bool) redis.UniversalClient
}

// tune turns go-redis's own options into the recommended ones.
func tune(tuned bool, addrs []string) *redis.UniversalOptions {
	if tuned {
		return redisstore.ClientOptions(addrs...)
	}
	return &redis.UniversalOptions{Addrs: addrs}
}

// unhurried leaves it to the store's deadline how long a call may take, for tests that are
// not about time, on a busy machine. go-redis's own timeouts are long enough.
func unhurried(o *redis.UniversalOptions) *redis.UniversalOptions {
	if !o.ContextTimeoutEnabled {
		return o
	}
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = patient, patient, patient, patient
	return o
}

// topologies starts a single server, a cluster, a ring of two and a sentinel.
func topologies(t *testing.T) []topology {
	single := redistest.Single(t)
	cluster := redistest.StartCluster(t)
	ring := []*redistest.Server{redistest.Single(t), redistest.Single(t)}
	sentinel := redistest.StartSentinel(t)
	closing := func(t *testing.T, c redis.UniversalClient) redis.UniversalClient {
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	return []topology{
		{
			name:    "single",
			servers: func() []*redistest.Server { return []*redistest.Server{single} },
			client: func(t *testing.T, proxy *redistest.Proxy, tuned bool) redis.UniversalClient {
				o := unhurried(tune(tuned, []string{single.Addr()})).Simple()
				o.Dialer = proxy.Dial
				return closing(t, redis.NewClient(o))
			},
		},
		{
			name:    "cluster",
			servers: func() []*redistest.Server { return cluster.Nodes },
			client: func(t *testing.T, proxy *redistest.Proxy, tuned bool) redis.UniversalClient {
				o := unhurried(tune(tuned, cluster.Addrs())).Cluster()
				o.Dialer = proxy.Dial
				return closing(t, redis.NewClusterClient(o))
			},
		},
		{
			name:    "ring",
			servers: func() []*redistest.Server { return ring },
			client: func(t *testing.T, proxy *redistest.Proxy, tuned bool) redis.UniversalClient {
				o := &redis.RingOptions{
					Addrs:  map[string]string{"a": ring[0].Addr(), "b": ring[1].Addr()},
					Dialer: proxy.Dial,
				}
				if tuned {
					u := unhurried(tune(tuned, nil))
					o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = u.ContextTimeoutEnabled, u.MaxRetries, u.DialerRetries
					o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = u.DialTimeout, u.ReadTimeout, u.WriteTimeout, u.PoolTimeout
				}
				return closing(t, redis.NewRing(o))
			},
		},
		{
			name:    "sentinel",
			servers: func() []*redistest.Server { return []*redistest.Server{sentinel.Master()} },
			client: func(t *testing.T, proxy *redistest.Proxy, tuned bool) redis.UniversalClient {
				u := unhurried(tune(tuned, []string{sentinel.Addr()}))
				u.MasterName = redistest.MasterName
				o := u.Failover()
				o.Dialer = proxy.Dial
				return closing(t, redis.NewFailoverClient(o))
			},
		},
	}
}

// calls adds up a command's calls on all servers of a topology.
func (top topology) calls(t *testing.T, command string) (n int64) {
	for _, s := range top.servers() {
		n += s.CommandStats(t)[command]
	}
	return n
}

// patient is a deadline for tests that are not about time, on a busy machine.
const patient = 10 * time.Second

func newStore(t *testing.T, rdb redis.UniversalClient, o redisstore.Options) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(rdb, o)
	require.NoError(t, err)
	return s
}

// used is how many units of a policy without refill within the test are gone.
func used(t *testing.T, s core.Store, p core.Policy, key string) int64 {
	t.Helper()
	res, err := s.Take(t.Context(), core.Take{Policy: p, Key: key})
	require.NoError(t, err)
	return res.Limit - res.Remaining
}
