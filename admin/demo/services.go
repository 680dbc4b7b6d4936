package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/ginmw"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/observe"
)

// service is a program with limits that follows the fleet, and serves on a port of this machine.
type service struct {
	url    string
	source *source
	server *http.Server
	leave  func() error
	ended  chan struct{}
}

// program makes the handler of a service.
type program func(guard.Config) (http.Handler, error)

// startService starts a service of an app.
func startService(ctx context.Context, x *exchange, store core.Store, log *slog.Logger, app, name string, p program) (*service, error) {
	observer, err := observe.New(observe.Options{UsageKeys: true})
	if err != nil {
		return nil, err
	}
	source, err := newSource(x, app, name, observer.Usage)
	if err != nil {
		return nil, errors.Join(err, observer.Close())
	}
	handler, err := p(guard.Config{Store: store, Source: source, Observe: observer.Observe, Log: log})
	if err != nil {
		x.leave(source)
		return nil, errors.Join(err, observer.Close())
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		x.leave(source)
		return nil, errors.Join(err, observer.Close())
	}
	s := &service{
		url: "http://" + listener.Addr().String(), source: source, ended: make(chan struct{}),
		server: &http.Server{Handler: signedIn(handler), ReadHeaderTimeout: time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)},
		leave: func() error {
			x.leave(source)
			return observer.Close()
		},
	}
	go func() {
		defer close(s.ended)
		_ = s.server.Serve(listener) // until close
	}()
	return s, nil
}

func (s *service) close() error {
	err := s.server.Close()
	<-s.ended
	return errors.Join(err, s.leave())
}

// client is the address of a caller, which the made-up traffic sends as a proxy would.
func client() keyfunc.Func { return keyfunc.ForwardedIP(netip.MustParsePrefix("127.0.0.0/8")) }

// uid is the key under which signedIn leaves the identity of a caller.
type uid struct{}

// signedIn is the authentication of the services, which believes every caller.
func signedIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id := r.Header.Get("X-User"); id != "" {
			r = r.WithContext(context.WithValue(r.Context(), uid{}, id))
		}
		next.ServeHTTP(w, r)
	})
}

// plan is the tier of a caller.
func plan(r keyfunc.Request) string {
	if lines := r.Header("X-Plan"); len(lines) > 0 {
		return lines[0]
	}
	return ""
}

// shop is a service of net/http.
func shop(c guard.Config) (http.Handler, error) {
	c.Rule = guard.Rule{
		Policy: "api: 120/1m", Key: keyfunc.FirstOf(keyfunc.User(uid{}), client()),
		Tier:  plan,
		Tiers: map[string]string{"pro": "1200/1m"},
	}
	c.Routes = map[string]guard.Rule{
		"POST /login":   {Policy: "login: 5/1m; fail closed", Key: client()},
		"GET /search":   {Policy: "search: 30/1m; wait 1s"},
		"POST /exports": {Policy: "exports: 10/1h"},
	}
	g, err := guard.New(c)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	limit := nethttp.Limit(g)
	for _, pattern := range []string{"GET /orders", "POST /login", "GET /search", "POST /exports"} {
		mux.Handle(pattern, limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })))
	}
	return mux, nil
}

// partners is a service of Gin.
func partners(c guard.Config) (http.Handler, error) {
	c.Rule = guard.Rule{
		Policy: "partner: 60/1m", Key: keyfunc.HeaderInClear("X-Partner"),
		Tier:  plan,
		Tiers: map[string]string{"gold": "600/1m"},
	}
	c.Routes = map[string]guard.Rule{
		"POST /webhooks": {Policy: "webhooks: 2/1s burst 10"},
	}
	g, err := guard.New(c)
	if err != nil {
		return nil, err
	}
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.Use(ginmw.Limit(g))
	ok := func(c *gin.Context) { c.String(http.StatusOK, "ok\n") }
	engine.GET("/prices", ok)
	engine.POST("/webhooks", ok)
	return engine, nil
}
