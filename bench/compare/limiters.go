package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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

// checkExact fails unless a contender admits exactly its limit, few, to each of two callers. Its work is that of a caller.
func checkExact(tb testing.TB, w work) {
	tb.Helper()
	for caller := range 2 {
		got := 0
		for range 3 * few().rate {
			admitted, err := w(tb.Context(), caller)
			require.NoError(tb, err)
			if admitted {
				got++
			}
		}
		require.Equal(tb, few().rate, got, "admitted of a limit of %d", few().rate)
	}
}

// work decides for callers, whose keys have the name of the contender, by which they differ from all that are measured.
func (d decide) work(name string) work {
	return func(ctx context.Context, i int) (bool, error) {
		v, err := d(ctx, fmt.Sprintf("check:%d:%s", i, name))
		return v.admitted, err
	}
}
