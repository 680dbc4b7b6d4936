package redisstore_test

import (
	"crypto/tls"
	"fmt"
	"log"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core/redisstore"
)

func ExampleParseURL() {
	o, err := redisstore.ParseURL("rediss://weir:secret@redis.internal:6380/0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(o.Addrs, o.Username, o.TLSConfig != nil)
	// Output: [redis.internal:6380] weir true
}

// For TLS, set TLSConfig on what ClientOptions returned, before the client is made.
func ExampleClientOptions_tls() { //nolint:testableexamples // a client connects when it is made
	o := redisstore.ClientOptions("redis.internal:6380")
	o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	o.Username, o.Password = "weir", os.Getenv("REDIS_PASSWORD")
	store, err := redisstore.New(redis.NewUniversalClient(o), redisstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	_ = store // for guard.Config.Store, or enforce.New
}

// With MasterName, the addresses are those of the Sentinels.
func ExampleClientOptions_sentinel() { //nolint:testableexamples // a client connects when it is made
	o := redisstore.ClientOptions("10.0.0.1:26379", "10.0.0.2:26379", "10.0.0.3:26379")
	o.MasterName = "mymaster"
	store, err := redisstore.New(redis.NewUniversalClient(o), redisstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	_ = store // for guard.Config.Store, or enforce.New
}

// One node of a Cluster that is up is enough, as it knows the others; then IsClusterMode says that it is one.
func ExampleClientOptions_cluster() { //nolint:testableexamples // a client connects when it is made
	o := redisstore.ClientOptions("10.0.0.1:6379")
	o.IsClusterMode = true
	store, err := redisstore.New(redis.NewUniversalClient(o), redisstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	_ = store // for guard.Config.Store, or enforce.New
}
