package inspect_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/redissource"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/observe/inspect"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// patience bounds what must come at some time.
const patience = time.Minute

// service is a program with limits, and the page.
type service struct {
	t        *testing.T
	observer *observe.Observer
	server   *httptest.Server
}

// serve starts a program whose limits are in Redis.
func serve(t *testing.T, rdb redis.UniversalClient, c guard.Config, o redisstore.Options) *service {
	t.Helper()
	s := &service{t: t, observer: newObserver(t)}
	o.Observe, o.ObserveBreaker = s.observer.ObserveFlight, s.observer.ObserveBreaker
	store, err := redisstore.New(rdb, o)
	require.NoError(t, err)
	c.Store, c.Observe, c.Key, c.Log = store, s.observer.Observe, keyfunc.HeaderInClear("User"), slog.New(slog.DiscardHandler)
	g, err := guard.New(c)
	require.NoError(t, err)
	s.observer.Watch([]*guard.Guard{g}, store)
	mux := http.NewServeMux()
	mux.Handle("/debug/weir", inspect.Handler(s.observer, inspect.Options{}))
	limited := nethttp.Limit(g)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			<-r.Context().Done()
		}
	}))
	mux.Handle("/long", limited)
	mux.Handle("/", limited)
	s.server = httptest.NewServer(mux)
	t.Cleanup(func() {
		s.server.CloseClientConnections()
		s.server.Close()
		_ = g.Close() // what is still owed is for the test to say
	})
	return s
}

// get sends a request of a user, and reads the answer.
func (s *service) get(ctx context.Context, path, user string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+path, http.NoBody)
	require.NoError(s.t, err)
	r.Header.Set("User", user)
	res, err := s.server.Client().Do(r)
	if err != nil {
		require.ErrorIs(s.t, err, context.Canceled)
		return
	}
	_, _ = io.Copy(io.Discard, res.Body)
	require.NoError(s.t, res.Body.Close())
}

// page returns the page as curl gets it.
func (s *service) page() string {
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.server.URL+"/debug/weir", http.NoBody)
	require.NoError(s.t, err)
	res, err := s.server.Client().Do(r)
	require.NoError(s.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusOK, res.StatusCode, "%s", text)
	return string(text)
}

// await lets traffic go on until the first screen, which ends with the first empty line after the verdict, has all of
// the texts.
func (s *service) await(traffic func(i int), wants ...string) string {
	s.t.Helper()
	screen, page, i := "", "", 0
	has := func() bool {
		var sent sync.WaitGroup
		for range 20 {
			n := i
			sent.Go(func() { traffic(n) })
			i++
		}
		sent.Wait()
		page = s.page()
		_, screen, _ = strings.Cut(page, "\n\n")
		screen, _, _ = strings.Cut(screen, "\n\n")
		for _, want := range wants {
			if !strings.Contains(screen, want) {
				return false
			}
		}
		return true
	}
	ticks := time.NewTicker(50 * time.Millisecond)
	defer ticks.Stop()
	for end := time.Now().Add(patience); !has(); <-ticks.C {
		if time.Now().After(end) {
			page, _, _ = strings.Cut(page, "LAST REFUSALS")
			s.t.Fatalf("expected %q in the first screen of\n%s", wants, page)
		}
	}
	return screen
}

// Each fault is staged with real servers, and somebody who reads nothing but the first lines of the page learns the
// cause.
func TestStagedFaults(t *testing.T) {
	users := func(s *service) func(int) {
		return func(i int) { s.get(t.Context(), "/", "user"+strconv.Itoa(i%50)) }
	}

	t.Run("a dead shard", func(t *testing.T) {
		cluster := redistest.StartCluster(t)
		s := serve(t, cluster.Client(t), guard.Config{Rule: guard.Rule{Policy: "api: 10000/1s"}}, redisstore.Options{})
		screen := s.await(users(s), "The store is well: 3 servers answer")
		assert.NotContains(t, screen, "!")
		dead := cluster.NodeFor(t, "any")
		dead.Kill()
		screen = s.await(users(s), "THE STORE IS NOT WELL: 1 of its 3 servers has trouble", "! "+dead.Addr()+" fails (", "since ",
			"2 other servers answer", "by this process for itself (fail local)")
		assert.NotContains(t, screen, "one key")
	})

	t.Run("a slow Redis", func(t *testing.T) {
		server := redistest.Single(t)
		proxy := redistest.NewProxy(t, server.Addr())
		rdb := server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() })
		s := serve(t, rdb, guard.Config{Rule: guard.Rule{Policy: "api: 10000/1s"}}, redisstore.Options{Deadline: time.Second})
		s.await(users(s), "The store is well")
		proxy.Latency(300 * time.Millisecond)
		s.await(users(s), "its server has trouble", "! "+proxy.Addr()+" is slow", ": a round trip takes ", ", and a decision has 1s")
	})

	t.Run("one abusive key", func(t *testing.T) {
		s := serve(t, redistest.Single(t).Client(t), guard.Config{Rule: guard.Rule{Policy: "api: 20/1m"}}, redisstore.Options{})
		all := users(s)
		screen := s.await(func(i int) {
			all(i)
			for range 5 {
				s.get(t.Context(), "/", "mallory")
			}
		}, "The store is well", "one key makes ", "% of what api refuses: ")
		assert.NotContains(t, screen, "mallory", "keys are masked")
		key := strings.Fields(screen[strings.Index(screen, "refuses: "):])[1]
		page := s.page()
		worst := page[strings.Index(page, "WORST CALLERS"):]
		assert.Contains(t, strings.Split(worst, "\n")[2], key, "it is the first of the worst callers:\n%s", worst)
	})

	t.Run("a policy set that lags", func(t *testing.T) {
		rdb := redistest.Single(t).Client(t)
		publish := func(revision int64, text string, spoil bool) {
			d := policies.Document{
				App: "pay", Version: policies.Version{Generation: 1, Revision: revision}, Policies: map[string]policies.Policy{"api": {Text: text}},
			}
			data, err := d.Encode()
			require.NoError(t, err)
			digest := policies.Digest(data)
			if spoil {
				data = data[:len(data)-5]
			}
			require.NoError(t, rdb.HSet(t.Context(), redissource.Key("pay"), redissource.FieldGeneration, 1, redissource.FieldRevision, revision,
				redissource.FieldDigest, digest, redissource.FieldDocument, data).Err())
		}
		publish(1, "2000/1s", false)
		source, err := redissource.New(rdb, "pay", redissource.Options{Every: 100 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, source.Close()) })
		require.NoError(t, source.Ready(t.Context()))
		s := serve(t, rdb, guard.Config{Rule: guard.Rule{Policy: "api: 1000/1s"}, Source: source}, redisstore.Options{})
		s.await(users(s), "The store is well")
		page := s.page()
		assert.Contains(t, page, "guard 1: revision 1.1")
		assert.Contains(t, page, "api: 2000/1s")
		publish(2, "1/1h", true)
		s.await(users(s), "The store is well, and something else is not", "! the policies may be out of date: this process goes by revision 1.1",
			"since ", "the document of revision 1.2 has the digest")
	})

	t.Run("a lane that is stuck", func(t *testing.T) {
		server := redistest.Single(t)
		s := serve(t, server.Client(t), guard.Config{
			Rule: guard.Rule{Policy: "api: 10000/1s"}, Routes: map[string]guard.Rule{"/long": {Policy: "uploads: 100 concurrent"}},
		}, redisstore.Options{})
		s.await(users(s), "The store is well")
		held, release := context.WithCancel(t.Context())
		var uploads sync.WaitGroup
		for range 3 {
			uploads.Go(func() { s.get(held, "/long", "anna") })
		}
		require.Eventually(t, func() bool { return strings.Contains(s.page(), "3 permits are held") }, patience, 10*time.Millisecond)
		require.NoError(t, server.Client(t).Do(t.Context(), "ACL", "SETUSER", "default", "-zrem").Err())
		release()
		uploads.Wait()
		s.await(users(s), "The store is well, and something else is not", "! releases are stuck: ", "the oldest for ", "since ",
			"permits that are not given back count until their leases end")
	})
}
