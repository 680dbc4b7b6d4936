// Obey is a service of gRPC with a limit of ten calls a second, and a client of it with more workers than that allows,
// which keeps to the limit: it reads the metadata of the answers, and lets calls wait until they will be admitted.
//
//	cd grpcmw && go run ./examples/obey
//	cd grpcmw && go run ./examples/obey -obey=false   # a client that does not
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/grpcmw"
	"github.com/weir-go/weir/keyfunc"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		log.Fatal(err)
	}
}

func run(out io.Writer, args []string) error {
	flags := flag.NewFlagSet("obey", flag.ContinueOnError)
	obey := flags.Bool("obey", true, "whether the client keeps to the limit")
	lasts := flags.Duration("for", 5*time.Second, "how long it calls")
	workers := flags.Int("workers", 5, "how many workers it has")
	if err := flags.Parse(args); err != nil {
		return err
	}
	server, address, err := serve()
	if err != nil {
		return err
	}
	defer server.Stop()
	conn, err := connect(address, *obey)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // the program ends

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	time.AfterFunc(*lasts, cancel)
	answers, err := call(ctx, conn, *workers)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "in %v: %d calls admitted, %d refused\n", *lasts, answers[codes.OK], answers[codes.ResourceExhausted])
	return nil
}

// serve starts the service, which counts the calls of each tenant. gRPC's own health service stands for yours.
func serve() (*grpc.Server, string, error) {
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{Policy: "calls: 10/1s", Key: keyfunc.Header("X-Tenant")},
		Routes: map[string]guard.Rule{
			"/grpc.health.v1.Health/Watch": {Policy: "watches: 2 concurrent"}, // streams
		},
	})
	if err != nil {
		return nil, "", err
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpcmw.Unary(g)),
		grpc.ChainStreamInterceptor(grpcmw.Stream(g)),
	)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	go func() { _ = server.Serve(listener) }() // until Stop
	return server, listener.Addr().String(), nil
}

// connect returns a connection whose calls wait for their turn, if they are to obey.
func connect(address string, obey bool) (*grpc.ClientConn, error) {
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if obey {
		obeyer, err := grpcmw.Obey(grpcmw.ObeyOptions{})
		if err != nil {
			return nil, err
		}
		options = append(options, grpc.WithChainUnaryInterceptor(obeyer.Unary), grpc.WithChainStreamInterceptor(obeyer.Stream))
	}
	return grpc.NewClient(address, options...)
}

// call has the workers call until ctx is over, and counts the answers.
func call(ctx context.Context, conn *grpc.ClientConn, workers int) (answers map[codes.Code]int, failed error) {
	client := grpc_health_v1.NewHealthClient(conn)
	tenant := metadata.AppendToOutgoingContext(ctx, "x-tenant", "acme")
	answers = map[codes.Code]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				_, err := client.Check(tenant, new(grpc_health_v1.HealthCheckRequest))
				code := status.Code(err)
				mu.Lock()
				if ctx.Err() == nil && code != codes.OK && code != codes.ResourceExhausted {
					failed = err
				}
				answers[code]++
				mu.Unlock()
				select {
				case <-ctx.Done():
				case <-time.After(10 * time.Millisecond): // what a worker does besides
				}
			}
		})
	}
	all.Wait()
	return answers, failed
}
