package inwords

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// StateBytes is the size of the largest state that Redis stores of a key.
func TestStateBytesInRedis(t *testing.T) {
	t.Parallel()
	rdb := redistest.Single(t).Client(t)
	store, err := redisstore.New(rdb, redisstore.Options{Deadline: time.Minute})
	require.NoError(t, err)
	for _, text := range []string{
		"50/1m", "100/10s token-bucket", "20/1s, 1000/1h fixed-window", "60/1m sliding-window", "60/1m sliding-counter", "200/1m sliding-log",
	} {
		policy := core.MustParse("p: " + text)
		l, err := enforce.New(store, policy, enforce.Options{})
		require.NoError(t, err)
		require.NoError(t, rdb.FlushAll(t.Context()).Err())
		for {
			res, err := l.Allow(t.Context(), "user=7")
			require.NoError(t, err)
			if !res.Allowed() {
				break
			}
		}
		require.NoError(t, l.Close())
		keys, err := rdb.Keys(t.Context(), "weir:*").Result()
		require.NoError(t, err)
		require.Len(t, keys, 1, text)
		stored, err := rdb.StrLen(t.Context(), keys[0]).Result()
		require.NoError(t, err)
		most := StateBytes(policy)
		assert.LessOrEqual(t, int(stored), most, text)
		assert.Greater(t, int(stored)*4, most, text)
	}
}
