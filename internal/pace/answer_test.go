package pace

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var answered = time.Date(2026, 3, 1, 12, 0, 0, 500_000_000, time.UTC)

func header(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

func read(status int, h http.Header) Answer {
	return Read(func(name string) []string { return h[name] }, status, answered)
}

func TestRead(t *testing.T) {
	const s = time.Second
	tests := map[string]struct {
		lines []string
		want  []Quota
	}{
		"list": {
			[]string{`RateLimit: "default";r=50;t=30`, `RateLimit-Policy: "default";q=100;w=60`},
			[]Quota{{Name: "default", Limit: 100, Window: 60 * s, Remaining: 50, Reset: 30 * s, More: true}},
		},
		"two policies, of which one is no count of requests": {
			[]string{
				`RateLimit: "burst";r=5;t=1, "bytes";r=9;t=9, "day";r=700`,
				`RateLimit-Policy: "burst";q=10;w=1,"bytes";q=10;w=10;qu="content-bytes","day";q=1000;w=86400;qu="requests"`,
			},
			[]Quota{
				{Name: "burst", Limit: 10, Window: s, Remaining: 5, Reset: s, More: true},
				{Name: "day", Limit: 1000, Window: 24 * time.Hour, Remaining: 700, Reset: -1, More: true},
			},
		},
		"draft 8 of express, with its spaces, of two limiters": {
			[]string{
				`RateLimit: "100-in-10sec"; r=99; t=10`, `RateLimit-Policy: "100-in-10sec"; q=100; w=10; pk=:ZjFh:`,
				`RateLimit: "9-in-1min"; r=8; t=60`, `RateLimit-Policy: "9-in-1min"; q=9; w=60; pk=:ZjFh:`,
			},
			[]Quota{
				{Name: "100-in-10sec", Limit: 100, Window: 10 * s, Remaining: 99, Reset: 10 * s, More: true},
				{Name: "9-in-1min", Limit: 9, Window: 60 * s, Remaining: 8, Reset: 60 * s, More: true},
			},
		},
		"partitions": {
			[]string{`RateLimit: "a";r=1;pk=:YQ==:, "a";r=2;pk=:Yg==:`, `RateLimit-Policy: "a";q=5;pk=:YQ==:, "a";q=6;pk=:Yg==:`},
			[]Quota{
				{Name: "a", Partition: "a", Limit: 5, Remaining: 1, Reset: -1, More: true},
				{Name: "a", Partition: "b", Limit: 6, Remaining: 2, Reset: -1, More: true},
			},
		},
		"draft 7": {
			[]string{`RateLimit: limit=100, remaining=50, reset=30`, `RateLimit-Policy: 100;w=60`},
			[]Quota{{Limit: 100, Window: 60 * s, Remaining: 50, Reset: 30 * s}},
		},
		"draft 6": {
			[]string{`RateLimit-Policy: 100;w=60`, `RateLimit-Limit: 100`, `RateLimit-Remaining: 50`, `RateLimit-Reset: 30`},
			[]Quota{{Limit: 100, Window: 60 * s, Remaining: 50, Reset: 30 * s}},
		},
		"Envoy": {
			[]string{`X-RateLimit-Limit: 10, 10;w=1;name="per-ip", 1000;w=3600`, `X-RateLimit-Remaining: 9`, `X-RateLimit-Reset: 1`},
			[]Quota{{Limit: 10, Window: s, Remaining: 9, Reset: s}},
		},
		"Unix seconds by the server's clock, an hour ahead": {
			[]string{
				`X-RateLimit-Limit: 60`, `X-RateLimit-Remaining: 7`, `X-RateLimit-Reset: 1772370010`, `Date: Sun, 01 Mar 2026 13:00:00 GMT`,
			},
			[]Quota{{Limit: 60, Remaining: 7, Reset: 10 * s}},
		},
		"Unix seconds without a Date": {
			[]string{`X-RateLimit-Remaining: 7`, `X-RateLimit-Reset: 1772366410`},
			[]Quota{{Remaining: 7, Reset: 9500 * time.Millisecond}},
		},
		"a date": {
			[]string{`X-Rate-Limit-Remaining: 7`, `X-Rate-Limit-Reset: Sun, 01 Mar 2026 12:00:10 GMT`, `Date: Sun, 01 Mar 2026 12:00:00 GMT`},
			[]Quota{{Remaining: 7, Reset: 10 * s}},
		},
		"a reset in the past, and beyond a day": {
			[]string{
				`X-RateLimit-Remaining: 7`, `X-RateLimit-Remaining: 8`,
				`X-RateLimit-Reset: 1772360000`, `X-RateLimit-Reset: 99999999`,
			},
			[]Quota{{Remaining: 7}, {Name: "1", Remaining: 8, Reset: 24 * time.Hour}},
		},
		"Unix milliseconds, and seconds with decimals": {
			[]string{
				`X-RateLimit-Remaining: 7`, `X-RateLimit-Remaining: 8`, `X-RateLimit-Remaining: 9`, `Date: Sun, 01 Mar 2026 12:00:00 GMT`,
				`X-RateLimit-Reset: 1772366410000`, `X-RateLimit-Reset: 1772366409.123`, `X-RateLimit-Reset: 9.5`,
			},
			[]Quota{{Remaining: 7, Reset: 10 * s}, {Name: "1", Remaining: 8, Reset: 10 * s}, {Name: "2", Remaining: 9, Reset: 10 * s}},
		},
		"the first form counts": {
			[]string{`RateLimit: "a";r=1`, `X-RateLimit-Remaining: 7`},
			[]Quota{{Name: "a", Remaining: 1, Reset: -1, More: true}},
		},
		"an unreadable form leaves the next": {
			[]string{`RateLimit: %%%`, `X-RateLimit-Remaining: 7`},
			[]Quota{{Remaining: 7, Reset: -1}},
		},
		"a list that says nothing leaves the next": {
			[]string{`RateLimit: 50`, `X-RateLimit-Remaining: 7`}, []Quota{{Remaining: 7, Reset: -1}},
		},
		"out of a cache": {[]string{`RateLimit: "a";r=1;t=1`, `Age: 3`}, nil},
		"nothing":        {nil, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, read(200, header(tt.lines...)).Quotas)
		})
	}
}

func TestReadRetryAfter(t *testing.T) {
	tests := map[string]struct {
		status int
		lines  []string
		want   time.Duration
	}{
		"seconds":           {429, []string{"Retry-After: 7"}, 7 * time.Second},
		"date":              {503, []string{"Retry-After: Sun, 01 Mar 2026 13:00:07 GMT", "Date: Sun, 01 Mar 2026 13:00:00 GMT"}, 7 * time.Second},
		"redirect":          {302, []string{"Retry-After: 1"}, time.Second},
		"beyond a day":      {429, []string{"Retry-After: 999999999"}, 24 * time.Hour},
		"not on a success":  {200, []string{"Retry-After: 7"}, 0},
		"not on this error": {500, []string{"Retry-After: 7"}, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a := read(tt.status, header(tt.lines...))
			require.Equal(t, tt.want, a.RetryAfter)
			require.Empty(t, a.Mistakes)
		})
	}
}

// What cannot be read is as if absent, and named.
func TestHostileFields(t *testing.T) {
	for _, line := range []string{
		`Retry-After: -1`, `Retry-After: soon`, `Retry-After: 1000000000000001`, `Retry-After: 1.5`, "Retry-After: ",
		`Retry-After: 99999999999999999999999999999`, `Retry-After: Sun, 99 Mar 2026 13:00:07 GMT`,
		`RateLimit: "a"`, `RateLimit: "a";r=-1`, `RateLimit: "a";r="5"`, `RateLimit: "a";r=1.5`, `RateLimit: ("a");r=5`,
		`RateLimit: "a";r=9999999999999999`, `RateLimit: limit=1`, `RateLimit: limit=1, remaining=-1`, `RateLimit: ,`,
		`RateLimit: ` + strings.Repeat(`"a";r=1, `, 2000) + `"a";r=1`,
		`X-RateLimit-Remaining: -1`, `X-RateLimit-Remaining: many`, `X-RateLimit-Remaining: 1000000000000001`,
		`X-RateLimit-Remaining: 0x10`, `X-RateLimit-Remaining: +5`, `RateLimit-Remaining: 1,2`,
		`X-RateLimit-Remaining: ` + strings.Repeat("9", 9000),
	} {
		a := read(429, header(line))
		name, _, _ := strings.Cut(line, ":")
		require.Empty(t, a.Quotas, "%.60s", line)
		require.Zero(t, a.RetryAfter, "%.60s", line)
		require.Contains(t, a.Mistakes, name, "%.60s", line)
	}
	// The rest of an answer with a mistake counts.
	a := read(200, header(`X-RateLimit-Remaining: 5`, `X-RateLimit-Limit: -1`, `X-RateLimit-Reset: never`))
	require.Equal(t, []Quota{{Remaining: 5, Reset: -1}}, a.Quotas)
	require.Equal(t, []string{"X-RateLimit-Limit", "X-RateLimit-Reset"}, a.Mistakes)
	for _, reset := range []string{"1.", ".5", "1.5s", "1.-5", "1.2.3", "1e3"} {
		require.Equal(t, []string{"X-RateLimit-Reset"}, read(200, header(`X-RateLimit-Remaining: 5`, `X-RateLimit-Reset: `+reset)).Mistakes, reset)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(429, `"default";r=50;t=30`, `"default";q=100;w=60`, "7", "50", "1772366410", "Sun, 01 Mar 2026 12:00:00 GMT")
	f.Add(200, `limit=100, remaining=50, reset=30`, `100;w=60`, "", "100, 100;w=60", "3", "")
	f.Add(503, `"a"; r=5; t=5; pk=:AAAA:`, `"a"; q=5; w=9; pk=:AAAA:`, "-5", "", "", "x")
	f.Fuzz(func(t *testing.T, status int, rate, policy, number, limit, reset, date string) {
		for _, prefix := range []string{"", "Ratelimit-", "X-Ratelimit-"} {
			h := http.Header{"Retry-After": {number}, "Date": {date}, "Ratelimit-Policy": {policy}}
			if prefix == "" {
				h["Ratelimit"] = []string{rate}
			} else {
				h[prefix+"Remaining"], h[prefix+"Limit"], h[prefix+"Reset"] = []string{number}, []string{limit}, []string{reset}
			}
			a := read(status, h)
			require.LessOrEqual(t, a.RetryAfter, maxWindow)
			require.GreaterOrEqual(t, a.RetryAfter, time.Duration(0))
			for _, q := range a.Quotas {
				require.GreaterOrEqual(t, q.Remaining, int64(0))
				require.GreaterOrEqual(t, q.Limit, int64(0))
				require.LessOrEqual(t, max(q.Remaining, q.Limit), int64(maxNumber))
				require.LessOrEqual(t, max(q.Window, q.Reset), maxWindow)
				require.GreaterOrEqual(t, q.Reset, time.Duration(-1))
			}
			learn(t, a.Quotas)
		}
	})
}

// learn lets buckets learn quotas in any order, and expects an instant of the next request that is not beyond a day.
func learn(t *testing.T, quotas []Quota) {
	t.Helper()
	var b bucket
	now := time.Minute
	for i, q := range quotas {
		b.learn(uint64(i), now, now+time.Millisecond, i%3 == 2, q) //nolint:gosec // small
		now += time.Duration(q.Remaining%7) * time.Second
		at := b.next(now, i%5, now)
		require.LessOrEqual(t, at-now, 2*maxWindow)
		require.GreaterOrEqual(t, at, time.Duration(0))
		require.GreaterOrEqual(t, b.soonest(3, 1, now), time.Duration(0))
	}
}
