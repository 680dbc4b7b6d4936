package guard_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/internal/remotetest"
)

// The fail word decides, and never with a 429 of its own.
func TestGuardFailWords(t *testing.T) {
	for _, c := range []struct {
		policy  string
		status  []int // of three requests while the store fails
		headers bool
		outcome core.Outcome // of the third
	}{
		{"2/1h", []int{0, 0, 429}, true, core.Refused},
		{"2/1h; fail local", []int{0, 0, 429}, true, core.Refused},
		{"2/1h; fail open", []int{0, 0, 0}, false, core.Admitted},
		{"2/1h; fail closed", []int{503, 503, 503}, false, core.Refused},
	} {
		t.Run(c.policy, func(t *testing.T) {
			store := remotetest.New(newMemory(t))
			var last guard.Event
			g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: c.policy}, Store: store, Observe: func(e guard.Event) { last = e }, Log: slog.New(new(records))})
			require.True(t, passes(g, alice))
			require.True(t, passes(g, alice))
			for range 2 { // an outage, and the next
				store.Fail(down())
				for i, status := range c.status {
					v := g.Check(from(bob))
					assert.Equal(t, status, v.Status, "request %d", i)
					assert.Equal(t, c.policy != "2/1h; fail closed", v.Result.Local)
					var failed *core.StoreError
					require.ErrorAs(t, v.Err, &failed)
					h := header{}
					v.SetHeaders(h)
					assert.Equal(t, c.headers, h["X-Ratelimit-Limit"] != "")
					assert.Equal(t, status == 503, h["Retry-After"] == "1")
				}
				assert.Equal(t, c.outcome, last.Outcome)
				assert.Equal(t, core.ClassDown, func() string {
					var failed *core.StoreError
					require.ErrorAs(t, last.Err, &failed)
					return failed.Class
				}())
				store.Fail(nil)
				assert.False(t, passes(g, alice), "what was counted before is still counted")
				assert.NoError(t, last.Err)
				if c.status[2] == 429 { // the local counts last through the next outage
					c.status = []int{429, 429, 429}
				}
			}
		})
	}
}

// fallback is a store that brings the Memory which stands in for it.
type fallback struct {
	*remotetest.Remote
	local *core.Memory
}

func (f fallback) Fallback() *core.Memory { return f.local }

// All guards and limiters on one store share its fallback: a limit stays one.
func TestFallbackIsShared(t *testing.T) {
	store := fallback{remotetest.New(newMemory(t)), newMemory(t)}
	store.Fail(down())
	quiet := slog.New(new(records))
	a := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1h"}, Store: store, Log: quiet})
	b := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1h"}, Store: store, Log: quiet})
	l, err := enforce.New(store, core.MustParse("1/1h"), enforce.Options{})
	require.NoError(t, err)
	assert.True(t, passes(a, alice))
	assert.False(t, passes(b, alice))
	assert.Equal(t, 1, store.local.Len())
	res, err := l.Allow(t.Context(), "ip="+alice)
	require.NoError(t, err)
	assert.False(t, res.Allowed())
	assert.True(t, res.Local)
}

// The log has one line for each class of failure of the store, and one when it is over.
func TestGuardLogsCalmly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, said := remotetest.New(newMemory(t)), new(records)
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "default: 5/1h"}, Store: store, Log: slog.New(said)})
		other := g.With("other", "5/1h; fail closed")
		passes(g, alice)
		assert.Empty(t, said.all())
		store.Fail(down())
		for range 50 {
			passes(g, alice)
			passes(other, alice)
		}
		const failed = "WARN weir: the store failed; each policy's fail word decides class=down error=gone"
		assert.Equal(t, []string{failed}, said.all())
		advance(time.Minute)
		for range 50 {
			passes(other, alice)
		}
		assert.Equal(t, []string{
			"WARN weir: the store still fails for=1m0s local=50 closed=51 class=down error=gone",
		}, said.all())
		for _, class := range []string{core.ClassTimeout, core.ClassBreaker, core.ClassBusy, core.ClassTimeout, core.ClassDown} {
			store.Fail(&core.StoreError{Class: class, Err: errors.New("silent")})
			passes(g, alice)
		}
		assert.Equal(t, []string{"WARN weir: the store failed; each policy's fail word decides class=timeout error=silent"}, said.all())
		for range 50 { // every second one
			store.Fail(nil)
			passes(g, alice)
			store.Fail(down())
			passes(g, alice)
		}
		store.Fail(nil)
		passes(g, alice)
		assert.Empty(t, said.all())
		advance(time.Second)
		for range 50 {
			passes(g, alice)
		}
		assert.Equal(t, []string{"INFO weir: the store is back for=1m1s local=105 closed=100"}, said.all())
		store.Fail(context.Canceled) // no failure of the store
		passes(g, alice)
		store.Fail(nil)
		passes(g, alice)
		assert.Empty(t, said.all())
		store.Fail(down()) // the next outage
		passes(g, alice)
		assert.Equal(t, []string{failed}, said.all())
	})
}

func TestGuardLogsToTheDefault(t *testing.T) {
	said, before := new(records), slog.Default()
	slog.SetDefault(slog.New(said))
	defer slog.SetDefault(before)
	store := remotetest.New(newMemory(t))
	store.Fail(down())
	passes(newGuard(t, guard.Config{Rule: guard.Rule{Policy: "default: 1/1h"}, Store: store}), alice)
	assert.Len(t, said.all(), 1)
}
