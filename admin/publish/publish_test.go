package publish_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/internal/recordtest"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/publish"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/redissource"
	"github.com/weir-go/weir/internal/redistest"
)

var server = redistest.Share(func(t testing.TB) *redistest.Server { return redistest.Single(t) })

// once are the options of a client for a Publisher.
func once(o *redis.Options) { o.MaxRetries = -1 }

// quiet is a log that nobody reads: these tests cause alarms.
var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// set writes the policy "api" of an app.
func set(t *testing.T, r *record.Record, app, text string) policies.Version {
	t.Helper()
	outcome, err := r.Change(t.Context(), record.Change{
		App: app, Action: "set",
		Edits: []record.Edit{{Name: "api", Policy: &policies.Policy{Text: text}}},
	})
	require.NoError(t, err)
	return outcome.Head.Version
}

func round(t *testing.T, p *publish.Publisher) {
	t.Helper()
	require.NoError(t, p.Round(t.Context()))
}

// published returns the document that a service would read, after it has checked it.
func published(t *testing.T, rdb redis.UniversalClient, app string) *policies.Document {
	t.Helper()
	hash, err := rdb.HGetAll(t.Context(), redissource.Key(app)).Result()
	require.NoError(t, err)
	if len(hash) == 0 {
		return nil
	}
	encoded := hash[redissource.FieldDocument]
	require.Equal(t, policies.Digest([]byte(encoded)), hash[redissource.FieldDigest])
	document, err := policies.Decode([]byte(encoded))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(document.Version.Revision), hash[redissource.FieldRevision])
	require.Equal(t, fmt.Sprint(document.Version.Generation), hash[redissource.FieldGeneration])
	require.Equal(t, int64(-1), rdb.TTL(t.Context(), redissource.Key(app)).Val().Nanoseconds(), "it must not expire")
	return document
}

// Whatever Redis has lost is there again after the next round, and nothing else is written.
func TestMended(t *testing.T) {
	s := redistest.Single(t)
	rdb := s.Client(t, once)
	r := recordtest.Open(t, sqltest.New(t))
	p := publish.New(r, rdb, quiet)
	set(t, r, "pay", "1/1m")
	set(t, r, "mail", "2/1m")
	round(t, p)
	want, other := published(t, rdb, "pay"), published(t, rdb, "mail")
	require.Equal(t, "1/1m", want.Policies["api"].Text)

	key := redissource.Key("pay")
	for name, spoil := range map[string]func(){
		"FLUSHALL":      func() { rdb.FlushAll(t.Context()) },
		"DEL":           func() { rdb.Del(t.Context(), key) },
		"no generation": func() { rdb.HDel(t.Context(), key, redissource.FieldGeneration) },
		"no revision":   func() { rdb.HDel(t.Context(), key, redissource.FieldRevision) },
		"no digest":     func() { rdb.HDel(t.Context(), key, redissource.FieldDigest) },
		"no document":   func() { rdb.HDel(t.Context(), key, redissource.FieldDocument) },
		"restart":       func() { s.Kill(); s.Restart(t) },
	} {
		spoil()
		require.NoError(t, func() error { // the connections of a server that is gone are found to be gone one by one
			var err error
			for range 20 {
				if err = p.Round(t.Context()); err == nil {
					break
				}
			}
			return err
		}(), name)
		assert.Equal(t, want, published(t, rdb, "pay"), name)
		assert.Equal(t, other, published(t, rdb, "mail"), name)
		assert.Empty(t, p.State("pay").Alarm, name)
	}
	s.ResetStats(t)
	round(t, p)
	assert.Zero(t, s.CommandStats(t)["hset"], "nothing differs")
	assert.Zero(t, s.CommandStats(t)["watch"])
	for command := range s.CommandStats(t) {
		assert.False(t, strings.HasPrefix(command, "eval") || strings.HasPrefix(command, "script"), "a publisher has no scripts")
	}
}

// Redis ahead of the record, or beside it, is an alarm: nothing is written until somebody has adopted the app.
func TestAlarms(t *testing.T) {
	rdb := server(t).Client(t, once)
	tests := map[string]struct {
		other func(*record.Record) // what another database, a copy of this one, has published meanwhile
		mine  func(*record.Record)
		says  string
	}{
		"a restored backup": {
			other: func(r *record.Record) { set(t, r, "app", "2/1m"); set(t, r, "app", "3/1m") },
			says:  "restored from a backup",
		},
		"a copy of the same revision": {
			other: func(r *record.Record) { set(t, r, "app", "2/1m") },
			mine:  func(r *record.Record) { set(t, r, "app", "7/1m") },
			says:  "two databases",
		},
		"a copy that is overtaken": {
			other: func(r *record.Record) { set(t, r, "app", "2/1m") },
			mine:  func(r *record.Record) { set(t, r, "app", "7/1m"); set(t, r, "app", "8/1m") },
			says:  "never had",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, rdb.Del(t.Context(), redissource.Key("app")).Err())
			mine, other := recordtest.Open(t, sqltest.New(t)), recordtest.Open(t, sqltest.New(t))
			set(t, mine, "app", "1/1m")
			set(t, other, "app", "1/1m") // equal bytes: the document of a copy
			p, q := publish.New(mine, rdb, quiet), publish.New(other, rdb, quiet)
			round(t, p)
			test.other(other)
			round(t, q)
			theirs := published(t, rdb, "app")
			if test.mine != nil {
				test.mine(mine)
			}
			for range 3 {
				round(t, p)
				assert.Contains(t, p.State("app").Alarm, test.says)
				assert.Equal(t, theirs, published(t, rdb, "app"), "nothing is written")
			}
			assert.Contains(t, p.State("app").Alarm, "weir adopt")

			outcome, err := mine.Change(t.Context(), record.Change{App: "app", Action: "adopt", Generation: p.State("app").Version.Generation})
			require.NoError(t, err)
			round(t, p)
			assert.Empty(t, p.State("app").Alarm)
			assert.Equal(t, outcome.Head.Version, published(t, rdb, "app").Version)
			round(t, q)
			assert.NotEmpty(t, q.State("app").Alarm, "the other one stops")
		})
	}
}

// What is no document of weir is not overwritten.
func TestForeign(t *testing.T) {
	rdb := server(t).Client(t, once)
	r := recordtest.Open(t, sqltest.New(t))
	p := publish.New(r, rdb, quiet)
	set(t, r, "foreign", "1/1m")
	key := redissource.Key("foreign")
	for _, spoil := range []func() error{
		func() error { return rdb.Set(t.Context(), key, "x", 0).Err() },
		func() error { return rdb.HSet(t.Context(), key, "generation", "x", "revision", "1").Err() },
		func() error { return rdb.HSet(t.Context(), key, "generation", "1", "revision", "-1").Err() },
		func() error {
			return rdb.HSet(t.Context(), key, "generation", "9223372036854775807", "revision", "1").Err()
		},
	} {
		require.NoError(t, rdb.Del(t.Context(), key).Err())
		require.NoError(t, spoil())
		round(t, p)
		assert.Contains(t, p.State("foreign").Alarm, "delete it")
	}
	require.NoError(t, rdb.Del(t.Context(), key).Err())
	round(t, p)
	assert.Empty(t, p.State("foreign").Alarm, "it goes on by itself")
	assert.NotNil(t, published(t, rdb, "foreign"))
}

// Two admins of one database, changes, and a Redis that forgets: in the end it has what the record says, and there
// never is an alarm.
func TestTwoPublishers(t *testing.T) {
	rdb := redistest.Single(t).Client(t, once)
	location := sqltest.New(t)
	records := []*record.Record{recordtest.Open(t, location), recordtest.Open(t, location)}
	publishers := []*publish.Publisher{publish.New(records[0], rdb, quiet), publish.New(records[1], rdb, quiet)}
	var work sync.WaitGroup
	for i, p := range publishers {
		work.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for n := range 60 {
				if random.IntN(2) == 0 {
					set(t, records[i], fmt.Sprint("app", random.IntN(3)), fmt.Sprintf("%d/1m", 1+100*n+i))
				}
				if random.IntN(10) == 0 {
					assert.NoError(t, rdb.FlushAll(t.Context()).Err())
				}
				assert.NoError(t, p.Round(t.Context()))
				for app := range 3 {
					assert.Empty(t, p.State(fmt.Sprint("app", app)).Alarm)
				}
			}
		})
	}
	work.Wait()
	round(t, publishers[0])
	heads, err := records[1].Heads(t.Context())
	require.NoError(t, err)
	require.Len(t, heads, 3)
	for _, h := range heads {
		assert.Equal(t, h.Version, published(t, rdb, h.App).Version)
	}
}

// While Redis is gone a change waits no longer than its caller, and is published when it is back.
func TestRedisGone(t *testing.T) {
	s := redistest.Single(t)
	rdb := s.Client(t, once)
	r := recordtest.Open(t, sqltest.New(t))
	p := publish.New(r, rdb, quiet)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	defer func() { cancel(); <-done }()
	s.Kill()
	v := set(t, r, "pay", "1/1m")
	p.Wake()
	within, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	state := p.Wait(within, "pay", v)
	stop()
	assert.Equal(t, publish.State{}, state)
	s.Restart(t)
	state = p.Wait(t.Context(), "pay", v) // by the round that nobody asks for
	assert.Equal(t, v, state.Version)
	assert.Equal(t, v, published(t, rdb, "pay").Version)
}

// MULTI with a PUBLISH in it reaches subscribers where the key lives, on every kind of server.
func TestTopologies(t *testing.T) {
	if testing.Short() {
		t.Skip("a Cluster takes seconds to form")
	}
	ring := func() redis.UniversalClient {
		a, b := redistest.Single(t), redistest.Single(t)
		client := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": a.Addr(), "b": b.Addr()}, MaxRetries: -1})
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	cluster := redistest.StartCluster(t)
	for name, rdb := range map[string]redis.UniversalClient{
		"single":  server(t).Client(t, once),
		"cluster": cluster.Client(t, func(o *redis.ClusterOptions) { o.MaxRetries = -1 }),
		"ring":    ring(),
	} {
		t.Run(name, func(t *testing.T) {
			r := recordtest.Open(t, sqltest.New(t))
			p := publish.New(r, rdb, quiet)
			for i := range 8 { // on all of the servers
				app := fmt.Sprint("top", i)
				subscription := rdb.Subscribe(t.Context(), redissource.Channel(app))
				_, err := subscription.Receive(t.Context())
				require.NoError(t, err)
				v := set(t, r, app, "1/1m")
				round(t, p)
				assert.Equal(t, v, published(t, rdb, app).Version)
				within, cancel := context.WithTimeout(t.Context(), time.Minute)
				message, err := subscription.ReceiveMessage(within)
				cancel()
				require.NoError(t, err)
				assert.Equal(t, redissource.Channel(app), message.Channel)
				require.NoError(t, subscription.Close())
			}
		})
	}
}
