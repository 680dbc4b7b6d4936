package enforce

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// Permits are shared like rates, also beside them.
func TestSharePermits(t *testing.T) {
	for _, text := range []string{"4 concurrent; fail local 1/2", "100/1m, 4 concurrent; fail local 1/2"} {
		synctest.Test(t, func(t *testing.T) {
			s := newRemote(t)
			l := chargeLimiter(t, s, text, new(strings.Builder))
			s.set(outages["down"])
			refused := func(n int64) core.Result {
				_, _, err := l.AcquireN(t.Context(), "k", n)
				var over *OverLimitError
				require.ErrorAs(t, err, &over)
				assert.True(t, over.Result.Local)
				assert.EqualValues(t, 4, over.Result.Limit)
				return over.Result
			}
			_, first, err := l.Acquire(t.Context(), "k")
			require.NoError(t, err)
			_, second, err := l.Acquire(t.Context(), "k")
			require.NoError(t, err)
			assert.Equal(t, core.Refused, refused(1).Outcome)
			res := refused(3)
			assert.Equal(t, core.Refused, res.Outcome, "the store would grant three one day")
			assert.Equal(t, time.Second, res.RetryAfter)
			assert.Equal(t, core.Never, refused(5).Outcome)
			first()
			second()
			held, release, err := l.AcquireN(t.Context(), "k", 2)
			require.NoError(t, err)
			assert.NoError(t, held.Err())
			s.set(restore)
			_, others, err := l.AcquireN(t.Context(), "k", 4)
			require.NoError(t, err)
			release()
			others()
			require.NoError(t, l.Close())
		})
	}
}
