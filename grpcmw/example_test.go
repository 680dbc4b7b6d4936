package grpcmw_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/grpcmw"
	"github.com/weir-go/weir/keyfunc"
)

// Two calls a minute from each tenant to each method.
func ExampleUnary() {
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{
			Policy: "2/1m",
			Key:    keyfunc.Join(keyfunc.Header("X-Tenant"), keyfunc.Route()),
		},
	})
	if err != nil {
		panic(err)
	}
	srv := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpcmw.Unary(g)),
		grpc.ChainStreamInterceptor(grpcmw.Stream(g)),
	)
	client, stop := connect(srv)
	defer stop()

	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-tenant", "acme")
	for range 3 {
		var header, trailer metadata.MD
		_, err := client.EmptyCall(ctx, new(testpb.Empty), grpc.Header(&header), grpc.Trailer(&trailer))
		fmt.Println(status.Code(err), "remaining", metadata.Join(header, trailer)["x-ratelimit-remaining"])
	}
	// Output:
	// OK remaining [1]
	// OK remaining [0]
	// ResourceExhausted remaining [0]
}

// A batch costs as many units as it has items.
func ExampleCall() {
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{
			Policy: "10/1m",
			Key:    keyfunc.Header("X-Tenant"),
			Cost: func(r keyfunc.Request) int64 {
				batch, _ := r.Native().(*grpcmw.Call).Message.(*testpb.SimpleRequest)
				return max(1, int64(batch.GetResponseSize()))
			},
		},
	})
	if err != nil {
		panic(err)
	}
	client, stop := connect(grpc.NewServer(grpc.ChainUnaryInterceptor(grpcmw.Unary(g))))
	defer stop()

	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-tenant", "acme")
	for range 3 {
		var header, trailer metadata.MD
		_, err := client.UnaryCall(ctx, &testpb.SimpleRequest{ResponseSize: 4}, grpc.Header(&header), grpc.Trailer(&trailer))
		fmt.Println(status.Code(err), "remaining", metadata.Join(header, trailer)["x-ratelimit-remaining"])
	}
	// Output:
	// OK remaining [6]
	// OK remaining [2]
	// ResourceExhausted remaining [2]
}

// Calls wait until the server will admit them, for 10 seconds at most.
func ExampleObey() {
	obeyer, err := grpcmw.Obey(grpcmw.ObeyOptions{MaxWait: 10 * time.Second})
	if err != nil {
		panic(err)
	}
	conn, err := grpc.NewClient("dns:///items.example.com:443",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(obeyer.Unary),
		grpc.WithChainStreamInterceptor(obeyer.Stream))
	if err != nil {
		panic(err)
	}
	fmt.Println(conn.Close())
	// Output: <nil>
}

// connect serves in memory, as a program does on a socket.
func connect(srv *grpc.Server) (client testpb.TestServiceClient, stop func()) {
	testpb.RegisterTestServiceServer(srv, new(service))
	pipe := bufconn.Listen(1 << 16)
	go func() { _ = srv.Serve(pipe) }()
	conn, err := grpc.NewClient("passthrough:///bufnet",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	if err != nil {
		panic(err)
	}
	return testpb.NewTestServiceClient(conn), func() {
		_ = conn.Close()
		srv.Stop()
	}
}
