package redisstore_test

import (
	"crypto/rand"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// Tests that break nothing and count no calls share a server of each kind.
var (
	sharedServer   = redistest.Share(func(t testing.TB) *redistest.Server { return redistest.Single(t) })
	sharedCluster  = redistest.Share(func(t testing.TB) *redistest.Cluster { return redistest.StartCluster(t) })
	sharedSentinel = redistest.Share(func(t testing.TB) *redistest.Sentinel { return redistest.StartSentinel(t) })
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// topology is one way in which Redis is run, with a client of its own kind.
type topology struct {
	servers []*redistest.Server
	// client makes a client that dials through proxy, with the options of ClientOptions or with the least that New demands.
	client func(t *testing.T, proxy *redistest.Proxy, tuned bool) redis.UniversalClient
}

// tune returns the recommended options, or those of go-redis with the least that New demands.
func tune(tuned bool, addrs []string) *redis.UniversalOptions {
	if tuned {
		return redisstore.ClientOptions(addrs...)
	}
	return &redis.UniversalOptions{Addrs: addrs, ContextTimeoutEnabled: true}
}

// unhurried leaves it to the store's deadline how long a call may take, for tests that are
// not about time, on a busy machine.
func unhurried(o *redis.UniversalOptions) *redis.UniversalOptions {
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = patient, patient, patient, patient
	return o
}

// topologies start a single server, a cluster, a ring of two and a sentinel.
var topologies = map[string]func(t *testing.T) topology{
	"single": func(t *testing.T) topology {
		server := redistest.Single(t)
		return topology{
			servers: []*redistest.Server{server},
			client: func(t *testing.T, proxy *redistest.Proxy, tuned bool) redis.UniversalClient {
				o := unhurried(tune(tuned, []string{server.Addr()})).Simple()
				o.Dialer = proxy.Dial
				return closing(t, redis.NewClient(o))
			},
		}
	},
	"cluster": func(t *testing.T) topology {
		cluster := redistest.StartCluster(t)
		return topology{
			servers: cluster.Nodes,
			client: func(t *testing.T, proxy *redistest.Proxy, tuned bool) redis.UniversalClient {
				o := unhurried(tune(tuned, cluster.Addrs())).Cluster()
				o.Dialer = proxy.Dial
				return closing(t, redis.NewClusterClient(o))
			},
		}
	},
	"ring": func(t *testing.T) topology {
		ring := []*redistest.Server{redistest.Single(t), redistest.Single(t)}
		return topology{
			servers: ring,
			client: func(t *testing.T, proxy *redistest.Proxy, tuned bool) redis.UniversalClient {
				o := &redis.RingOptions{
					Addrs:  map[string]string{"a": ring[0].Addr(), "b": ring[1].Addr()},
					Dialer: proxy.Dial, ContextTimeoutEnabled: true,
				}
				if tuned {
					u := unhurried(tune(tuned, nil))
					o.MaxRetries, o.DialerRetries = u.MaxRetries, u.DialerRetries
					o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = u.DialTimeout, u.ReadTimeout, u.WriteTimeout, u.PoolTimeout
				}
				return closing(t, redis.NewRing(o))
			},
		}
	},
	"sentinel": func(t *testing.T) topology {
		sentinel := redistest.StartSentinel(t)
		return topology{
			servers: []*redistest.Server{sentinel.Master()},
			client: func(t *testing.T, proxy *redistest.Proxy, tuned bool) redis.UniversalClient {
				u := unhurried(tune(tuned, []string{sentinel.Addr()}))
				u.MasterName = redistest.MasterName
				o := u.Failover()
				o.Dialer = proxy.Dial
				return closing(t, redis.NewFailoverClient(o))
			},
		}
	},
}

func closing(t *testing.T, c redis.UniversalClient) redis.UniversalClient {
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// calls adds up a command's calls on all servers of a topology.
func (top topology) calls(t *testing.T, command string) (n int64) {
	for _, s := range top.servers {
		n += s.CommandStats(t)[command]
	}
	return n
}

// patient is a deadline for tests that are not about time, and how long a test waits for
// what must come before it says that it does not. A busy machine does not use it up.
const patient = 30 * time.Second

// own returns the options of a store on servers that are shared: nobody else has its keys, not even the
// same test when it runs again.
func own() redisstore.Options {
	return redisstore.Options{Deadline: patient, Prefix: rand.Text()}
}

func newStore(t *testing.T, rdb redis.UniversalClient, o redisstore.Options) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(rdb, o)
	require.NoError(t, err)
	return s
}

// used returns the units that are gone of a policy without refill within the test.
func used(t *testing.T, s core.Store, p core.Policy, key string) int64 {
	t.Helper()
	res, err := s.Take(t.Context(), core.Take{Policy: p, Key: key})
	require.NoError(t, err)
	return res.Limit - res.Remaining
}
