// Quickstart serves three routes with a rate limit in the framework of your choice,
// counting in the process or in Redis:
//
//	go run ./examples/quickstart -demo
//	go run ./examples/quickstart -framework gin -redis 127.0.0.1:6379
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/keyfunc"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, cancel)         // a second signal ends the program at once
	redis.SetLogger(&logging.VoidLogger{}) // it logs each failed dial; weir logs the outage
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	store, closeStore, err := open(o.servers)
	if err != nil {
		return err
	}
	defer closeStore()
	return runOn(ctx, store, o, out)
}

// runOn is run with a store that counts.
func runOn(ctx context.Context, store core.Store, o options, out io.Writer) error {
	build := func(user any) (guards, error) { return newGuards(store, o.policy.String(), user) }
	if o.demo {
		return runDemo(out, o.policy, build)
	}

	listener, err := net.Listen("tcp", o.addr)
	if err != nil {
		return err
	}
	stop, err := frameworks[o.framework](listener, build)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	fmt.Fprintf(out, `%s serves http://%s, counting %s:
  GET  /hello       %s for each user, or address
  GET  /items/{id}  the same, whatever the id
  POST /login       that, and %s
Try:
  curl -i http://%[2]s/hello
  curl -i -X POST -H 'X-Demo-User: alice' http://%[2]s/login
`, o.framework, listener.Addr(), where(o), o.policy, loginPolicy)
	<-ctx.Done()
	return stop()
}

// where says in words where is counted.
func where(o options) string {
	if len(o.servers) == 0 {
		return "in the process"
	}
	place := "in Redis at " + strings.Join(o.servers, ", ")
	switch o.policy.Options().Fail {
	case core.FailOpen:
		return place + ", or not at all while it does not answer"
	case core.FailClosed:
		return place + ", and refusing while it does not answer"
	default:
		return place + ", or in the process while it does not answer"
	}
}

// loginPolicy is the limit of POST /login.
const loginPolicy = "login: 3/1m"

// guards are the limits of the application: on everything, and on logging in.
type guards struct{ all, login *guard.Guard }

// newGuards counts by user and route or, without a user, by address and route.
// user is where the framework keeps the name that authentication has found.
func newGuards(store core.Store, policy string, user any) (guards, error) {
	all, err := guard.New(guard.Config{
		Rule: guard.Rule{
			Policy: policy,
			Key:    keyfunc.Join(keyfunc.FirstOf(keyfunc.User(user), keyfunc.IP()), keyfunc.Route()),
		},
		Store: store,
	})
	if err != nil {
		return guards{}, err
	}
	login, err := all.WithRule(guard.Rule{Policy: loginPolicy})
	return guards{all, login}, err
}

// Close is for the end of the program. One call is enough for a whole family.
func (g guards) Close() error { return g.all.Close() }

// open returns the store in Redis or, without servers, one in the process.
func open(servers []string) (store core.Store, closeStore func(), err error) {
	if len(servers) == 0 {
		store, err = core.NewMemory(core.MemoryOptions{})
		return store, func() {}, err
	}
	rdb := redis.NewUniversalClient(redisstore.ClientOptions(servers...))
	store, err = redisstore.New(rdb, redisstore.Options{})
	return store, func() { _ = rdb.Close() }, err
}
