package grpcmw

import (
	"context"

	"google.golang.org/grpc"

	"github.com/weir-go/weir/core/guard"
)

// Unary is an interceptor that enforces g on unary calls:
//
//	grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpcmw.Unary(g)),
//		grpc.ChainStreamInterceptor(grpcmw.Stream(g)),
//	)
//
// A server with streams needs [Stream] as well. Put interceptors that find out who calls before it, if a key is made of
// that, and those that log errors or recover from panics too, so that they see refusals. Unary panics if g is nil.
func Unary(g *guard.Guard) grpc.UnaryServerInterceptor {
	if g == nil {
		panic("grpcmw: Unary(nil): give it the Guard that guard.New returned")
	}
	return func(ctx context.Context, message any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		x := newExchange(ctx, Call{Method: info.FullMethod, Message: message})
		x.unary = handler
		err := x.serve(g)
		return x.reply, err
	}
}

// Stream is an interceptor that enforces g on streams, each of which counts when it begins. Permits of a policy such as
// "10 concurrent" are held until the handler returns, and its context ends if they are lost. Stream panics if g is nil.
func Stream(g *guard.Guard) grpc.StreamServerInterceptor {
	if g == nil {
		panic("grpcmw: Stream(nil): give it the Guard that guard.New returned")
	}
	return func(server any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		x := newExchange(ss.Context(), Call{Method: info.FullMethod, Stream: ss})
		x.stream, x.server = handler, server
		return x.serve(g)
	}
}

// Call is a call as the functions of a guard see it: the method Native of a keyfunc.Request returns a *Call. With it, a
// rule's Cost may come from the message:
//
//	Cost: func(r keyfunc.Request) int64 {
//		batch, _ := r.Native().(*grpcmw.Call).Message.(*pb.Batch)
//		return int64(len(batch.GetItems()))
//	}
//
// It must not be kept when the function has returned.
type Call struct {
	// Method is the full name of the method, such as "/pkg.Service/Method".
	Method string
	// Message is the message of a unary call. It is nil for a stream, none of whose messages has been read.
	Message any
	// Stream is the stream, and nil for a unary call.
	Stream grpc.ServerStream
}

// Handle makes an over-limit handler from a function, to send your own response: the reply to a unary call, the only
// message of a stream, or an error. If f returns neither, the plain refusal is sent: v.Status and v.Body, which f may
// change. To refuse with details of your own, return an error of package status.
//
// Behind an adapter of another framework, the plain answer is sent, and an error logged. A nil f is a mistake that
// guard.New reports.
func Handle(f func(ctx context.Context, c *Call, v *guard.Verdict) (reply any, err error)) guard.OverLimit {
	return guard.HandleNative("grpcmw.Handle", native(f))
}

type native func(context.Context, *Call, *guard.Verdict) (any, error)
