package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/publish"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/admin/site"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/redissource"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/internal/redisurl"
	"github.com/weir-go/weir/observe"
)

// published has the flag of the commands that need Redis.
type published struct {
	Redis location `default:"redis://127.0.0.1:6379" placeholder:"URL" help:"Redis, or @FILE, with the URL in a file; of a Cluster with ?addr=host:port for a further node, of a Sentinel with ?master_name=name."`
}

// connect returns a client that publishes, and one that looks at counts.
func (p published) connect() (publishes, looks redis.UniversalClient, err error) {
	at, err := p.Redis.read("-redis")
	if err != nil {
		return nil, nil, err
	}
	if publishes, err = redisurl.Connect(at, false); err != nil {
		return nil, nil, err
	}
	if looks, err = redisurl.Connect(at, true); err != nil {
		return nil, nil, errors.Join(err, publishes.Close())
	}
	return publishes, looks, nil
}

type serveCommand struct {
	database
	published

	Addr      string         `default:"127.0.0.1:7070" help:"The address to listen on."`
	PublicURL string         `name:"public-url" placeholder:"URL" help:"The URL by which browsers reach this server, with https unless it is on this machine: that of the proxy with TLS. Needed if others can reach the address."`
	Trusted   []netip.Prefix `name:"trusted-proxies" placeholder:"NETWORK" help:"The networks of the proxies in front, such as 10.0.0.0/8: X-Forwarded-For from there names the client."`
	Top       bool           `help:"Serve the callers that fleets refused most, with their keys; the user of Redis needs the right to read boards."`

	OIDC   oidcFlags  `embed:"" prefix:"oidc-"`
	Counts countFlags `embed:""`
}

// countFlags are the flags of counts that are not in the Redis that publishes, or whose keys are hashed.
type countFlags struct {
	Counts  map[string]string `mapsep:"none" placeholder:"PREFIX=FILE" help:"A file with the URL of the Redis in which the services with a prefix count, if it is another one than -redis. May be repeated."`
	Secrets map[string]string `name:"secret" mapsep:"none" placeholder:"PREFIX=FILE" help:"A file with the secret by which the services with a prefix hash their keys. May be repeated."`
}

// open returns the places of counts, and a function that closes their clients.
func (c countFlags) open(rdb redis.UniversalClient) (*counts.Stores, func(), error) {
	places := map[string]counts.Place{}
	var opened []redis.UniversalClient
	end := func() {
		for _, client := range opened {
			_ = client.Close() // nothing was written
		}
	}
	for prefix, file := range c.Counts {
		at, err := location("@" + file).read("-counts " + prefix)
		if err != nil {
			end()
			return nil, nil, err
		}
		client, err := redisurl.Connect(at, true)
		if err != nil {
			end()
			return nil, nil, fmt.Errorf("-counts %s: %w", prefix, err)
		}
		opened = append(opened, client)
		places[prefix] = counts.Place{Redis: client}
	}
	for prefix, file := range c.Secrets {
		place := places[prefix]
		place.SecretFile = file
		places[prefix] = place
	}
	stores, err := counts.New(counts.Options{Redis: rdb, Places: places})
	if err != nil {
		end()
		return nil, nil, err
	}
	return stores, end, nil
}

// oidcFlags are those of the identity provider.
type oidcFlags struct {
	Issuer     string   `placeholder:"URL" help:"The identity provider, OpenID Connect. Without it, people log in by links."`
	Client     string   `placeholder:"ID" help:"The id of this server at the provider, where its redirect URL is that of -public-url and /login/callback."`
	SecretFile string   `placeholder:"FILE" help:"A file with the secret of the client."`
	Scopes     []string `help:"Scopes to ask for, besides openid; profile unless given."`
	Groups     string   `placeholder:"CLAIM" default:"groups" help:"The claim that has a person's groups."`
}

// provider returns the provider, or nil if there is none.
func (o oidcFlags) provider() (*people.OIDC, error) {
	if o.Issuer == "" {
		if o.Client != "" || o.SecretFile != "" {
			return nil, errors.New("there is no -oidc-issuer; give the URL of the provider")
		}
		return nil, nil
	}
	if o.Client == "" {
		return nil, errors.New("there is no -oidc-client; give the id under which the provider knows this server")
	}
	p := &people.OIDC{Issuer: o.Issuer, ClientID: o.Client, Scopes: o.Scopes, GroupsClaim: o.Groups}
	if o.SecretFile != "" {
		secret, err := os.ReadFile(o.SecretFile)
		if err != nil {
			return nil, fmt.Errorf("-oidc-secret-file: %w", err)
		}
		p.ClientSecret = strings.TrimSpace(string(secret))
	}
	return p, nil
}

// drain bounds how long requests under way may take when the program ends.
const drain = 5 * time.Second

// Run serves until the program is to end.
func (c *serveCommand) Run(e *environment) (err error) {
	ctx := e.ctx
	provider, err := c.OIDC.provider()
	if err != nil {
		return err
	}
	rdb, looks, err := c.connect()
	if err != nil {
		return err
	}
	defer rdb.Close()
	defer looks.Close()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Addr)
	if err != nil {
		return err
	}
	defer listener.Close()
	public, err := publicURL(c.PublicURL, listener.Addr())
	if err != nil {
		return err
	}
	o, err := c.openOrMake(e, e.out)
	if err != nil {
		return err
	}
	defer o.close(&err)
	stores, closeStores, err := c.Counts.open(looks)
	if err != nil {
		return err
	}
	defer closeStores()
	publisher := publish.New(o.Record, rdb, slog.Default())
	options := site.Options{
		DB: o.DB, Record: o.Record, Audit: o.Audit, PublicURL: public, OIDC: provider, Trusted: c.Trusted, Publisher: publisher, Counts: stores,
		Services: func(ctx context.Context, app string) ([]*policies.Process, int, error) {
			return redissource.Processes(ctx, rdb, app)
		},
		Usages: func(ctx context.Context, app string, f func(string, *stats.Usage, error)) error {
			return redissource.Usages(ctx, rdb, app, f)
		},
	}
	if c.Top {
		options.Top = worstOf(looks)
	}
	s, err := site.New(ctx, options)
	if err != nil {
		return err
	}
	if err := firstAdmin(e, s.People); err != nil {
		return err
	}
	var work sync.WaitGroup
	publishing, stopPublishing := context.WithCancel(context.WithoutCancel(ctx)) // until the last change is answered
	work.Go(func() { publisher.Run(publishing) })
	work.Go(func() { s.Run(publishing) })
	defer work.Wait()
	defer stopPublishing()
	return serve(ctx, listener, s.Handler)
}

// firstAdmin prints a link for the first admin, if there is none yet.
func firstAdmin(e *environment, who *people.People) error {
	grants, _, err := who.Grants(e.ctx, rights.AllApps)
	if err != nil {
		return err
	}
	for _, g := range grants {
		if g.Role == rights.Admin {
			return nil
		}
	}
	const name = "admin"
	link, err := who.MakeLink(e.ctx, people.By{Person: people.Console(), Reason: "the first start"},
		people.LocalPerson{Name: name, Role: rights.Admin, App: rights.AllApps})
	if err != nil {
		return err
	}
	printLink(e.err, name, link) // the output is the audit
	return nil
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
