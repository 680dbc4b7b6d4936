package promweir_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/policies/filesource"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/observe/promweir"
)

// The alerts and the dashboard with times that a test can wait for.
var (
	duration = regexp.MustCompile(`\b(?:1m|2m|5m|10m|1h)\b`)
	shorter  = map[string]string{"1m": "2s", "2m": "2s", "5m": "4s", "10m": "6s", "1h": "12s"}
)

// hour is the shortened hour.
const hour = 12 * time.Second

func shorten(text string) string {
	// What must last must last longer than one event is in sight.
	text = strings.NewReplacer("for: 5m", "for: 5s", "_oldest_seconds > 10", "_oldest_seconds > 1", "_lag_seconds > 60", "_lag_seconds > 1").Replace(text)
	return duration.ReplaceAllStringFunc(text, func(d string) string { return shorter[d] })
}

// deadline is that of the stores of the test: long, so that a machine that is busy with something else is no fault.
const deadline = time.Second

// site is a program that Prometheus scrapes, and a fault that it suffers.
type site struct {
	name, job string // the job is the name if it is ""
	policy    string
	rules     []guard.Rule // after that of the policy
	handler   http.HandlerFunc
	// alerts are those that the fault brings about, and class is that of most of the failures that it brings about, but
	// "breaker", which follows from another one.
	alerts     []string
	class      string
	begin, end func(t *testing.T, s *site)

	deadline  time.Duration // of the store, if it is another one
	server    *redistest.Server
	memory    int // the keys of an in-process store instead of a server
	source    guard.Source
	proxy     *redistest.Proxy
	client    *redis.Client
	silent    atomic.Bool // answers nothing and says no error
	crowd     atomic.Bool // everybody comes
	strangers atomic.Bool // each request has a key of its own
	conns     []*redis.Conn
	endpoint  string // for Prometheus
}

func nothing(*testing.T, *site) {}

// swallow is a hook that neither asks the server nor says so, while the site is silent.
type swallow struct{ site *site }

func (swallow) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h swallow) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.site.silent.Load() {
			return nil
		}
		return next(ctx, cmd)
	}
}

func (h swallow) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if h.site.silent.Load() {
			return nil
		}
		return next(ctx, cmds)
	}
}

const unstored, refusing, breaker = "WeirWithoutStore", "WeirRefusesWithoutStore", "WeirBreakerOpen"

func sites(t *testing.T) []*site {
	t.Helper()
	const api = "api: 100000/1s; fail local"
	ahead, behind := new(atomic.Pointer[guard.Set]), new(atomic.Pointer[guard.Set])
	next := &guard.Set{Revision: "3.17", Policies: map[string]string{"api": "90000/1s"}}
	path := filepath.Join(t.TempDir(), "policies.yaml")
	write := func(t *testing.T, text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(path, []byte("format: 1\npolicies: {api: {text: "+text+"}}\n"), 0o600))
	}
	write(t, "90000/1s")
	policies, err := filesource.New(path, filesource.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = policies.Close() })
	return []*site{
		{
			name: "healthy", policy: api, begin: nothing, end: nothing,
			rules: []guard.Rule{
				{Policy: "trial: 1/1s; shadow"},
				{Policy: "queue: 30/1s burst 1; wait 1s"},
				{Policy: "tokens: 1000000/1s", Cost: func(keyfunc.Request) int64 { return 10 }, Settle: func(guard.Final, int64) int64 { return 3 }},
				{Policy: "few: 10/1s"},
				{Policy: "slots: 100 concurrent"},
			},
		},
		{
			name: "permits", policy: "api: 100 concurrent lease 6s; fail local",
			alerts: []string{unstored, breaker, "WeirBackgroundLost", "WeirBackgroundOld"}, class: core.ClassDown,
			handler: func(_ http.ResponseWriter, r *http.Request) {
				select {
				case <-r.Context().Done():
				case <-time.After(time.Second):
				}
			},
			begin: func(_ *testing.T, s *site) { s.proxy.Refuse(); s.proxy.Disconnect(redistest.EOF) },
			end:   func(_ *testing.T, s *site) { s.proxy.Pass() },
		},
		{
			name: "keys", policy: "api: 10/1h", memory: 64, alerts: []string{"WeirLimitsDisplaced"},
			begin: func(_ *testing.T, s *site) { s.strangers.Store(true) },
			end:   func(_ *testing.T, s *site) { s.strangers.Store(false) },
		},
		{
			name: "ahead", job: "policies", policy: api, memory: 64, source: ahead, alerts: []string{"WeirPoliciesLag"},
			begin: func(*testing.T, *site) { ahead.Store(next) },
			end:   nothing,
		},
		{
			name: "behind", job: "policies", policy: api, memory: 64, source: behind, alerts: []string{"WeirPoliciesLag"},
			begin: nothing,
			end:   func(*testing.T, *site) { behind.Store(next) },
		},
		{
			name: "file", policy: api, memory: 64, source: policies, alerts: []string{"WeirPoliciesStale"},
			begin: func(t *testing.T, _ *site) {
				write(t, "90000/1s; fail never")
				assert.Error(t, policies.Reload(t.Context()))
			},
			end: func(t *testing.T, _ *site) { write(t, "80000/1s"); assert.NoError(t, policies.Reload(t.Context())) },
		},
		{
			name: "down", policy: api, alerts: []string{unstored, breaker}, class: core.ClassDown,
			begin: func(_ *testing.T, s *site) { s.proxy.Refuse(); s.proxy.Disconnect(redistest.EOF) },
			end:   func(_ *testing.T, s *site) { s.proxy.Pass() },
		},
		{
			name: "timeout", policy: "api: 100000/1s; fail open", alerts: []string{unstored, breaker}, class: core.ClassTimeout,
			begin: func(_ *testing.T, s *site) { s.proxy.Blackhole() },
			end:   func(_ *testing.T, s *site) { s.proxy.Pass() },
		},
		{
			name: "lost", policy: api, alerts: []string{unstored, breaker}, class: core.ClassLost,
			begin: func(_ *testing.T, s *site) { s.proxy.LoseReplies(redistest.RST) },
			end:   func(_ *testing.T, s *site) { s.proxy.Pass() },
		},
		{
			name: "busy", policy: api, alerts: []string{unstored}, class: core.ClassBusy,
			begin: func(t *testing.T, s *site) {
				for len(s.conns) < s.client.Options().PoolSize {
					conn := s.client.Conn()
					if conn.Ping(t.Context()).Err() != nil {
						_ = conn.Close()
						continue
					}
					s.conns = append(s.conns, conn)
				}
			},
			end: func(_ *testing.T, s *site) {
				for _, conn := range s.conns {
					_ = conn.Close()
				}
			},
		},
		{
			name: "oom", policy: api, alerts: []string{unstored}, class: core.ClassOOM,
			begin: func(t *testing.T, s *site) { s.set(t, "maxmemory", "1") },
			end:   func(t *testing.T, s *site) { s.set(t, "maxmemory", "0") },
		},
		{
			name: "denied", policy: api, alerts: []string{unstored}, class: core.ClassDenied,
			begin: func(t *testing.T, s *site) { s.acl(t, "-eval", "-evalsha") },
			end:   func(t *testing.T, s *site) { s.acl(t, "+eval", "+evalsha") },
		},
		{
			name: "other", policy: api, alerts: []string{unstored}, class: core.ClassOther,
			begin: func(t *testing.T, s *site) { s.set(t, "min-replicas-to-write", "1") },
			end:   func(t *testing.T, s *site) { s.set(t, "min-replicas-to-write", "0") },
		},
		{
			name: "reply", policy: api, alerts: []string{unstored}, class: core.ClassReply,
			begin: func(_ *testing.T, s *site) { s.silent.Store(true) },
			end:   func(_ *testing.T, s *site) { s.silent.Store(false) },
		},
		{
			name: "closed", policy: "api: 100000/1s; fail closed", alerts: []string{refusing, breaker}, class: core.ClassDown,
			begin: func(_ *testing.T, s *site) { s.proxy.Refuse(); s.proxy.Disconnect(redistest.EOF) },
			end:   func(_ *testing.T, s *site) { s.proxy.Pass() },
		},
		{
			name: "slow", policy: api, alerts: []string{"WeirStoreSlow"},
			// All decisions are in the bucket up to a second, and so one of a hundred takes nearly that by the metrics.
			deadline: 1500 * time.Millisecond,
			begin:    func(_ *testing.T, s *site) { s.proxy.Latency(275 * time.Millisecond) },
			end:      func(_ *testing.T, s *site) { s.proxy.Pass() },
		},
		{
			name: "crowd", policy: "api: 100/1s", alerts: []string{"WeirRefusalsJumped"},
			begin: func(_ *testing.T, s *site) { s.crowd.Store(true) },
			end:   func(_ *testing.T, s *site) { s.crowd.Store(false) },
		},
	}
}

func (s *site) set(t *testing.T, name, value string) {
	t.Helper()
	require.NoError(t, s.server.Client(t).ConfigSet(t.Context(), name, value).Err())
}

func (s *site) acl(t *testing.T, rights ...any) {
	t.Helper()
	args := append([]any{"ACL", "SETUSER", s.name}, rights...)
	require.NoError(t, s.server.Client(t).Do(t.Context(), args...).Err())
}

// open starts the site: its guard, its metrics, and its clients.
func (s *site) open(t *testing.T) {
	o := newObserver(t)
	config := guard.Config{
		Rule: guard.Rule{Policy: s.policy, Key: keyfunc.Header("X-Client")}, Rules: s.rules, Observe: o.Observe,
	}
	if s.source != nil {
		config.Source = s.source
	}
	if s.memory > 0 {
		m, err := core.NewMemory(core.MemoryOptions{MaxKeys: s.memory})
		require.NoError(t, err)
		config.Store = m
	} else {
		config.Store = s.connect(t, o)
	}
	g, err := guard.New(config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = g.Close() })
	o.Watch([]*guard.Guard{g}, config.Store)

	// A scrape that Prometheus has given up is not joined by the next.
	metrics := httptest.NewServer(promhttp.HandlerFor(registered(t, o, promweir.Options{}), promhttp.HandlerOpts{MaxRequestsInFlight: 1}))
	t.Cleanup(metrics.Close)
	s.endpoint = metrics.Listener.Addr().String()

	if s.handler == nil {
		s.handler = func(http.ResponseWriter, *http.Request) {}
	}
	handler := nethttp.Limit(g)(s.handler)
	for i := range 10 {
		load(t, func(ctx context.Context, n int) {
			if i >= 2 && !s.crowd.Load() {
				return
			}
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
			r.Header.Set("X-Client", "one")
			if s.strangers.Load() {
				r.Header.Set("X-Client", fmt.Sprint(i, "-", n))
			}
			handler.ServeHTTP(httptest.NewRecorder(), r)
		})
	}
}

// load calls f every 50 ms until the test ends.
func load(t *testing.T, f func(ctx context.Context, n int)) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	running.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				f(ctx, n)
			}
		}
	})
}

// connect returns the store of a site, behind a proxy of its own.
func (s *site) connect(t *testing.T, o *observe.Observer) *redisstore.Store {
	t.Helper()
	s.proxy = redistest.NewProxy(t, s.server.Addr())
	s.acl(t, "on", "nopass", "~*", "+@all")
	options := redisstore.ClientOptions(s.proxy.Addr()).Simple()
	options.Username, options.Password, options.PoolSize = s.name, "any", 8
	s.client = redis.NewClient(options)
	t.Cleanup(func() { _ = s.client.Close() })
	s.client.AddHook(swallow{s})
	store, err := redisstore.New(s.client, redisstore.Options{
		Prefix: s.name, Deadline: cmp.Or(s.deadline, deadline), Observe: o.ObserveFlight, ObserveBreaker: o.ObserveBreaker,
	})
	require.NoError(t, err)
	return store
}

// example is the program in the folder example, whose server is killed and starts anew.
func example(t *testing.T) *site {
	t.Helper()
	s := &site{
		name: "example", job: "example", alerts: []string{unstored, refusing, breaker}, class: core.ClassDown,
		begin: func(_ *testing.T, s *site) { s.server.Kill() },
		end:   func(t *testing.T, s *site) { s.server.Restart(t) },

		server: redistest.Single(t),
	}
	program := filepath.Join(t.TempDir(), "example")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./example").CombinedOutput()
	require.NoError(t, err, "%s", out)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, program, "-redis", s.server.Addr(), "-deadline", deadline.String(),
		"-listen", "127.0.0.1:0", "-metrics", "127.0.0.1:0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
	})
	urls := map[string]string{}
	for lines := bufio.NewScanner(stdout); len(urls) < 2; {
		require.True(t, lines.Scan(), "the example ended: %v", lines.Err())
		name, url, _ := strings.Cut(lines.Text(), ": ")
		urls[name] = url
	}
	s.endpoint = strings.TrimPrefix(urls["for Prometheus"], "http://")
	for _, request := range []string{"GET /hello", "POST /login"} {
		method, path, _ := strings.Cut(request, " ")
		load(t, func(ctx context.Context, _ int) {
			r, err := http.NewRequestWithContext(ctx, method, urls["for clients"]+path, http.NoBody)
			if err != nil {
				return
			}
			if resp, err := http.DefaultClient.Do(r); err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	return s
}

// There is a site for each alert and each class of failures.
func TestSites(t *testing.T) {
	t.Parallel()
	alerts, classes := map[string]bool{}, map[string]bool{core.ClassBreaker: true, "": true}
	for _, s := range sites(t) {
		for _, a := range s.alerts {
			alerts[a] = true
		}
		classes[s.class] = true
	}
	for _, m := range alertName.FindAllStringSubmatch(file(t, "weir.rules.yml"), -1) {
		assert.True(t, alerts[m[1]], "no site for %s", m[1])
		delete(alerts, m[1])
	}
	assert.Empty(t, alerts, "no such alerts")
	for _, class := range []string{
		core.ClassDown, core.ClassTimeout, core.ClassLost, core.ClassBreaker, core.ClassBusy, core.ClassOOM, core.ClassDenied,
		core.ClassOther, core.ClassReply,
	} {
		assert.True(t, classes[class], "no site for %s", class)
	}
}

// Prometheus scrapes programs while their servers fail, each in another way, and while they are well. Exactly the alerts
// that are about its fault fire for each, and are over when it is; the metrics name the fault; and nothing on the
// dashboard is empty.
func TestFaultsAreSeen(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than half a minute")
	}
	program(t, "prometheus")
	shared := redistest.Single(t)
	all := sites(t)
	for _, s := range all {
		s.job = cmp.Or(s.job, s.name)
		switch s.name {
		case "oom", "other":
			s.server = redistest.Single(t)
		default:
			s.server = shared
		}
		s.open(t)
	}
	all = append(all, example(t))

	targets := map[[2]string]string{}
	for _, s := range all {
		targets[[2]string{s.job, s.name}] = s.endpoint
	}
	since := time.Now()
	p := startPrometheus(t, configure(targets), map[string]string{"weir.rules.yml": shorten(file(t, "weir.rules.yml"))})
	await(t, "an hour of calm", func() error {
		if n := len(p.query(t, "sum by (instance) (rate(weir_decisions_total[4s] offset "+hour.String()+"))")); n < len(all) {
			return fmt.Errorf("%d programs", n)
		}
		return nil
	})
	require.Empty(t, firing(p.history(t, firingNow, since)), "before any fault")

	for _, s := range all {
		s.begin(t, s)
	}
	faults := time.Now()
	await(t, "the alerts fire", func() error { return unlike(all, firing(p.history(t, firingNow, faults))) })
	await(t, "the metrics name the fault", func() error { return misnamed(t, p, all) })
	for _, s := range all {
		s.end(t, s)
	}
	await(t, "the alerts are over", func() error {
		if still := firing(p.query(t, firingNow)); len(still) > 0 {
			return fmt.Errorf("still: %v", still)
		}
		return nil
	})
	t.Logf("%d faults in %v", len(all), time.Since(faults))
	assert.NoError(t, unlike(all, firing(p.history(t, firingNow, since))), "in all that time")
	for _, expr := range expressions(t) {
		assert.NotEmpty(t, p.history(t, expr, since), "no series of %s", expr)
	}
}

const (
	firingNow = `ALERTS{alertstate="firing"}`
	// causes is the class of most failures of each job. "breaker" follows from another one.
	causes   = `topk by (job) (1, sum by (job, error_type) (increase(weir_store_failures_total{error_type!="breaker"}[6s])) > 0)`
	followed = `sum by (job) (increase(weir_store_failures_total{error_type="breaker"}[6s])) > 0`
)

// firing returns the alerts of each job.
func firing(series []result) map[string][]string {
	alerts := map[string][]string{}
	for _, r := range series {
		job, name := r.Metric["job"], r.Metric["alertname"]
		if !slices.Contains(alerts[job], name) {
			alerts[job] = append(alerts[job], name)
		}
	}
	return alerts
}

// misnamed returns the sites whose fault has another class by the metrics than it has.
func misnamed(t *testing.T, p *server, all []*site) error {
	t.Helper()
	named, stopped := map[string]string{}, map[string]bool{}
	for _, r := range p.query(t, causes) {
		named[r.Metric["job"]] = r.Metric["error_type"]
	}
	for _, r := range p.query(t, followed) {
		stopped[r.Metric["job"]] = true
	}
	var errs []error
	for _, s := range all {
		if s.class != named[s.job] {
			errs = append(errs, fmt.Errorf("%s is said to be %q", s.name, named[s.job]))
		}
		if slices.Contains(s.alerts, breaker) && !stopped[s.job] {
			errs = append(errs, fmt.Errorf("%s has no breaker", s.name))
		}
	}
	return errors.Join(errs...)
}

// unlike returns how the alerts differ from those that sites should have.
func unlike(all []*site, alerts map[string][]string) error {
	var errs []error
	for _, s := range all {
		want, got := slices.Sorted(slices.Values(s.alerts)), slices.Sorted(slices.Values(alerts[s.job]))
		if !slices.Equal(want, got) {
			errs = append(errs, fmt.Errorf("%s: %v, want %v", s.name, got, want))
		}
	}
	return errors.Join(errs...)
}

// expressions returns those of the alerts and of the dashboard.
func expressions(t *testing.T) []string {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(file(t, "weir.dashboard.json")), &dashboard))
	fill := strings.NewReplacer("$__rate_interval", "4s", "$job", ".+", "$instance", ".+")
	all := map[string]bool{}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			expr := fill.Replace(shorten(target.Expr))
			assert.NotContains(t, expr, "$")
			all[expr] = true
		}
	}
	assert.Greater(t, len(all), 20)
	return slices.Sorted(maps.Keys(all))
}
