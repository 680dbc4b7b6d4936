package redisstore_test

import (
	"crypto/rand"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// Units come back without a receipt from Redis, to whoever asks for the key next, also where a refusal of it was
// remembered; and while Redis is gone, from what stands in for it.
func TestCredit(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{
		"10/1h", "10/1h token-bucket", "10/1h leaky-bucket", "10/1h fixed-window", "10/1h sliding-window", "10/1h sliding-counter",
		"10/1h sliding-log", "10/1h, 100/1d", "10/1d fixed-window calendar UTC",
	} {
		t.Run(limit, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, sharedServer(t).Addr())
			rdb := closing(t, redis.NewUniversalClient(redisstore.ClientOptions(proxy.Addr())))
			policy := core.MustParse("credited: " + limit)
			l, err := enforce.New(newStore(t, rdb, redisstore.Options{Deadline: patient}), policy, enforce.Options{Log: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			other, err := enforce.New(newStore(t, sharedServer(t).Client(t), redisstore.Options{Deadline: patient}), policy, enforce.Options{})
			require.NoError(t, err)
			key, ctx := rand.Text(), t.Context()
			take := func(l *enforce.Limiter, n int64) bool {
				res, err := l.AllowN(ctx, key, n)
				require.NoError(t, err)
				return res.Allowed()
			}
			require.True(t, take(l, 10))
			for range 3 {
				require.False(t, take(l, 4))
			}
			require.NoError(t, l.Credit(ctx, key, 4))
			require.True(t, take(l, 4), "a refusal that was remembered is forgotten")
			require.NoError(t, other.Credit(ctx, key, 3))
			require.True(t, take(other, 3))
			require.False(t, take(other, 2))

			proxy.Refuse()
			proxy.Disconnect(redistest.EOF)
			var failed *core.StoreError
			require.Eventually(t, func() bool { // no connection is left on which Redis may have been charged
				_, err := l.Store().Take(ctx, core.Take{Policy: policy, Key: rand.Text(), Cost: 1})
				return errors.As(err, &failed) && !failed.MaybeExecuted
			}, patient, time.Millisecond)
			require.Eventually(t, func() bool { // what is remembered is over
				res, err := l.AllowN(ctx, key, 10)
				return assert.NoError(t, err) && res.Local && res.Allowed()
			}, patient, 10*time.Millisecond)
			require.NoError(t, l.Credit(ctx, key, 4), "Redis was not charged for them")
			require.True(t, take(l, 4))
			require.False(t, take(l, 1))
			if err := l.Credit(ctx, key, 30); !assert.ErrorAs(t, err, &failed) {
				return
			}
			require.True(t, take(l, 10), "in the process")
			require.False(t, take(other, 2), "and not in Redis")
		})
	}
}
