package enforce_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/follow"
)

// limits are ten units of each algorithm.
var limits = []string{
	"10/1h", "10/1h token-bucket", "10/1h leaky-bucket", "10/1h fixed-window", "10/1h sliding-window", "10/1h sliding-counter",
	"10/1h sliding-log", "10/1h, 100/1d", "10/1h debt 5", "10/1h; wait 1h",
}

func give(t *testing.T, l *enforce.Limiter, n int64) {
	t.Helper()
	require.NoError(t, l.Credit(t.Context(), "k", n))
	synctest.Wait()
}

// Credit gives back what is in use, without a receipt, and no more.
func TestCredit(t *testing.T) {
	for _, limit := range limits {
		t.Run(limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, nil, limit)
				give(t, l, 3)
				require.EqualValues(t, 10, left(t, l, "k"))
				res, err := l.AllowN(t.Context(), "k", 10)
				require.NoError(t, err)
				require.True(t, res.Allowed())
				give(t, l, 4)
				require.EqualValues(t, 4, left(t, l, "k"))
				require.NoError(t, l.Refund(t.Context(), "k", res, 0))
				give(t, l, 100)
				require.EqualValues(t, 10, left(t, l, "k"))

				require.ErrorContains(t, l.Credit(t.Context(), "", 1), "key is empty")
				require.ErrorContains(t, l.Credit(t.Context(), "k", -1), "a refund of -1 units; give 0 or more")
				gone, leave := context.WithCancel(t.Context())
				leave()
				require.ErrorIs(t, l.Credit(gone, "k", 1), context.Canceled)
			})
		})
	}
	require.ErrorContains(t, newLimiter(t, nil, "3 concurrent").Credit(t.Context(), "k", 1), "has permits alone")
}

// While the store fails, what stands in for it gives back, and the error says that the store may not have. What the
// fallback has admitted comes back without the store, and is never charged to it.
func TestCreditWhileTheStoreFails(t *testing.T) {
	for _, limit := range limits {
		t.Run(limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				redis := newMemory(t, 0)
				p := newProcess(t, redis, "api: "+limit)
				require.True(t, p.take(t, "k", 4).Allowed())
				p.Fail(down())
				require.True(t, p.take(t, "k", 10).Allowed())
				give(t, p.Limiter, 3) // it is owed, and so the store need not know
				require.EqualValues(t, 3, left(t, p.Limiter, "k"))
				require.EqualValues(t, 4, used(t, redis, p.Policy()))
				var failed *core.StoreError
				require.ErrorAs(t, p.Credit(t.Context(), "k", 9), &failed)
				require.EqualValues(t, 10, left(t, p.Limiter, "k"))
				require.EqualValues(t, 4, used(t, redis, p.Policy()))
				require.True(t, p.take(t, "k", 6).Allowed())
				p.Fail(nil)
				give(t, p.Limiter, 5)
				p.take(t, "k", 0)
				require.EqualValues(t, 5, used(t, redis, p.Policy()), "of four and six, five are back")
				give(t, p.Limiter, 2)
				require.EqualValues(t, 3, used(t, redis, p.Policy()))
			})
		})
	}
}

// What the fallback has admitted long ago weighs nothing any more, and uses up no credit.
func TestCreditOfWhatIsOverInTheFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		redis := newMemory(t, 0)
		p := newProcess(t, redis, "api: 10/1s")
		p.Fail(down())
		require.True(t, p.take(t, "k", 10).Allowed())
		p.Fail(nil)
		advance(time.Minute)
		other := newProcess(t, redis, "api: 10/1s")
		require.True(t, other.take(t, "k", 10).Allowed())
		give(t, p.Limiter, 4)
		require.EqualValues(t, 6, used(t, redis, p.Policy()))
	})
}

// A process's share is credited as far as it is in use, and a policy that fails open or closed has nothing in the process.
func TestCreditUnderFailWords(t *testing.T) {
	for _, c := range []struct {
		options string
		left    int64 // of the fallback, of which 3 units were taken
	}{{"fail local 1/2", 5}, {"fail local", 10}, {"fail open", 7}, {"fail closed", 7}} {
		synctest.Test(t, func(t *testing.T) {
			p := newProcess(t, newMemory(t, 0), "api: 10/1h fixed-window; "+c.options)
			_, err := p.local.Take(t.Context(), core.Take{Policy: p.Policy().Local(), Key: "k", Cost: 3})
			require.NoError(t, err)
			p.Fail(down())
			var failed *core.StoreError
			require.ErrorAs(t, p.Credit(t.Context(), "k", 9), &failed, c.options)
			res, err := p.local.Take(t.Context(), core.Take{Policy: p.Policy().Local(), Key: "k"})
			require.NoError(t, err)
			assert.Equal(t, c.left, res.Remaining, c.options)
		})
	}
}

// Units come back where the Limiter counts now, by the numbers of the key.
func TestCreditByNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, nil, "api: 10/1h fixed-window")
		pro := variant(t, l, "100/1h fixed-window")
		_, err := pro.AllowN(t.Context(), "k", 50)
		require.NoError(t, err)
		give(t, l, 42) // windows share their counts
		require.EqualValues(t, 92, left(t, pro, "k"))
		require.EqualValues(t, 2, left(t, l, "k"))

		l = newLimiter(t, nil, "api: 10/1h")
		pro = variant(t, l, "10/1h burst 20")
		for _, v := range []*enforce.Limiter{l, pro} {
			_, err := v.AllowN(t.Context(), "k", 10)
			require.NoError(t, err)
		}
		give(t, pro, 5) // these buckets do not
		require.EqualValues(t, 15, left(t, pro, "k"))
		require.Zero(t, left(t, l, "k"))

		var source atomic.Pointer[follow.Set]
		source.Store(&follow.Set{Keys: map[string]map[string]string{"api": {"k": "20/1h", "free": follow.Unlimited, "bad": follow.Blocked}}})
		l = following(t, newMemory(t, 0), "api: 10/1h", enforce.Options{Source: &source})
		_, err = l.AllowN(t.Context(), "k", 20)
		require.NoError(t, err)
		give(t, l, 15)
		require.EqualValues(t, 15, left(t, l, "k"))
		for _, key := range []string{"free", "bad"} {
			require.NoError(t, l.Credit(t.Context(), key, 3))
			require.Error(t, l.Credit(t.Context(), key, -3))
		}
	})
}
