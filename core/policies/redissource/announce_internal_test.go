package redissource

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
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
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/observe"
)

// awaitProcesses waits until the inventory of an app has what ok expects.
func awaitProcesses(t testing.TB, rdb redis.UniversalClient, app string, ok func([]*policies.Process) bool) (all []*policies.Process) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		all, _, err = Processes(t.Context(), rdb, app)
		require.NoError(t, err)
		return ok(all)
	}, patience, 5*time.Millisecond)
	return all
}

// TestInventory: each process tells what it obeys, on every topology, and is forgotten when it is gone.
func TestInventory(t *testing.T) {
	t.Parallel()
	for name, start := range topologies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := start(t)
			p := quick()
			p.expire = time.Second
			write(t, rdb, document("pay", 3, 17, "1/1m"))
			one := followed(t, rdb, "pay", Options{Name: "one"}, p)
			two := followed(t, rdb, "pay", Options{}, p)
			followed(t, rdb, "payroll", Options{}, p)
			followed(t, rdb, "pay", Options{Silent: true}, p)
			awaitProcesses(t, rdb, "pay", func(all []*policies.Process) bool {
				if len(all) != 2 {
					return false
				}
				for _, p := range all {
					if p.Version != (policies.Version{Generation: 3, Revision: 17}) || p.Meaning != policies.Fleet || p.Digest != one.Status().Digest {
						return false
					}
				}
				return all[0].Name == "one" || all[1].Name == "one"
			})
			require.NoError(t, two.Close())
			awaitProcesses(t, rdb, "pay", func(all []*policies.Process) bool { return len(all) == 1 && all[0].ID == one.id })
			ids, err := rdb.ZRange(t.Context(), ProcessIndex("pay"), 0, -1).Result()
			require.NoError(t, err)
			assert.Equal(t, []string{one.id}, ids, "the reader removes what is gone")
		})
	}
}

// TestInventoryIsBounded: an app has a thousand processes in it, and those that were heard of last stay.
func TestInventoryIsBounded(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rdb := server.Client(t)
	pipe := rdb.Pipeline()
	for n := range MaxProcesses + 500 {
		id := fmt.Sprintf("%016x", n)
		p := policies.Process{App: "shop", ID: id, Meaning: policies.Code}
		pipe.Set(t.Context(), ProcessKey("shop", id), p.Encode(), time.Minute)
		pipe.ZAdd(t.Context(), ProcessIndex("shop"), redis.Z{Score: float64(n), Member: id})
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	s := followed(t, rdb, "shop", Options{}, quick())
	all := awaitProcesses(t, rdb, "shop", func(all []*policies.Process) bool { return len(all) == MaxProcesses && all[0].ID == s.id })
	assert.Equal(t, fmt.Sprintf("%016x", MaxProcesses+500-1), all[1].ID)
	n, err := rdb.ZCard(t.Context(), ProcessIndex("shop")).Result()
	require.NoError(t, err)
	assert.LessOrEqual(t, n, int64(MaxProcesses))
	ttl, err := rdb.TTL(t.Context(), ProcessIndex("shop")).Result()
	require.NoError(t, err)
	assert.Positive(t, ttl, "an app that is gone leaves nothing")
}

// TestUntrustedInventory: whatever is written under the names of processes, the reader returns what is well-formed, and
// reads no more of each than it may have.
func TestUntrustedInventory(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rdb := server.Client(t)
	good := policies.Process{App: "pay", ID: "good", Name: "\x1b[2J<script>", Meaning: policies.Fleet}
	for id, value := range map[string]string{
		"good":   string(good.Encode()),
		"other":  string(good.Encode()), // of another id
		"app":    string((&policies.Process{App: "billpay", ID: "app"}).Encode()),
		"large":  strings.Repeat("x", 8<<20),
		"empty":  "",
		"format": `{"format":2,"app":"pay","id":"format"}`,
		"broken": `{"format":1,"app":"pay","id":"broken"`,
	} {
		require.NoError(t, rdb.Set(t.Context(), ProcessKey("pay", id), value, 0).Err())
		require.NoError(t, rdb.ZAdd(t.Context(), ProcessIndex("pay"), redis.Z{Member: id}).Err())
	}
	require.NoError(t, rdb.HSet(t.Context(), ProcessKey("pay", "type"), "a", "b").Err())
	require.NoError(t, rdb.ZAdd(t.Context(), ProcessIndex("pay"), redis.Z{Member: "type"}).Err())
	largest := new(largestReply)
	reader := server.Client(t)
	reader.AddHook(largest)
	all, unreadable, err := Processes(t.Context(), reader, "pay")
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.LessOrEqual(t, largest.bytes, policies.MaxProcessSize+1)
	assert.Equal(t, good.Name, all[0].Name)
	assert.Equal(t, 6, unreadable)
	n, err := rdb.ZCard(t.Context(), ProcessIndex("pay")).Result()
	require.NoError(t, err)
	assert.EqualValues(t, 7, n, "the one without a value is removed")

	require.NoError(t, rdb.Set(t.Context(), ProcessIndex("mail"), "x", 0).Err())
	_, _, err = Processes(t.Context(), rdb, "mail")
	require.ErrorContains(t, err, "WRONGTYPE")
	_, _, err = Processes(t.Context(), rdb, "*")
	require.ErrorContains(t, err, "app")
}

// largestReply is a hook that notes the size of the largest text in a pipeline.
type largestReply struct{ bytes int }

func (*largestReply) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*largestReply) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (l *largestReply) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if text, ok := cmd.(*redis.StringCmd); ok {
				l.bytes = max(l.bytes, len(text.Val()))
			}
		}
		return err
	}
}

// TestChangesAreAnnouncedSoon: the inventory has a change without waiting for the next announcement that is due.
func TestChangesAreAnnouncedSoon(t *testing.T) {
	t.Parallel()
	rdb := server(t).Client(t)
	app := newApp()
	p := quick()
	p.announce, p.expire = never, never
	write(t, rdb, document(app, 1, 1, "1/1m"))
	s := followed(t, rdb, app, Options{}, p)
	for n := range int64(3) {
		write(t, rdb, document(app, 1, n+1, "1/1m"))
		awaitProcesses(t, rdb, app, func(all []*policies.Process) bool { return len(all) == 1 && all[0].Version.Revision == n+1 })
	}
	limiter := job(t, s, "api: 9/1m")
	awaitProcesses(t, rdb, app, func(all []*policies.Process) bool { return len(all[0].Rules) == 1 })
	require.NoError(t, rdb.Del(t.Context(), Key(app)).Err())
	awaitProcesses(t, rdb, app, func(all []*policies.Process) bool { return strings.Contains(all[0].Why, "gone") })
	runtime.KeepAlive(limiter)
}

// TestLocationIsAnnounced: whoever wants to look at a count learns where it is.
func TestLocationIsAnnounced(t *testing.T) {
	t.Parallel()
	rdb := server(t).Client(t)
	app := newApp()
	s := followed(t, rdb, app, Options{}, quick())
	memory, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	plain, err := redisstore.New(rdb, redisstore.Options{})
	require.NoError(t, err)
	hashed, err := redisstore.New(rdb, redisstore.Options{Prefix: app, HashKeys: []byte("0123456789abcdef")})
	require.NoError(t, err)
	for name, store := range map[string]core.Store{"memory": memory, "plain": plain, "hashed": hashed} {
		limiter, err := enforce.New(store, core.MustParse(name+": 9/1m"), enforce.Options{Source: s})
		require.NoError(t, err)
		defer runtime.KeepAlive(limiter)
	}
	all := awaitProcesses(t, rdb, app, func(all []*policies.Process) bool { return len(all) == 1 && len(all[0].Rules) == 3 })
	got := map[string]stats.Location{}
	for _, r := range all[0].Rules {
		got[r.Policy] = r.Location
	}
	assert.Equal(t, map[string]stats.Location{"memory": {Process: true}, "plain": {Prefix: "weir"}, "hashed": {Prefix: app, Hashed: true}}, got)
}

// usageOf has the counts of a process, or the reason why they cannot be read.
type usageOf struct {
	*stats.Usage
	err error
}

// usages returns what the processes of an app have counted, by their ids.
func usages(t testing.TB, rdb redis.UniversalClient, app string) map[string]usageOf {
	t.Helper()
	all := map[string]usageOf{}
	require.NoError(t, Usages(t.Context(), rdb, app, func(id string, u *stats.Usage, err error) { all[id] = usageOf{u, err} }))
	return all
}

// TestUsageIsAnnounced: what a process has counted of the policies that follow the Source is there beside what it obeys,
// with each announcement, and goes with it; what cannot be read spoils nothing else.
func TestUsageIsAnnounced(t *testing.T) {
	t.Parallel()
	rdb := server(t).Client(t)
	app := newApp()
	o, err := observe.New(observe.Options{UsageKeys: true})
	require.NoError(t, err)
	p := quick()
	p.announce = 20 * time.Millisecond
	p.expire = time.Second
	s := followed(t, rdb, app, Options{Name: "counts", Usage: o.Usage}, p)
	other := followed(t, rdb, app, Options{Name: "does not"}, quick())
	store, err := redisstore.New(rdb, redisstore.Options{Prefix: app, HashKeys: []byte("0123456789abcdef"), Deadline: patience})
	require.NoError(t, err)
	for name, source := range map[string]follow.Source{"hashed": s, "another": nil} {
		g, err := guard.New(guard.Config{
			Rule: guard.Rule{Policy: name + ": 2/1h", Key: keyfunc.Const("user=7")}, Store: store, Source: source, Observe: o.Observe,
		})
		require.NoError(t, err)
		t.Cleanup(func() { _ = g.Close() })
		handler := nethttp.Limit(g)(http.NotFoundHandler())
		for range 5 {
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		}
		defer runtime.KeepAlive(g)
	}
	require.Eventually(t, func() bool {
		u := usages(t, rdb, app)[s.id].Usage
		return u != nil && len(u.Policies) == 1 && u.Policies[0].Tiers[0].Refused == 3
	}, patience, 5*time.Millisecond)
	all := usages(t, rdb, app)
	require.Len(t, all, 1, "the other process announces no counts")
	u := all[s.id].Usage
	assert.Equal(t, "hashed", u.Policies[0].Policy, "the other policy does not follow the Source")
	assert.Equal(t, stats.UsageCounts{Admitted: 2, Refused: 3}, u.Policies[0].Tiers[0].UsageCounts)
	require.Len(t, u.Policies[0].Busiest.Keys, 1)
	assert.Regexp(t, "^~.{43}$", u.Policies[0].Busiest.Keys[0].Key)

	awaitProcesses(t, rdb, app, func(all []*policies.Process) bool { return len(all) == 2 })
	largest := new(largestReply)
	reader := server(t).Client(t)
	reader.AddHook(largest)
	require.NoError(t, rdb.Set(t.Context(), UsageKey(app, other.id), strings.Repeat("x", 8<<20), 0).Err())
	all = usages(t, reader, app)
	require.ErrorContains(t, all[other.id].err, "give at most 65536")
	assert.LessOrEqual(t, largest.bytes, policies.MaxUsageSize+1)
	assert.NotNil(t, all[s.id].Usage)
	require.NoError(t, rdb.Del(t.Context(), UsageKey(app, other.id)).Err())
	require.NoError(t, rdb.HSet(t.Context(), UsageKey(app, other.id), "a", "b").Err())
	all = usages(t, rdb, app)
	require.ErrorContains(t, all[other.id].err, "WRONGTYPE")
	assert.NotNil(t, all[s.id].Usage)
	require.ErrorContains(t, Usages(t.Context(), rdb, "*", nil), "app")

	require.NoError(t, s.Close())
	require.Eventually(t, func() bool { return rdb.Exists(t.Context(), UsageKey(app, s.id)).Val() == 0 }, patience, 5*time.Millisecond)
}
