package redisstore

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"reflect"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ParseURL returns the [ClientOptions] for a URL as hosting providers give them, for redis.NewUniversalClient:
// "redis://user:password@10.0.0.1:6379/0", or "rediss://..." with TLS. Further servers of a Cluster are parameters,
// as in "rediss://user:password@10.0.0.1:6379?addr=10.0.0.2:6379"; for a Cluster with one address in the URL, set
// IsClusterMode, and for Sentinels MasterName, on what it returns. The parameters db, protocol, client_name and
// pool_size are those of go-redis; for any other, set the field of the options that ParseURL returns.
func ParseURL(text string) (*redis.UniversalOptions, error) {
	u, err := url.Parse(text)
	if err != nil { // whose text has the password
		return nil, errors.New("redisstore: the URL cannot be parsed; give one as \"redis://user:password@10.0.0.1:6379/0\", " +
			"in which letters of the password such as \"/\" and \"#\" are escaped by \"%\" and two digits")
	}
	if u.Scheme != "redis" && u.Scheme != "rediss" {
		return nil, fmt.Errorf("redisstore: a URL of %.20q; give \"redis\", or \"rediss\" for TLS", u.Scheme)
	}
	q := u.Query()
	more := q["addr"]
	q.Del("addr")
	for name := range q {
		switch name {
		case "db", "protocol", "client_name", "pool_size":
		default:
			return nil, fmt.Errorf("redisstore: the URL has %.40q; set the field of the options that ParseURL returns", name)
		}
	}
	u.RawQuery = q.Encode()
	one, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, fmt.Errorf("redisstore: the URL of %s: %w", u.Host, err)
	}
	o := ClientOptions(append([]string{one.Addr}, more...)...)
	o.Username, o.Password, o.TLSConfig = one.Username, one.Password, one.TLSConfig
	o.DB, o.Protocol, o.ClientName, o.PoolSize = one.DB, one.Protocol, one.ClientName, one.PoolSize
	if len(more) > 0 && o.TLSConfig != nil {
		o.TLSConfig.ServerName = "" // each server has its own
	}
	return o, nil
}

// addresses returns those that a client was given, where it says so.
func addresses(rdb redis.UniversalClient) (addrs []string) {
	switch c := rdb.(type) {
	case *redis.Client:
		addrs = []string{c.Options().Addr}
	case *redis.ClusterClient:
		addrs = c.Options().Addrs
	case *redis.Ring:
		for _, addr := range c.Options().Addrs {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// notAddress reports a URL that was given as an address, without what may be its password.
func notAddress(addr string) error {
	scheme, _, ok := strings.Cut(addr, "://")
	if !ok {
		return nil
	}
	return fmt.Errorf("redisstore: an address begins with \"%.20s://\"; give a host and a port as \"10.0.0.1:6379\", "+
		"or make the options with redisstore.ParseURL", scheme)
}

// warn says of a client with which a store works, but worse than it could, how to make a better one.
func warn(rdb redis.UniversalClient, log *slog.Logger) {
	if keepsDeadline(rdb) {
		return
	}
	switch rdb.(type) {
	case *redis.Client, *redis.ClusterClient, *redis.Ring:
	default: // whose options cannot be seen
		return
	}
	if log == nil {
		log = slog.Default()
	}
	log.Warn("weir: the Redis client does not keep to a context's deadline, so that each call takes a goroutine, and one that "+
		"hangs a connection for seconds; make it with redis.NewUniversalClient(redisstore.ClientOptions(addr)), "+
		"or set ContextTimeoutEnabled", "client", reflect.TypeOf(rdb).String())
}
