package enforce_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
)

// BenchmarkLimiterAllow is a decision in the process, as a program asks for it. bench/compare measures it beside
// other libraries.
func BenchmarkLimiterAllow(b *testing.B) {
	const n = 1_000_000
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "ip=" + strconv.Itoa(i*7919%n)
	}
	for _, c := range []struct {
		name, policy string
		keys         []string
		admits       bool
	}{
		{"one", "2147483648/1s", keys[:1], true},
		{"two", "2147483648/1s, 2147483648/1h", keys[:1], true},
		{"refused", "1/366d", keys[:1], false},
		{"million", "1000/1h", keys, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			l, err := enforce.New(newMemory(b, 2*n), core.MustParse("p: "+c.policy), enforce.Options{})
			if err != nil {
				b.Fatal(err)
			}
			ctx, i := context.Background(), 0
			for _, key := range c.keys {
				if _, err := l.Allow(ctx, key); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if res, err := l.Allow(ctx, c.keys[i]); err != nil || res.Allowed() != c.admits {
					b.Fatal(res.Outcome, err)
				}
				if i++; i == len(c.keys) {
					i = 0
				}
			}
		})
	}
}

// BenchmarkLimiterAcquire is a permit in the process, taken and given back. BenchmarkLimiterStats is a snapshot while so
// many are held.
func BenchmarkLimiterAcquire(b *testing.B) {
	l, err := enforce.New(newMemory(b, 0), core.MustParse("p: 10000 concurrent"), enforce.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		_, release, err := l.Acquire(context.Background(), "k")
		if err != nil {
			b.Fatal(err)
		}
		release()
	}
}

func BenchmarkLimiterStats(b *testing.B) {
	l, err := enforce.New(newMemory(b, 0), core.MustParse("p: 10000 concurrent"), enforce.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for range 1000 {
		if _, _, err := l.Acquire(context.Background(), "k"); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if l.Stats().Permits != 1000 {
			b.Fatal("the permits are not counted")
		}
	}
}
