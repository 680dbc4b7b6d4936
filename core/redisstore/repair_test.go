package redisstore_test

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// When all connections have died in silence, the first decision that fails finds out for all that come later. Pipelines
// have connections of their own since go-redis 9.23.
func TestDeadConnections(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	proxy := redistest.NewProxy(t, server.Addr())
	o := unhurried(redisstore.ClientOptions(proxy.Addr()))
	o.MinIdleConns = 0 // the client makes no others meanwhile
	rdb := redis.NewClient(o.Simple())
	defer func() { assert.NoError(t, rdb.Close()) }()
	p := core.MustParse("dead: 1000000/1h")
	_, err := newStore(t, rdb, redisstore.Options{Deadline: patient}).Take(t.Context(), core.Take{Policy: p, Key: "k"})
	require.NoError(t, err)

	const crowd = 8
	proxy.Latency(50 * time.Millisecond) // so that none is used again meanwhile
	require.Eventually(t, func() bool {
		var all sync.WaitGroup
		for range crowd {
			all.Go(func() { assert.NoError(t, rdb.Ping(t.Context()).Err()) })
			all.Go(func() {
				pipe := rdb.Pipeline()
				pipe.Ping(t.Context())
				_, err := pipe.Exec(t.Context())
				assert.NoError(t, err)
			})
		}
		all.Wait()
		stats := rdb.PoolStats()
		return stats.IdleConns >= crowd && (stats.PipelineStats == nil || stats.PipelineStats.IdleConns >= crowd)
	}, patient, time.Millisecond)
	proxy.Pass()

	proxy.Disconnect(redistest.Hang)
	_, err = newStore(t, rdb, redisstore.Options{Deadline: brief}).Take(t.Context(), core.Take{Policy: p, Key: "k", Cost: 1})
	var failed *core.StoreError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, core.ClassTimeout, failed.Class)
	require.Eventually(t, func() bool {
		stats := rdb.PoolStats()
		return stats.TotalConns <= 1 && (stats.PipelineStats == nil || stats.PipelineStats.TotalConns == 0)
	}, patient, time.Millisecond, "the dead are gone")
	_, err = newStore(t, rdb, redisstore.Options{Deadline: patient}).Take(t.Context(), core.Take{Policy: p, Key: "k", Cost: 1})
	require.NoError(t, err)
}
