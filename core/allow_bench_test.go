package core_test

import (
	"context"
	"testing"

	"github.com/weir-go/weir/core"
)

func BenchmarkLimiterAllow(b *testing.B) {
	for name, policy := range map[string]string{"one": "2147483648/1s", "two": "2147483648/1s, 2147483648/1h", "refused": "1/366d"} {
		b.Run(name, func(b *testing.B) {
			l, err := core.NewLimiter(nil, core.MustParse(policy), core.LimiterOptions{})
			if err != nil {
				b.Fatal(err)
			}
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Allow(ctx, "ip=203.0.113.7"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
