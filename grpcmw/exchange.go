package grpcmw

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/weir-go/weir/core/guard"
)

// exchange implements guard.Exchange and guard.Refuser, for one call.
type exchange struct {
	request
	*fields // its own, or those of the guard around this one, so that one answer has one set of them
	own     fields
	scope   scope
	unary   grpc.UnaryHandler
	stream  grpc.StreamHandler
	server  any // the service, for stream
	scratch *guard.Scratch

	reply   any   // of a unary call
	refused error // the status of a refusal, or nil
}

// scope is the context of a call, in which a guard within this one finds it. It is a part of the exchange because that
// saves an allocation.
type scope struct {
	context.Context
	x *exchange
}

type scopeKey struct{}

// Value implements context.Context.
func (s *scope) Value(key any) any {
	if key == (scopeKey{}) {
		return s.x
	}
	return s.Context.Value(key)
}

func newExchange(ctx context.Context, call Call) *exchange {
	x := &exchange{request: request{call: call}}
	x.own.to = grpc.ServerTransportStreamFromContext(ctx)
	x.fields = &x.own
	// A handler may serve another call with this context, by a server within the process.
	if outer, ok := ctx.Value(scopeKey{}).(*exchange); ok && outer.to == x.own.to {
		x.fields = outer.fields
	}
	x.scope = scope{ctx, x}
	x.ctx = &x.scope
	x.scratch, _ = scratches.Get().(*guard.Scratch)
	return x
}

// scratches are apart from exchanges, which handlers may keep, with their context.
var scratches = sync.Pool{New: func() any { return new(guard.Scratch) }}

// serve calls the handler if g admits the call, and returns the error of the call.
func (x *exchange) serve(g *guard.Guard) (err error) {
	ended := false
	if x.fields == &x.own {
		defer func() { x.own.end(x.stream == nil && ended && err == nil) }()
	}
	err = g.Serve(x)
	ended = true
	scratches.Put(x.scratch)
	if x.refused != nil {
		err = x.refused
	}
	return err
}

func (x *exchange) Scratch() *guard.Scratch { return x.scratch }

// Next calls the handler.
func (x *exchange) Next(ctx context.Context) (err error) {
	if ctx == nil {
		ctx = &x.scope
	}
	if x.stream != nil {
		return x.stream(x.server, &stream{x.call.Stream, ctx, x.fields})
	}
	x.reply, err = x.unary(ctx, x.call.Message)
	return err
}

// Reply is not called, because there is Refuse.
func (*exchange) Reply(int, []byte) {}

// Refuse implements guard.Refuser.
func (x *exchange) Refuse(v *guard.Verdict) {
	x.refused = refusal(v)
	if pushback := pushback(v); pushback != "" {
		x.Set(pushbackField, pushback)
	}
}

func (x *exchange) Handle(handler any, v *guard.Verdict) (answered, known bool, err error) {
	f, known := handler.(native)
	if !known {
		return false, false, nil
	}
	x.reply, err = f(&x.scope, &x.call, v)
	if x.stream != nil && x.reply != nil && err == nil {
		err = (&stream{x.call.Stream, &x.scope, x.fields}).SendMsg(x.reply)
		return true, true, err
	}
	return x.reply != nil || err != nil, true, err
}

// BeforeHeader does nothing: no cache keeps an answer of gRPC.
func (*exchange) BeforeHeader(func()) {}

func (x *exchange) Routed() (pattern string, everyMethod bool) { return x.call.Method, false }

func (*exchange) Hijacked() bool { return false }

func (*exchange) Watch() {}

// Final returns the status that stands for the code of the call.
func (x *exchange) Final(err error, panicked bool) guard.Final {
	f := guard.Final{Status: 500, Bytes: -1, Panicked: panicked}
	if !panicked {
		f.Status = statusOf(err)
	}
	return f
}

// stream is the stream of a handler: its context ends with the permits, and the header goes before the first message.
type stream struct {
	grpc.ServerStream
	ctx    context.Context //nolint:containedctx // Context returns it
	fields *fields
}

func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) SendHeader(md metadata.MD) error {
	s.fields.sendAsHeader()
	return s.ServerStream.SendHeader(md)
}

func (s *stream) SendMsg(m any) error {
	if err := s.lost(); err != nil {
		return err
	}
	s.fields.sendAsHeader()
	return s.ServerStream.SendMsg(m)
}

func (s *stream) RecvMsg(m any) error {
	if err := s.lost(); err != nil {
		return err
	}
	return s.ServerStream.RecvMsg(m)
}
