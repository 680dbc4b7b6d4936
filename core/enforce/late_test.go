package enforce_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
)

// lateStore is a remote store whose next takes fail with an error, and are answered when the test says so.
type lateStore struct {
	*core.Memory
	local *core.Memory // the fallback
	err   error        // nil answers at once
	late  []func(answer)
}

// answer is the fate of a take.
type answer uint8

const (
	executed answer = iota
	notExecuted
	nobodyKnows
)

func (s *lateStore) Fallback() *core.Memory { return s.local }

func (s *lateStore) Take(ctx context.Context, t core.Take) (core.Result, error) {
	if s.err == nil {
		return s.Memory.Take(ctx, t)
	}
	late := &core.LateError{Err: s.err}
	s.late = append(s.late, func(a answer) {
		switch a {
		case executed:
			late.Answer(s.Memory.Take(context.Background(), t))
		case notExecuted:
			late.Answer(core.Result{}, down())
		case nobodyKnows:
			late.Answer(core.Result{}, unknown())
		}
	})
	return core.Result{}, late
}

// answer lets the answers of all takes come.
func (s *lateStore) answer(a answer) {
	for _, f := range s.late {
		f(a)
	}
	s.late = nil
	synctest.Wait()
}

func newLateStore(t *testing.T, err error) *lateStore {
	t.Helper()
	return &lateStore{Memory: newMemory(t, 0), local: newMemory(t, 0), err: err}
}

func newLateLimiter(t *testing.T, s *lateStore, policy string) *enforce.Limiter {
	t.Helper()
	l, err := enforce.New(s, core.MustParse(policy), enforce.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return l
}

// What nobody has been admitted for is given back when the answer comes.
func TestLateChargeOfNobody(t *testing.T) {
	for _, policy := range []string{"10/1h", "10/1h; fail open", "10/1h; fail closed", "10/1h sliding-log; fail closed"} {
		synctest.Test(t, func(t *testing.T) {
			s := newLateStore(t, context.Canceled)
			l := newLateLimiter(t, s, policy)
			_, err := l.AllowN(t.Context(), "k", 3)
			require.Equal(t, context.Canceled, err, "%s: nothing but the error of the context", policy)
			s.answer(executed)
			assert.Zero(t, used(t, s.Memory, l.Policy()), policy)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := newLateStore(t, unknown())
		l := newLateLimiter(t, s, "10/1h; fail closed")
		_, err := l.AllowN(t.Context(), "k", 3)
		failed := &core.StoreError{}
		require.ErrorAs(t, err, &failed)
		s.answer(executed)
		assert.Zero(t, used(t, s.Memory, l.Policy()), "it was refused")
	})
	synctest.Test(t, func(t *testing.T) {
		s := newLateStore(t, unknown())
		l := newLateLimiter(t, s, "10/1h; fail local 1/10")
		for _, admitted := range []bool{true, false} {
			res, err := l.AllowN(t.Context(), "k", 1)
			require.NoError(t, err)
			require.Equal(t, admitted, res.Allowed())
		}
		s.answer(executed)
		assert.EqualValues(t, 1, used(t, s.Memory, l.Policy()), "the second was refused")
	})
}

// What the fail word has admitted stays charged, once, and what Settle gives back of it comes back, whether the answer
// comes before or after.
func TestLateChargeOfTheAdmitted(t *testing.T) {
	for _, test := range []struct {
		fail   string
		answer answer
		// What is used in the store after the answer and a further unit, of 3 that were admitted, without
		// settling and if 2 are given back.
		kept, settled int64
	}{
		{"fail open", executed, 4, 2},
		{"fail open", notExecuted, 1, 1},
		{"fail open", nobodyKnows, 1, 1},
		{"fail local", executed, 4, 2},
		{"fail local", notExecuted, 4, 2}, // handed back
		{"fail local", nobodyKnows, 1, 1},
	} {
		for _, order := range []string{"kept", "settled before", "settled after"} {
			synctest.Test(t, func(t *testing.T) {
				s := newLateStore(t, unknown())
				l := newLateLimiter(t, s, "10/1h fixed-window; "+test.fail)
				var a enforce.Admission
				require.NoError(t, l.Begin(t.Context(), enforce.Ask{Key: "k", Cost: 3}, &a))
				require.True(t, a.Result.Allowed())
				require.True(t, a.Result.Local)
				require.EqualValues(t, 3, a.Result.Taken)
				require.Error(t, a.Err)
				want := test.settled
				switch order {
				case "kept":
					s.answer(test.answer)
					want = test.kept
				case "settled before":
					a.GiveBack(2)
					s.answer(test.answer)
				case "settled after":
					s.answer(test.answer)
					a.GiveBack(2)
				}
				synctest.Wait()
				s.err = nil
				_, err := l.Allow(t.Context(), "k") // what is owed is handed back behind it
				require.NoError(t, err)
				synctest.Wait()
				assert.Equal(t, want, used(t, s.Memory, l.Policy()), "%s, answer %d, %s", test.fail, test.answer, order)
			})
		}
	}
}

// What is given back of a charge of which nobody knows whether it was made is not taken from what others owe.
func TestLateChargeBesideDebts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLateStore(t, nil)
		l := newLateLimiter(t, s, "10/1h fixed-window")
		s.err = down()
		var a enforce.Admission
		require.NoError(t, l.Begin(t.Context(), enforce.Ask{Key: "k", Cost: 3}, &a))
		s.answer(notExecuted)
		s.err = unknown()
		var b enforce.Admission
		require.NoError(t, l.Begin(t.Context(), enforce.Ask{Key: "k", Cost: 3}, &b))
		s.answer(nobodyKnows)
		b.GiveBack(3)
		s.err = nil
		_, err := l.Allow(t.Context(), "k")
		require.NoError(t, err)
		synctest.Wait()
		assert.EqualValues(t, 4, used(t, s.Memory, l.Policy()))
	})
}

// A turn whose caller has left before it was known is that of the next.
func TestLateTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLateStore(t, nil)
		l := newLateLimiter(t, s, "10/1s burst 1; wait 10s")
		require.NoError(t, l.Wait(t.Context(), "k", 1))
		s.err = context.Canceled
		require.ErrorIs(t, l.Wait(t.Context(), "k", 1), context.Canceled)
		s.answer(executed)
		start := time.Now()
		require.NoError(t, l.Wait(t.Context(), "k", 1), "the store is not asked")
		assert.Equal(t, 100*ms, time.Since(start))
	})
}

// What is charged in the background is made if it is answered late.
func TestLateBackgroundCharge(t *testing.T) {
	for a, lost := range map[answer]bool{executed: false, nobodyKnows: true} {
		synctest.Test(t, func(t *testing.T) {
			s := newLateStore(t, nil)
			l := newLateLimiter(t, s, "10/1h fixed-window")
			var admission enforce.Admission
			require.NoError(t, l.Begin(t.Context(), enforce.Ask{Key: "k", Cost: 1}, &admission))
			s.err = unknown()
			admission.Charge(2, nil)
			synctest.Wait()
			s.answer(a)
			assert.Equal(t, lost, l.Close() != nil)
		})
	}
}
