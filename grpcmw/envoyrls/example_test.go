package envoyrls_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	extpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/grpcmw/envoyrls"
)

func ExampleServer() {
	store, err := core.NewMemory(core.MemoryOptions{}) // or a redisstore.Store, for several processes
	if err != nil {
		panic(err)
	}
	service, err := envoyrls.New(store, envoyrls.Config{})
	if err != nil {
		panic(err)
	}
	err = service.Load(envoyrls.File{Name: "shop.yaml", Data: []byte(`
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 2}
`)})
	if err != nil {
		panic(err)
	}
	for range 3 {
		response, err := service.ShouldRateLimit(context.Background(), &rlspb.RateLimitRequest{
			Domain: "shop",
			Descriptors: []*extpb.RateLimitDescriptor{
				{Entries: []*extpb.RateLimitDescriptor_Entry{{Key: "user", Value: "alice"}}},
			},
		})
		if err != nil {
			panic(err)
		}
		fmt.Println(response.GetOverallCode(), response.GetStatuses()[0].GetLimitRemaining())
	}
	// Output:
	// OK 1
	// OK 0
	// OVER_LIMIT 0
}

// A program checks the files before it goes on, and then follows them.
func ExampleServer_Follow() {
	directory, err := os.MkdirTemp("", "limits")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(directory)
	text := "domain: shop\ndescriptors:\n  - {key: user, rate_limit: {unit: day, requests_per_unit: 2}}\n"
	if err := os.WriteFile(filepath.Join(directory, "shop.yaml"), []byte(text), 0o600); err != nil {
		panic(err)
	}

	store, err := core.NewMemory(core.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	service, err := envoyrls.New(store, envoyrls.Config{})
	if err != nil {
		panic(err)
	}
	limits := envoyrls.Directory{Path: directory}
	files, err := limits.Files()
	if err != nil {
		panic(err)
	}
	fmt.Println(len(files), service.Load(files...))

	ctx, stop := context.WithCancel(context.Background())
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		service.Follow(ctx, limits)
	}()
	// ... serve
	stop()
	<-followed
	// Output: 1 <nil>
}
