package redissource

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/logtest"
	"github.com/weir-go/weir/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// patience bounds what must come.
const patience = 30 * time.Second

// never is an interval that is not over before a test is.
const never = time.Hour

// quick has the intervals of tests: reads and subscriptions are tried often.
func quick() pace {
	p := paceOf(0)
	p.read, p.spread = 50*time.Millisecond, 10*time.Millisecond
	p.deadline = 10 * time.Second // a busy machine is no failure
	p.retry, p.longest = 5*time.Millisecond, 50*time.Millisecond
	p.silence = 200 * time.Millisecond
	p.announce, p.soon = 100*time.Millisecond, 10*time.Millisecond
	p.stale, p.log = never, 0
	return p
}

var apps atomic.Int64

// newApp returns the name of an app that no other test has, for tests that share a server.
func newApp() string { return fmt.Sprint("app-", apps.Add(1)) }

// follow starts a Source that is closed when the test ends.
func followed(t testing.TB, rdb redis.UniversalClient, app string, o Options, p pace) *Source {
	t.Helper()
	if o.Log == nil {
		o.Log = new(logtest.Log).Logger()
	}
	s, err := start(rdb, app, o, p)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// document returns one with a single policy.
func document(app string, generation, revision int64, text string) *policies.Document {
	return &policies.Document{
		App: app, Version: policies.Version{Generation: generation, Revision: revision},
		Policies: map[string]policies.Policy{"api": {Text: text}},
	}
}

// fields returns what stands in the hash of a document.
func fields(t testing.TB, d *policies.Document) []any {
	t.Helper()
	data, err := d.Encode()
	require.NoError(t, err)
	return []any{
		FieldGeneration, d.Version.Generation, FieldRevision, d.Version.Revision,
		FieldDigest, policies.Digest(data), FieldDocument, data,
	}
}

// write writes a document without a notification.
func write(t testing.TB, rdb redis.UniversalClient, d *policies.Document) {
	t.Helper()
	require.NoError(t, rdb.HSet(t.Context(), Key(d.App), fields(t, d)...).Err())
}

// publish writes a document and announces it, as the admin does: in one transaction on the server that has the key.
func publish(t testing.TB, rdb redis.UniversalClient, d *policies.Document) {
	t.Helper()
	key := Key(d.App)
	values := fields(t, d)
	require.NoError(t, rdb.Watch(t.Context(), func(tx *redis.Tx) error {
		_, err := tx.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
			p.HSet(t.Context(), key, values...)
			p.Publish(t.Context(), Channel(d.App), "")
			return nil
		})
		return err
	}, key))
}

// awaitText waits until the policy "api" has a text.
func awaitText(t testing.TB, s follow.Source, text string) {
	t.Helper()
	require.Eventually(t, func() bool {
		set := s.Load()
		return set != nil && set.Policies["api"] == text
	}, patience, time.Millisecond, "not obeyed: %s", text)
}

// awaitSubscription waits until a Source hears of changes at once, as a test must whose polls are rare.
func awaitSubscription(t testing.TB, rdb redis.UniversalClient, app string) {
	t.Helper()
	subscribed := func(ctx context.Context, c *redis.Client) error {
		n, err := c.PubSubNumSub(ctx, Channel(app)).Result()
		if err == nil && n[Channel(app)] == 0 {
			err = errSilent
		}
		return err
	}
	require.Eventually(t, func() bool {
		switch c := rdb.(type) {
		case *redis.Client:
			return subscribed(t.Context(), c) == nil
		case *redis.ClusterClient:
			node, err := c.MasterForKey(t.Context(), Key(app))
			return err == nil && subscribed(t.Context(), node) == nil
		case *redis.Ring:
			n := 0
			_ = c.ForEachShard(t.Context(), func(ctx context.Context, c *redis.Client) error {
				if subscribed(ctx, c) == nil {
					n++
				}
				return nil
			})
			return n > 0
		}
		return false
	}, patience, time.Millisecond, "no subscription")
}

// topologies start the servers of a test.
var topologies = map[string]func(testing.TB) redis.UniversalClient{
	"single":   func(t testing.TB) redis.UniversalClient { return redistest.Single(t).Client(t) },
	"sentinel": func(t testing.TB) redis.UniversalClient { return redistest.StartSentinel(t).Client(t) },
	"cluster":  func(t testing.TB) redis.UniversalClient { return redistest.StartCluster(t).Client(t) },
	"ring": func(t testing.TB) redis.UniversalClient {
		ring := redis.NewRing(&redis.RingOptions{ContextTimeoutEnabled: true, Addrs: map[string]string{
			"a": redistest.Single(t).Addr(), "b": redistest.Single(t).Addr(), "c": redistest.Single(t).Addr(),
		}})
		t.Cleanup(func() { _ = ring.Close() })
		return ring
	},
}

// TestNotified: on every topology, a change is heard of where the document lives, while nothing polls.
func TestNotified(t *testing.T) {
	t.Parallel()
	for name, start := range topologies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := start(t)
			rare := quick()
			rare.read = never
			for _, app := range []string{"pay", "shop", "mail", "search"} { // on several servers
				publish(t, rdb, document(app, 1, 1, "1/1m"))
				s := followed(t, rdb, app, Options{}, rare)
				require.NoError(t, s.Ready(t.Context()))
				awaitText(t, s, "1/1m")
				awaitSubscription(t, rdb, app)
				for n, text := range []string{"2/1m", "3/1m", "4/1m"} {
					publish(t, rdb, document(app, 1, int64(n)+2, text))
					awaitText(t, s, text)
				}
			}
		})
	}
}
