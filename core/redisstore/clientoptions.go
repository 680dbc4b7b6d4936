package redisstore

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// ClientOptions returns the options of go-redis that suit a limiter, for
// redis.NewUniversalClient: a server that is gone is noticed at once and not after
// seconds of retries. One address is a single server; several are a Cluster; with
// MasterName set they are Sentinels. Set credentials, TLS and PoolSize as you need.
//
//	ContextTimeoutEnabled  the store's deadline holds on the socket
//	MaxRetries -1, DialerRetries 1  what failed is not tried again behind its back
//	DialTimeout, ReadTimeout, WriteTimeout, PoolTimeout  in the order of a deadline
//	MinIdleConns 2         opened when the client is made: a client does what New does not
//	DisableIdentity, maintenance notifications off  a short handshake, because it is
//	                       part of the decision for which a connection is made
//	ConnMaxIdleTime 4m     below the idle timeouts of the usual load balancers,
//	                       because over TLS a connection that they closed is only
//	                       noticed by the decision that is lost on it
func ClientOptions(addrs ...string) *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs:                 addrs,
		ContextTimeoutEnabled: true,
		MaxRetries:            -1,
		DialerRetries:         1,
		DialTimeout:           250 * time.Millisecond,
		ReadTimeout:           100 * time.Millisecond,
		WriteTimeout:          100 * time.Millisecond,
		PoolTimeout:           100 * time.Millisecond,
		MinIdleConns:          2,
		ConnMaxIdleTime:       4 * time.Minute,
		DisableIdentity:       true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
}
