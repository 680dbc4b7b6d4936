package guard_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// tripping is a store elsewhere, which counts what a request has to wait for.
type tripping struct {
	core.Store
	permits core.PermitStore
	trips   int
}

func newTripping(t *testing.T) *tripping {
	m := newMemory(t)
	return &tripping{m, m, 0}
}

func (c *tripping) Take(ctx context.Context, t core.Take) (core.Result, error) {
	c.trips++
	return c.Store.Take(ctx, t)
}

func (c *tripping) Acquire(ctx context.Context, p core.Permit) (core.Result, error) {
	c.trips++
	return c.permits.Acquire(ctx, p)
}

func (c *tripping) Renew(ctx context.Context, permits []core.Permit) ([]core.Permit, error) {
	return c.permits.Renew(ctx, permits)
}

func (c *tripping) Release(ctx context.Context, permits []core.Permit) error {
	return c.permits.Release(ctx, permits)
}

// The table of docs/rules.md: what each composition costs a request, admitted and refused.
func TestRoundTrips(t *testing.T) {
	everybody := keyfunc.Const("all")
	for name, c := range map[string]struct {
		config guard.Config
		want   string // how each of several requests ends, and after how many round trips
	}{
		"limits of one policy": {guard.Config{Rule: guard.Rule{Policy: "2/1s, 1/1h"}}, "pass 1, refused 1"},
		"permits":              {guard.Config{Rule: guard.Rule{Policy: "1 concurrent"}}, "pass 1, refused 1"},
		"permits and a rate":   {guard.Config{Rule: guard.Rule{Policy: "5 concurrent, 1/1m"}}, "pass 2, refused 1"},
		"a rate and permits":   {guard.Config{Rule: guard.Rule{Policy: "1 concurrent, 5/1m"}}, "pass 2, refused 2"},
		"a wait":               {guard.Config{Rule: guard.Rule{Policy: "1/1s; wait 1s"}}, "pass 1, pass 1, pass 1"},
		"a wait that is over":  {guard.Config{Rule: guard.Rule{Policy: "1/1h; wait 1s"}}, "pass 1, refused 1"},
		"a bucket and permits": {guard.Config{Rule: guard.Rule{Policy: "2 concurrent, 10/1s leaky-bucket"}}, "pass 2, pass 2, refused 2"},
		"several keys": {guard.Config{
			Rule:  guard.Rule{Policy: "user: 9/1h"},
			Rules: []guard.Rule{{Policy: "tenant: 2/1h", Key: everybody}, {Policy: "address: 9/1h"}},
		}, "pass 3, pass 3, refused 2"},
		"permits, then a rate of all": {guard.Config{
			Rule: guard.Rule{Policy: "user: 2 concurrent"}, Rules: []guard.Rule{{Policy: "all: 1/1h", Key: everybody}},
		}, "pass 2, refused 2, refused 2"},
		"permits of a user, then a bucket of all": {guard.Config{
			Rule: guard.Rule{Policy: "user: 1 concurrent"}, Rules: []guard.Rule{{Policy: "all: 10/1s leaky-bucket", Key: everybody}},
		}, "pass 2, refused 1"},
		"two waits": {guard.Config{
			Rule: guard.Rule{Policy: "user: 1/1s; wait 1s"}, Rules: []guard.Rule{{Policy: "all: 10/1s leaky-bucket", Key: everybody}},
		}, "pass 2, pass 2"},
		"a table": {guard.Config{
			Rule: guard.Rule{Policy: "9/1h"}, Routes: map[string]guard.Rule{"/items/{id}": {Policy: "1/1h"}},
		}, "pass 2, refused 1"},
		"a table, instead": {guard.Config{
			Rule: guard.Rule{Policy: "9/1h"}, Routes: map[string]guard.Rule{"/items/{id}": {Policy: "1/1h", Instead: true}},
		}, "pass 1, refused 1"},
		"unlimited": {guard.Config{Rule: guard.Rule{
			Policy: "1/1h", Tier: func(keyfunc.Request) string { return "admin" }, Tiers: map[string]string{"admin": "unlimited"},
		}}, "pass 0, pass 0"},
		"a trial": {guard.Config{Rule: guard.Rule{Policy: "1/1h"}, Rules: []guard.Rule{{Policy: "trial: 1/1m; shadow"}}}, "pass 2, refused 1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := newTripping(t)
			c.config.Store = store
			g := newGuard(t, c.config)
			got := ""
			for len(got) < len(c.want) {
				store.trips = 0
				v := g.Check(from(alice))
				synctest.Wait() // for what is given back
				defer v.Finish(guard.Final{})
				ended := "refused"
				if v.Action == guard.Pass {
					ended = "pass"
				}
				if got != "" {
					got += ", "
				}
				got += fmt.Sprintf("%s %d", ended, store.trips)
			}
			assert.Equal(t, c.want, got, name)
		})
	}
}

// A trial of a queue counts as the queue would, and holds nobody back, also beside the queue that is enforced.
func TestTrialHoldsNobodyBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		g := newGuard(t, guard.Config{
			Rule:    guard.Rule{Policy: "10/1s burst 1; wait 5s"},
			Rules:   []guard.Rule{{Policy: "trial: 1/1s; wait 1s; shadow"}},
			Observe: func(e guard.Event) { seen = append(seen, e.Policy+" "+e.Outcome.String()) },
		})
		began := time.Now()
		for range 3 {
			assert.Equal(t, guard.Pass, g.Check(from(alice)).Action)
		}
		assert.Equal(t, 200*time.Millisecond, time.Since(began))
		assert.Equal(t, []string{
			"default at-limit", "trial at-limit",
			"default at-limit", "trial at-limit",
			"trial refused", "default at-limit",
		}, seen)
	})
}
