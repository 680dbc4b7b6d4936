package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// limit admits rate units in each period, all of them at once if need be.
type limit struct {
	rate   int
	period time.Duration
}

// plenty is a limit that nobody reaches within a run of one key, whose state lives on between two calls: 10 000 come
// back in each second, one in a whole number of microseconds, as with nearly all limits that people write.
func plenty() limit { return limit{864_000_000, 24 * time.Hour} }

// lasting is a limit for a run of thousands of keys. None reaches it, and the state of each lives on until the turn of
// its key comes again, because a unit comes back in 86 seconds. Under plenty a key would be as if unused long before,
// and a store that forgets such keys would be measured with a few hundred.
func lasting() limit { return limit{1_000, 24 * time.Hour} }

// few is a limit that is soon reached, and stays so.
func few() limit { return limit{10, 24 * time.Hour} }

// verdict is an answer: what a handler needs for its status and headers, as far as the library says it.
type verdict struct {
	admitted  bool
	remaining int64
	reset     time.Duration
}

// decide takes one unit for a key.
type decide func(ctx context.Context, key string) (verdict, error)

// checkExact fails unless the contender of that name admits exactly its limit, and for each key by itself.
func checkExact(tb testing.TB, name string, d decide) {
	tb.Helper()
	for _, key := range []string{"check:a:" + name, "check:b:" + name} {
		got := 0
		for range 3 * few().rate {
			v, err := d(tb.Context(), key)
			if err != nil {
				tb.Fatalf("a decision: %v", err)
			}
			if v.admitted {
				got++
			}
		}
		assert.Equal(tb, few().rate, got, "admitted of a limit of %d", few().rate)
	}
	if tb.Failed() {
		tb.FailNow()
	}
}
