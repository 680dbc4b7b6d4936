// Quickstart serves three routes with a rate limit in the framework of your choice,
// counting in the process or in Redis:
//
//	go run ./examples/quickstart -demo
//	go run ./examples/quickstart -framework gin -redis 127.0.0.1:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/keyfunc"
)

func main() {
	framework := flag.String("framework", "nethttp", "`name` of the framework: "+strings.Join(names(), ", "))
	addr := flag.String("addr", "127.0.0.1:8080", "`host:port` to listen on")
	servers := flag.String("redis", "", "`host:port[,host:port...]` of Redis, several for a cluster; none: count in the process")
	policy := flag.String("policy", "5/10s", "the `limit` on every route")
	demo := flag.Bool("demo", false, "start every framework, send each a burst, print what came back, and exit")
	flag.Parse()
	if err := run(*framework, *addr, *servers, *policy, *demo); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(framework, addr, servers, policy string, demo bool) error {
	store, closeStore, err := open(servers)
	if err != nil {
		return err
	}
	defer closeStore()
	guards := func(user any) (guards, error) { return newGuards(store, policy, user) }
	if demo {
		return runDemo(os.Stdout, guards)
	}

	start, ok := frameworks[framework]
	if !ok {
		return fmt.Errorf("-framework %q; give one of %s", framework, strings.Join(names(), ", "))
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	stop, err := start(listener, guards)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	where := "in the process"
	if servers != "" {
		where = "in Redis at " + servers
	}
	fmt.Printf(`%s serves http://%s, counting %s:
  GET  /hello       %s for each user, or address
  GET  /items/{id}  the same, whatever the id
  POST /login       that and %s
Try:
  curl -i http://%[2]s/hello
  curl -i -X POST -H 'X-Demo-User: alice' http://%[2]s/login
`, framework, listener.Addr(), where, policy, loginPolicy)

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	<-ctx.Done()
	return stop()
}

// loginPolicy is the annotation of POST /login.
const loginPolicy = "3/1m"

// guards are the limits of the application: on everything, and on logging in.
type guards struct{ all, login *core.Guard }

// newGuards counts by user and route or, without a user, by address and route.
// user is where the framework keeps the name that authentication has found.
func newGuards(store core.Store, policy string, user any) (guards, error) {
	p, err := core.Parse(policy)
	if err != nil {
		return guards{}, err
	}
	all, err := core.NewGuard(core.Config{
		Store:  store,
		Policy: p,
		Key:    keyfunc.Join(keyfunc.FirstOf(keyfunc.User(user), keyfunc.IP()), keyfunc.Route()),
	})
	if err != nil {
		return guards{}, err
	}
	return guards{all, all.With("login", loginPolicy)}, nil
}

// open returns the store in Redis or, without servers, one in the process.
func open(servers string) (store core.Store, closeStore func(), err error) {
	if servers == "" {
		store, err = core.NewMemory(core.MemoryOptions{})
		return store, func() {}, err
	}
	rdb := redis.NewUniversalClient(redisstore.ClientOptions(strings.Split(servers, ",")...))
	store, err = redisstore.New(rdb, redisstore.Options{})
	return store, func() { _ = rdb.Close() }, err
}
