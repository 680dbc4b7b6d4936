package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// A replica is promoted whose clock is an hour behind that of the old master, or ahead of it, and is then set right.
// Nobody waits for longer than a full bucket or window, nobody gets more than another one of them, and the times that
// clients get make sense.
func TestPromotedClock(t *testing.T) {
	t.Parallel()
	const start, burst = 1_800_000_000_000_000, 10
	hour := time.Hour.Microseconds()
	sentinel := redistest.StartSentinel(t)
	o := unhurried(redisstore.ClientOptions(sentinel.Addr()))
	o.MasterName = redistest.MasterName
	rdb := closing(t, redis.NewUniversalClient(o))
	s := newStore(t, rdb, redisstore.Options{Deadline: patient, DenyCache: -1})
	var policies []core.Policy
	for _, text := range []string{
		"10/10s", "10/10s token-bucket", "10/10s leaky-bucket", "10/10s fixed-window", "10/10s fixed-window aligned",
		"10/10s sliding-window", "10/10s sliding-counter", "10/10s sliding-log", "10/10s, 10/10s fixed-window, 10/10s sliding-log",
	} {
		policies = append(policies, core.MustParse("promoted: "+text))
	}
	ask := func(p core.Policy, key string, now int64) core.Result {
		t.Helper()
		res, err := s.Take(t.Context(), core.Take{Policy: p, Key: key, Cost: 1, Now: now})
		require.NoError(t, err)
		assert.GreaterOrEqual(t, res.Remaining, int64(0), "%v", p)
		assert.LessOrEqual(t, res.Remaining, res.Limit, "%v", p)
		assert.GreaterOrEqual(t, res.RetryAfter, time.Duration(0), "%v", p)
		assert.LessOrEqual(t, res.RetryAfter, 20*time.Second, "%v", p)
		for i := range p.Limits() {
			assert.GreaterOrEqual(t, res.Each(i).ResetAfter, time.Duration(0), "%v", p)
			assert.LessOrEqual(t, res.Each(i).ResetAfter, 20*time.Second, "%v", p)
		}
		return res
	}
	exhaust := func(p core.Policy, key string, now int64) (admitted int) {
		t.Helper()
		for range 3 * burst {
			if ask(p, key, now).Allowed() {
				admitted++
			}
		}
		return admitted
	}
	for _, p := range policies {
		for _, key := range []string{"back", "ahead"} {
			require.Equal(t, burst, exhaust(p, key, start), "%v", p)
		}
	}
	replica := sentinel.Replica().Client(t)
	await(t, "all is replicated", func() bool {
		n, err := replica.DBSize(t.Context()).Result()
		return err == nil && int(n) == 2*len(policies)
	})
	sentinel.Failover(t)
	await(t, "the new master is found", func() bool {
		_, err := s.Take(t.Context(), core.Take{Policy: policies[0], Key: "found", Cost: 1})
		return err == nil
	})
	for _, p := range policies {
		// An hour behind, and set right when as much has been used there as there is.
		now := int64(start) - hour
		res := ask(p, "back", now)
		if !res.Allowed() {
			now += res.RetryAfter.Microseconds()
			assert.True(t, ask(p, "back", now).Allowed(), "%v, after its RetryAfter", p)
		}
		assert.LessOrEqual(t, exhaust(p, "back", now), burst, "%v", p)
		assert.LessOrEqual(t, exhaust(p, "back", start), burst, "%v, set right", p)

		// An hour ahead, and set right.
		assert.LessOrEqual(t, exhaust(p, "ahead", start+hour), burst, "%v", p)
		res = ask(p, "ahead", start+1)
		if !res.Allowed() {
			assert.True(t, ask(p, "ahead", start+1+res.RetryAfter.Microseconds()).Allowed(), "%v, after its RetryAfter", p)
		}
	}
}
