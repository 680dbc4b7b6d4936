package guard_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
)

// Every header of every style, and no other.
func TestHeaderStyles(t *testing.T) {
	admitted := core.Result{Outcome: core.Admitted, Limit: 10, Remaining: 9, ResetAfter: 1_500 * time.Millisecond, At: epoch}
	refused := core.Result{Limit: 10, RetryAfter: 90 * time.Second, ResetAfter: 2 * time.Minute, At: epoch}
	never := core.Result{Outcome: core.Never, Limit: 10, Remaining: 10, At: epoch}
	uncounted := core.Result{Outcome: core.Admitted}
	refusal := func(h header) header {
		h["Cache-Control"], h["Content-Type"], h["Vary"] = "no-store", "text/plain; charset=utf-8", "Accept"
		return h
	}
	for _, c := range []struct {
		name  string
		style guard.Headers
		res   core.Result
		want  header
	}{
		{"unix", guard.Headers{}, admitted, header{"X-Ratelimit-Limit": "10", "X-Ratelimit-Remaining": "9", "X-Ratelimit-Reset": "1800000002"}},
		{"unix, refused", guard.Headers{}, refused, refusal(header{"X-Ratelimit-Limit": "10", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1800000120", "Retry-After": "90"})},
		{"seconds", guard.Headers{XRateLimit: guard.ResetSeconds}, admitted, header{"X-Ratelimit-Limit": "10", "X-Ratelimit-Remaining": "9", "X-Ratelimit-Reset": "2"}},
		{"seconds, refused", guard.Headers{XRateLimit: guard.ResetSeconds}, refused, refusal(header{"X-Ratelimit-Limit": "10", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "120", "Retry-After": "90"})},
		{"seconds, never", guard.Headers{XRateLimit: guard.ResetSeconds}, never, refusal(header{"X-Ratelimit-Limit": "10", "X-Ratelimit-Remaining": "10", "X-Ratelimit-Reset": "0"})},
		{"date", guard.Headers{XRateLimit: guard.ResetDate}, admitted, header{"X-Ratelimit-Limit": "10", "X-Ratelimit-Remaining": "9", "X-Ratelimit-Reset": "Fri, 15 Jan 2027 08:00:02 GMT"}},
		{
			"names",
			guard.Headers{XRateLimit: guard.ResetSeconds, Names: [3]string{"ratelimit-limit", "RateLimit-Remaining", "RateLimit-Reset"}},
			admitted,
			header{"Ratelimit-Limit": "10", "Ratelimit-Remaining": "9", "Ratelimit-Reset": "2"},
		},
		{"none", guard.Headers{XRateLimit: guard.NoXRateLimit}, admitted, header{}},
		{"none, refused", guard.Headers{XRateLimit: guard.NoXRateLimit}, refused, refusal(header{"Retry-After": "90"})},
		{
			"lists alone",
			guard.Headers{XRateLimit: guard.NoXRateLimit, RateLimit: true},
			admitted,
			header{"Ratelimit": `"default";r=9;t=2`, "Ratelimit-Policy": `"default";q=10;w=60`},
		},
		{
			"lists alone, refused",
			guard.Headers{XRateLimit: guard.NoXRateLimit, RateLimit: true},
			refused,
			refusal(header{"Ratelimit": `"default";r=0;t=90`, "Ratelimit-Policy": `"default";q=10;w=60`, "Retry-After": "90"}),
		},
		{
			"lists, never",
			guard.Headers{XRateLimit: guard.NoXRateLimit, RateLimit: true},
			never,
			refusal(header{"Ratelimit": `"default";r=10`, "Ratelimit-Policy": `"default";q=10;w=60`}),
		},
		{"both", guard.Headers{RateLimit: true}, admitted, header{
			"X-Ratelimit-Limit": "10", "X-Ratelimit-Remaining": "9", "X-Ratelimit-Reset": "1800000002",
			"Ratelimit": `"default";r=9;t=2`, "Ratelimit-Policy": `"default";q=10;w=60`,
		}},
		{"both, uncounted", guard.Headers{RateLimit: true}, uncounted, header{}},
		{"exposed", guard.Headers{Expose: true}, admitted, header{
			"X-Ratelimit-Limit": "10", "X-Ratelimit-Remaining": "9", "X-Ratelimit-Reset": "1800000002",
			"Access-Control-Expose-Headers": "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After",
		}},
		{"exposed, lists alone, uncounted", guard.Headers{XRateLimit: guard.NoXRateLimit, RateLimit: true, Expose: true}, uncounted, header{
			"Access-Control-Expose-Headers": "RateLimit, RateLimit-Policy, Retry-After",
		}},
	} {
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "10/1m"}, Headers: c.style, Store: &answering{res: c.res}})
		v := g.Check(from(alice))
		h := header{}
		v.SetHeaders(h)
		assert.Equal(t, c.want, h, c.name)
	}
	var v guard.Verdict // that no guard has made
	h := header{}
	v.SetHeaders(h)
	assert.Equal(t, header{"Cache-Control": "no-store"}, h)
}

func TestHeadersMistakes(t *testing.T) {
	for want, style := range map[string]guard.Headers{
		"XRateLimit is 4":               {XRateLimit: 4},
		"PartitionSecret is for":        {PartitionSecret: strings.Repeat("s", 16)},
		"PartitionSecret has 15 bytes":  {RateLimit: true, PartitionSecret: strings.Repeat("s", 15)},
		`Names[1] is ""`:                {Names: [3]string{"A", "", "B"}},
		`Names[2] is "X Reset"`:         {Names: [3]string{"A", "B", "X Reset"}},
		`Names[0] is "A\r\nB"`:          {Names: [3]string{"A\r\nB", "B", "C"}},
		`Names[1] is "a", which is the`: {Names: [3]string{"A", "a", "C"}},
		`Names[0] is "ratelimit", `:     {Names: [3]string{"ratelimit", "B", "C"}},
		"Names are given, and":          {XRateLimit: guard.NoXRateLimit, Names: [3]string{"A", "B", "C"}},
	} {
		_, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "nonsense"}, Headers: style})
		require.ErrorContains(t, err, "guard: Headers: "+want)
		assert.ErrorContains(t, err, "nonsense", "all mistakes at once")
	}
}

// Of two guards the headers show the tightest, in every style; see TestSetHeadersMerges.
func TestHeaderStylesMerge(t *testing.T) {
	names := [3]string{"A", "B", "C"}
	for style, resets := range map[guard.XRateLimit][3]string{ // sooner, the guard's own, later
		guard.ResetUnix:    {"1800000004", "1800000005", "1800000006"},
		guard.ResetSeconds: {"4", "5", "6"},
		guard.ResetDate:    {"Fri, 15 Jan 2027 08:00:04 GMT", "Fri, 15 Jan 2027 08:00:05 GMT", "Fri, 15 Jan 2027 08:00:06 GMT"},
	} {
		store := &answering{res: core.Result{Outcome: core.Admitted, Limit: 10, Remaining: 5, ResetAfter: 5 * time.Second, At: epoch}}
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "10/1m"}, Headers: guard.Headers{XRateLimit: style, Names: names}, Store: store})
		for i, stays := range []bool{false, true, true} {
			h := header{"A": "100", "B": "5", "C": resets[i]}
			want := header{"A": "10", "B": "5", "C": resets[1]}
			if stays {
				want = header{"A": "100", "B": "5", "C": resets[i]}
			}
			v := g.Check(from(alice))
			v.SetHeaders(h)
			assert.Equal(t, want, h, "%d: %d", style, i)
		}
	}
}

func TestExpose(t *testing.T) {
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "10/1m"}, Headers: guard.Headers{Expose: true}})
	const all = "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After"
	for there, want := range map[string]string{
		"":                              all,
		all:                             all,
		"*":                             "*",
		"ETag, *":                       "ETag, *",
		"ETag":                          "ETag, " + all,
		"Link,x-ratelimit-limit":        "Link,x-ratelimit-limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After",
		"Retry-After ,  " + all + ", A": "Retry-After ,  " + all + ", A",
	} {
		h := header{}
		if there != "" {
			h["Access-Control-Expose-Headers"] = there
		}
		for range 2 { // two guards
			v := g.Check(from(alice))
			v.SetHeaders(h)
			assert.Equal(t, want, h["Access-Control-Expose-Headers"], there)
		}
	}
}

// Jitter is upwards, by a tenth at most, and is spread over that.
func TestJitter(t *testing.T) {
	store := &answering{}
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "10/1m"}, Headers: guard.Headers{Jitter: true, RateLimit: true}, Store: store})
	for retry, most := range map[int64]int64{1: 1, 9: 9, 10: 11, 60: 66, 3_600: 3_960} {
		store.res = core.Result{Limit: 10, RetryAfter: time.Duration(retry) * time.Second, ResetAfter: time.Hour, At: epoch}
		seen := map[int64]bool{}
		for range 1_000 {
			v := g.Check(from(alice))
			h := header{}
			v.SetHeaders(h)
			wait, err := strconv.ParseInt(h["Retry-After"], 10, 64)
			require.NoError(t, err)
			require.GreaterOrEqual(t, wait, retry)
			require.LessOrEqual(t, wait, most)
			require.Equal(t, `"default";r=0;t=`+strconv.FormatInt(retry, 10), h["Ratelimit"])
			seen[wait] = true
		}
		assert.Greater(t, len(seen), int(most-retry)/2, retry)
	}
}
