package core_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// A client that spreads its requests as the RateLimit header says, Remaining of them over MoreAfter, is never refused
// and gets what the policy admits in the long run, for each algorithm.
func TestPacedClient(t *testing.T) {
	const span = 1000 * time.Second
	for text, share := range map[string]float64{
		"100/10s": 1, "100/10s burst 20": 1, "7/3s burst 1": 1, "100/10s debt 50": 1,
		"100/10s token-bucket": 1, "7/3s token-bucket": 1, "100/10s leaky-bucket": 1, "7/3s leaky-bucket": 1,
		"100/10s fixed-window": 1, "7/3s fixed-window": 1, "100/10s fixed-window aligned": 1,
		"100/10s sliding-log": 1, "7/3s sliding-log": 1,
		// Units of a sliding window come back one part late: n parts sustain n of n+1.
		"100/10s sliding-window": 10. / 11, "7/3s sliding-window": 10. / 11, "100/10s sliding-window buckets 3": 3. / 4,
		// A sliding counter rounds its estimate up, which costs at most one unit.
		"100/10s sliding-counter": .99, "7/3s sliding-counter": 6. / 7,
	} {
		for _, flood := range []int{0, 1, 1000} {
			t.Run(text, func(t *testing.T) {
				policy := core.MustParse(text)
				store, err := core.NewMemory(core.MemoryOptions{})
				require.NoError(t, err)
				now, taken := time.Duration(0), int64(0)
				ask := func() core.Result {
					take := core.Take{Policy: policy, Key: "k", Cost: 1, Now: epoch + now.Microseconds()}
					res, err := store.Take(t.Context(), take)
					require.NoError(t, err)
					taken += res.Taken
					return res
				}
				res := ask()
				for range flood {
					res = ask()
				}
				if !res.Allowed() {
					now += res.RetryAfter
					res = ask()
				}
				for taken = 0; now < span; res = ask() {
					r, next := res.Each(0).Remaining, now+res.Each(0).MoreAfter
					require.Greater(t, next, now, "%v", res)
					for i := range r {
						now += ((next - now) / time.Duration(r+1-i)).Truncate(time.Microsecond)
						require.True(t, ask().Allowed(), "at %v, %d of %d until %v", now, i+1, r, next)
					}
					now = next
				}
				limit := policy.Limits()[0]
				sustained := float64(taken) / float64(limit.Rate) * limit.Period.Seconds() / span.Seconds()
				assert.InDelta(t, share, sustained, 0.02)
			})
		}
	}
}
