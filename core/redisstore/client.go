package redisstore

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/weir-go/weir/core/redisstore/internal/dial"
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
	o.Dialer = dial.Dialer{Options: o}.Dial
	return o
}

// ParseURL returns the [ClientOptions] for a URL as hosting providers give them, for redis.NewUniversalClient:
// "redis://user:password@10.0.0.1:6379/0", or "rediss://..." with TLS. Further servers of a Cluster are parameters,
// as in "rediss://user:password@10.0.0.1:6379?addr=10.0.0.2:6379"; for a Cluster with one address in the URL, set
// IsClusterMode, and for Sentinels MasterName, on what it returns. The parameters db, protocol, client_name and
// pool_size are those of go-redis; for any other, set the field of the options that ParseURL returns. The certificate of
// each server has to be for the host by which it is reached, unless ServerName of the TLSConfig is set to another.
func ParseURL(text string) (*redis.UniversalOptions, error) {
	u, err := url.Parse(text)
	if err != nil { // whose text has the password
		return nil, errors.New("redisstore: the URL cannot be parsed; give one as \"redis://user:password@10.0.0.1:6379/0\", " +
			"in which letters of the password such as \"/\" and \"#\" are escaped by \"%\" and two digits")
	}
	switch {
	case text == "":
		return nil, errors.New("redisstore: the URL is empty; is the variable set that it comes from?")
	case u.Scheme != "redis" && u.Scheme != "rediss":
		return nil, fmt.Errorf("redisstore: a URL of %.20q; give \"redis\", or \"rediss\" for TLS, as in \"redis://10.0.0.1:6379\"", u.Scheme)
	case u.Fragment != "" || strings.Contains(u.Path+u.RawQuery, "@"): // what stands there may be of the password
		return nil, errors.New("redisstore: the URL goes on with \"/\", \"?\" or \"#\" before its \"@\", or has a \"#\"; " +
			"escape these letters in the password by \"%\" and two digits")
	case strings.Contains(u.Host, ","):
		return nil, errors.New("redisstore: the URL has several servers between commas; " +
			"give the first, and the others as in \"?addr=10.0.0.2:6379&addr=10.0.0.3:6379\"")
	}
	q := u.Query()
	more := q["addr"]
	q.Del("addr")
	if slices.Contains(more, "") {
		return nil, errors.New("redisstore: the URL has an \"addr\" without a value; give a host and a port as \"10.0.0.2:6379\"")
	}
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
	if o.TLSConfig != nil {
		o.TLSConfig.ServerName = "" // the Dialer has that of each server, which need not be the one in the URL
	}
	return o, nil
}

// options has the options of a client that New looks at.
type options struct {
	addrs       []string
	dialer      dial.Func
	tls         *tls.Config
	timeout     bool          // ContextTimeoutEnabled
	read, write time.Duration // timeouts; if negative, the client leaves the socket's deadlines alone
}

// mistakes returns why a client cannot be used. Of the clients that look like one, only these three let a Store see
// their options, and where their keys are.
func mistakes(rdb redis.UniversalClient) []error {
	var r options
	v := reflect.ValueOf(rdb)
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return []error{errors.New("redisstore: the client is nil; give one of redis.NewUniversalClient(redisstore.ClientOptions(addr))")}
	}
	switch c := rdb.(type) {
	case *redis.Client:
		o := c.Options()
		r = options{[]string{o.Addr}, o.Dialer, o.TLSConfig, o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout}
	case *redis.ClusterClient:
		o := c.Options()
		r = options{o.Addrs, o.Dialer, o.TLSConfig, o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout}
	case *redis.Ring:
		o := c.Options() // of the other clients, they have 0 in place of -1: no timeout but the context's
		r = options{nil, o.Dialer, o.TLSConfig, o.ContextTimeoutEnabled, o.ReadTimeout + 1, o.WriteTimeout + 1}
		for _, addr := range o.Addrs {
			r.addrs = append(r.addrs, addr)
		}
	case *redis.AutoPipeliner:
		return []error{errors.New("redisstore: an AutoPipeliner ignores its caller's context; give the client it was made from")}
	default:
		return []error{fmt.Errorf("redisstore: the client is a %T, and must be a *redis.Client, *redis.ClusterClient or *redis.Ring: "+
			"give the client that it wraps, and let what it adds be a hook of that one (AddHook)", rdb)}
	}
	return r.mistakes(rdb)
}

func (r *options) mistakes(rdb redis.UniversalClient) (all []error) {
	if err := dial.Secure(r.dialer, r.tls); err != nil {
		all = append(all, err)
	}
	for _, addr := range r.addrs {
		if err := dial.Address(addr); err != nil {
			all = append(all, err)
			break
		}
	}
	switch {
	case !r.timeout:
		all = append(all, fmt.Errorf("redisstore: the %T does not keep to a context's deadline, and a server that hangs would hold "+
			"up decisions for seconds; make it with redis.NewUniversalClient(redisstore.ClientOptions(addr)), or set "+
			"ContextTimeoutEnabled in its options", rdb))
	case r.read < 0 || r.write < 0:
		all = append(all, fmt.Errorf("redisstore: the %T has a ReadTimeout or WriteTimeout of -2, with which it does not keep to a "+
			"context's deadline; give a time, or 0 for that of go-redis", rdb))
	}
	return all
}
