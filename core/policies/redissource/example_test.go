package redissource_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/redissource"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/keyfunc"
)

// A service whose policies the fleet may change while it runs. One client serves the store and the Source.
func ExampleNew() { //nolint:testableexamples // it needs a Redis
	rdb := redis.NewUniversalClient(redisstore.ClientOptions("redis.internal:6379"))
	defer rdb.Close()
	store, err := redisstore.New(rdb, redisstore.Options{Prefix: "pay"})
	if err != nil {
		log.Fatal(err)
	}
	source, err := redissource.New(rdb, "pay", redissource.Options{Bridge: "/var/lib/pay/policies"})
	if err != nil {
		log.Fatal(err)
	}
	defer source.Close()
	g, err := guard.New(guard.Config{
		Store:  store,
		Source: source,
		Rule:   guard.Rule{Policy: "api: 100/1m", Key: keyfunc.IP()}, // holds until the fleet says otherwise
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Print(g.Describe(nil))
}

// nowhere is a Redis that is gone.
func nowhere() redis.UniversalClient {
	return redis.NewUniversalClient(redisstore.ClientOptions("127.0.0.1:1"))
}

// A job follows the fleet as a service does. Redis is gone here, so the policy is that of the code.
func ExampleSource_Listen() {
	rdb := nowhere()
	defer rdb.Close()
	source, err := redissource.New(rdb, "mailer", redissource.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer source.Close()
	store, err := core.NewMemory(core.MemoryOptions{})
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := enforce.New(store, core.MustParse("mail: 10/1s; wait 1m"), enforce.Options{Source: source})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(limiter.Policy())
	// Output: mail: 10/1s; wait 1m
}

// A program that must not start by the numbers of its code waits for a document, and says what was tried.
func ExampleSource_Ready() {
	rdb := nowhere()
	defer rdb.Close()
	source, err := redissource.New(rdb, "pay", redissource.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer source.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond) // rather 10 s
	defer cancel()
	err = source.Ready(ctx)
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output: true
}

// For a page of health: the revision, and in one word what each rule goes by.
func ExampleSource_Status() {
	rdb := nowhere()
	defer rdb.Close()
	source, err := redissource.New(rdb, "pay", redissource.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer source.Close()
	st := source.Status()
	fmt.Println(st.Version == policies.Version{}, st.Meaning)
	for _, r := range st.Rules {
		fmt.Println(r.Place, r.Policy, r.Meaning, r.Now, r.Why)
	}
	// Output: true code
}

// The processes of an app, and what they obey. They are untrusted: quote them.
func ExampleProcesses() { //nolint:testableexamples // it needs a Redis
	rdb := redis.NewClient(&redis.Options{Addr: "redis.internal:6379"})
	all, unreadable, err := redissource.Processes(context.Background(), rdb, "pay")
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("%d of at most %d processes, and %d that cannot be read", len(all), redissource.MaxProcesses, unreadable)
	for _, p := range all {
		log.Printf("%q obeys %s", p.Name, p.Version)
	}
}

// The names in Redis, for rights and for looking with redis-cli.
func ExampleKey() {
	fmt.Println(redissource.Key("pay"), "has", redissource.FieldGeneration, redissource.FieldRevision,
		redissource.FieldDigest, redissource.FieldDocument)
	fmt.Println(redissource.Channel("pay"))
	fmt.Println(redissource.ProcessKey("pay", "4f1c86ccf45aabef"), "in", redissource.ProcessIndex("pay"))
	fmt.Println(policies.Digest([]byte(`{"format":1}`))[:8])
	// Output:
	// weir-policies:pay has generation revision digest document
	// weir-policies:pay
	// weir-services:pay:4f1c86ccf45aabef in weir-services:pay:index
	// 3f0a9925
}
