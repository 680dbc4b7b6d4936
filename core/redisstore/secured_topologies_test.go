package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// leastRights are those that the documentation names for decisions, and advises everybody to give besides.
var leastRights = []string{"+evalsha", "+eval", "+time", "+get", "+set", "+del", "+ping"}

// site is a way in which Redis is run, with one server that can be hurt. All but the single one are reached by TLS, by
// a user that has no right too many.
type site struct {
	kind     string
	cert     *redistest.Certificate
	store    *redisstore.Store
	rdb      redis.UniversalClient
	servers  []*redistest.Server // which decide, or can
	sentinel *redistest.Sentinel
	cluster  *redistest.Cluster
	fronts   map[string]*redistest.Proxy // by the address behind
	admins   map[*redistest.Server]*redis.Client

	made    int      // keys
	episode *episode // that is suffered
	names   []string // of its keys whose server is hurt
	losses  int64    // how often all was lost, besides what the fault says
	conns   []*redis.Conn
	foreign sync.WaitGroup
	mute    atomic.Bool // the server that is hurt may not answer a ping
}

// sites are one of each topology.
var sites = map[string]func(t *testing.T) *site{
	"single": func(t *testing.T) *site {
		s := &site{kind: "single", servers: []*redistest.Server{redistest.Single(t)}}
		return s.open(t, redis.NewClient(s.simple(s.options(t, s.addr(0)))))
	},
	"tls": func(t *testing.T) *site {
		s := secured(t, "tls")
		s.servers = []*redistest.Server{redistest.Single(t, s.args()...)}
		return s.open(t, redis.NewClient(s.simple(s.options(t, s.addr(0)))))
	},
	"ring": func(t *testing.T) *site {
		s := secured(t, "ring")
		s.servers = []*redistest.Server{redistest.Single(t, s.args()...), redistest.Single(t, s.args()...)}
		u := s.options(t)
		o := s.simple(u)
		return s.open(t, redis.NewRing(&redis.RingOptions{
			Addrs: map[string]string{"a": s.addr(0), "b": s.addr(1)}, Dialer: o.Dialer,
			Username: o.Username, Password: o.Password, DisableIdentity: o.DisableIdentity,
			ContextTimeoutEnabled: o.ContextTimeoutEnabled, MaxRetries: o.MaxRetries, DialerRetries: o.DialerRetries,
			DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
			PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, MinIdleConns: o.MinIdleConns, ConnMaxIdleTime: o.ConnMaxIdleTime,
			HeartbeatFn: s.alive,
		}))
	},
	"sentinel": func(t *testing.T) *site {
		s := secured(t, "sentinel")
		s.sentinel = redistest.StartSentinel(t, s.args()...)
		s.servers = []*redistest.Server{s.sentinel.Master(), s.sentinel.Replica()}
		u := s.options(t, s.sentinel.Addr())
		u.MasterName = redistest.MasterName
		o := u.Failover()
		o.Dialer, o.TLSConfig = s.through(u.Dialer), nil
		return s.open(t, redis.NewFailoverClient(o))
	},
	"cluster": func(t *testing.T) *site {
		s := secured(t, "cluster")
		s.cluster = redistest.StartCluster(t, append([]string{"--cluster-require-full-coverage", "no"}, s.args("+cluster|slots", "+asking")...)...)
		s.servers = s.cluster.Nodes
		u := s.options(t, s.cluster.Addrs()...)
		o := u.Cluster()
		o.Dialer, o.TLSConfig = s.through(u.Dialer), nil
		return s.open(t, redis.NewClusterClient(o))
	},
}

// secured is a site with a certificate.
func secured(t *testing.T, kind string) *site {
	cert := redistest.NewCertificate(t)
	return &site{kind: kind, cert: &cert}
}

// args are those of its servers, for TLS and with a user that has the rights.
func (s *site) args(more ...string) []string {
	user := append([]string{"--user", "weir", "on", ">secret", "~weir:*"}, leastRights...)
	return append(s.cert.Args(), append(user, more...)...)
}

// addr returns the address at which clients find a server.
func (s *site) addr(i int) string {
	if s.cert == nil {
		return s.servers[i].Addr()
	}
	return s.servers[i].TLSAddr()
}

// options are those of a client, as the documentation advises.
func (s *site) options(t *testing.T, addrs ...string) *redis.UniversalOptions {
	t.Helper()
	u := redisstore.ClientOptions(addrs...)
	u.PoolSize = 10 // whatever the machine
	if s.cert != nil {
		config, err := redistest.Trust(s.cert.CertFile)
		require.NoError(t, err)
		u.TLSConfig, u.Username, u.Password = config, "weir", "secret"
	}
	s.fronts = make(map[string]*redistest.Proxy)
	for i := range s.servers {
		s.fronts[s.addr(i)] = redistest.NewProxy(t, s.addr(i))
	}
	return u
}

func (s *site) simple(u *redis.UniversalOptions) *redis.Options {
	o := u.Simple()
	o.Dialer, o.TLSConfig = s.through(u.Dialer), nil
	return o
}

// through is the dialer of ClientOptions, which does the TLS, but that it finds a proxy at the address of a server.
func (s *site) through(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if front := s.fronts[addr]; front != nil {
			addr = front.Addr()
		}
		return dial(ctx, network, addr)
	}
}

func (s *site) open(t *testing.T, rdb redis.UniversalClient) *site {
	t.Helper()
	s.rdb = closing(t, rdb)
	s.store = newStore(t, rdb, redisstore.Options{Deadline: *inTime})
	s.admins = make(map[*redistest.Server]*redis.Client)
	for _, server := range s.servers {
		s.admins[server] = server.Client(t, func(o *redis.Options) { o.MaxRetries, o.ReadTimeout = -1, patient })
	}
	return s
}

// victim is the server that is hurt.
func (s *site) victim() *redistest.Server {
	if s.sentinel != nil {
		return s.sentinel.Master()
	}
	return s.servers[0]
}

// front is the proxy before it, and admin a client of it that is no part of what is tested.
func (s *site) front() *redistest.Proxy {
	return s.fronts[s.addr(slices.Index(s.servers, s.victim()))]
}

func (s *site) admin() *redis.Client { return s.admins[s.victim()] }

// owner is the server that has a key.
func (s *site) owner(t *testing.T, name string) *redistest.Server {
	t.Helper()
	switch c := s.rdb.(type) {
	case *redis.Ring:
		shard, err := c.GetShardClientForKey(name)
		require.NoError(t, err)
		for i := range s.servers {
			if s.addr(i) == shard.Options().Addr {
				return s.servers[i]
			}
		}
		require.Fail(t, "a shard is nowhere", shard.Options().Addr)
	case *redis.ClusterClient:
		return s.cluster.NodeFor(t, name)
	}
	return s.victim()
}

// direct is the client of the server that is hurt, with its connections.
func (s *site) direct(t *testing.T) *redis.Client {
	t.Helper()
	switch c := s.rdb.(type) {
	case *redis.Client:
		return c
	case *redis.Ring:
		shard, err := c.GetShardClientForKey(s.names[0])
		require.NoError(t, err)
		return shard
	case *redis.ClusterClient:
		node, err := c.MasterForKey(t.Context(), s.names[0])
		require.NoError(t, err)
		return node
	}
	require.Fail(t, "a client of another kind")
	return nil
}

// cells are keys that nobody has used, some of the server that is hurt, and some of others if there are any.
func (s *site) cells(t *testing.T) (cells []*cell) {
	t.Helper()
	for _, p := range slices.Concat(exact, []core.Policy{tight}) {
		hurt, spared := 4, 0
		if s.kind == "ring" || s.kind == "cluster" {
			spared = 2
		}
		for hurt+spared > 0 {
			s.made++
			c := &cell{policy: p, key: strconv.Itoa(s.made), tight: p == tight}
			left := &hurt
			if c.spared = s.owner(t, c.name()) != s.victim(); c.spared {
				left = &spared
			}
			if *left > 0 {
				*left--
				cells = append(cells, c)
			}
		}
	}
	return cells
}

// alive is the HeartbeatFn of a ring. One that is not hurt does, even if this process is too slow
// to hear of it three times in a row: then the ring would have its keys elsewhere, and at last nowhere.
func (s *site) alive(ctx context.Context, shard *redis.Client) bool {
	return !s.mute.Load() || shard.Options().Addr != s.addr(0) || shard.Ping(ctx).Err() == nil
}

// gone reports whether a ring has given the keys of the server to another one, as it does with one that does not answer
// three pings.
func (s *site) gone() bool {
	ring, ok := s.rdb.(*redis.Ring)
	return ok && ring.Len() < len(s.servers)
}

// whole waits until all servers take part.
func (s *site) whole(t *testing.T) {
	t.Helper()
	await(t, "the ring is whole", func() bool { return !s.gone() })
}

// serves waits until a server that has started serves: a master of a Cluster lets two seconds pass.
func (s *site) serves(t *testing.T) {
	t.Helper()
	if s.cluster != nil {
		await(t, "the cluster is whole", func() bool {
			info, err := s.admin().ClusterInfo(t.Context()).Result()
			return err == nil && strings.Contains(info, "cluster_state:ok")
		})
	}
}

// until does something again and again until callers notice.
func (s *site) until(t *testing.T, class string, do func()) {
	t.Helper()
	await(t, "it shows", func() bool {
		do()
		pause(lasting / 10)
		return s.episode.seen(class) > 0
	})
}

func (s *site) set(t *testing.T, name, value string) {
	t.Helper()
	require.NoError(t, s.admin().ConfigSet(t.Context(), name, value).Err())
}

// stat is a number that the server tells of itself.
func (s *site) stat(t *testing.T, name string) int64 {
	t.Helper()
	text, err := s.admin().Info(t.Context(), "memory", "stats").Result()
	require.NoError(t, err)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			n, err := strconv.ParseInt(value, 10, 64)
			require.NoError(t, err)
			return n
		}
	}
	require.Fail(t, "nothing was reported", name)
	return 0
}

// fill fills the memory of the server with what is not to be evicted, beside the keys of the load.
func (s *site) fill(t *testing.T, bytes int) {
	t.Helper()
	require.NoError(t, s.admin().Set(t.Context(), s.filler(), strings.Repeat("x", bytes), 0).Err())
}

// tighten leaves the server less memory than it uses now. Some of that may have been for what it has just been sent, so
// that it may take more than one time.
func (s *site) tighten(t *testing.T) {
	t.Helper()
	s.set(t, "maxmemory", strconv.FormatInt(s.stat(t, "used_memory")-1<<20, 10))
}

func (s *site) empty(t *testing.T) {
	t.Helper()
	require.NoError(t, s.admin().Del(t.Context(), s.filler(), s.filler()+":more").Err())
}

// filler returns a key in the slot of one that the server has.
func (s *site) filler() string { return fmt.Sprintf("filler:{%s}", s.names[0]) }
