package enforce

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// permitsDown is a store that counts, and fails for permits.
type permitsDown struct{ *fakeRemote }

func (permitsDown) Acquire(context.Context, core.Permit) (core.Result, error) {
	return core.Result{}, errDown
}

// Units go back to the store that has charged them, also if the permits beside them came from the fallback; and so does
// a turn that was left before its time.
func TestUnitsGoBackBesidePermits(t *testing.T) {
	for _, c := range []struct {
		name  string
		begun int64 // units that are taken before
		delay time.Duration
	}{
		{"at once", 0, 0},
		{"ahead of their time", 1, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newRemote(t)
				l, err := New(permitsDown{s}, core.MustParse("both: 1/1s; wait 10s"), Options{})
				require.NoError(t, err)
				p := core.MustParse("both: 1/1s, 5 concurrent; wait 10s")
				both, err := New(permitsDown{s}, p, Options{})
				require.NoError(t, err)
				_, err = l.AllowN(t.Context(), "k", c.begun)
				require.NoError(t, err)
				before, err := l.Peek(t.Context(), "k")
				require.NoError(t, err)

				var a Admission
				require.NoError(t, both.Begin(t.Context(), Ask{Key: "k", Cost: 1, Wait: 10 * time.Second}, &a))
				assert.Equal(t, c.delay, a.Result.Delay)
				require.NoError(t, a.Acquire(t.Context(), 1))
				assert.True(t, a.Result.Local, "the fallback has granted the permit")
				a.GiveBack(1)
				a.Release()
				advance(50 * time.Millisecond)
				after, err := l.Peek(t.Context(), "k")
				require.NoError(t, err)
				assert.InDelta(t, before.ResetAfter, after.ResetAfter, float64(60*time.Millisecond))
				require.NoError(t, both.Close())
			})
		})
	}
}
