package storetest

import (
	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/core"
)

func invariants(s *subject) {
	for _, text := range withOthers([]string{
		"100/1s", "3/1s burst 7", "20/1s, 50/1m", "1/1ms burst 9", "100/100ms token-bucket burst 70", "100/1s leaky-bucket", "100/100ms fixed-window",
		"100/50ms fixed-window aligned", "100/100ms sliding-window buckets 7", "100/70ms sliding-counter", "100/100ms sliding-log", mix,
	}, "100/100ms") {
		p := policy(text)
		limits := p.Limits()
		for at := int64(0); at < 300_000; at += 997 {
			cost := at % 5
			before := s.take(p, text, at, 0)
			after := s.take(p, text, at, cost)
			used := cost
			if !after.Allowed() {
				used = 0
			}
			for i, l := range limits {
				assert.GreaterOrEqual(s, after.Each(i).Remaining, int64(0), text)
				assert.LessOrEqual(s, after.Each(i).Remaining, l.Burst, text)
				assert.Equal(s, before.Each(i).Remaining-used, after.Each(i).Remaining, "remaining before minus after is the cost")
			}
			assert.LessOrEqual(s, after.Remaining, after.Limit)
			assert.Equal(s, after.Outcome == core.Refused, after.RetryAfter > 0)
		}
	}
}
