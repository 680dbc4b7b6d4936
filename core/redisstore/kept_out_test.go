package redisstore_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

func classOf(err error) string {
	var failed *core.StoreError
	if errors.As(err, &failed) {
		return failed.Class
	}
	return ""
}

// A wrong password pauses like a breaker: each try would cost the server another connection. When the password is
// right, it goes on by itself.
func TestWrongPasswordPauses(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	admin := server.Client(t)
	user := func(password string) {
		require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "weir", "reset", "on", ">"+password, "~*", "+@all").Err())
	}
	user("new")
	proxy := redistest.NewProxy(t, server.Addr())
	o := redisstore.ClientOptions(proxy.Addr())
	o.Username, o.Password = "weir", "old"
	rdb := redis.NewUniversalClient(unhurried(o))
	t.Cleanup(func() { _ = rdb.Close() })
	s := newStore(t, rdb, redisstore.Options{Deadline: patient})
	take := func() (string, error) {
		_, err := s.Take(t.Context(), core.Take{Policy: core.MustParse("p: 5/1h"), Key: rand.Text(), Cost: 1})
		return classOf(err), err
	}
	seen := map[string]int{}
	require.Eventually(t, func() bool {
		class, _ := take()
		seen[class]++
		return class == core.ClassBreaker
	}, patient, time.Millisecond)
	assert.Positive(t, seen[core.ClassDenied])

	before, began := proxy.Accepted(), time.Now()
	var callers sync.WaitGroup
	for range 100 {
		callers.Go(func() {
			requests := time.NewTicker(time.Millisecond)
			defer requests.Stop()
			for time.Since(began) < time.Second {
				_, err := take()
				if !assert.Error(t, err) {
					return
				}
				<-requests.C
			}
		})
	}
	callers.Wait()
	assert.LessOrEqual(t, proxy.Accepted()-before, 10+int(10*time.Since(began).Seconds()), "connections")

	user("old")
	require.Eventually(t, func() bool { _, err := take(); return err == nil }, patient, 10*time.Millisecond)
}

// A right that a script lacks is in the server's own log, and nowhere else.
func TestDeniedInScript(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	require.NoError(t, server.Client(t).Do(t.Context(), "ACL", "SETUSER", "weir", "reset", "on", ">secret", "~*", "+evalsha", "+eval", "+time", "+get").Err())
	o := redisstore.ClientOptions(server.Addr())
	o.Username, o.Password = "weir", "secret"
	rdb := redis.NewUniversalClient(unhurried(o))
	t.Cleanup(func() { _ = rdb.Close() })
	s := newStore(t, rdb, redisstore.Options{Deadline: patient})
	_, err := s.Take(t.Context(), core.Take{Policy: core.MustParse("p: 5/1h"), Key: "k", Cost: 1})
	assert.Equal(t, core.ClassDenied, classOf(err))
	assert.ErrorContains(t, err, "ACL LOG")
	assert.ErrorContains(t, err, server.Addr())
}

// lines is a log.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *lines) count(of string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.all.String(), of)
}

// The log has one line of a server that fails, and names it, whatever asks for it; and it is back when it has answered,
// not when another one has.
func TestLogNamesServer(t *testing.T) {
	t.Parallel()
	servers := map[string]*redistest.Server{"a": redistest.Single(t), "b": redistest.Single(t)}
	o := redisstore.ClientOptions()
	ring := redis.NewRing(&redis.RingOptions{
		Addrs:              map[string]string{"a": servers["a"].Addr(), "b": servers["b"].Addr()},
		HeartbeatFrequency: time.Hour, Dialer: o.Dialer, ContextTimeoutEnabled: true, MaxRetries: -1, DialTimeout: o.DialTimeout,
	})
	t.Cleanup(func() { _ = ring.Close() })
	s := newStore(t, ring, redisstore.Options{Deadline: patient})
	said := new(lines)
	limiters := make([]*enforce.Limiter, 3)
	for i := range limiters {
		p := core.MustParse(fmt.Sprintf("p%d: 1000000/1h", i))
		l, err := enforce.New(s, p, enforce.Options{Log: slog.New(slog.NewTextHandler(said, nil))})
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		limiters[i] = l
	}
	// ask asks each Limiter for many keys, and reports whether some were decided in the process, and some in Redis.
	ask := func() (local, remote bool) {
		for _, l := range limiters {
			for k := range 10 {
				res, _ := l.Allow(t.Context(), fmt.Sprint(k))
				local, remote = local || res.Local, remote || !res.Local
			}
		}
		return local, remote
	}
	require.Eventually(t, func() bool { local, _ := ask(); return !local }, patient, 10*time.Millisecond)
	require.Zero(t, said.count("server="))

	servers["a"].Kill()
	require.Eventually(t, func() bool { local, remote := ask(); return local && remote }, patient, 10*time.Millisecond)
	alive := "" // a key of the server that answers
	for k := range 10 {
		if res, _ := limiters[0].Allow(t.Context(), fmt.Sprint(k)); !res.Local {
			alive = fmt.Sprint(k)
		}
	}
	require.NotEmpty(t, alive)
	assert.Never(t, func() bool {
		_, _ = limiters[0].Allow(t.Context(), alive)
		return said.count(`"weir: the store is back" server=`+servers["a"].Addr()) > 0
	}, 2500*time.Millisecond, 10*time.Millisecond)
	assert.Positive(t, said.count("server="+servers["a"].Addr()))
	for _, class := range []string{core.ClassDown, core.ClassLost, core.ClassTimeout, core.ClassBreaker} {
		assert.LessOrEqual(t, said.count("server="+servers["a"].Addr()+" class="+class), 1)
	}

	servers["a"].Restart(t)
	require.Eventually(t, func() bool {
		_, _ = ask()
		return said.count(`"weir: the store is back" server=`+servers["a"].Addr()) > 0
	}, patient, 50*time.Millisecond)
}
