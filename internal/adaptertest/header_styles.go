package adaptertest

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
)

// The headers of other styles.
const (
	listHeader   = "Ratelimit"
	policyHeader = "Ratelimit-Policy"
	exposeHeader = "Access-Control-Expose-Headers"
)

// A client sees the headers of the style that is asked for, and no others, on an admission and on a refusal.
func testHeaderStyles(t *testing.T, a Adapter) {
	names := [3]string{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}
	for name, c := range map[string]struct {
		style guard.Headers
		want  map[string]string
	}{
		"none":    {guard.Headers{XRateLimit: guard.NoXRateLimit}, map[string]string{}},
		"seconds": {guard.Headers{XRateLimit: guard.ResetSeconds, Jitter: true}, map[string]string{limitHeader: "1", remainingHeader: "0", resetHeader: "3600"}},
		"date":    {guard.Headers{XRateLimit: guard.ResetDate}, map[string]string{limitHeader: "1", remainingHeader: "0", resetHeader: anything}},
		"names": {
			guard.Headers{XRateLimit: guard.ResetSeconds, Names: names},
			map[string]string{"Ratelimit-Limit": "1", "Ratelimit-Remaining": "0", "Ratelimit-Reset": "3600"},
		},
		"lists": {
			guard.Headers{XRateLimit: guard.NoXRateLimit, RateLimit: true, Expose: true},
			map[string]string{
				listHeader: `"default";r=0;t=3600`, policyHeader: `"default";q=1;w=3600`,
				exposeHeader: "RateLimit, RateLimit-Policy, Retry-After",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, a, hello(Handler{}, newGuard(t, "1/1h fixed-window", guard.Config{Headers: c.style})))
			res := s.get("/hello")
			res.has(t, http.StatusOK, c.want)
			if c.style.XRateLimit == guard.ResetDate {
				date, err := http.ParseTime(res.Header.Get(resetHeader))
				require.NoError(t, err)
				assert.WithinDuration(t, time.Now().Add(time.Hour), date, time.Minute)
			}
			refused := map[string]string{retryHeader: anything, cacheHeader: "no-store", varyHeader: "Accept"}
			maps.Copy(refused, c.want)
			for _, header := range []string{listHeader, resetHeader, "Ratelimit-Reset"} { // some time may have passed
				if refused[header] != "" {
					refused[header] = anything
				}
			}
			res = s.get("/hello")
			res.has(t, http.StatusTooManyRequests, refused)
			if c.style.RateLimit {
				assert.Equal(t, `"default";r=0;t=`+res.Header.Get(retryHeader), res.Header.Get(listHeader))
			}
			wait := res.integer(t, retryHeader)
			assert.GreaterOrEqual(t, wait, int64(3_500))
			assert.LessOrEqual(t, wait, int64(3_960))
		})
	}
}

// The lists of stacked guards are one line each, whoever has set them first.
func testLists(t *testing.T, a Adapter) {
	outer := newGuard(t, "100/1h fixed-window", guard.Config{Headers: guard.Headers{RateLimit: true, PartitionSecret: "0123456789abcdef", Expose: true}})
	s := serve(t, a, App{Guards: []*guard.Guard{outer}, Routes: []Route{{
		Method: http.MethodGet, Pattern: "/hello",
		Guards: []*guard.Guard{outer.With("loose", "200/1h"), outer.With("login", "2/1h fixed-window, 9 concurrent")},
	}}})
	for _, status := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		res := s.get("/hello")
		want := numbers(2, 0)
		want[remainingHeader], want[listHeader], want[policyHeader] = anything, anything, anything
		want[exposeHeader] = "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit, RateLimit-Policy, Retry-After"
		if status != http.StatusOK {
			want[retryHeader], want[cacheHeader], want[varyHeader] = anything, "no-store", "Accept"
		}
		res.has(t, status, want)
		assert.Equal(t, "default loose login/1 login/2", items(t, res, policyHeader, "q"))
		if status == http.StatusOK {
			assert.Equal(t, "default loose login/1 login/2", items(t, res, listHeader, "r"))
		} else { // the permits were not asked
			assert.Equal(t, "default loose login/1", items(t, res, listHeader, "r"))
		}
	}
}

// items are the names in a list whose members have an integer, and a partition, in them.
func items(t *testing.T, res answer, header, integer string) string {
	t.Helper()
	list, err := httpsfv.UnmarshalList(res.Header[header])
	require.NoError(t, err)
	var names []string
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		require.True(t, ok)
		n, _ := item.Params.Get(integer)
		assert.IsType(t, int64(0), n)
		pk, _ := item.Params.Get("pk")
		assert.IsType(t, []byte(nil), pk)
		name, ok := item.Value.(string)
		require.True(t, ok)
		names = append(names, name)
	}
	return strings.Join(names, " ")
}
