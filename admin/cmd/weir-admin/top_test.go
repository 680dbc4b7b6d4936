package main

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/internal/redisurl"
)

func TestMain(m *testing.M) { os.Exit(sqltest.Main(m)) }

// The admin's user needs the rights that the documentation says to read the worst callers, and no others.
func TestWorstOf(t *testing.T) {
	server := redistest.Single(t)
	rdb := redis.NewUniversalClient(redisstore.ClientOptions(server.Addr()))
	t.Cleanup(func() { _ = rdb.Close() })
	store, err := redisstore.New(rdb, redisstore.Options{Prefix: "pay"})
	require.NoError(t, err)
	require.NoError(t, store.AddScores(t.Context(), []stats.Scores{
		{Board: fmt.Sprintf("api:%d", time.Now().Unix()/60), Source: "one", Units: map[string]int64{"user=7": 5}, Missed: 1},
	}))
	require.NoError(t, rdb.Do(t.Context(), "ACL", "SETUSER", "weir-admin", "on", ">secret", "resetkeys", "-@all", "%R~*:1::top:*",
		"+zrange", "+zrangebyscore").Err())
	reader, err := redisurl.Connect("redis://weir-admin:secret@"+server.Addr(), true)
	require.NoError(t, err)
	t.Cleanup(func() { _ = reader.Close() })
	worst := worstOf(reader)
	callers, rest, err := worst(t.Context(), "pay", "api", 5*time.Minute, 10)
	require.NoError(t, err)
	require.Len(t, callers, 1)
	assert.Equal(t, "user=7", callers[0].Key)
	assert.Equal(t, []uint64{6, 1, 1}, []uint64{callers[0].Count, callers[0].Error, rest})
	callers, _, err = worst(t.Context(), "weir", "api", 5*time.Minute, 10)
	require.NoError(t, err)
	assert.Empty(t, callers, "of another service")
	_, _, err = worst(t.Context(), "no prefix at all", "api", time.Minute, 10)
	assert.Error(t, err)
}
