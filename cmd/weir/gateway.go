package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weir-go/weir/cmd/weir/internal/gatewayfile"
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redisurl"
	"github.com/weir-go/weir/nethttp/gateway"
)

type gatewayCommand struct {
	Check bool          `help:"Check the file, and end."`
	Drain time.Duration `default:"3s" help:"The time between SIGTERM, from which /healthz is 503, and the end of listening. A second signal ends it."`
	File  string        `arg:"" help:"The file with the rules, in YAML; docs/gateways.md describes it."`
}

// The bounds of the server.
const (
	headerPatience = 5 * time.Second
	idlePatience   = 2 * time.Minute // longer than gateways keep connections
	lastAnswers    = 10 * time.Second
	fileInterval   = time.Second

	// answerPatience is the time in which a peer must have sent the body that it announced, which nobody needs, and
	// accepted some of an answer. It begins when the check is decided, however long a policy lets it wait.
	answerPatience = 5 * time.Second
)

// checker answers gateways by the last good file.
type checker struct {
	path  string
	store core.Store
	log   *slog.Logger

	data     []byte            // of the file that was read last, good or not
	first    *gatewayfile.File // by which the server listens
	draining atomic.Bool

	mu      sync.RWMutex // of current, and of the addition to its requests
	current *loaded
	closing sync.WaitGroup // of those that were current before
}

// loaded is the handler of a file that was loaded.
type loaded struct {
	handler  http.Handler
	stop     func() error   // of its guard
	requests sync.WaitGroup // that the handler answers
}

// close waits for the requests that have begun, and ends the guard.
func (l *loaded) close() {
	l.requests.Wait()
	_ = l.stop() // what is still due is given back, for half a second at most
}

// Run answers until it is interrupted.
func (c *gatewayCommand) Run(e *environment) error {
	if c.Drain < 0 {
		return fmt.Errorf("-drain is %s; give a time, or 0", c.Drain)
	}
	g := &checker{path: c.File, log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	file, err := g.parse()
	if err != nil {
		return err
	}
	if file.Redis != "" {
		closeStore, err := g.open(file.Redis)
		if err != nil {
			return err
		}
		defer closeStore()
	} else {
		memory, err := core.NewMemory(core.MemoryOptions{})
		if err != nil {
			return err
		}
		g.store = memory
	}
	g.first = file
	if err := g.use(file); err != nil {
		return err
	}
	defer g.close()
	if c.Check {
		e.printf("%s without mistakes\n", c.File)
		return nil
	}
	return g.serve(e, c.Drain)
}

// close ends what all files that were loaded have begun.
func (g *checker) close() {
	g.current.close()
	g.closing.Wait()
}

// open opens the store.
func (g *checker) open(location string) (closeStore func(), err error) {
	client, err := redisurl.Connect(location, true)
	if err != nil {
		return nil, errors.New(g.path + ": " + strings.ReplaceAll(err.Error(), "-redis", "redis"))
	}
	store, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		_ = client.Close() // the first error says more
		return nil, err
	}
	g.store = store
	return func() { _ = client.Close() }, nil // the program ends
}

// parse reads the file.
func (g *checker) parse() (*gatewayfile.File, error) {
	data, err := readBounded(g.path)
	if err != nil {
		return nil, err
	}
	g.data = data
	file, err := gatewayfile.Parse(data)
	if err != nil {
		return nil, g.named(err)
	}
	return file, nil
}

// readBounded reads a file of a bounded size, and a byte more of one that is larger, which Parse refuses.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, gatewayfile.MaxSize+1))
}

// named puts the name of the file before each line of an error.
func (g *checker) named(err error) error {
	return errors.New(g.path + ": " + strings.ReplaceAll(err.Error(), "\n", "\n"+g.path+": "))
}

// use answers by a file from now on, unless it has mistakes. Requests that have begun, such as those that wait for their
// turn, are answered by the one before.
func (g *checker) use(file *gatewayfile.File) error {
	if file.Network != g.first.Network || file.Address != g.first.Address || file.Redis != g.first.Redis {
		return g.named(errors.New("listen and redis hold until the program ends; start it again to change them"))
	}
	h, stop, err := file.Build(func(c *guard.Config, o *gateway.Options) { c.Store, c.Log, o.Log = g.store, g.log, g.log })
	if err != nil {
		return g.named(err)
	}
	g.mu.Lock()
	before := g.current
	g.current = &loaded{handler: h, stop: stop}
	g.mu.Unlock()
	if before != nil {
		g.closing.Go(before.close)
	}
	return nil
}

// reload reads the file again. A file with mistakes changes nothing.
func (g *checker) reload() {
	file, err := g.parse()
	if err == nil {
		err = g.use(file)
	}
	if err != nil {
		g.log.Error("weir: the file cannot be used, and the one before holds", "error", err)
		return
	}
	g.log.Info("weir: the file was loaded again", "file", g.path)
}

// follow loads the file again at SIGHUP, and when it is another one, and the same at two looks: somebody may be writing it.
func (g *checker) follow(ctx context.Context) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	look := time.NewTicker(fileInterval)
	defer look.Stop()
	last := g.data
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			g.reload()
		case <-look.C:
			data, err := readBounded(g.path)
			if err != nil {
				continue // it is being replaced; SIGHUP logs why it cannot be read
			}
			if !bytes.Equal(data, g.data) && bytes.Equal(data, last) {
				g.reload()
			}
			last = data
		}
	}
}

// ServeHTTP implements http.Handler.
func (g *checker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/healthz" {
		if g.draining.Load() {
			http.Error(w, "draining", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n") // the client sees it
		return
	}
	g.mu.RLock()
	l := g.current
	l.requests.Add(1)
	g.mu.RUnlock()
	defer l.requests.Done()
	l.handler.ServeHTTP(w, r)
}

// serve listens until the program is interrupted, and answers for patience from then on.
func (g *checker) serve(e *environment, patience time.Duration) error {
	if g.first.Network == "unix" {
		removeStale(e.ctx, g.first.Address)
	}
	listener, err := new(net.ListenConfig).Listen(e.ctx, g.first.Network, g.first.Address)
	if err != nil {
		return err
	}
	server := g.server(answerPatience)
	defer func() { _ = server.Close() }() // the connections that are left, so that no request waits any longer
	followed := make(chan struct{})
	ctx, cancel := context.WithCancel(e.ctx)
	go func() {
		defer close(followed)
		g.follow(ctx)
	}()
	defer func() {
		cancel()
		<-followed
	}()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	e.printf("weir gateway answers on %s\n", listener.Addr())
	select {
	case err := <-served:
		return err
	case <-e.ctx.Done():
	}
	if err := drain(served, patience, func() { g.draining.Store(true) }); err != nil {
		return err
	}
	last, end := context.WithTimeout(context.WithoutCancel(e.ctx), lastAnswers)
	defer end()
	return server.Shutdown(last)
}

// drain calls begin and returns after a time, at a further signal, or with the error of a server that fails meanwhile.
func drain(failed <-chan error, d time.Duration, begin func()) error {
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(again)
	begin()
	select {
	case err := <-failed:
		return err
	case <-again:
	case <-time.After(d):
	}
	return nil
}

// server returns the server for the connections of gateways. A peer that sends or reads nothing is let go after patience.
func (g *checker) server(patience time.Duration) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			g.ServeHTTP(w, r)
			// Now the server reads the rest of a body and writes the answer, which is in its buffer. The time for all of a
			// request, as in ReadTimeout and WriteTimeout, would end the wait for a turn.
			c, now := http.NewResponseController(w), time.Now()
			_ = c.SetWriteDeadline(now.Add(2 * patience)) // of a connection that both protocols have
			if r.Body != http.NoBody {
				_ = c.SetReadDeadline(now.Add(patience))
			}
		}),
		ReadHeaderTimeout: headerPatience, IdleTimeout: idlePatience, Protocols: protocols,
		HTTP2:    &http.HTTP2Config{WriteByteTimeout: patience},
		ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelWarn),
	}
}

// removeStale removes the socket of a program that was killed.
func removeStale(ctx context.Context, path string) {
	info, err := os.Stat(path)
	if err != nil || info.Mode()&os.ModeSocket == 0 {
		return
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		_ = os.Remove(path) // Listen says what is wrong
		return
	}
	_ = conn.Close()
}
