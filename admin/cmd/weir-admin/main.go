// Command weir-admin serves the record of a fleet's policies, and publishes it in Redis:
//
//	go run ./cmd/weir-admin -db weir.db -redis redis://127.0.0.1:6379 -token-file token
//
// Several may serve one database. A line of the token file is "name:secret", for each person or program that may use
// it; the history has the names. It serves HTTP without TLS, on this machine alone: for others put a proxy with TLS
// before it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/admin/api"
	"github.com/weir-go/weir/admin/internal/sqldb"
	_ "github.com/weir-go/weir/admin/internal/sqldb/drivers"
	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/publish"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/redissource"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redisurl"
	"github.com/weir-go/weir/observe"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // the program's own
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "weir-admin:", err)
		os.Exit(1)
	}
}

// drain bounds how long requests under way may take when the program ends.
const drain = 5 * time.Second

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "demo" {
		return runDemo(ctx, os.Stdout)
	}
	flags := flag.NewFlagSet("weir-admin", flag.ContinueOnError)
	database := flags.String("db", "weir.db", "`location` of the database: a file, postgres://... or mariadb://...")
	redisURL := flags.String("redis", "redis://127.0.0.1:6379", "`URL` of Redis; of a Cluster with ?addr=host:port for a further node, of a Sentinel with ?master_name=name")
	tokenFile := flags.String("token-file", "", "`file` of lines \"name:secret\" (required)")
	address := flags.String("addr", "127.0.0.1:7070", "`address` to listen on")
	top := flags.Bool("top", false, "serve the callers that fleets refused most, with their keys; the user of Redis needs the right to read boards")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("found the argument %q; give flags alone", flags.Arg(0))
	}
	authenticate, err := tokens(*tokenFile)
	if err != nil {
		return err
	}
	rdb, err := redisurl.Connect(*redisURL, false)
	if err != nil {
		return err
	}
	defer rdb.Close()
	db, err := sqldb.Open(ctx, *database)
	if err != nil {
		return err
	}
	defer db.Close()
	r := record.New(db)

	publisher := publish.New(r, rdb, slog.Default())
	options := manage.Options{
		Record: r, Publisher: publisher,
		Services: func(ctx context.Context, app string) ([]*policies.Process, int, error) {
			return redissource.Processes(ctx, rdb, app)
		},
	}
	if *top {
		counts, err := redisurl.Connect(*redisURL, true)
		if err != nil {
			return err
		}
		defer counts.Close()
		options.Top = worstOf(counts)
	}
	manager, err := manage.New(options)
	if err != nil {
		return err
	}
	handler, err := api.New(api.Options{Manager: manager, Authenticate: authenticate})
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *address)
	if err != nil {
		return err
	}
	if beyond(listener.Addr()) {
		slog.Warn("weir-admin: anybody on the network can read the tokens that are sent here, since this is not TLS; "+
			"put a proxy with TLS before it, or listen on 127.0.0.1", "address", listener.Addr().String())
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	var work sync.WaitGroup
	publishing, stopPublishing := context.WithCancel(context.WithoutCancel(ctx)) // until the last change is answered
	work.Go(func() { publisher.Run(publishing) })
	defer work.Wait()
	defer stopPublishing()

	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	slog.Info("weir-admin: serving", "address", listener.Addr().String())
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	if err := server.Shutdown(ending); errors.Is(err, context.DeadlineExceeded) {
		_ = server.Close()
		return fmt.Errorf("cut off requests that were under way for more than %v; look at the history for what they have changed", drain)
	} else if err != nil {
		return err
	}
	return nil
}

// worstOf returns a function for the API that reads the boards of stores.
func worstOf(rdb redis.UniversalClient) func(context.Context, string, string, time.Duration, int) ([]observe.Caller, uint64, error) {
	return func(ctx context.Context, prefix, policy string, last time.Duration, n int) ([]observe.Caller, uint64, error) {
		store, err := redisstore.New(rdb, redisstore.Options{Prefix: prefix, DenyCache: -1})
		if err != nil {
			return nil, 0, err
		}
		return observe.FleetWorst(ctx, store, policy, last, n)
	}
}

// beyond reports whether other machines can reach an address.
func beyond(address net.Addr) bool {
	tcp, ok := address.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

func tokens(name string) (func(*http.Request) (*rights.Person, error), error) {
	if name == "" {
		return nil, errors.New("no -token-file; give a file with a line \"name:secret\" for each person who may change limits")
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return api.Tokens(file)
}
