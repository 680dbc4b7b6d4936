package enforce_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
)

// beside is a store that is not in the process, but as fast.
type beside struct {
	core.Store
	local *core.Memory
	fails error
}

func (b *beside) Fallback() *core.Memory { return b.local }

func (b *beside) Take(ctx context.Context, t core.Take) (core.Result, error) {
	if b.fails != nil {
		return core.Result{}, b.fails
	}
	return b.Store.Take(ctx, t)
}

// What surrounds a decision of a store that is not in the process: while nothing is owed to it, while another key owes
// something, and while it fails.
func BenchmarkAllowBeside(b *testing.B) {
	for _, c := range []struct {
		name  string
		owes  bool
		fails error
	}{{"healthy", false, nil}, {"owing", true, nil}, {"failing", false, down()}} {
		b.Run(c.name, func(b *testing.B) {
			store := &beside{Store: newMemory(b, 0), local: newMemory(b, 0)}
			l, err := enforce.New(store, core.MustParse("1000000000/1h"), enforce.Options{Log: slog.New(slog.DiscardHandler)})
			require.NoError(b, err)
			if c.owes {
				store.fails = down()
				_, err = l.Allow(b.Context(), "another")
				require.NoError(b, err)
			}
			store.fails = c.fails
			b.ReportAllocs()
			for b.Loop() {
				_, _ = l.Allow(b.Context(), "k")
			}
		})
	}
}
