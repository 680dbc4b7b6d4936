package guard_test

import (
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
		"many lines as the key":        ask(keyfunc.Header("X-Api-Key"), "X-Api-Key", lines(16, strings.Repeat("k", 512))...),
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

// A refusal costs little whatever the request holds. What is read of it is bounded: see TestAcceptedBounds, and the
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
