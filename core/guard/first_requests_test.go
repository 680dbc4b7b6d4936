package guard_test

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
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

// A limiter that counts users, and stands before what finds out who they are, is noticed: each request is refused, or
// all pass. One request with a key is enough to say that it is not so.
func TestNoKey(t *testing.T) {
	user := keyfunc.User("user")
	for name, c := range map[string]struct {
		rule  guard.Rule
		known int // the request of a user
		n     int
		want  []string
	}{
		"refused":            {guard.Rule{Policy: "9/1h", Key: user}, -1, 300, []string{"no-key"}},
		"refused, a few":     {guard.Rule{Policy: "9/1h", Key: user}, -1, 9, nil},
		"a user at first":    {guard.Rule{Policy: "9/1h", Key: user}, 0, 300, nil},
		"a user then":        {guard.Rule{Policy: "9/1h", Key: user}, 5, 300, nil},
		"pass":               {guard.Rule{Policy: "9/1h", Key: user, NoKey: guard.NoKeyPass}, -1, 300, []string{"no-key"}},
		"pass, some":         {guard.Rule{Policy: "9/1h", Key: user, NoKey: guard.NoKeyPass}, 90, 300, nil},
		"shared":             {guard.Rule{Policy: "9/1h", Key: user, NoKey: guard.NoKeyShared}, -1, 300, []string{"no-key"}},
		"a mistake is other": {guard.Rule{Policy: "9/1h", Key: keyfunc.Custom("bad", func(keyfunc.Request) (string, error) { return "", os.ErrNotExist })}, -1, 300, []string{"unusable-key"}},
	} {
		said := new(records)
		g := newGuard(t, guard.Config{Rule: c.rule, Log: slog.New(said)})
		for i := range c.n {
			r := from(alice)
			if i == c.known {
				r.ctx = context.WithValue(r.ctx, "user", "alice") //nolint:staticcheck,revive,fatcontext // a string, as frameworks have it
			}
			g.Check(r)
		}
		assert.Equal(t, c.want, said.codes(), name)
	}
}

// A proxy that is counted in the place of its clients is noticed.
func TestBehindProxy(t *testing.T) {
	forwarded := func(peer string) *request {
		r := sent("X-Forwarded-For", "198.51.100.7")
		r.peer = from(peer).peer
		return r
	}
	trusted := netip.MustParsePrefix("10.0.0.0/8")
	for name, c := range map[string]struct {
		key   keyfunc.Func
		first *request // before the others
		peer  string
		want  []string
	}{
		"another proxy":        {keyfunc.ForwardedIP(trusted), nil, "192.168.1.1", []string{"behind-proxy"}},
		"a private network":    {keyfunc.IP(), nil, "10.1.2.3", []string{"behind-proxy"}},
		"a part of the key":    {keyfunc.Join(keyfunc.FirstOf(keyfunc.User("user"), keyfunc.IP()), keyfunc.Route()), nil, "192.168.1.1", []string{"behind-proxy"}},
		"the machine itself":   {keyfunc.IP(), nil, "::1", []string{"behind-proxy"}},
		"IPv6":                 {keyfunc.IP(), nil, "fd00::1", []string{"behind-proxy"}},
		"between providers":    {keyfunc.IP(), nil, "100.64.0.1", []string{"behind-proxy"}},
		"after a probe":        {keyfunc.IP(), from("10.1.2.3"), "10.1.2.3", []string{"behind-proxy"}},
		"proxies are known":    {keyfunc.ForwardedIP(trusted), nil, "10.1.2.3", nil},
		"their number is":      {keyfunc.ForwardedHops(1), nil, "10.1.2.3", nil},
		"no address":           {keyfunc.Const("all"), nil, "10.1.2.3", nil},
		"clients come too":     {keyfunc.IP(), from(alice), "10.1.2.3", nil},
		"a client's invention": {keyfunc.IP(), nil, alice, nil},
	} {
		said := new(records)
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "9/1h", Key: c.key}, Log: slog.New(said)})
		if c.first != nil {
			g.Check(c.first)
		}
		for range 300 {
			g.Check(forwarded(c.peer))
		}
		assert.Equal(t, c.want, said.codes(), name)
	}
	said := new(records)
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "9/1h"}, Log: slog.New(said)})
	for range 9 {
		g.Check(forwarded("10.1.2.3"))
	}
	for range 200 {
		g.Check(from("10.1.2.3"))
	}
	assert.Empty(t, said.all(), "a few requests of a test")
}

// A rule that charges nothing, and one whose handlers do not say what they used, are noticed.
func TestNothingCharged(t *testing.T) {
	settle := func(guard.Final, int64) int64 { return 1 }
	costs := func(n int64) func(keyfunc.Request) int64 { return func(keyfunc.Request) int64 { return n } }
	for name, c := range map[string]struct {
		rule   guard.Rule
		status int
		report int // the request that reports
		want   []string
	}{
		"no estimate":      {guard.Rule{Policy: "999/1h", Cost: costs(0), Settle: settle}, 200, -1, []string{"nothing-charged"}},
		"an estimate":      {guard.Rule{Policy: "999/1h", Cost: costs(2), Settle: settle}, 200, -1, nil},
		"no Settle":        {guard.Rule{Policy: "999/1h", Cost: costs(0)}, 200, -1, nil},
		"After":            {guard.Rule{Policy: "999/1h", After: func(guard.Final) int64 { return 0 }}, 200, -1, nil},
		"permits alone":    {guard.Rule{Policy: "2 concurrent", Settle: settle}, 200, -1, nil},
		"never reported":   {guard.Rule{Policy: "999/1h", Settle: guard.Reported}, 200, -1, []string{"nothing-reported"}},
		"reported at last": {guard.Rule{Policy: "999/1h", Settle: guard.Reported}, 200, 50, nil},
		"all failed":       {guard.Rule{Policy: "999/1h", Settle: guard.Reported}, 500, -1, nil},
		"another Settle":   {guard.Rule{Policy: "999/1h", Settle: settle}, 200, -1, nil},
	} {
		said := new(records)
		g := newGuard(t, guard.Config{Rule: c.rule, Log: slog.New(said)})
		for i := range 200 {
			v := g.Check(from(alice))
			if i == c.report {
				guard.Report(v.Context(t.Context()), 7)
			}
			v.Finish(guard.Final{Status: c.status})
		}
		assert.Equal(t, c.want, said.codes(), name)
	}
}
