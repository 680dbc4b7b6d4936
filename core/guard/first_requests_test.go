package guard_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// A router that shows no routes is noticed where somebody goes by them, and once.
func TestNoRoute(t *testing.T) {
	byRoute := guard.Config{Rule: guard.Rule{Policy: "9/1h", Key: keyfunc.Join(keyfunc.IP(), keyfunc.Route())}}
	table := guard.Config{Rule: guard.Rule{Policy: "9/1h"}, Routes: map[string]guard.Rule{"/login": {Policy: "1/1h"}}}
	for name, c := range map[string]struct {
		config guard.Config
		found  int // the request that has a route
		want   []string
	}{
		"a key":               {byRoute, -1, []string{"no-route"}},
		"a table":             {table, -1, []string{"no-route"}},
		"neither":             {guard.Config{Rule: guard.Rule{Policy: "9/1h"}}, -1, nil},
		"first of all":        {byRoute, 0, nil},
		"after some mistakes": {table, 40, nil},
		"too late":            {byRoute, 200, []string{"no-route"}},
	} {
		said := new(records)
		c.config.Log = slog.New(said)
		g := newGuard(t, c.config)
		for i := range 300 {
			r := from(alice)
			if r.route = ""; i == c.found {
				r.route = "/login"
			}
			g.Check(r)
		}
		assert.Equal(t, c.want, said.codes(), name)
	}
}

// Guards that are made for one request each are noticed, whoever makes them; many that are used are not.
func TestGuardPerRequest(t *testing.T) {
	perRequest := guard.Config{Rule: guard.Rule{Policy: "per-request: 1/1h"}}
	shared := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "9/1h"}})
	for name, c := range map[string]struct {
		make func(i int) *guard.Guard
		uses int
		want int
	}{
		"New":  {func(int) *guard.Guard { return newGuard(t, perRequest) }, 1, 1},
		"With": {func(int) *guard.Guard { g, _ := shared.WithRule(guard.Rule{Policy: "w: 2/1h"}); return g }, 1, 1},
		"used": {func(int) *guard.Guard { return newGuard(t, perRequest) }, 2, 0},
		"by tenants": {func(i int) *guard.Guard {
			return newGuard(t, guard.Config{Rule: guard.Rule{Policy: fmt.Sprintf("t%d: 1/1h", i)}})
		}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			said, before := new(records), slog.Default()
			slog.SetDefault(slog.New(said))
			defer slog.SetDefault(before)
			guard.ForgetGuards()
			for i := range 1500 {
				g := c.make(i)
				for range c.uses {
					g.Check(from(alice))
				}
			}
			assert.Len(t, said.codes(), c.want)
		})
	}
}
