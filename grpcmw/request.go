package grpcmw

import (
	"context"
	"net"
	"net/netip"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weir-go/weir/keyfunc"
)

// request implements keyfunc.Request.
type request struct {
	call Call
	ctx  context.Context //nolint:containedctx // Context returns it
}

func (q *request) Context() context.Context { return q.ctx }
func (*request) Method() string             { return "POST" } // as gRPC is sent over HTTP/2
func (*request) ProtoMajor() int            { return 2 }
func (q *request) Path() string             { return q.call.Method }
func (q *request) Route() string            { return q.call.Method }
func (*request) ContentLength() int64       { return -1 }
func (q *request) Value(key any) any        { return q.ctx.Value(key) }
func (q *request) Native() any              { return &q.call }

func (q *request) Host() string {
	if lines := metadata.ValueFromIncomingContext(q.ctx, ":authority"); len(lines) == 1 {
		return lines[0]
	}
	return ""
}

func (q *request) Peer() netip.AddrPort {
	p, ok := peer.FromContext(q.ctx)
	if !ok || p.Addr == nil {
		return netip.AddrPort{}
	}
	if tcp, ok := p.Addr.(*net.TCPAddr); ok {
		at := tcp.AddrPort()
		return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	}
	return keyfunc.ParsePeer(p.Addr.String())
}

// Header returns the metadata of that name, in whatever case it is given.
func (q *request) Header(name string) []string {
	switch name {
	case "Content-Type", "Accept": // a refusal is a status of gRPC, in whatever form clients of HTTP may ask for it
		return nil
	}
	return metadata.ValueFromIncomingContext(q.ctx, name)
}
