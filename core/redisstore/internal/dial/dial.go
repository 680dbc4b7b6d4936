// Package dial makes the connections of a client with the options of redisstore.ClientOptions.
//
// A hook of go-redis (redis.Hook's DialHook) could wrap connections as well, and would leave TLS to go-redis. But New
// gets a client that has been made: the connections that it opened by then (MinIdleConns), and those of a Cluster's or
// Ring's nodes that exist, would stay as they are, and each Store would add a hook to a client that is the caller's.
package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"reflect"
	"runtime"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Dialer makes the connections of a client with the Options that it belongs to. It reads these when it dials, so that a
// TLSConfig that was added to them later holds: go-redis leaves TLS to a Dialer, and ignores the TLSConfig beside it.
type Dialer struct{ Options *redis.UniversalOptions }

// keepAlive finds out about a server that is gone, as go-redis's own dialer does.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}

// Dial connects to addr, over TLS if the options have a TLSConfig.
func (d Dialer) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if answer, ok := ctx.Value(question{}).(*Dialer); ok {
		*answer = d
		return nil, errAsked
	}
	if err := Address(addr); err != nil { // of a Sentinel, which New cannot see
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	if d.Options.DialTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Options.DialTimeout)
		defer cancel()
	}
	plain, err := (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	config := d.Options.TLSConfig
	if config == nil {
		return Patient(plain), nil
	}
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			host = addr
		}
		config = config.Clone()
		config.ServerName = host
	}
	secure := tls.Client(Patient(plain), config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = plain.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Addr: plain.RemoteAddr(), Err: err} // nothing was asked
	}
	return secure, nil
}

// Address reports a URL that was given as an address, without what may be its password.
func Address(addr string) error {
	scheme, _, ok := strings.Cut(addr, "://")
	if !ok {
		return nil
	}
	return fmt.Errorf("redisstore: an address begins with \"%.20s://\"; give a host and a port as \"10.0.0.1:6379\", "+
		"or make the options with redisstore.ParseURL", scheme)
}

// Func is the type of a Dialer in the options of go-redis.
type Func = func(ctx context.Context, network, addr string) (net.Conn, error)

// Secure returns an error if a client whose options have this Dialer and TLSConfig may connect without TLS: go-redis
// ignores a TLSConfig beside a Dialer, and a password would travel in plain text.
//
// A client that was given no Dialer has one that go-redis made, and that does TLS; nothing in the client's options says
// so but the function itself. So Secure looks at functions.
func Secure(dial Func, config *tls.Config) error {
	if dial == nil || config == nil || ofGoRedis(dial) {
		return nil
	}
	if code(dial) != code(Dialer{}.Dial) {
		return errors.New("redisstore: the client's options have a Dialer and a TLSConfig; go-redis ignores the TLSConfig, " +
			"and a password would travel in plain text: let the Dialer do TLS and leave the TLSConfig out")
	}
	var own Dialer
	_, _ = dial(context.WithValue(context.Background(), question{}, &own), "", "") //nolint:forbidigo // it dials nothing
	if own.Options.TLSConfig == nil {
		return errors.New("redisstore: the TLSConfig was set on a copy of ClientOptions, whose Dialer does not see it, " +
			"and a password would travel in plain text: set it on what ClientOptions returned, before Simple, Cluster or Failover")
	}
	return nil
}

// question is the context key under which Secure asks a Dialer for its options.
type question struct{}

var errAsked = errors.New("redisstore: the Dialer was asked for its options")

// code returns where a function's instructions are: the same for methods that differ only in their receiver.
func code(f Func) uintptr { return reflect.ValueOf(f).Pointer() }

// ofGoRedis reports whether a Dialer is one that go-redis makes for a client that was given none. All of them have
// names in its package; the one for Sentinels is made by no exported function, and so cannot be compared with.
func ofGoRedis(f Func) bool {
	return strings.HasPrefix(runtime.FuncForPC(code(f)).Name(), reflect.TypeFor[redis.Options]().PkgPath()+".")
}
