package usage_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/usage"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/policies/redissource"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/observe"
)

// TestMain stops the servers of the tests.
func TestMain(m *testing.M) { redistest.Main(m) }

// service is a program that follows the fleet and tells what it counts, with one line for that.
func service(t *testing.T, server *redistest.Server) http.Handler {
	t.Helper()
	rdb := server.Client(t)
	observer, err := observe.New(observe.Options{UsageKeys: true})
	require.NoError(t, err)
	fleet, err := redissource.New(rdb, "pay", redissource.Options{Every: 100 * time.Millisecond, Usage: observer.Usage})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fleet.Close()) })
	store, err := redisstore.New(rdb, redisstore.Options{Prefix: "pay", Deadline: time.Minute})
	require.NoError(t, err)
	g, err := guard.New(guard.Config{
		Rule:  guard.Rule{Policy: "api: 5/1h", Key: keyfunc.HeaderInClear("X-User")},
		Store: store, Source: fleet, Observe: observer.Observe,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()); runtime.KeepAlive(g) })
	return nethttp.Limit(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

// TestThroughRedis: what two processes of an app have counted since somebody reads it comes together.
func TestThroughRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rdb := server.Client(t)
	h, err := usage.New(usage.Options{
		Apps: func(context.Context) ([]string, error) { return []string{"none", "pay"}, nil },
		Read: func(ctx context.Context, app string, f func(string, *stats.Usage, error)) error {
			return redissource.Usages(ctx, rdb, app, f)
		},
	})
	require.NoError(t, err)
	services := []http.Handler{service(t, server), service(t, server)}
	eventually := func(is func(s usage.Series) bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			require.NoError(t, h.Round(t.Context()))
			return is(h.Policy("pay", "api", time.Time{}))
		}, time.Minute, 20*time.Millisecond)
	}
	eventually(func(s usage.Series) bool { return s.Missed.Processes == 2 })
	for i := range 20 {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-User", "7")
		services[i%2].ServeHTTP(httptest.NewRecorder(), r)
	}
	eventually(func(s usage.Series) bool {
		var sum stats.UsageCounts
		for _, p := range s.Points {
			sum.Add(p.UsageCounts)
		}
		return sum == stats.UsageCounts{Admitted: 5, Refused: 15}
	})
	keys, counted := h.Refused("pay", "api")
	assert.Equal(t, []usage.Key{{Key: "header.x-user=7", Least: 15, Most: 15}}, keys)
	assert.Less(t, counted, 20*time.Minute)
	keys, _ = h.Busiest("pay", "api")
	assert.Equal(t, []usage.Key{{Key: "header.x-user=7", Least: 5, Most: 5}}, keys)

	// While Redis is gone, what is known stays.
	server.Kill()
	require.Error(t, h.Round(t.Context()))
	assert.NotEmpty(t, h.Policy("pay", "api", time.Time{}).Points)
}

// TestAtOnce: pages ask while announcements are read.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	f := &telling{}
	h, err := usage.New(usage.Options{
		Apps: func(context.Context) ([]string, error) { return []string{"a", "b"}, nil }, Read: f.read, Budget: 50_000,
		Now: f.now, Every: time.Millisecond,
	})
	require.NoError(t, err)
	ctx, end := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { h.Run(ctx) })
	for range 3 {
		all.Go(func() {
			for range 300 {
				h.Policy("a", policyNames[3], time.Time{})
				h.App("b", time.Time{})
				h.Minute("a")
				h.Busiest("b", policyNames[4])
				h.Size()
			}
		})
	}
	for f.minutes() < 20 {
		runtime.Gosched()
	}
	end()
	all.Wait()
	assert.Zero(t, h.Minute("c"))
}

// telling is a fleet whose clock runs a minute with each reading.
type telling struct {
	mu sync.Mutex
	n  int
}

func (f *telling) minutes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

func (f *telling) now() time.Time { return start.Add(time.Duration(f.minutes()) * time.Minute) }

func (f *telling) read(_ context.Context, app string, yield func(string, *stats.Usage, error)) error {
	f.mu.Lock()
	f.n++
	f.mu.Unlock()
	yield(app, busy(1, f.now().Sub(start), true), nil)
	return nil
}
