package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/weir-go/weir/cmd/weir/internal/rlsenv"
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/policies/redissource"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/grpcmw/envoyrls"
)

type rlsCommand struct {
	App      string        `env:"WEIR_APP" help:"Obey what a fleet has published in Redis for the policies of this app."`
	Resets   bool          `env:"WEIR_RESETS" help:"Let those who reach the debug port forget what was counted: POST /reset with a request as that of /json."`
	Check    bool          `help:"Check the environment and the files of the configuration, and end."`
	Deadline time.Duration `default:"15ms" env:"WEIR_DEADLINE" help:"The time in which Redis must answer. Envoy waits for 20ms, unless its timeout says otherwise."`
	Drain    time.Duration `default:"10s" env:"WEIR_DRAIN" help:"The time between SIGTERM, from which the service is unhealthy, and the end of listening. A second signal ends it."`
}

// The bounds of the servers. Envoy sends its requests over a few connections, each a stream.
const (
	maxMetadata     = 64 << 10 // of a request; gRPC itself takes 16 MiB
	maxStreams      = 10_000   // of a connection
	streamWorkers   = 64       // goroutines that keep their stacks from one request to the next; more requests have new ones
	leastPingPeriod = 5 * time.Second
	garbage         = 32 << 20 // bytes of memory that may wait to be collected, beside as much as is in use
)

// Run answers Envoy until it is interrupted.
func (c *rlsCommand) Run(e *environment) error {
	if c.Deadline <= 0 {
		return fmt.Errorf("-deadline (WEIR_DEADLINE) is %s; give a time above 0, such as 15ms", c.Deadline)
	}
	if c.Drain < 0 {
		return fmt.Errorf("-drain (WEIR_DRAIN) is %s; give a time, or 0", c.Drain)
	}
	settings, err := rlsenv.Read(os.LookupEnv)
	if err != nil {
		return fmt.Errorf("the environment cannot be used:\n%w", err)
	}
	r := &rls{settings: settings, log: rlsLog(settings), resets: c.Resets}
	redis.SetLogger(redisLog{r.log})
	if len(settings.Unused) > 0 {
		r.log.Warn("weir: these variables are set and have no use", "variables", strings.Join(settings.Unused, ", "))
	}
	stop, err := r.open(c.Deadline, c.App)
	if err != nil {
		return err
	}
	defer stop()
	if c.Check {
		return r.check(e)
	}
	hungUp, stopListening := signal.NotifyContext(e.ctx, syscall.SIGHUP) // it ends envoyproxy/ratelimit as well
	defer stopListening()
	e.ctx = hungUp
	return r.serve(e, c.Drain)
}

// rlsLog returns the log that the environment asks for.
func rlsLog(s *rlsenv.Settings) *slog.Logger {
	if !s.LogJSON {
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: s.LogLevel}))
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{
		Level: s.LogLevel,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr { // the names that envoyproxy/ratelimit has
			switch {
			case len(groups) > 0:
			case a.Key == slog.TimeKey:
				a.Key = "@timestamp"
			case a.Key == slog.MessageKey:
				a.Key = "@message"
			case a.Key == slog.LevelKey:
				a.Value = slog.StringValue(strings.ToLower(a.Value.String()))
			}
			return a
		},
	}))
}

// redisLog is the log of go-redis, which has a line for each connection that fails. A failing store is logged once a
// minute by those who use it.
type redisLog struct{ log *slog.Logger }

// Printf implements the interface of go-redis.
func (l redisLog) Printf(ctx context.Context, format string, args ...any) {
	if l.log.Enabled(ctx, slog.LevelDebug) {
		l.log.DebugContext(ctx, "weir: go-redis", "line", fmt.Sprintf(format, args...))
	}
}

// rls is a running weir rls.
type rls struct {
	settings *rlsenv.Settings
	log      *slog.Logger
	clients  []redis.UniversalClient // the first is that of most limits, a second one that of limits by the second
	server   *envoyrls.Server
	resets   bool
}

// open makes the server. It asks nobody.
func (r *rls) open(deadline time.Duration, app string) (stop func(), err error) {
	s := r.settings
	store, err := r.store(s.Redis, deadline)
	config := envoyrls.Config{
		MergeDomains: s.MergeDomains, Shadow: s.Shadow, Quota: s.Quota, ChargeAll: s.ChargeAll, Metadata: s.Metadata,
		Headers: s.Headers, NearLimit: s.NearLimit, StartHealthy: s.StartEmpty, NeedDomains: s.EmptyIsSick, Log: r.log,
	}
	if err == nil && s.PerSecond != nil {
		config.PerSecond, err = r.store(s.PerSecond, deadline)
	}
	var fleet *redissource.Source
	if err == nil && app != "" {
		if fleet, err = redissource.New(r.clients[0], app, redissource.Options{Log: r.log}); err == nil {
			config.Source = fleet
		}
	}
	if err == nil {
		r.server, err = envoyrls.New(store, config)
	}
	stop = func() {
		if r.server != nil {
			_ = r.server.Close() // half a second at most, and nobody is left to tell
		}
		if fleet != nil {
			_ = fleet.Close()
		}
		r.closeClients()
	}
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// store makes a store, and its client.
func (r *rls) store(o *redis.UniversalOptions, deadline time.Duration) (core.Store, error) {
	o.PoolTimeout = deadline / 2
	client := redis.NewUniversalClient(o)
	r.clients = append(r.clients, client)
	return redisstore.New(client, redisstore.Options{
		Deadline: deadline, Prefix: r.settings.Prefix, DenyCache: r.settings.DenyCache,
	})
}

func (r *rls) closeClients() {
	for _, client := range r.clients {
		_ = client.Close() // the program ends
	}
}

// check loads the files once.
func (r *rls) check(e *environment) error {
	if r.settings.XDS != nil {
		e.printf("the environment is without mistakes; the configuration comes from %s\n", r.settings.XDS.Server)
		return nil
	}
	files, err := r.settings.Files.Files()
	if err != nil {
		return fmt.Errorf("%w; give the directory of the configuration by RUNTIME_ROOT, RUNTIME_SUBDIRECTORY and RUNTIME_APPDIRECTORY", err)
	}
	if err := r.server.Load(files...); err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New(noFiles(r.settings.Files))
	}
	e.printf("%d files of %s without mistakes\n", len(files), r.settings.Files.Path)
	return nil
}

// noFiles returns the text of the mistake that no file is read, with the places for files.
func noFiles(d envoyrls.Directory) string {
	text := "there are no files in " + d.Path
	if d.Prefix != "" {
		text = fmt.Sprintf("%s has no files in its directory %s, nor any with a name that begins with %q",
			d.Path, strings.TrimSuffix(d.Prefix, "."), d.Prefix)
	}
	if d.SkipDotFiles {
		text += "; those whose names begin with a dot are left out (RUNTIME_IGNOREDOTFILES)"
	}
	return text + "; put a file with a domain there, such as limits.yaml, or give another directory by RUNTIME_ROOT, " +
		"RUNTIME_SUBDIRECTORY and RUNTIME_APPDIRECTORY"
}

// serve listens until the program is interrupted, and answers for patience from then on.
func (r *rls) serve(e *environment, patience time.Duration) error {
	s := r.settings
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			_ = l.Close() // most are closed already
		}
	}()
	listen := func(a rlsenv.Address) (net.Listener, error) {
		if a.Network == "unix" {
			removeStale(e.ctx, a.Address)
		}
		l, err := new(net.ListenConfig).Listen(e.ctx, a.Network, a.Address)
		if err == nil {
			listeners = append(listeners, l)
		}
		return l, err
	}
	// A heap with next to nothing in it would be collected a hundred times a second. With this in it, which is no memory
	// before something is written to it, there is room for as much garbage.
	room := make([]byte, garbage)
	defer runtime.KeepAlive(room)
	failed := make(chan error, 1)
	fail := func(err error) {
		select {
		case failed <- err:
		default: // the first says it
		}
	}
	ending, end := context.WithCancel(context.WithoutCancel(e.ctx))
	defer end()
	grpcServer := r.grpcServer(ending)
	grpcListener, err := listen(s.GRPC)
	if err != nil {
		return err
	}
	var web []*http.Server
	said := []string{fmt.Sprintf("weir rls answers on %s", grpcListener.Addr())}
	for _, door := range r.doors() {
		l, err := listen(door.address)
		if err != nil {
			return err
		}
		server := &http.Server{
			Handler: door.handler, ReadHeaderTimeout: headerPatience, ReadTimeout: lastAnswers, WriteTimeout: 2 * lastAnswers,
			IdleTimeout: idlePatience,
			ErrorLog:    slog.NewLogLogger(r.log.Handler(), slog.LevelWarn),
		}
		web = append(web, server)
		go func() { fail(server.Serve(l)) }()
		said = append(said, fmt.Sprintf("%s on %s", door.name, l.Addr()))
	}
	go func() { fail(grpcServer.Serve(grpcListener)) }()
	ctx, cancel := context.WithCancel(e.ctx)
	var behind sync.WaitGroup
	defer func() {
		cancel()
		behind.Wait()
	}()
	behind.Go(func() { r.follow(ctx, fail) })
	if s.RedisIsHealth {
		for i, client := range r.clients {
			behind.Go(func() { r.ping(ctx, fmt.Sprintf("redis %d", i+1), client) })
		}
	}
	e.printf("%s\n", strings.Join(said, ", "))

	select {
	case err := <-failed:
		grpcServer.Stop()
		return err
	case <-e.ctx.Done():
	}
	if err := drain(failed, patience, func() {
		r.server.Drain()
		r.log.Info("weir: the service is unhealthy from now on, and goes on answering", "for", patience)
	}); err != nil {
		grpcServer.Stop()
		return err
	}
	end()
	return r.end(context.WithoutCancel(e.ctx), grpcServer, web)
}

// end lets the servers finish what they have begun, for ten seconds at most.
func (r *rls) end(ctx context.Context, server *grpc.Server, web []*http.Server) error {
	ctx, cancel := context.WithTimeout(ctx, lastAnswers)
	defer cancel()
	var all sync.WaitGroup
	errs := make([]error, len(web))
	for i, w := range web {
		all.Go(func() {
			if err := w.Shutdown(ctx); err != nil {
				errs[i] = errors.Join(err, w.Close())
			}
		})
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		server.GracefulStop()
	}()
	select {
	case <-stopped:
	case <-ctx.Done():
		server.Stop()
		<-stopped
	}
	all.Wait()
	return errors.Join(errs...)
}

// endingStream is a stream that ends by itself when the server does. A Watch of the health has no other end, and would
// hold the server until its patience is over.
type endingStream struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // Context returns it
}

func (s *endingStream) Context() context.Context { return s.ctx }

// endStreams returns an interceptor that ends the context of all streams with that of the server.
func endStreams(ending context.Context) grpc.StreamServerInterceptor {
	return func(service any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		ctx, cancel := context.WithCancel(ss.Context())
		defer cancel()
		defer context.AfterFunc(ending, cancel)()
		return handle(service, &endingStream{ss, ctx})
	}
}

// grpcServer returns a server of gRPC with the service, whose streams end with ending.
func (r *rls) grpcServer(ending context.Context) *grpc.Server {
	s := r.settings
	options := []grpc.ServerOption{
		grpc.MaxHeaderListSize(maxMetadata),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.ConnectionTimeout(headerPatience),
		grpc.StreamInterceptor(endStreams(ending)),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: s.ConnectionAge, MaxConnectionAgeGrace: s.ConnectionGrace}),
		// Envoy may be set up to ask whether a connection lives, also while it has nothing to ask on it.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: leastPingPeriod, PermitWithoutStream: true}),
	}
	if s.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(s.TLS)))
	}
	server := grpc.NewServer(options...)
	r.server.Register(server)
	return server
}

// door is an address where something is answered over HTTP.
type door struct {
	name    string
	address rlsenv.Address
	handler http.Handler
}

// doors returns where HTTP is answered, and what.
func (r *rls) doors() []door {
	s, all := r.settings, r.server.Handler()
	service, debug := http.NewServeMux(), http.NewServeMux()
	service.Handle("/json", all)
	service.Handle("/healthcheck", all)
	debug.Handle("/rlconfig", all)
	debug.Handle("/metrics", all)
	if r.resets {
		debug.Handle("/reset", r.server.ResetHandler())
	}
	debug.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "/metrics: the counters\n/rlconfig: the configuration\n") // the client sees it
	})
	doors := []door{{"HTTP", s.HTTP, service}, {"debug", s.Debug, debug}}
	if s.Metrics.Address != "" {
		metrics := http.NewServeMux()
		metrics.HandleFunc(s.MetricsPath, func(w http.ResponseWriter, q *http.Request) {
			q = q.Clone(q.Context())
			q.URL.Path = "/metrics"
			all.ServeHTTP(w, q)
		})
		doors = append(doors, door{"metrics", s.Metrics, metrics})
	}
	return doors
}

// pingInterval is the time between two looks at a Redis, which has as long to answer.
const pingInterval = time.Second

// ping makes the service unhealthy while a Redis does not answer, until ctx is done.
func (r *rls) ping(ctx context.Context, name string, client redis.UniversalClient) {
	ticks := time.NewTicker(pingInterval)
	defer ticks.Stop()
	for well := true; ; {
		call, cancel := context.WithTimeout(ctx, pingInterval)
		err := client.Ping(call).Err()
		cancel()
		if ctx.Err() != nil {
			return
		}
		if (err == nil) != well {
			well = err == nil
			r.log.Warn("weir: the health of the service follows Redis", "redis", name, "answers", well, "error", err)
		}
		r.server.SetHealthy(name, well)
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// follow loads the configuration until ctx is done.
func (r *rls) follow(ctx context.Context, fail func(error)) {
	if r.settings.XDS == nil {
		r.server.Follow(ctx, r.settings.Files)
		return
	}
	if err := r.server.FollowXDS(ctx, *r.settings.XDS); err != nil {
		fail(err)
	}
}
