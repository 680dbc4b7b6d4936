package core_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// The methods of the Outcome are those of the Result that embeds it, but for String.
func TestResultSaysMoreThanItsOutcome(t *testing.T) {
	for want, res := range map[string]core.Result{
		"refused, 0 of 0 left, reset in 0s": {},
		"admitted, 9 of 10 left, reset in 1s": {
			Outcome: core.Admitted, Limit: 10, Remaining: 9, ResetAfter: time.Second,
		},
		"refused, 0 of 10 left, reset in 10s, retry in 1s": {
			Limit: 10, ResetAfter: 10 * time.Second, RetryAfter: time.Second,
		},
		"at-limit, 0 of 10 left, reset in 12s, delay 2s, without the store": {
			Outcome: core.AtLimit, Local: true, Limit: 10, ResetAfter: 12 * time.Second, Delay: 2 * time.Second,
		},
		"refused, 0 of 10 left, reset in 10s, retry in 1s, remembered": {
			Remembered: true, Limit: 10, ResetAfter: 10 * time.Second, RetryAfter: time.Second,
		},
	} {
		assert.Equal(t, want, res.String())
		assert.Equal(t, want, fmt.Sprint(res))
	}
}

// A Result is a group in a log, of what is not zero.
func TestResultInLog(t *testing.T) {
	for want, res := range map[string]core.Result{
		"[weir.outcome=refused]": {},
		"[weir.outcome=admitted weir.units.taken=2 weir.limit=10 weir.remaining=8 weir.reset_after=1s weir.delay=2s]": {
			Outcome: core.Admitted, Taken: 2, Limit: 10, Remaining: 8, ResetAfter: time.Second, Delay: 2 * time.Second,
		},
		"[weir.outcome=refused weir.limit=10 weir.remaining=0 weir.reset_after=10s weir.retry_after=1s weir.local=true weir.remembered=true]": {
			Local: true, Remembered: true, Limit: 10, ResetAfter: 10 * time.Second, RetryAfter: time.Second,
		},
	} {
		assert.Equal(t, want, slog.AnyValue(res).Resolve().String())
	}
}

func TestAllowed(t *testing.T) {
	for outcome, want := range map[core.Outcome]bool{core.Admitted: true, core.AtLimit: true, core.Refused: false, core.Never: false} {
		assert.Equal(t, want, outcome.Allowed(), outcome)
		assert.Equal(t, want, core.Result{Outcome: outcome}.Allowed(), outcome)
	}
}

// A note stays with the Result and its later copies, and with none that was made before.
func TestNote(t *testing.T) {
	res, err := newMemory(t, 0).Take(t.Context(), core.Take{Policy: core.MustParse("4/1s, 9/1m, 9/1h, 9/1d"), Key: "k", Cost: 3})
	require.NoError(t, err)
	before, note := res, new(int)
	assert.Nil(t, res.Note())
	res.SetNote(note)
	after := res
	assert.Same(t, note, after.Note())
	assert.Nil(t, before.Note())
	assert.False(t, res.Equal(before))
	assert.True(t, res.Equal(after))
	for i := range 4 {
		assert.Equal(t, before.Each(i), after.Each(i))
	}
	after.SetEach(3, core.LimitResult{Remaining: 7})
	assert.Same(t, note, after.Note())
	assert.EqualValues(t, 6, res.Each(3).Remaining, "parts of copies are separate")
}

// A Result names the policy that decided, which is the whole one if a share of it did.
func TestResultPolicy(t *testing.T) {
	p := core.MustParse("fleet: 100/1s, 4 concurrent; fail local 1/4")
	share := p.Local()
	assert.Equal(t, "fleet: 25/1s, 1 concurrent", share.String())
	memory := newMemory(t, 0)
	res, err := memory.Take(t.Context(), core.Take{Policy: share, Key: "k", Cost: 5})
	require.NoError(t, err)
	assert.Equal(t, p, res.Policy())
	assert.EqualValues(t, 100, res.Limit, "as clients have seen it before")
	assert.EqualValues(t, 20, res.Remaining)
	res, err = memory.Take(t.Context(), core.Take{Policy: share, Key: "k", Cost: 90})
	require.NoError(t, err)
	assert.Equal(t, core.Refused, res.Outcome, "the store would admit it")
	permit, err := memory.Acquire(t.Context(), core.Permit{Policy: share, Key: "k", ID: "a", Weight: 2})
	require.NoError(t, err)
	assert.Equal(t, core.Refused, permit.Outcome)
	assert.EqualValues(t, 4, permit.Limit)
	assert.True(t, new(core.Result).Policy().IsZero())
}

// Rates and permits together are one Result, which remains the receipt for the units.
func TestCombine(t *testing.T) {
	p := core.MustParse("10/1s, 2 concurrent")
	memory := newMemory(t, 0)
	rates, err := memory.Take(t.Context(), core.Take{Policy: p, Key: "k", Cost: 3})
	require.NoError(t, err)
	note := new(int)
	rates.SetNote(note)
	for i, want := range []core.Outcome{core.Admitted, core.AtLimit, core.Refused} {
		permits, err := memory.Acquire(t.Context(), core.Permit{Policy: p, Key: "k", ID: string('a' + rune(i))})
		require.NoError(t, err)
		permits.Local = i == 1
		both := rates
		p.Combine(&both, &permits)
		assert.Equal(t, want, both.Outcome)
		assert.EqualValues(t, 2, both.Limit, "the tightest")
		assert.EqualValues(t, 3, both.Taken)
		assert.Equal(t, rates.At, both.At)
		assert.Equal(t, i == 1, both.Local)
		assert.Same(t, note, both.Note())
		assert.Equal(t, rates.Each(0), both.Each(0))
		assert.Equal(t, permits.Each(1), both.Each(1))
	}
	var none core.Result // a policy that fails open counted nothing
	none.Outcome, none.Local, none.Taken = core.Admitted, true, 3
	permits, err := memory.Acquire(t.Context(), core.Permit{Policy: p, Key: "other", ID: "a"})
	require.NoError(t, err)
	p.Combine(&none, &permits)
	assert.EqualValues(t, 2, none.Limit)
	assert.EqualValues(t, 3, none.Taken)
	assert.True(t, none.Local)
}
