package redistest

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unencrypted returns the error of a client that does not use TLS.
func unencrypted(t *testing.T, addr string) error {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1})
	defer c.Close()
	return c.Ping(t.Context()).Err()
}

// The nodes of a cluster name their addresses for TLS to clients that use it, and hand each other slots by it.
func TestSecureCluster(t *testing.T) {
	t.Parallel()
	cert := NewCertificate(t)
	config, err := Trust(cert.CertFile)
	require.NoError(t, err)
	cluster := StartCluster(t, cert.Args()...)
	var seen sync.Map // dialed from several goroutines at once
	c := cluster.Client(t, func(o *redis.ClusterOptions) {
		o.TLSConfig = config
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			seen.Store(addr, true)
			return redis.NewDialer(&redis.Options{TLSConfig: config})(ctx, network, addr)
		}
		o.PoolSize, o.MinIdleConns = 1, 0
	})
	finish := cluster.Migrating(t, "key")
	require.NoError(t, c.Set(t.Context(), "key", 1, 0).Err())
	finish()
	require.NoError(t, c.Incr(t.Context(), "key").Err())
	for addr := range seen.Range {
		assert.Contains(t, cluster.Addrs(), addr)
		assert.Error(t, unencrypted(t, addr.(string)))
	}
}

// Sentinel names the address for TLS of the master of the moment, also after one has handed over alive.
func TestSecureSentinel(t *testing.T) {
	t.Parallel()
	cert := NewCertificate(t)
	config, err := Trust(cert.CertFile)
	require.NoError(t, err)
	s := StartSentinel(t, append(cert.Args(), "--user", "guest", "on", ">secret", "~*", "+set")...)
	c := s.Client(t, func(o *redis.FailoverOptions) {
		o.TLSConfig, o.Username, o.Password = config, "guest", "secret"
	})
	require.NoError(t, c.Set(t.Context(), "before", 1, 0).Err())
	require.ErrorContains(t, c.Get(t.Context(), "before").Err(), "NOPERM")
	assert.Error(t, unencrypted(t, s.Addr()))
	assert.Error(t, unencrypted(t, s.Master().TLSAddr()))

	old, heir := s.Master(), s.Replica()
	eventually(t, func(ctx context.Context) error { return heir.Client(t).Get(ctx, "before").Err() })
	s.Switch(t)
	assert.Same(t, heir, s.Master())
	assert.True(t, old.Running())
	eventually(t, func(ctx context.Context) error { return c.Set(ctx, "after", 1, 0).Err() })
	for _, key := range []string{"before", "after"} {
		assert.EqualValues(t, 1, heir.Client(t).Exists(t.Context(), key).Val(), key)
	}
	require.ErrorContains(t, old.Client(t).Set(t.Context(), "late", 1, 0).Err(), "READONLY")
}
