package redisstore_test

import (
	"crypto/rand"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/explain"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/explaintest"
	"github.com/weir-go/weir/internal/redistest"
)

// Explain foretells the next decisions of Redis, for every algorithm. WEIR_EXPLAIN_STATES is the number of states.
func TestExplainAgrees(t *testing.T) { //nolint:paralleltest // it computes
	states := ordered("WEIR_EXPLAIN_STATES", 300)
	for name, client := range map[string]func(t *testing.T) redis.UniversalClient{
		"single":  patientClient,
		"cluster": patientClusterClient,
	} {
		t.Run(name, func(t *testing.T) {
			explaintest.Check(t, newStore(t, client(t), redisstore.Options{Deadline: patient}), *seed, states)
		})
	}
}

// By the server's own clock, too: at the instant that Explain has named a request is admitted, and two milliseconds
// earlier it is not.
func TestExplainedInstant(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"2/300ms", "2/300ms token-bucket", "2/300ms fixed-window", "2/300ms sliding-window", "2/300ms sliding-counter", "2/300ms sliding-log"} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			l := limiterOn(t, newStore(t, patientClient(t), redisstore.Options{Deadline: patient, DenyCache: -1}), text)
			key := rand.Text()
			for {
				if res, err := l.Allow(t.Context(), key); !res.Allowed() {
					require.NoError(t, err)
					break
				}
			}
			x, err := l.Explain(t.Context(), key, 1)
			require.NoError(t, err)
			if x.Result.Allowed() { // this machine was stopped for 300 ms
				return
			}
			turn := x.Next[0].At.UnixMicro()
			for {
				res, err := l.Allow(t.Context(), key)
				require.NoError(t, err)
				if res.Allowed() {
					require.GreaterOrEqual(t, res.At, turn)
					return
				}
				require.Less(t, res.At, turn, "it is not refused at the instant or later")
			}
		})
	}
}

func limiterOn(t *testing.T, s *redisstore.Store, text string) *enforce.Limiter {
	t.Helper()
	l, err := enforce.New(s, core.MustParse("explained: "+text), enforce.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return l
}

// Explain asks Redis for what it has under the names that it shows, and writes nothing: not to correct a state, and not
// of a key that was never used.
func TestExplainWritesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	admin := server.Client(t)
	s := newStore(t, server.Client(t), redisstore.Options{Deadline: patient, HashKeys: []byte("0123456789abcdef")})
	l := limiterOn(t, s, "10/1h, 5 concurrent lease 1h")
	x, err := l.Explain(t.Context(), "k", 1)
	require.NoError(t, err)
	require.EqualValues(t, 0, admin.DBSize(t.Context()).Val())
	_, release, err := l.AcquireN(t.Context(), "k", 2)
	require.NoError(t, err)
	defer release()
	require.ElementsMatch(t, []string{x.Stored, x.StoredPermits}, admin.Keys(t.Context(), "*").Val())
	// A state and leases that lie far ahead of the clock.
	require.NoError(t, admin.Set(t.Context(), x.Stored, "2100000000000000", time.Hour).Err())
	require.NoError(t, admin.ZAdd(t.Context(), x.StoredPermits, redis.Z{Score: 2_100_000_000_000_000, Member: "other#1"}).Err())
	dump := func() [2]string {
		return [2]string{admin.Dump(t.Context(), x.Stored).Val(), admin.Dump(t.Context(), x.StoredPermits).Val()}
	}
	before := dump()
	server.ResetStats(t)
	x, err = l.Explain(t.Context(), "k", 1)
	require.NoError(t, err)
	assert.EqualValues(t, 10, x.Limits[0].Used)
	assert.EqualValues(t, 3, x.Permits.Held)
	assert.EqualValues(t, 2, x.Permits.Here)
	assert.LessOrEqual(t, x.Permits.LastEnds.Sub(x.At), time.Hour, "as the next decision would correct it")
	stats := server.CommandStats(t)
	assert.EqualValues(t, 2, stats["eval"], "%v", stats)
	for _, writes := range []string{"set", "del", "zadd", "zrem", "pexpire", "evalsha"} {
		assert.Zero(t, stats[writes], writes)
	}
	assert.Equal(t, before, dump())
	// Of another type than ours there is nothing to show.
	require.NoError(t, admin.Del(t.Context(), x.Stored, x.StoredPermits).Err())
	require.NoError(t, admin.LPush(t.Context(), x.Stored, "a").Err())
	require.NoError(t, admin.LPush(t.Context(), x.StoredPermits, "a").Err())
	x, err = l.Explain(t.Context(), "k", 1)
	require.NoError(t, err)
	assert.EqualValues(t, 10, x.Limits[0].Left)
	assert.Zero(t, x.Permits.Held)
}

// What the process remembers answers in the place of Redis, and Explain says so without being counted.
func TestExplainRemembered(t *testing.T) {
	t.Parallel()
	d := newDenied(t, "explained: 5/1h")
	l, err := enforce.New(d.Store, d.take.Policy, enforce.Options{})
	require.NoError(t, err)
	var x explain.Explanation
	for range 100 { // on a machine that is a second late, what was known is forgotten first
		hits := d.Stats().DenyHits
		d.exhaust()
		x, err = l.Explain(t.Context(), d.take.Key, 1)
		require.NoError(t, err)
		if d.Stats().DenyHits > hits { // the exhaust was remembered itself
			hits = d.Stats().DenyHits
			_, err = l.Explain(t.Context(), d.take.Key, 1)
			require.NoError(t, err)
			require.Equal(t, hits, d.Stats().DenyHits)
		}
		if x.From == "deny-cache" {
			break
		}
	}
	require.Equal(t, "deny-cache", x.From)
	assert.True(t, x.Result.Remembered)
	assert.Equal(t, "refused", x.Outcome)
	assert.Len(t, x.Next, 5)
	assert.InDelta(t, float64(12*time.Minute), float64(x.Next[0].At.Sub(x.At)), float64(10*time.Second))
	assert.Contains(t, x.String(), "remembers that the store has refused")
	// It explains anew for a cost for which there is room, and when Redis has forgotten the key meanwhile.
	require.NoError(t, d.Reset(t.Context(), d.take.Policy, d.take.Key))
	x, err = l.Explain(t.Context(), d.take.Key, 1)
	require.NoError(t, err)
	assert.Equal(t, "store", x.From)
	assert.Equal(t, "admitted", x.Outcome)
}

// A server that is gone is named, and so is its breaker, which Explain neither opens nor probes.
func TestExplainWithoutServer(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rdb := redis.NewUniversalClient(redisstore.ClientOptions(server.Addr()))
	t.Cleanup(func() { _ = rdb.Close() })
	s := newStore(t, rdb, redisstore.Options{})
	closed, local := limiterOn(t, s, "5/1h; fail closed"), limiterOn(t, s, "5/1h; fail local 1/2")
	server.Kill()
	for range 20 {
		x, err := closed.Explain(t.Context(), "k", 1)
		require.NoError(t, err)
		assert.Equal(t, [...]string{"closed", "refused"}, [...]string{x.From, x.Outcome})
		require.Contains(t, x.Failure, "store failed at "+server.Addr())
		require.NotContains(t, x.Failure, "asked twice a second", "it opens no breaker")
		assert.Empty(t, x.Next)
	}
	opened := func() bool {
		_, err := local.Allow(t.Context(), "k")
		require.NoError(t, err)
		x, err := local.Explain(t.Context(), "k", 1)
		require.NoError(t, err)
		require.Equal(t, "fallback", x.From)
		require.True(t, x.Result.Local)
		return strings.Contains(x.Failure, "asked twice a second")
	}
	require.Eventually(t, opened, patient, 20*time.Millisecond)
	x, err := local.Explain(t.Context(), "other", 1)
	require.NoError(t, err)
	assert.Equal(t, "explained: 5/1h; fail local 1/2", x.Policy)
	assert.EqualValues(t, 3, x.Limits[0].Left, "half of 5, rounded up")
	assert.EqualValues(t, 5, x.Result.Limit)
}

// Whatever ends somebody else has given to permits, Explain agrees with Acquire.
func TestExplainForeignPermits(t *testing.T) {
	t.Parallel()
	rdb := closing(t, redis.NewUniversalClient(redisstore.ClientOptions(sharedServer(t).Addr())))
	l := limiterOn(t, newStore(t, rdb, own()), "2 concurrent lease 10s")
	for _, end := range []string{"inf", "-inf", "1e300", "-1e300", "9e18", "-9e18", "0", "0.5", "1e15", "1e16"} {
		x, err := l.Explain(t.Context(), "k", 1)
		require.NoError(t, err)
		for _, id := range []string{"a", "b", "c"} {
			require.NoError(t, rdb.Do(t.Context(), "zadd", x.StoredPermits, end, id).Err())
		}
		x, err = l.Explain(t.Context(), "k", 1)
		require.NoError(t, err)
		assert.Empty(t, x.Failure, end)
		_, release, err := l.Acquire(t.Context(), "k")
		assert.Equal(t, err == nil, x.Result.Allowed(), "%s: %v, and Acquire: %v", end, x.Outcome, err)
		if err == nil {
			release()
		}
		require.NoError(t, rdb.Del(t.Context(), x.StoredPermits).Err())
	}
}
