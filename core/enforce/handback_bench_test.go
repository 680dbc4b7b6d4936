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
	local   *core.Memory
	mirrors bool
	fails   error
}

func (b *beside) Fallback() *core.Memory { return b.local }

func (b *beside) Mirrors() bool { return b.mirrors }

func (b *beside) Take(ctx context.Context, t core.Take) (core.Result, error) {
	if b.fails != nil {
		return core.Result{}, b.fails
	}
	return b.Store.Take(ctx, t)
}

// What surrounds a decision of a store that is not in the process: while nothing is owed to it, while another key owes
// something, with a mirror, and while it fails.
func BenchmarkAllowBeside(b *testing.B) {
	for _, c := range []struct {
		name         string
		owes, mirror bool
		fails        error
	}{{"healthy", false, false, nil}, {"owing", true, false, nil}, {"mirrored", false, true, nil}, {"failing", false, false, down()}} {
		b.Run(c.name, func(b *testing.B) {
			store := &beside{Store: newMemory(b, 0), local: newMemory(b, 0), mirrors: c.mirror}
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
