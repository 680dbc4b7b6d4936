package grpcmw_test

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/test/bufconn"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/grpcmw"
)

// unaryCall is the full name of a method.
const unaryCall = "/grpc.testing.TestService/UnaryCall"

// service is a service of which tests write the handlers. Without them, a call succeeds.
type service struct {
	testpb.UnimplementedTestServiceServer
	unary  func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error)
	duplex func(testpb.TestService_FullDuplexCallServer) error
}

func (s *service) EmptyCall(context.Context, *testpb.Empty) (*testpb.Empty, error) {
	return new(testpb.Empty), nil
}

func (s *service) UnaryCall(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	if s.unary == nil {
		return &testpb.SimpleResponse{Username: "ann"}, nil
	}
	return s.unary(ctx, in)
}

func (s *service) FullDuplexCall(ss testpb.TestService_FullDuplexCallServer) error {
	if s.duplex == nil {
		return ss.Send(new(testpb.StreamingOutputCallResponse))
	}
	return s.duplex(ss)
}

// server describes a server and the connection to it.
type server struct {
	service service
	guards  []*guard.Guard // the outermost first
	outside []grpc.UnaryServerInterceptor
	streams []grpc.StreamServerInterceptor // outside, too
	dial    []grpc.DialOption
	buffer  bool // instead of a socket
}

// serve starts the server, and returns a client of it.
func (s *server) serve(t testing.TB) testpb.TestServiceClient {
	t.Helper()
	unary, streams := s.outside, s.streams
	for _, g := range s.guards {
		unary, streams = append(unary, grpcmw.Unary(g)), append(streams, grpcmw.Stream(g))
	}
	var o []grpc.ServerOption
	if len(unary) > 0 {
		o = append(o, grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(streams...))
	}
	srv := grpc.NewServer(o...)
	testpb.RegisterTestServiceServer(srv, &s.service)
	dial := append(s.dial, grpc.WithTransportCredentials(insecure.NewCredentials()))
	var listener net.Listener
	var err error
	if s.buffer {
		pipe := bufconn.Listen(1 << 16)
		listener = pipe
		dial = append(dial, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	} else {
		listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///"+listener.Addr().String(), dial...)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		srv.Stop()
		require.NoError(t, <-served)
	})
	return testpb.NewTestServiceClient(conn)
}

func newGuard(t testing.TB, c guard.Config) *guard.Guard {
	t.Helper()
	g, err := guard.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}
