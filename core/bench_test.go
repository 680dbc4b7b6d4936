package core_test

import (
	"context"
	"testing"

	"github.com/weir-go/weir/core"
)

// BenchmarkMemoryTake is about one key. The programs of bench measure many.
func BenchmarkMemoryTake(b *testing.B) {
	admits := core.Take{Policy: core.MustParse("a: 2147483648/1s"), Key: "ip=203.0.113.7", Cost: 1}
	refuses := core.Take{Policy: core.MustParse("b: 1/366d"), Key: "ip=203.0.113.7", Cost: 1}
	two := core.Take{Policy: core.MustParse("c: 2147483648/1s, 2147483648/1h"), Key: "ip=203.0.113.7", Cost: 1}
	run := func(name string, t core.Take) {
		b.Run(name, func(b *testing.B) {
			m := newMemory(b, 0)
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.Take(ctx, t); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("hot", admits)
	run("refused", refuses)
	run("two limits", two)
	b.Run("hot parallel", func(b *testing.B) {
		m := newMemory(b, 0)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			ctx := context.Background()
			for pb.Next() {
				if _, err := m.Take(ctx, admits); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := core.Parse("login: 20/1s burst 40, 1000/1h; fail closed"); err != nil {
			b.Fatal(err)
		}
	}
}
