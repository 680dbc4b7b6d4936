package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/admin/api"
	"github.com/weir-go/weir/admin/audit"
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

type serveCommand struct {
	database

	Redis     location `default:"redis://127.0.0.1:6379" placeholder:"URL" help:"Redis, or @FILE, with the URL in a file; of a Cluster with ?addr=host:port for a further node, of a Sentinel with ?master_name=name."`
	Addr      string   `default:"127.0.0.1:7070" help:"The address to listen on."`
	PublicURL string   `name:"public-url" placeholder:"URL" help:"The URL by which browsers reach this server, with https unless it is on this machine: that of the proxy with TLS. Needed if others can reach the address."`
	TokenFile string   `placeholder:"FILE" help:"A file of lines \"name:secret\" (required)."`
	Top       bool     `help:"Serve the callers that fleets refused most, with their keys; the user of Redis needs the right to read boards."`
}

// drain bounds how long requests under way may take when the program ends.
const drain = 5 * time.Second

// Run serves until the program is to end.
func (c *serveCommand) Run(e *environment) error {
	ctx := e.ctx
	authenticate, err := tokens(c.TokenFile)
	if err != nil {
		return err
	}
	redisURL, err := c.Redis.read("-redis")
	if err != nil {
		return err
	}
	rdb, err := redisurl.Connect(redisURL, false)
	if err != nil {
		return err
	}
	defer rdb.Close()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Addr)
	if err != nil {
		return err
	}
	defer listener.Close()
	if _, err := publicURL(c.PublicURL, listener.Addr()); err != nil {
		return err
	}
	db, err := c.open(e)
	if err != nil {
		return err
	}
	defer db.Close()
	log := audit.New(db, audit.Options{Lines: e.out})
	defer log.Close()
	r := record.New(db, log)

	publisher := publish.New(r, rdb, slog.Default())
	options := manage.Options{
		Record: r, Audit: log, Publisher: publisher,
		Services: func(ctx context.Context, app string) ([]*policies.Process, int, error) {
			return redissource.Processes(ctx, rdb, app)
		},
	}
	if c.Top {
		counts, err := redisurl.Connect(redisURL, true)
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
	var work sync.WaitGroup
	publishing, stopPublishing := context.WithCancel(context.WithoutCancel(ctx)) // until the last change is answered
	work.Go(func() { publisher.Run(publishing) })
	defer work.Wait()
	defer stopPublishing()
	return serve(ctx, listener, handler)
}

// serve serves a handler until ctx ends, and the requests under way after that.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
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
