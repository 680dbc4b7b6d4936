package redisstore_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/redisstore"
)

// Calls that are odd have the same answers from both stores: nothing is charged twice, and nothing comes from nowhere.
func TestOddCalls(t *testing.T) {
	t.Parallel()
	stores := map[string]func(t *testing.T) core.Store{
		"memory": func(t *testing.T) core.Store {
			t.Helper()
			m, err := core.NewMemory(core.MemoryOptions{})
			require.NoError(t, err)
			return m
		},
		"Redis": func(t *testing.T) core.Store {
			t.Helper()
			return newStore(t, patientClient(t), redisstore.Options{Deadline: patient})
		},
	}
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, other := store(t), store(t)
			ls := limiters(t, s, "a: 10/1d fixed-window", "b: 10/1d", "c: 10/1d sliding-window, 20/1d fixed-window", "d: 10/1d debt 5")
			far := limiters(t, other, "far: 10/1d fixed-window")[0]
			remain := func(l *enforce.Limiter, key string, want int64) {
				t.Helper()
				require.Eventually(t, func() bool {
					res, err := l.Peek(t.Context(), key)
					return assert.NoError(t, err) && res.Remaining == want
				}, patient, 5*time.Millisecond, "%v", l)
			}
			ask := func(all ...enforce.Each) bool {
				t.Helper()
				admitted, err := enforce.AllowEach(t.Context(), all)
				require.NoError(t, err)
				return admitted
			}

			for _, l := range ls { // credits
				key := rand.Text()
				require.NoError(t, l.Credit(t.Context(), key, math.MaxInt64), "of a key that nobody knows")
				remain(l, key, 10)
				_, err := l.AllowN(t.Context(), key, 7)
				require.NoError(t, err)
				require.NoError(t, l.Credit(t.Context(), key, 0))
				remain(l, key, 3)
				require.NoError(t, l.Credit(t.Context(), key, math.MaxInt64), "of more than is in use")
				remain(l, key, 10)
				require.Error(t, l.Credit(t.Context(), key, math.MinInt64))
				remain(l, key, 10)
			}

			key := rand.Text()
			twice := enforce.Each{Limiter: ls[0], Key: key, Cost: 4}
			require.True(t, ask(twice, twice), "one key twice")
			remain(ls[0], key, 2)
			require.False(t, ask(twice, twice))
			remain(ls[0], key, 2)
			never := enforce.Each{Limiter: ls[1], Key: key, Cost: math.MaxInt64}
			require.False(t, ask(enforce.Each{Limiter: ls[0], Key: key, Cost: 1}, never), "one that never fits")
			remain(ls[0], key, 2)
			remain(ls[1], key, 10)
			require.False(t, ask(enforce.Each{Limiter: far, Key: key, Cost: 3}, twice), "one on another store")
			remain(far, key, 10)
			require.True(t, ask(enforce.Each{Limiter: far, Key: key, Cost: 3}, enforce.Each{Limiter: ls[0], Key: key, Cost: 2}))
			remain(far, key, 7)
			require.False(t, ask(enforce.Each{Limiter: far, Key: key, Cost: 3}, enforce.Each{Limiter: ls[0], Key: key, AtMost: true}), "a look")
			remain(far, key, 7)
			used := []enforce.Each{{Limiter: far, Key: key, Cost: math.MaxInt64, AtMost: true, Keep: true}, {Limiter: ls[0], Key: key, Cost: 1}}
			require.False(t, ask(used...), "as many as there are, although another one refuses")
			remain(far, key, 0)

			debt := enforce.Each{Limiter: ls[3], Key: key, Cost: 12}
			require.False(t, ask(debt, twice), "a debt is taken back")
			remain(ls[3], key, 10)
			require.True(t, ask(debt))
			require.NoError(t, ls[3].Credit(t.Context(), key, 3), "debt is forgiven first")
			remain(ls[3], key, 1)

			var many []enforce.Each
			for i := range 64 {
				many = append(many, enforce.Each{Limiter: ls[i%3], Key: fmt.Sprint(key, i), Cost: 1})
			}
			require.True(t, ask(many...))
			many[63].Cost = 11
			require.False(t, ask(many...))
			for _, x := range many {
				remain(x.Limiter, x.Key, 9)
			}
			gone, leave := context.WithCancel(t.Context())
			leave()
			_, err := enforce.AllowEach(gone, many)
			require.ErrorIs(t, err, context.Canceled)
			remain(many[5].Limiter, many[5].Key, 9)
			none, err := enforce.AllowEach(t.Context(), nil)
			require.NoError(t, err)
			require.True(t, none)
		})
	}
}
