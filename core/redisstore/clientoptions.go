package redisstore

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// ClientOptions returns the options of go-redis that suit a limiter, for
// redis.NewUniversalClient: a server that is gone is noticed at once and not after
// seconds of retries. One address is a single server; several are a Cluster; with
// MasterName set they are Sentinels. Set credentials, TLSConfig and PoolSize as you need.
//
//	Dialer                 a reply that has arrived is used, even if the machine was too busy
//	                       to read it within the deadline, and a question that it came too
//	                       late to write is sent once more. It does TLS if the options that
//	                       ClientOptions returned have a TLSConfig: set it there, and not on
//	                       the copy that Simple, Cluster or Failover makes
//	ContextTimeoutEnabled  the store's deadline holds on the socket
//	MaxRetries -1, DialerRetries 1  what failed is not tried again behind its back
//	DialTimeout 250ms      a server that takes longer is gone
//	ReadTimeout, WriteTimeout 1s  what the store does in the background, and nobody
//	                       waits for, may take as long; decisions keep to the store's
//	                       deadline, whatever these say. Only for one beyond a second
//	                       they have to be raised as well
//	PoolTimeout 25ms       half of a deadline: a flight that gets a connection later could
//	                       not come back in time. The store needs no more than a few, but
//	                       shares them with whatever else the client is used for. A decision
//	                       that still waits for one when the process is stopped fails
//	MinIdleConns 2         opened when the client is made: a client does what New does not
//	DisableIdentity, maintenance notifications off  a short handshake, because it is
//	                       part of the decision for which a connection is made
//	ConnMaxIdleTime 4m     below the idle timeouts of the usual load balancers,
//	                       because over TLS a connection that they closed is only
//	                       noticed by the decision that is lost on it
func ClientOptions(addrs ...string) *redis.UniversalOptions {
	o := &redis.UniversalOptions{
		Addrs:                 addrs,
		ContextTimeoutEnabled: true,
		MaxRetries:            -1,
		DialerRetries:         1,
		DialTimeout:           250 * time.Millisecond,
		ReadTimeout:           backgroundDeadline,
		WriteTimeout:          backgroundDeadline,
		PoolTimeout:           DefaultDeadline / 2,
		MinIdleConns:          2,
		ConnMaxIdleTime:       4 * time.Minute,
		DisableIdentity:       true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
	o.Dialer = dialer{o}.dial
	return o
}
