package keyfunc_test

import (
	"context"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/keyfunc"
)

// request is a Request made of plain fields.
type request struct {
	method, host, path, route string
	peer                      netip.AddrPort
	header                    map[string][]string
	values                    map[any]any
	length                    int64
}

func (r *request) Context() context.Context    { return context.Background() }
func (r *request) Method() string              { return r.method }
func (r *request) ProtoMajor() int             { return 1 }
func (r *request) Host() string                { return r.host }
func (r *request) Path() string                { return r.path }
func (r *request) Route() string               { return r.route }
func (r *request) Peer() netip.AddrPort        { return r.peer }
func (r *request) Header(name string) []string { return r.header[name] }
func (r *request) ContentLength() int64        { return r.length }
func (r *request) Value(key any) any           { return r.values[key] }
func (r *request) Native() any                 { return r }

// from is a request of the peer, with lines of X-Forwarded-For.
func from(peer string, forwardedFor ...string) *request {
	r := &request{header: map[string][]string{"X-Forwarded-For": forwardedFor}}
	if peer != "" {
		r.peer = socket(netip.MustParseAddr(peer))
	}
	return r
}

// socket is a peer with that address.
func socket(addr netip.Addr) netip.AddrPort { return netip.AddrPortFrom(addr, 1234) }

// keyOf returns the key's text, or the error's.
func keyOf(f keyfunc.Func, r keyfunc.Request) string {
	var k keyfunc.Key
	if err := f.AppendTo(&k, r); err != nil {
		return err.Error()
	}
	return k.String()
}

const noKey = "keyfunc: no key"

func prefixes(texts ...string) []netip.Prefix {
	ps := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		ps[i] = netip.MustParsePrefix(text)
	}
	return ps
}

// requireNoAllocs demands that appending to a key that has room allocates nothing.
func requireNoAllocs(t *testing.T, f keyfunc.Func, r keyfunc.Request) {
	t.Helper()
	var k keyfunc.Key
	require.NoError(t, f.AppendTo(&k, r))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		k.Reset()
		if f.AppendTo(&k, r) != nil {
			panic("no key")
		}
	}), f.String())
}
