package redisstore_test

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/core/storetest"
	"github.com/weir-go/weir/internal/redistest"
)

var (
	operations = flag.Int("operations", 100_000, "how many random operations the two stores are compared by")
	seed       = flag.Uint64("seed", 0, "which operations; 0 means others each time")
)

// The contract of a store, on a single server, a cluster and a sentinel.
func TestContract(t *testing.T) {
	single, cluster, sentinel := redistest.Single(t), redistest.StartCluster(t), redistest.StartSentinel(t)
	for name, rdb := range map[string]redis.UniversalClient{
		"single":   single.Client(t),
		"cluster":  cluster.Client(t),
		"sentinel": sentinel.Client(t),
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Exercise(t, func(t *testing.T) core.Store {
				return newStore(t, rdb, redisstore.Options{Deadline: patient})
			})
		})
	}
}

// The scripts and the Go functions agree on every field of every result.
func TestScriptsAgreeWithGo(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	rdb := redis.NewUniversalClient(redisstore.ClientOptions(redistest.Single(t).Addr()))
	defer func() { assert.NoError(t, rdb.Close()) }()
	memory, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	storetest.Compare(t, memory, newStore(t, rdb, redisstore.Options{Deadline: patient}), *seed, *operations)
}
