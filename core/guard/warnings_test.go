package guard_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// A mistake that shows only in use is logged with its code, once, however many requests come.
func TestLogCodes(t *testing.T) {
	check := func(r *request) func(*guard.Guard) { return func(g *guard.Guard) { g.Check(r) } }
	noRoute, rewritten := from(alice), from(alice)
	noRoute.route = ""
	rewritten.peer = netip.AddrPortFrom(rewritten.peer.Addr(), 0)
	proxied := from("10.0.0.1")
	proxied.lines = map[string][]string{"X-Forwarded-For": {alice}}
	wrong := new(numbers)
	wrong.Store(policies("default", "9"))
	tested := map[string]bool{}
	for code, c := range map[string]struct {
		config guard.Config
		use    func(*guard.Guard)
	}{
		"no-route":          {guard.Config{Rule: guard.Rule{Policy: "9/1h", Key: keyfunc.Route(), NoKey: guard.NoKeyPass}}, check(noRoute)},
		"no-key":            {guard.Config{Rule: guard.Rule{Policy: "9/1h", Key: keyfunc.User("user")}}, check(from(alice))},
		"behind-proxy":      {guard.Config{Rule: guard.Rule{Policy: "9/1h"}}, check(proxied)},
		"cost-too-large":    {guard.Config{Rule: guard.Rule{Policy: "9/1h", Cost: func(keyfunc.Request) int64 { return 10 }}}, check(from(alice))},
		"unusable-key":      {guard.Config{Rule: guard.Rule{Policy: "9/1h", Key: keyfunc.Custom("bad", func(keyfunc.Request) (string, error) { return "", os.ErrNotExist })}}, check(from(alice))},
		"rewritten-address": {guard.Config{Rule: guard.Rule{Policy: "9/1h"}}, check(rewritten)},
		"unknown-tier":      {guard.Config{Rule: guard.Rule{Policy: "9/1h", Tier: func(keyfunc.Request) string { return "Pro" }, Tiers: map[string]string{"pro": "8/1h"}}}, check(from(alice))},
		"unusable-cost":     {guard.Config{Rule: guard.Rule{Policy: "9/1h", Cost: func(keyfunc.Request) int64 { return -1 }}}, check(from(alice))},
		"unnamed-policy":    {guard.Config{Rule: guard.Rule{Policy: "9/1h"}, Store: newMemory(t)}, check(from(alice))},
		"store-error":       {guard.Config{Rule: guard.Rule{Policy: "default: 9/1h"}, Store: plainly{}}, check(from(alice))},
		"unusable-numbers":  {guard.Config{Rule: guard.Rule{Policy: "9/1h"}, Source: wrong}, check(from(alice))},
		"foreign-handler": {guard.Config{Rule: guard.Rule{Policy: "1/1h", OverLimit: guard.HandleNative("elsewhere.Handle", 7)}}, func(g *guard.Guard) {
			_ = g.Serve(&exchange{request: from(alice), header: header{}})
		}},
		"mounted-twice": {guard.Config{Rule: guard.Rule{Policy: "1000000/1h"}}, func(g *guard.Guard) {
			r, h := from(alice), header{}
			for range 2 {
				v := g.Check(r)
				v.SetHeaders(h)
				r.ctx = v.Context(r.ctx) //nolint:fatcontext // as one middleware within the other does
			}
		}},
		"overlooked-entry": {guard.Config{Rule: guard.Rule{Policy: "1000/1h"}, Routes: map[string]guard.Rule{"/login": {Policy: "login: 1000/1h"}}}, func(g *guard.Guard) {
			_ = g.Serve(&routed{&exchange{request: from(alice), header: header{}}, "/login", "/login", false, 200})
		}},
		"nothing-charged": {guard.Config{Rule: guard.Rule{Policy: "9/1h", Cost: func(keyfunc.Request) int64 { return 0 }, Settle: guard.Reported}}, check(from(alice))},
		"nothing-reported": {guard.Config{Rule: guard.Rule{Policy: "1000/1h", Settle: guard.Reported}}, func(g *guard.Guard) {
			v := g.Check(from(alice))
			v.Finish(guard.Final{Status: 200})
		}},
		"error-without-status": {guard.Config{Rule: guard.Rule{Policy: "9/1h", After: failures}}, func(g *guard.Guard) {
			v := g.Check(from(alice))
			v.Finish(guard.Final{Status: 500, Err: errPlain})
		}},
		"degraded-unasked": {guard.Config{Rule: guard.Rule{Policy: "1/1h", OverLimit: guard.Degrade()}}, func(g *guard.Guard) {
			_ = g.Serve(&exchange{request: from(alice), header: header{}})
		}},
		"permit-not-kept": {guard.Config{Rule: guard.Rule{Policy: "1 concurrent"}}, func(g *guard.Guard) {
			_ = g.Serve(hijacked{&exchange{request: from(alice), header: header{}}})
		}},
	} {
		t.Run(code, func(t *testing.T) {
			said, before := new(records), slog.Default()
			slog.SetDefault(slog.New(said))
			defer slog.SetDefault(before)
			if c.config.Policy == "" {
				c.config.Policy = "1/1h"
			}
			g := newGuard(t, c.config)
			for range 150 {
				c.use(g)
			}
			assert.Equal(t, []string{code}, said.codes())
			tested[code] = true
		})
	}
	assert.ElementsMatch(t, guard.LogCodes, slices.Collect(maps.Keys(tested)), "each code is tested")
}

// failures charges a unit for each answer 401.
func failures(f guard.Final) int64 {
	if f.Status == 401 {
		return 1
	}
	return 0
}

// An After that has charged something sees what it needs, whatever fails besides; and so does one whose handlers return
// no errors.
func TestErrorsWithStatus(t *testing.T) {
	for name, finals := range map[string][]guard.Final{
		"charged before": {{Status: 401, Err: errPlain}, {Status: 500, Err: errPlain}},
		"no errors":      {{Status: 500}, {Status: 200}},
		"other statuses": {{Status: 404, Err: errPlain}},
	} {
		said := new(records)
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "999/1h", After: failures}, Log: slog.New(said)})
		for i := range 50 {
			v := g.Check(from(alice))
			v.Finish(finals[i%len(finals)])
		}
		assert.Empty(t, said.codes(), name)
	}
}

// hijacked is a request whose connection is served when the handler has returned.
type hijacked struct{ *exchange }

func (hijacked) Hijacked() bool { return true }

// plainly is a store whose errors do not say that it has failed.
type plainly struct{}

var errPlain = errors.New("the table is full")

func (plainly) Take(context.Context, core.Take) (core.Result, error) { return core.Result{}, errPlain }
func (plainly) Refund(context.Context, []core.Refund) error          { return errPlain }
func (plainly) Reset(context.Context, core.Policy, string) error     { return errPlain }

// What a store says is not said of the key.
func TestPlainErrorOfStore(t *testing.T) {
	said := new(records)
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "default: 5/1h"}, Store: plainly{}, Log: slog.New(said)})
	for range 3 {
		assert.Equal(t, 503, g.Check(from(alice)).Status)
	}
	lines := said.all()
	require.Len(t, lines, 1)
	assert.Contains(t, lines[0], "ERROR weir: the store has failed with an error that is not a *core.StoreError")
	assert.Contains(t, lines[0], "the table is full")
}

// Each code has a line in the docs.
func TestCodesAreExplained(t *testing.T) {
	page, err := os.ReadFile("../../docs/warnings.md")
	require.NoError(t, err)
	for _, code := range append(guard.LintCodes, guard.LogCodes...) {
		assert.Contains(t, string(page), "`"+code+"`", "docs/warnings.md")
	}
}

// A cost that no waiting can satisfy is a mistake of the program, or of a client that asks for too much: the log
// has one line of it.
func TestCostTooLarge(t *testing.T) {
	said := new(records)
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{Policy: "5/1h", Cost: func(keyfunc.Request) int64 { return 6 }},
		Log:  slog.New(said),
	})
	for range 3 {
		g.Check(from(alice))
	}
	assert.Equal(t, []string{"WARN weir: a request costs more than its policy ever admits; give the limit a larger burst, or a debt policy=default limit=5"}, said.all())
	assert.Equal(t, []string{"cost-too-large"}, said.codes())
}

// A policy without a name on a given Store shares counts with others, and the log and Lint say so: once, and not where
// the Guard has a store for itself, or where every policy has a name.
func TestUnnamedPolicy(t *testing.T) {
	store := newMemory(t)
	for name, c := range map[string]struct {
		config guard.Config
		warns  bool
	}{
		"on a store":         {guard.Config{Rule: guard.Rule{Policy: "9/1h"}, Store: store}, true},
		"without a store":    {guard.Config{Rule: guard.Rule{Policy: "9/1h"}}, false},
		"named":              {guard.Config{Rule: guard.Rule{Policy: "api: 9/1h"}, Store: store}, false},
		"named default":      {guard.Config{Rule: guard.Rule{Policy: "default: 9/1h"}, Store: store}, false},
		"named by its route": {guard.Config{Routes: map[string]guard.Rule{"/login": {Policy: "9/1h"}}, Store: store}, false},
		"the first of Rules": {guard.Config{Rules: []guard.Rule{{Policy: "api: 9/1h"}}, Store: store}, false},
	} {
		said := new(records)
		c.config.Log = slog.New(said)
		g := newGuard(t, c.config)
		for range 3 {
			g.Check(from(alice))
		}
		search := g.With("search", "9/1h")
		var codes []string
		for _, w := range append(g.Lint([]string{"/login"}), search.Lint(nil)...) {
			codes = append(codes, w.Code+" "+w.Where)
		}
		if c.warns {
			assert.Equal(t, []string{"unnamed-policy"}, said.codes(), name)
			assert.Equal(t, []string{"unnamed-policy Rule"}, codes, name)
		} else {
			assert.Empty(t, said.codes(), name)
			assert.Empty(t, codes, name)
		}
	}
}
