package guard_test

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/keyfunc"
)

// hard are requests that a client can make to cost much, each with the key by which it is counted.
func hard() map[string]func() (keyfunc.Func, *request) {
	const megabyte = 1 << 20
	lines := func(n int, line string) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = line
		}
		return out
	}
	ask := func(key keyfunc.Func, name string, values ...string) func() (keyfunc.Func, *request) {
		return func() (keyfunc.Func, *request) {
			r := sent(name, "")
			r.lines[name] = values
			return key, r
		}
	}
	proxies := keyfunc.ForwardedIP(netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("10.0.0.0/8"))
	path := func(text string) func() (keyfunc.Func, *request) {
		return func() (keyfunc.Func, *request) {
			r := from(alice)
			r.route = text // which is its path as well
			return keyfunc.Path(), r
		}
	}
	return map[string]func() (keyfunc.Func, *request){
		"Accept, commas":               ask(keyfunc.IP(), "Accept", strings.Repeat(",", megabyte)),
		"Accept, entries":              ask(keyfunc.IP(), "Accept", strings.Repeat("application/json;q=0.123,", megabyte/25)),
		"Accept, parameters":           ask(keyfunc.IP(), "Accept", "application/json"+strings.Repeat(";q", megabyte/2)),
		"Accept, spaces":               ask(keyfunc.IP(), "Accept", strings.Repeat(" ", megabyte)),
		"Accept, lines":                ask(keyfunc.IP(), "Accept", lines(megabyte/20, "application/json")...),
		"X-Forwarded-For, addresses":   ask(proxies, "X-Forwarded-For", strings.Repeat("10.0.0.1,", megabyte/9)),
		"X-Forwarded-For, lines":       ask(proxies, "X-Forwarded-For", lines(megabyte/20, "10.0.0.1")...),
		"X-Forwarded-For, one address": ask(proxies, "X-Forwarded-For", strings.Repeat("1", megabyte)),
		"a long header as the key":     ask(keyfunc.Header("X-Api-Key"), "X-Api-Key", strings.Repeat("k", 8192)),
		"a huge header as the key":     ask(keyfunc.Header("X-Api-Key"), "X-Api-Key", strings.Repeat("k", megabyte)),
		"many lines as the key":        ask(keyfunc.Header("X-Api-Key"), "X-Api-Key", lines(2048, strings.Repeat("k", 512))...),
		"a long path as the key":       path(strings.Repeat("/a", 2048)),
		"a long path of dots":          path(strings.Repeat("/a/..", 4096/5)),
		"a huge path as the key":       path(strings.Repeat("/a", megabyte/2)),
	}
}

// refusing returns a function that refuses r once more.
func refusing(tb testing.TB, key keyfunc.Func, r keyfunc.Request) func() {
	tb.Helper()
	g := newGuard(tb, guard.Config{Rule: guard.Rule{Policy: "1/366d", Key: key}, Log: slog.New(slog.DiscardHandler)})
	h := header{}
	refuse := func() {
		v := g.Check(r)
		clear(h)
		v.SetHeaders(h)
		require.Equal(tb, guard.Reply, v.Action)
	}
	g.Check(r)
	for range 100 { // the first requests are looked at more closely
		refuse()
	}
	return refuse
}

// counted is a request that counts how often each part of it is asked for.
type counted struct {
	keyfunc.Request
	asked map[string]int
}

func (c counted) Host() string         { c.asked["host"]++; return c.Request.Host() }
func (c counted) Path() string         { c.asked["path"]++; return c.Request.Path() }
func (c counted) Route() string        { c.asked["route"]++; return c.Request.Route() }
func (c counted) Peer() netip.AddrPort { c.asked["peer"]++; return c.Request.Peer() }
func (c counted) ContentLength() int64 { c.asked["length"]++; return c.Request.ContentLength() }
func (c counted) Value(key any) any    { c.asked["value"]++; return c.Request.Value(key) }

func (c counted) Header(name string) []string {
	c.asked[name]++
	return c.Request.Header(name)
}

// A refusal costs little whatever the request holds: it asks for each part once, and takes as much memory as that of an
// ordinary request, and a key. What is read of a part is bounded by what reads it: accept.TestNegotiateWork, and the
// tests of package keyfunc.
func TestRefusalCost(t *testing.T) {
	ordinary := testing.AllocsPerRun(100, refusing(t, keyfunc.IP(), from(alice)))
	for name, of := range hard() {
		key, r := of()
		if !race.Enabled { // which drops pooled keys
			assert.LessOrEqual(t, testing.AllocsPerRun(100, refusing(t, key, r)), ordinary+3, name)
		}
		c := counted{r, map[string]int{}}
		refuse := refusing(t, key, c)
		clear(c.asked)
		refuse()
		for part, n := range c.asked {
			assert.Equal(t, 1, n, "%s: %s", name, part)
		}
		assert.LessOrEqual(t, len(c.asked), 4, "%s: %v", name, c.asked)
	}
}

// times measures the refusal of an ordinary request and of a hard one: the least of many, which no other load disturbs.
func times(tb testing.TB, key keyfunc.Func, r *request) (plain, odd time.Duration) {
	tb.Helper()
	timed := func(refuse func()) func() time.Duration {
		return func() time.Duration {
			const some = 10
			began := time.Now()
			for range some {
				refuse()
			}
			return time.Since(began) / some
		}
	}
	one, other := timed(refusing(tb, keyfunc.IP(), from(alice))), timed(refusing(tb, key, r))
	plain, odd = one(), other()
	for range 200 {
		plain, odd = min(plain, one()), min(odd, other())
	}
	return plain, odd
}

// BenchmarkRefusalCost reports how many times the cost of a plain refusal that of a hard request is.
func BenchmarkRefusalCost(b *testing.B) {
	for name, of := range hard() {
		b.Run(name, func(b *testing.B) {
			key, r := of()
			var plain, odd time.Duration
			for b.Loop() {
				plain, odd = times(b, key, r)
			}
			b.ReportMetric(float64(odd)/float64(plain), "x-plain")
		})
	}
}

// addressed is a request of another path than its route, and of another host.
type addressed struct {
	*request
	host, path string
}

func (a addressed) Host() string { return a.host }
func (a addressed) Path() string { return a.path }

// A long path or host is read once, and not for each entry of the table that may be meant, and a long tier not for each
// tier that it is like: with four hundred entries the request is asked for no more than with two, and as much memory is
// taken. No pattern reads more of a path than it has: see patterns.TestPathWork.
func TestRefusalCostOfTables(t *testing.T) {
	const long = 256 << 10
	for name, to := range map[string][2]string{
		"a long part":     {"example.org", "/a/" + strings.Repeat("b", long)},
		"many parts":      {"example.org", strings.Repeat("/a", long/2)},
		"a path to clean": {"example.org", strings.Repeat("/a/..", long/5)},
		"a long host":     {strings.Repeat("h", long), "/login"},
		"a long tier":     {"example.org", "/" + strings.Repeat(" ", long)},
	} {
		work := func(entries int) (asked map[string]int, allocs float64) {
			table, tiers := map[string]guard.Rule{}, map[string]string{}
			for i := range entries {
				tiers[fmt.Sprintf("tier%d", i)] = "3/1h"
				table[fmt.Sprintf("/{tenant}/login%d", i)] = guard.Rule{Policy: "3/1h"}
				table[fmt.Sprintf("host%d.example.org/login", i)] = guard.Rule{Policy: "3/1h"}
			}
			g := newGuard(t, guard.Config{
				Rule: guard.Rule{
					Policy: "1/366d", Key: keyfunc.IP(),
					Tiers: tiers, Tier: func(r keyfunc.Request) string { return strings.Trim(r.Path(), "/") },
				},
				Routes: table, StrictRoutes: true, Log: slog.New(slog.DiscardHandler),
			})
			r := from(alice)
			r.route = ""
			c := counted{addressed{r, to[0], to[1]}, map[string]int{}}
			for range 110 {
				g.Check(c)
			}
			clear(c.asked)
			g.Check(c)
			if race.Enabled {
				return maps.Clone(c.asked), 0 // it drops pooled keys
			}
			asked = maps.Clone(c.asked)
			return asked, testing.AllocsPerRun(20, func() { g.Check(c) })
		}
		asked, allocs := work(1)
		askedMany, allocsMany := work(200)
		assert.Equal(t, asked, askedMany, name)
		assert.LessOrEqual(t, allocsMany, allocs, name)
		assert.LessOrEqual(t, askedMany["path"], 2, "%s: the table and the Tier ask for it", name)
		assert.LessOrEqual(t, askedMany["host"], 1, name)
	}
}
