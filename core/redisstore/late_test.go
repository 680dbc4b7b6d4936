package redisstore_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// slow is a socket as the process sees it that writes to it when it gets a processor: below TLS, if there is any.
type slow struct {
	net.Conn
	plain net.Conn                // below
	next  *atomic.Pointer[slowly] // of all connections of a client
	due   atomic.Int64            // the deadline for writing, in Unix nanoseconds
}

// slowly does one write, if there is one to do.
type slowly func(c *slow, p []byte) (int, error)

func (c *slow) SetWriteDeadline(t time.Time) error {
	c.due.Store(t.UnixNano())
	return c.Conn.SetWriteDeadline(t)
}

func (c *slow) Write(p []byte) (int, error) {
	if do := c.next.Swap(nil); do != nil {
		return (*do)(c, p)
	}
	return c.Conn.Write(p)
}

// late writes when the deadline has passed, and the time of the callers with it, which ends a moment later.
func late(c *slow, p []byte) (int, error) {
	due := time.Unix(0, c.due.Load())
	<-time.After(time.Until(due) + brief/50)
	if err := c.plain.SetWriteDeadline(due); err != nil { // timers may be late
		return 0, err
	}
	return c.Conn.Write(p)
}

// slowStore is a store whose next write is made by the function that next holds.
type slowStore struct {
	*redisstore.Store
	next   *atomic.Pointer[slowly]
	direct *redisstore.Store // to the same server
}

func newSlowStore(t *testing.T, secure bool, o redisstore.Options) slowStore {
	t.Helper()
	server := redistest.TLS(t)
	s := slowStore{next: new(atomic.Pointer[slowly])}
	s.direct = newStore(t, server.Client(t), redisstore.Options{Deadline: patient})
	options := unhurried(redisstore.ClientOptions(server.Addr()))
	options.MinIdleConns = 0 // which would write, too
	options.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
		addr := server.Addr()
		if secure {
			addr = server.TLSAddr
		}
		plain, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &slow{Conn: redisstore.Patient(plain), plain: plain, next: s.next}
		if !secure {
			return c, nil
		}
		config := server.Config.Clone()
		config.ServerName = "localhost"
		return tls.Client(c, config), nil
	}
	s.Store = newStore(t, closing(t, redis.NewUniversalClient(options)), o)
	s.Unhurried(patient)
	return s
}

func TestLateWrite(t *testing.T) {
	t.Parallel()
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("of nothing", func(t *testing.T) { t.Parallel(); testLateWrite(t, secure) })
			t.Run("of a part", func(t *testing.T) { t.Parallel(); testLatePart(t, secure) })
			t.Run("of many", func(t *testing.T) { t.Parallel(); testLateFlight(t, secure) })
			t.Run("of some of many", func(t *testing.T) { t.Parallel(); testTornFlight(t, secure) })
		})
	}
}

// late lets the next decision of a store be written late, as write does, and returns its key. On a machine that is
// slower than the deadline its time may be over before it comes so far: then it is done again, as it is if decide says
// so.
func (s slowStore) late(t *testing.T, write slowly, decide func(key string) (again bool)) (key string) {
	t.Helper()
	for i := range 100 {
		key = fmt.Sprint(i)
		warm := askers("late: 100/1h fixed-window", 2)
		fly(t, s.Store, warm, nothing) // flights of many have connections of their own
		if _, err := s.Take(t.Context(), warm[0].take); err != nil || warm[0].err != nil || warm[1].err != nil {
			continue
		}
		require.Eventually(t, s.Idle, patient, time.Millisecond) // so that the next one flies alone
		var wrote atomic.Bool
		do := slowly(func(c *slow, p []byte) (int, error) {
			wrote.Store(true)
			return write(c, p)
		})
		s.next.Store(&do)
		again := decide(key)
		if s.next.Swap(nil) == nil && wrote.Load() && !again {
			return key
		}
	}
	require.Fail(t, "it never comes so far")
	return ""
}

// What a process writes too late, of which nothing has gone, is sent once more, and executed once.
func testLateWrite(t *testing.T, secure bool) {
	s := newSlowStore(t, secure, redisstore.Options{Deadline: brief, MaxKeys: 1})
	p := core.MustParse("late: 100/1h fixed-window")
	var res core.Result
	var err error
	key := s.late(t, late, func(key string) bool {
		res, err = s.Take(t.Context(), core.Take{Policy: p, Key: "late" + key, Cost: 1})
		return false
	})
	require.NoError(t, err)
	assert.EqualValues(t, 99, res.Remaining)
	assert.EqualValues(t, 1, used(t, s.direct, p, "late"+key))

	ctx, cancel := context.WithCancel(t.Context())
	key = s.late(t, func(c *slow, b []byte) (int, error) {
		cancel()
		return late(c, b)
	}, func(key string) bool {
		res, err = s.Take(ctx, core.Take{Policy: p, Key: "left" + key, Cost: 1})
		return false
	})
	var failed *core.StoreError
	require.ErrorAs(t, err, &failed)
	assert.False(t, failed.MaybeExecuted)
	assert.Zero(t, used(t, s.direct, p, "left"+key), "its caller is gone")
}

// What has gone in part is not sent again, although a server executes no part of a command.
func testLatePart(t *testing.T, secure bool) {
	s := newSlowStore(t, secure, redisstore.Options{Deadline: brief, MaxKeys: 1})
	p := core.MustParse("late: 100/1h fixed-window")
	var err error
	key := s.late(t, func(c *slow, b []byte) (int, error) {
		n, err := c.Conn.Write(b[:len(b)/2])
		if err != nil {
			return n, err
		}
		m, err := late(c, b[len(b)/2:])
		return n + m, err
	}, func(key string) bool {
		_, err = s.Take(t.Context(), core.Take{Policy: p, Key: "part" + key, Cost: 1})
		return false
	})
	var failed *core.StoreError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, core.ClassTimeout, failed.Class)
	assert.Zero(t, used(t, s.direct, p, "part"+key))
}

// A flight of many that is written too late is sent once more.
func testLateFlight(t *testing.T, secure bool) {
	s := newSlowStore(t, secure, redisstore.Options{Deadline: brief, MaxKeys: 1})
	p := core.MustParse("late: 100/1h fixed-window")
	key := s.late(t, late, func(key string) bool {
		all := askers("late: 100/1h fixed-window", 10)
		for _, r := range all {
			r.take.Key += "-" + key
		}
		fly(t, s.Store, all, nothing)
		return slices.ContainsFunc(all, func(r *asker) bool { // one has not waited for the others
			var failed *core.StoreError
			ok := errors.As(r.err, &failed)
			return ok && !failed.MaybeExecuted
		})
	})
	for i := range 10 {
		require.Eventually(t, func() bool { return used(t, s.direct, p, fmt.Sprint(i, "-", key)) == 1 }, patient, time.Millisecond)
	}
	<-time.After(10 * time.Millisecond)
	for i := range 10 {
		assert.EqualValues(t, 1, used(t, s.direct, p, fmt.Sprint(i, "-", key)))
	}
}

// A flight of many of which some have gone is not sent again, however its connection breaks: they were executed.
func testTornFlight(t *testing.T, secure bool) {
	s := newSlowStore(t, secure, redisstore.Options{Deadline: patient, MaxKeys: 1})
	p := core.MustParse("late: 100/1h fixed-window")
	var all []*asker
	executed := func() bool {
		for _, r := range all {
			res, err := s.direct.Take(t.Context(), core.Take{Policy: p, Key: r.take.Key})
			if err == nil && res.Remaining < res.Limit {
				return true
			}
		}
		return false
	}
	breaks := slowly(func(c *slow, b []byte) (int, error) {
		assert.Eventually(t, executed, patient, time.Millisecond)
		_ = c.Close()
		return c.Conn.Write(b)
	})
	key := s.late(t, func(c *slow, b []byte) (int, error) {
		if secure { // a question takes several records
			s.next.Store(&breaks)
			return c.Conn.Write(b)
		}
		n, err := c.Conn.Write(b[:len(b)/2])
		if err != nil {
			return n, err
		}
		m, err := breaks(c, b[len(b)/2:])
		return n + m, err
	}, func(key string) bool {
		all = askers("late: 100/1h fixed-window", 60)
		for _, r := range all {
			r.take.Key += "-" + key
		}
		fly(t, s.Store, all, nothing)
		return false
	})
	assert.NotEmpty(t, key)
	for _, r := range all {
		var failed *core.StoreError
		require.ErrorAs(t, r.err, &failed)
		assert.True(t, failed.MaybeExecuted, "%v", r.err)
		assert.LessOrEqual(t, used(t, s.direct, p, r.take.Key), int64(1))
	}
	assert.True(t, executed())
}
