package guard_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
)

// A Guard that is mounted twice counts twice, and the log has one line of it.
func TestGuardMountedTwice(t *testing.T) {
	said := new(records)
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "100/1h"}, Log: slog.New(said)})
	serve := func(guards ...*guard.Guard) (remaining string) {
		r, h := from(alice), header{}
		for _, g := range guards {
			v := g.Check(r)
			require.Equal(t, guard.Pass, v.Action)
			v.SetHeaders(h)
			if v.NeedsContext() {
				r.ctx = v.Context(r.ctx) //nolint:fatcontext // as one middleware within the other does
			}
		}
		return h["X-Ratelimit-Remaining"]
	}
	assert.Equal(t, "99", serve(g))
	v := g.Check(from(bob))
	assert.False(t, v.NeedsContext(), "nobody pays before there is a suspicion")
	assert.Equal(t, "97", serve(g, g))
	assert.Empty(t, said.all(), "now there is")
	assert.Equal(t, "95", serve(g, g))
	assert.Equal(t, []string{"WARN weir: a guard is mounted twice in one request, which it counts twice policy=default route=/items/{id}"}, said.all())
	assert.Equal(t, "92", serve(g, g, g))
	assert.Equal(t, "91", serve(g))
	assert.Empty(t, said.all(), "once is enough")
	v = g.Check(from(bob))
	assert.False(t, v.NeedsContext(), "and nobody pays any more")
	other := g.With("other", "100/1h")
	for range 3 { // another rule with equal numbers is only suspected
		serve(g, other)
	}
	v = other.Check(from(alice))
	assert.Equal(t, int64(96), v.Result.Remaining)
	assert.Empty(t, said.all())
	v = g.Check(from(bob))
	assert.Nil(t, v.Context(t.Context()).Value("other"), "other values are the context's own")
}

// Guards that are stacked on purpose, also with equal limits, do not end the search for one that is mounted twice.
func TestMountedTwiceAfterStacks(t *testing.T) {
	const stacked = 1100
	for name, headers := range map[string]guard.Headers{"X-RateLimit": {}, "RateLimit": {XRateLimit: guard.NoXRateLimit, RateLimit: true}} {
		for _, outer := range []string{"outer: 10000/1h", "outer: 90000/1h", "outer: 20000/1h"} {
			said := new(records)
			inner := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "inner: 20000/1h"}, Headers: headers, Log: slog.New(said)})
			stack := []*guard.Guard{inner.With("outer", outer), inner}
			derived := 0
			serve := func(guards ...*guard.Guard) {
				r, h := from(alice), header{}
				for _, g := range guards {
					v := g.Check(r)
					v.SetHeaders(h)
					if v.NeedsContext() {
						derived++
						r.ctx = v.Context(r.ctx) //nolint:fatcontext // as one middleware within the other does
					}
				}
			}
			for range stacked {
				serve(stack...)
			}
			assert.Empty(t, said.all(), "%s %s", name, outer)
			assert.Less(t, derived, stacked, "%s %s", name, outer)
			if outer != "outer: 20000/1h" || headers.RateLimit { // limits, or names, tell them apart
				assert.Zero(t, derived, "%s %s", name, outer)
			}
			requests := 0
			for twice := []*guard.Guard{inner, inner}; derived >= 0 && requests <= stacked; requests++ {
				serve(twice...)
				if len(said.all()) > 0 {
					derived = -1
				}
			}
			assert.Equal(t, -1, derived, "%s %s: found", name, outer)
			if outer != "outer: 20000/1h" || headers.RateLimit {
				assert.Equal(t, 2, requests, "%s %s: at once", name, outer)
			}
		}
	}
}
