package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"reflect"
	"runtime"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// dialer makes the connections of a client with the [ClientOptions] that it belongs to. It looks at these when it
// dials, so that a TLSConfig that was added to them later holds: go-redis leaves TLS to a Dialer, and ignores the
// TLSConfig beside it.
type dialer struct{ options *redis.UniversalOptions }

// keepAlive finds out about a server that is gone, as go-redis's own dialer does.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}

func (d dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if asks, ok := ctx.Value(whichDialer{}).(*dialer); ok {
		*asks = d
		return nil, errAsked
	}
	if err := notAddress(addr); err != nil { // of a Sentinel, which New cannot see
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	if d.options.DialTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.options.DialTimeout)
		defer cancel()
	}
	plain, err := (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	config := d.options.TLSConfig
	if config == nil {
		return patient(plain), nil
	}
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			host = addr
		}
		config = config.Clone()
		config.ServerName = host
	}
	secure := tls.Client(patient(plain), config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = plain.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Addr: plain.RemoteAddr(), Err: err} // nothing was asked
	}
	return secure, nil
}

// whichDialer is the context key under which a dialer says which one it is, instead of dialing.
type whichDialer struct{}

var errAsked = errors.New("redisstore: asked which dialer it is")

// dialFunc is the type of a Dialer in the options of go-redis.
type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// plainText says why a client whose options have both a TLSConfig and a Dialer may connect without TLS: go-redis
// ignores the TLSConfig then, and a password would travel in plain text. What a client of Sentinels was given cannot be
// seen.
func plainText(rdb redis.UniversalClient) error {
	var dial dialFunc
	var config *tls.Config
	switch c := rdb.(type) {
	case *redis.Client:
		dial, config = c.Options().Dialer, c.Options().TLSConfig
	case *redis.ClusterClient:
		dial, config = c.Options().Dialer, c.Options().TLSConfig
	case *redis.Ring:
		dial, config = c.Options().Dialer, c.Options().TLSConfig
	}
	if dial == nil || config == nil || ofGoRedis(dial) {
		return nil
	}
	if code(dial) != code(dialer{}.dial) {
		return errors.New("redisstore: the client's options have a Dialer and a TLSConfig; go-redis ignores the TLSConfig, " +
			"and a password would travel in plain text: let the Dialer do TLS and leave the TLSConfig out")
	}
	var own dialer
	_, _ = dial(context.WithValue(context.Background(), whichDialer{}, &own), "", "") //nolint:forbidigo // it dials nothing
	if own.options.TLSConfig == nil {
		return errors.New("redisstore: the TLSConfig was set on a copy of ClientOptions, whose Dialer does not see it, " +
			"and a password would travel in plain text: set it on what ClientOptions returned, before Simple, Cluster or Failover")
	}
	return nil
}

// code is where a function's instructions are: the same for all that differ only in what they are bound to.
func code(f dialFunc) uintptr { return reflect.ValueOf(f).Pointer() }

// ofGoRedis reports whether a Dialer is one of those that clients make for themselves, and that do TLS.
func ofGoRedis(f dialFunc) bool {
	return strings.HasPrefix(runtime.FuncForPC(code(f)).Name(), reflect.TypeFor[redis.Options]().PkgPath()+".")
}
