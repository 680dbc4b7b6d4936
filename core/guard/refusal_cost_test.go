package guard_test

import (
	"fmt"
	"log/slog"
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

// times is a refusal's time, of an ordinary request and of a hard one: the least of many, which no other load disturbs.
func times(tb testing.TB, key keyfunc.Func, r *request) (plain, odd time.Duration) {
	tb.Helper()
	refuse := func(key keyfunc.Func, r *request) func() time.Duration {
		g := newGuard(tb, guard.Config{Rule: guard.Rule{Policy: "1/366d", Key: key}})
		g.Check(r)
		h := header{}
		return func() time.Duration {
			const some = 10
			began := time.Now()
			for range some {
				v := g.Check(r)
				clear(h)
				v.SetHeaders(h)
				require.Equal(tb, guard.Reply, v.Action)
			}
			return time.Since(began) / some
		}
	}
	one, other := refuse(keyfunc.IP(), from(alice)), refuse(key, r)
	plain, odd = one(), other()
	for range 200 {
		plain, odd = min(plain, one()), min(odd, other())
	}
	return plain, odd
}

// A refusal costs little whatever the request holds. What is read of it is bounded: see accept.TestNegotiateBounds, and the
// tests of package keyfunc.
func TestRefusalCost(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector takes its time for each access")
	}
	for name, of := range hard() {
		key, r := of()
		plain, odd := times(t, key, r)
		assert.LessOrEqual(t, odd, 20*plain, "%s: %v, and %v for an ordinary request", name, odd, plain)
	}
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
// tier that it is like.
func TestRefusalCostOfTables(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector takes its time for each access")
	}
	refusal := func(entries int, host, path string) func() time.Duration {
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
		return func() time.Duration {
			began := time.Now()
			_ = g.Check(addressed{r, host, path})
			return time.Since(began)
		}
	}
	const long = 256 << 10
	for name, to := range map[string][2]string{
		"a long part": {"example.org", "/a/" + strings.Repeat("b", long)},
		"many parts":  {"example.org", strings.Repeat("/a", long/2)},
		"a long host": {strings.Repeat("h", long), "/login"},
		"a long tier": {"example.org", "/" + strings.Repeat(" ", long)},
	} {
		few, many := refusal(1, to[0], to[1]), refusal(200, to[0], to[1])
		one, all := few(), many()
		for range 50 {
			one, all = min(one, few()), min(all, many())
		}
		assert.LessOrEqual(t, all, 3*one+50*time.Microsecond, "%s: %v beside 400 entries, %v beside two", name, all, one)
	}
}
