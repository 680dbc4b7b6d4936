package fleettest

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/redissource"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/keyfunc"
)

// users are programs of an app: a service of each framework, and a job, each with a Source and a store of its own.
type users struct {
	urls    map[string]string // of services, by framework
	job     *enforce.Limiter
	sources map[string]*redissource.Source
}

// startUsers starts them with a policy of the code.
func (f *fleet) startUsers(app, policy string, rdb redis.UniversalClient, o redissource.Options) users {
	t := f.t
	t.Helper()
	store, err := redisstore.New(f.rdb, redisstore.Options{Prefix: app, Deadline: patience})
	require.NoError(t, err)
	u := users{urls: map[string]string{}, sources: map[string]*redissource.Source{}}
	source := func(name string) follow.Source {
		o := o
		o.Name = name
		u.sources[name] = f.sourceOf(rdb, app, o)
		return u.sources[name]
	}
	for name, start := range frameworks {
		g, err := guard.New(guard.Config{Store: store, Source: source(name), Rule: guard.Rule{Policy: policy, Key: keyfunc.IP()}})
		require.NoError(t, err)
		u.urls[name] = start(t, g)
	}
	u.job, err = enforce.New(store, core.MustParse(policy), enforce.Options{Source: source("job")})
	require.NoError(t, err)
	return u
}

// awaitAll waits until all of them go by a limit, and returns how long the last one took.
func (u *users) awaitAll(t testing.TB, limit int) time.Duration {
	t.Helper()
	begin := time.Now()
	var all sync.WaitGroup
	for name, url := range u.urls {
		all.Go(func() {
			for time.Since(begin) < patience {
				_, header, err := get(t.Context(), url)
				if !assert.NoError(t, err, name) || header.Get("X-RateLimit-Limit") == fmt.Sprint(limit) {
					return
				}
			}
			assert.Fail(t, "not obeyed", name)
		})
	}
	all.Go(func() {
		for time.Since(begin) < patience {
			res, err := u.job.Allow(t.Context(), "k")
			if !assert.NoError(t, err) || res.Limit == int64(limit) {
				return
			}
		}
		assert.Fail(t, "not obeyed", "job")
	})
	all.Wait()
	return time.Since(begin)
}

// TestFleetObeys: a change is obeyed by services of each framework, and by a job. The figure is logged; a busy machine
// takes longer.
func TestFleetObeys(t *testing.T) {
	f := startFleet(t)
	u := f.startUsers("pay", "api: 100000/1h", f.rdb, redissource.Options{})
	u.awaitAll(t, 100_000)
	f.put(t, "pay", "api", policies.Policy{Text: "200001/1h"})
	u.awaitAll(t, 200_001)
	var longest time.Duration
	for n := range 10 {
		limit := 300_000 + n
		f.put(t, "pay", "api", policies.Policy{Text: fmt.Sprintf("%d/1h", limit)})
		longest = max(longest, u.awaitAll(t, limit))
	}
	t.Logf("obeyed by all at the latest %v after the answer to a PUT", longest)
	assert.Less(t, longest, 10*time.Second)
	written, err := f.admin.Delete(t.Context(), "pay", "api", writeAnyway)
	require.NoError(t, err)
	assert.Len(t, written.Differences, 1)
	u.awaitAll(t, 100_000)
}

// TestFleetObeysWithoutNotifications: with every announcement lost, a change is obeyed after Options.Every and a fifth at
// the latest, which are 12 s unless a program sets it. Here the user of the services has no right to the channel.
func TestFleetObeysWithoutNotifications(t *testing.T) {
	f := startFleet(t)
	require.NoError(t, f.rdb.Do(t.Context(), "ACL", "SETUSER", "deaf", "on", ">secret", "resetchannels", "~*", "+@all").Err())
	deaf := f.client(func(o *redis.UniversalOptions) { o.Username, o.Password = "deaf", "secret" })
	const every = time.Second
	u := f.startUsers("pay", "api: 100000/1h", deaf, redissource.Options{Every: every})
	u.awaitAll(t, 100_000)
	var longest time.Duration
	for n := range 5 {
		limit := 300_000 + n
		f.put(t, "pay", "api", policies.Policy{Text: fmt.Sprintf("%d/1h", limit)})
		longest = max(longest, u.awaitAll(t, limit))
	}
	channels, err := f.rdb.PubSubChannels(t.Context(), "*").Result()
	require.NoError(t, err)
	assert.Empty(t, channels, "nobody may hear of changes")
	t.Logf("obeyed by all at the latest %v after the answer to a PUT, %.1f times Every", longest, longest.Seconds()/every.Seconds())
	assert.Less(t, longest, 10*time.Second)
}

// TestReloadUnderTraffic: two policies always change together, and no request sees one of before and one of after.
func TestReloadUnderTraffic(t *testing.T) {
	f := startFleet(t)
	changes, goroutines := 100, 8
	if testing.Short() {
		changes = 20
	}
	store, err := redisstore.New(f.rdb, redisstore.Options{Prefix: "pay", Deadline: patience})
	require.NoError(t, err)
	urls := make(chan string, len(frameworks))
	for _, start := range frameworks {
		rule := func(name string) guard.Rule { return guard.Rule{Policy: name + ": 1000000/1h", Key: keyfunc.IP()} }
		g, err := guard.New(guard.Config{
			Store: store, Source: f.source("pay", redissource.Options{}), Headers: guard.Headers{RateLimit: true},
			Rules: []guard.Rule{rule("a"), rule("b")},
		})
		require.NoError(t, err)
		urls <- start(t, g)
	}
	close(urls)

	stop := make(chan struct{})
	var traffic sync.WaitGroup
	var mu sync.Mutex
	requests, seen := 0, map[int]bool{}
	for url := range urls {
		for range goroutines / len(frameworks) {
			traffic.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					status, header, err := get(t.Context(), url)
					if !assert.NoError(t, err) || !assert.Equal(t, http.StatusOK, status) {
						return
					}
					var a, b int
					policy := header.Get("RateLimit-Policy")
					_, err = fmt.Sscanf(policy, `"a";q=%d;w=3600, "b";q=%d;w=3600`, &a, &b)
					if !assert.NoError(t, err, policy) || !assert.Equal(t, a, b, "a mix") {
						return
					}
					mu.Lock()
					requests++
					seen[a] = true
					mu.Unlock()
				}
			})
		}
	}
	begin := time.Now()
	for n := range changes {
		text := fmt.Sprintf(`%d/1h`, 2_000_000+n)
		document := fmt.Appendf(nil, `{"format":1,"app":"pay","policies":{"a":{"text":%q},"b":{"text":%q}}}`, text, text)
		_, err := f.admin.Apply(t.Context(), document, writeAnyway)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return seen[2_000_000+n]
		}, patience, time.Millisecond)
	}
	took := time.Since(begin)
	close(stop)
	traffic.Wait()
	t.Logf("%d requests, %.0f a second, saw %d changes in %v", requests, float64(requests)/took.Seconds(), changes, took)
}
