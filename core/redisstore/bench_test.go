package redisstore_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// bare is the baseline: what a go-redis user would write by hand for GCRA, with
// doubles, four integers in the reply, and no healing.
var bare = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local emission, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
local new = tat + emission * cost
local ahead = new - burst
if ahead > now then return {0, 0, ahead - now, tat - now} end
redis.call('SET', KEYS[1], new, 'PX', math.ceil((new - now) / 1000))
return {1, math.floor((now - ahead) / emission), 0, new - now}
`)

// BenchmarkDecision compares one decision by one goroutine with the baseline, in
// one run: the ratio is what counts.
func BenchmarkDecision(b *testing.B) {
	server := redistest.Single(b)
	ctx := context.Background()
	rdb := redis.NewUniversalClient(redisstore.ClientOptions(server.Addr()))
	defer rdb.Close()
	require.NoError(b, bare.Load(ctx, rdb).Err())
	store, err := redisstore.New(rdb, redisstore.Options{})
	require.NoError(b, err)

	baseline := func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := bare.EvalSha(ctx, rdb, []string{"bare:203.0.113.7"}, 1, 1_000_000, 1).Err(); err != nil {
				b.Fatal(err)
			}
		}
	}
	decide := func(policy string) func(*testing.B) {
		return func(b *testing.B) {
			take := core.Take{Policy: core.MustParse(policy), Key: "ip=203.0.113.7", Cost: 1}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := store.Take(ctx, take); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.Run("bare", baseline)
	b.Run("one-limit", decide("one: 1000000/1s"))
	b.Run("bare-again", baseline)
	b.Run("two-limits", decide("two: 1000000/1s, 2000000/1m"))
	b.Run("refused", decide("refused: 1/1h"))
}
