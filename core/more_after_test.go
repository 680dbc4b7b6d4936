package core_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core"
)

// MoreAfter is the very microsecond at which there is more than Remaining, for each algorithm, also in debt.
func TestMoreAfter(t *testing.T) {
	for _, text := range []string{
		"7/3s", "10/1m burst 4 debt 3", "3/1s burst 20; wait 2s", "7/3s token-bucket", "3/1s token-bucket burst 9 debt 4", "7/3s leaky-bucket",
		"7/3s fixed-window", "7/3s fixed-window aligned", "7/1m sliding-window buckets 5", "7/3s sliding-counter", "7/3s sliding-log",
	} {
		policy := core.MustParse(text)
		rapid.Check(t, func(t *rapid.T) {
			var state []byte
			take := func(now, cost int64) core.Result {
				res, next, ttl := policy.Spec().Step(state, core.Take{Policy: policy, Key: "k", Cost: cost, Now: now, Wait: policy.Options().Wait})
				if ttl > 0 {
					state = next
				}
				return res
			}
			step := func(now int64) int64 { // which changes nothing
				res, _, _ := policy.Spec().Step(state, core.Take{Policy: policy, Key: "k", Now: now})
				return res.Remaining
			}
			now := epoch
			for range rapid.IntRange(1, 12).Draw(t, "takes") {
				now += rapid.Int64Range(0, 2_000_000).Draw(t, "later")
				res := take(now, rapid.Int64Range(0, 5).Draw(t, "cost"))
				if !res.Allowed() {
					assert.Zero(t, res.Each(0).MoreAfter, text)
					continue
				}
				peek := take(now, 0)
				assert.Equal(t, peek.Each(0).MoreAfter, res.Each(0).MoreAfter, text)
				if res.Remaining == res.Limit {
					assert.Zero(t, res.Each(0).MoreAfter, text)
					continue
				}
				at := now + res.Each(0).MoreAfter.Microseconds()
				assert.LessOrEqual(t, step(at-1), res.Remaining, "%s: %v", text, res)
				assert.Greater(t, step(at), res.Remaining, "%s: %v", text, res)
			}
		})
	}
}
