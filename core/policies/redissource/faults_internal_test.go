package redissource

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/logtest"
	"github.com/weir-go/weir/internal/redistest"
)

// server is one for tests that neither break it nor count what is asked of it; their apps have the names of the tests.
var server = redistest.Share(func(t testing.TB) *redistest.Server { return redistest.Single(t) })

// awaitMeaning waits until a Source has a word, and returns its Status.
func awaitMeaning(t testing.TB, s *Source, want policies.Meaning, why string) (st Status) {
	t.Helper()
	require.Eventually(t, func() bool {
		st = s.Status()
		return st.Meaning == want && strings.Contains(st.Why, why)
	}, patience, time.Millisecond, "expected %s because of %q", want, why)
	return st
}

// reads returns the number of reads that Redis has answered; a test waits for more of them.
func reads(t testing.TB, server *redistest.Server) int64 {
	t.Helper()
	return server.CommandStats(t)["hmget"]
}

// awaitReads waits until Redis was asked twice more, so that whatever it has now was seen.
func awaitReads(t testing.TB, server *redistest.Server) {
	t.Helper()
	from := reads(t, server)
	require.Eventually(t, func() bool { return reads(t, server) >= from+2 }, patience, 5*time.Millisecond)
}

// TestNeverBack: an earlier document is not taken up, nor one of the same revision that is another, whatever became of
// the one in use.
func TestNeverBack(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rdb := server.Client(t)
	log := new(logtest.Log)
	s := followed(t, rdb, "pay", Options{Log: log.Logger()}, quick())
	write(t, rdb, document("pay", 2, 5, "5/1m"))
	awaitText(t, s, "5/1m")
	in := s.Load()
	for _, tc := range []struct {
		name    string
		do      func()
		meaning policies.Meaning
		why     string
	}{
		{"an earlier revision", func() { write(t, rdb, document("pay", 2, 4, "4/1m")) }, policies.Fleet, "Redis has revision 2.4, and this process the later 2.5"},
		{"everything deleted", func() { require.NoError(t, rdb.FlushAll(t.Context()).Err()) }, policies.Fleet, "gone"},
		{"an earlier generation, by an admin that was slow", func() { write(t, rdb, document("pay", 1, 900, "9/1m")) }, policies.Fleet, "1.900"},
		{"the same revision of another database", func() { write(t, rdb, document("pay", 2, 5, "6/1m")) }, policies.Unread, "two databases"},
		{"the document in use", func() { write(t, rdb, document("pay", 2, 5, "5/1m")) }, policies.Fleet, ""},
	} {
		tc.do()
		st := awaitMeaning(t, s, tc.meaning, tc.why)
		awaitReads(t, server)
		assert.Same(t, in, s.Load(), tc.name)
		assert.Equal(t, policies.Version{Generation: 2, Revision: 5}, st.Version, tc.name)
		if tc.why == "" {
			require.Eventually(t, func() bool { return s.Status().Why == "" }, patience, time.Millisecond, tc.name)
		}
	}
	write(t, rdb, document("pay", 3, 1, "7/1m"))
	awaitText(t, s, "7/1m")
	assert.NotEmpty(t, log.With("two databases"))
	require.Eventually(t, func() bool { return len(log.With("are read again")) > 0 }, patience, time.Millisecond)
}

// TestUnreadKeepsTheLastGood: what cannot be used changes nothing, and says why; what follows is taken up.
func TestUnreadKeepsTheLastGood(t *testing.T) {
	t.Parallel()
	rdb := server(t).Client(t)
	set := func(app string, values ...any) error { return rdb.HSet(t.Context(), Key(app), values...).Err() }
	raw := func(text string) func(string) error { // with the right digest, as revision 1.2
		return func(app string) error {
			text := strings.ReplaceAll(text, "APP", app)
			return set(app, FieldGeneration, 1, FieldRevision, 2, FieldDigest, policies.Digest([]byte(text)), FieldDocument, text)
		}
	}
	const head = `{"format":1,"app":"APP","generation":1,"revision":2,"policies":`
	for name, tc := range map[string]struct {
		do  func(app string) error
		why string
	}{
		"too large":     {raw(strings.Repeat(" ", policies.MaxSize+1)), "bytes"},
		"empty":         {raw(""), ""},
		"null":          {raw("null"), ""},
		"{}":            {raw("{}"), ""},
		"cut":           {raw(head + `{"api":{"te`), ""},
		"not UTF-8":     {raw(head + "{\"\xff\":{}}}"), "UTF-8"},
		"later format":  {raw(`{"format":2,"app":"APP","generation":1,"revision":2,"policies":{},"new":[]}`), "format"},
		"unknown field": {raw(head + `{},"redis_url":"redis://x"}`), "redis_url"},
		"a name twice":  {raw(head + `{"api":{"text":"1/1m"},"Api":{"text":"9/1m"}}}`), "twice"},
		"another app's": {raw(strings.Replace(head, "APP", "billpay", 1) + `{}}`), "billpay"},
		"another version": {func(app string) error {
			return set(app, append(fields(t, document(app, 1, 2, "2/1m")), FieldRevision, 3)...)
		}, "and the fields beside it of 1.3"},
		"changed bytes": {func(app string) error {
			return set(app, append(fields(t, document(app, 1, 2, "2/1m")), FieldDocument, "{}")...)
		}, "digest"},
		"no document": {func(app string) error {
			return errors.Join(set(app, fields(t, document(app, 1, 2, "2/1m"))[:6]...), rdb.HDel(t.Context(), Key(app), FieldDocument).Err())
		}, ""},
		"no revision": {func(app string) error { return rdb.HDel(t.Context(), Key(app), FieldRevision).Err() }, FieldRevision},
		"nothing but a document": {func(app string) error {
			return rdb.HDel(t.Context(), Key(app), FieldRevision, FieldGeneration, FieldDigest).Err()
		}, "nothing beside it"},
		"not a hash": {func(app string) error { return rdb.Set(t.Context(), Key(app), "x", 0).Err() }, "not a hash"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := newApp()
			write(t, rdb, document(app, 1, 1, "1/1m"))
			s := followed(t, rdb, app, Options{}, quick())
			awaitText(t, s, "1/1m")
			in := s.Load()
			require.NoError(t, tc.do(app))
			st := awaitMeaning(t, s, policies.Unread, tc.why)
			assert.Same(t, in, s.Load())
			assert.Equal(t, policies.Version{Generation: 1, Revision: 1}, st.Version)
			since, why := s.Lag()
			assert.Contains(t, why, tc.why)
			assert.False(t, since.Before(st.Read), "when the document in use was there for the last time")
			require.NoError(t, rdb.Del(t.Context(), Key(app)).Err())
			awaitMeaning(t, s, policies.Fleet, "gone")
			write(t, rdb, document(app, 1, 3, "3/1m"))
			awaitText(t, s, "3/1m")
			awaitMeaning(t, s, policies.Fleet, "")
			require.Eventually(t, func() bool {
				since, why := s.Lag()
				return why == "" && since.IsZero()
			}, patience, time.Millisecond)
		})
	}
}

// TestLargeIsNotRead: of a document that is too large, no more is read than its size.
func TestLargeIsNotRead(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rdb := server.Client(t)
	text := strings.Repeat(" ", 8<<20)
	require.NoError(t, rdb.HSet(t.Context(), Key("pay"), FieldGeneration, 1, FieldRevision, 1, FieldDigest, policies.Digest([]byte(text)), FieldDocument, text).Err())
	s := followed(t, rdb, "pay", Options{Silent: true}, quick())
	awaitMeaning(t, s, policies.Unread, "8388608 bytes")
	awaitReads(t, server)
	require.NoError(t, s.Close())
	stats := server.CommandStats(t)
	assert.LessOrEqual(t, stats["hmget"], stats["hstrlen"])
}

// TestMistakeInOneText: an entry that this version cannot read, such as one with a word of a later version, spoils no
// other.
func TestMistakeInOneText(t *testing.T) {
	t.Parallel()
	rdb := server(t).Client(t)
	app := newApp()
	d := document(app, 1, 1, "7/1m")
	d.Policies["later"] = policies.Policy{Text: "5/1m; bouncy 3", Tiers: map[string]string{"pro": "x"}, Keys: map[string]string{"user=7": "5/1m; bouncy 3"}}
	write(t, rdb, d)
	s := followed(t, rdb, app, Options{}, quick())
	awaitText(t, s, "7/1m")
	assert.Equal(t, "5/1m; bouncy 3", s.Load().Policies["later"])
	assert.Equal(t, policies.Fleet, s.Status().Meaning)
}

// TestEmptyIsNotDeleteAll: a Redis that has lost everything, or the hash of this app, changes no policy; a document
// without policies, which somebody has published, does.
func TestEmptyIsNotDeleteAll(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rdb := server.Client(t)
	p := quick()
	p.stale = 200 * time.Millisecond
	s := followed(t, rdb, "pay", Options{}, p)
	other := followed(t, rdb, "mail", Options{}, quick())
	revision := int64(0)
	for name, lose := range map[string]func() error{
		"FLUSHALL":         func() error { return rdb.FlushAll(t.Context()).Err() },
		"one hash deleted": func() error { return rdb.Del(t.Context(), Key("pay")).Err() },
		"a new server":     func() error { server.Restart(t); return nil },
	} {
		revision++
		write(t, rdb, document("pay", 1, revision, fmt.Sprint(revision, "/1m")))
		write(t, rdb, document("mail", 1, revision, fmt.Sprint(revision, "/1m")))
		awaitText(t, s, fmt.Sprint(revision, "/1m"))
		awaitText(t, other, fmt.Sprint(revision, "/1m"))
		in := s.Load()
		require.NoError(t, lose(), name)
		awaitMeaning(t, s, policies.Stale, "gone")
		assert.Same(t, in, s.Load(), name)
		write(t, rdb, document("pay", 1, revision, fmt.Sprint(revision, "/1m"))) // as the admin mends it
		awaitMeaning(t, s, policies.Fleet, "")
		assert.Same(t, in, s.Load(), name+": what is published again is no change")
	}
	write(t, rdb, &policies.Document{App: "pay", Version: policies.Version{Generation: 1, Revision: 99}})
	require.Eventually(t, func() bool { return len(s.Load().Policies) == 0 }, patience, time.Millisecond)
}

// TestRedisGoneAtStart: the constructor does not notice, the code holds until Redis comes, and the word is stale after
// the time that it may take.
func TestRedisGoneAtStart(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rdb := server.Client(t)
	server.Kill()
	p := quick()
	p.stale = 300 * time.Millisecond
	s := followed(t, rdb, "pay", Options{}, p)
	assert.Nil(t, s.Load())
	assert.Equal(t, policies.Code, s.Status().Meaning)
	st := awaitMeaning(t, s, policies.Stale, "connection refused")
	assert.Zero(t, st.Version)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	err := s.Ready(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "connection refused")
	assert.ErrorContains(t, err, "Options.Bridge")

	server.Restart(t)
	awaitMeaning(t, s, policies.Code, "")
	ready := make(chan error)
	go func() { ready <- s.Ready(t.Context()) }()
	write(t, rdb, document("pay", 1, 1, "1/1m"))
	require.NoError(t, <-ready)
	assert.Equal(t, "1/1m", s.Load().Policies["api"])

	server.Kill() // and later
	awaitMeaning(t, s, policies.Stale, "")
	assert.Equal(t, "1/1m", s.Load().Policies["api"])
	require.NoError(t, s.Ready(ctx), "there is a document, whatever else is over")
}

// TestReadyAfterClose: nobody waits for a Source that is closed.
func TestReadyAfterClose(t *testing.T) {
	t.Parallel()
	s := followed(t, server(t).Client(t), newApp(), Options{}, quick())
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "twice")
	require.ErrorContains(t, s.Ready(t.Context()), "closed")
}

// TestLostNotifications: a change that is not announced, or whose announcement is lost, is found by the next read.
func TestLostNotifications(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]func(*testing.T, *redistest.Server, pace) *Source{
		"not announced": func(t *testing.T, server *redistest.Server, p pace) *Source {
			return followed(t, server.Client(t), "pay", Options{}, p)
		},
		// Redis says no to each subscription.
		"no right to the channel": func(t *testing.T, server *redistest.Server, p pace) *Source {
			require.NoError(t, server.Client(t).Do(t.Context(), "ACL", "SETUSER", "deaf", "on", ">secret", "resetchannels", "~*", "+@all").Err())
			log := new(logtest.Log)
			s := followed(t, server.Client(t, func(o *redis.Options) { o.Username, o.Password = "deaf", "secret" }), "pay", Options{Log: log.Logger()}, p)
			require.Eventually(t, func() bool { return len(log.With("NOPERM")) > 0 }, patience, time.Millisecond)
			return s
		},
		// The connection of each subscription is there, and silent.
		"swallowed": func(t *testing.T, server *redistest.Server, p pace) *Source {
			proxy := redistest.NewProxy(t, server.Addr())
			for range 100 {
				proxy.LoseNextReply("subscribe", redistest.Hang)
			}
			s := followed(t, server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() }), "pay", Options{}, p)
			require.Eventually(t, func() bool { return proxy.Lost() > 1 }, patience, time.Millisecond, "silence is not noticed")
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Single(t)
			rdb := server.Client(t)
			p := quick()
			p.silence = 30 * time.Millisecond
			s := source(t, server, p)
			for n := range int64(3) {
				d := document("pay", 1, n+1, fmt.Sprint(n+1, "/1m"))
				if name == "not announced" {
					write(t, rdb, d)
				} else {
					publish(t, rdb, d)
				}
				awaitText(t, s, d.Policies["api"].Text)
			}
		})
	}
}

// TestSilentSubscription: one that the network has forgotten is noticed and made anew, and each new one reads.
func TestSilentSubscription(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	proxy := redistest.NewProxy(t, server.Addr())
	rdb := server.Client(t)
	p := quick()
	p.read, p.silence, p.deadline = never, 100*time.Millisecond, 500*time.Millisecond
	publish(t, rdb, document("pay", 1, 1, "1/1m"))
	s := followed(t, server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() }), "pay", Options{Silent: true}, p)
	awaitText(t, s, "1/1m")
	awaitSubscription(t, rdb, "pay")
	proxy.Disconnect(redistest.Hang) // what is open is silent from now on, and what is opened is not
	publish(t, rdb, document("pay", 1, 2, "2/1m"))
	awaitText(t, s, "2/1m")
}

// TestBursts: however many notifications come, Redis is read a few times, and the last change is obeyed.
func TestBursts(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rdb := server.Client(t)
	p := quick()
	p.read, p.merge = never, 300*time.Millisecond
	write(t, rdb, document("pay", 1, 1, "1/1m"))
	s := followed(t, rdb, "pay", Options{Silent: true}, p)
	awaitSubscription(t, rdb, "pay")
	awaitText(t, s, "1/1m")
	server.ResetStats(t)
	begin := time.Now()
	for n := range int64(200) {
		publish(t, rdb, document("pay", 1, n+2, fmt.Sprint(n+2, "/1m")))
	}
	awaitText(t, s, "201/1m")
	// A change takes two HMGETs.
	assert.LessOrEqual(t, reads(t, server), 2*(2+int64(time.Since(begin)/p.merge)))
}

// TestBackOff: a Redis that is gone is asked less and less often.
func TestBackOff(t *testing.T) {
	t.Parallel()
	s := &Source{pace: paceOf(0)}
	for failures, longest := range []time.Duration{1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 4: 8 * time.Second, 5: 16 * time.Second, 6: 30 * time.Second, 100: 30 * time.Second} {
		if longest > 0 {
			for range 100 {
				got := s.pause(failures)
				assert.LessOrEqual(t, got, longest)
				assert.GreaterOrEqual(t, got, longest*4/5)
			}
		}
	}
}
