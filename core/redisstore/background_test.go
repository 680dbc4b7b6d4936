package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// What no request waits for is not cut off at the deadline of a decision, also while
// decisions are.
func TestBackgroundHasItsOwnDeadline(t *testing.T) {
	t.Parallel()
	for _, tuned := range []bool{true, false} {
		t.Run(fmt.Sprint(tuned), func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, redistest.Single(t).Addr())
			o := tune(tuned, []string{proxy.Addr()})
			o.DialTimeout, o.PoolTimeout = patient, patient // on a busy machine
			rdb := redis.NewUniversalClient(o)
			defer func() { assert.NoError(t, rdb.Close()) }()
			s := newStore(t, rdb, redisstore.Options{Deadline: 60 * time.Millisecond})
			eager := newStore(t, rdb, redisstore.Options{Deadline: patient}) // to begin with
			x := core.Permit{Policy: permitPolicy(t, "slow", 1, time.Hour), Key: "k", ID: "a"}
			_, err := eager.Acquire(t.Context(), x)
			require.NoError(t, err)
			take := core.Take{Policy: core.MustParse("slow: 10/1d fixed-window"), Key: "k", Cost: 10}
			receipt, err := eager.Take(t.Context(), take)
			require.NoError(t, err)

			// 80 ms are too long for a decision, and short for the rest, which takes more than one
			// try on a machine that is most of a second late.
			proxy.Latency(40 * time.Millisecond)
			for failed := 0; failed < 10; { // one whose answer has come all the same is used
				if _, err := s.Take(t.Context(), take); err != nil {
					failed++
				}
			}
			works := func(do func() error) {
				t.Helper()
				require.Eventually(t, func() bool { return do() == nil }, patient, time.Millisecond)
			}
			works(func() error {
				lost, err := s.Renew(t.Context(), []core.Permit{x})
				assert.Empty(t, lost)
				return err
			})
			works(func() error {
				return s.Refund(t.Context(), []core.Refund{{Policy: take.Policy, Key: "k", Receipt: receipt, Units: 1}})
			})
			works(func() error { return s.Release(t.Context(), []core.Permit{x}) })
			proxy.Pass()
			assert.Less(t, used(t, eager, take.Policy, "k"), take.Cost)
			assert.True(t, acquire(t, eager, x.Policy, "b").Allowed(), "it was given back")
		})
	}
}

// However long an outage was: soon after its end, what is to be done in the background is
// done, whether or not requests come meanwhile.
func TestBackgroundComesBack(t *testing.T) {
	t.Parallel()
	for _, requests := range []bool{true, false} {
		for _, outage := range []time.Duration{200 * time.Millisecond, 700 * time.Millisecond, 1500 * time.Millisecond} {
			t.Run(fmt.Sprint(outage, requests), func(t *testing.T) {
				t.Parallel()
				testBackgroundComesBack(t, outage, requests)
			})
		}
	}
}

func testBackgroundComesBack(t *testing.T, outage time.Duration, requests bool) {
	proxy := redistest.NewProxy(t, redistest.Single(t).Addr())
	rdb := redis.NewUniversalClient(unhurried(redisstore.ClientOptions(proxy.Addr())))
	defer func() { assert.NoError(t, rdb.Close()) }()
	s := newStore(t, rdb, redisstore.Options{Deadline: brief})
	x := core.Permit{Policy: permitPolicy(t, "hole", 1, time.Hour), Key: "k", ID: "a"}
	require.Eventually(t, func() bool {
		_, err := s.Acquire(t.Context(), x)
		return err == nil && s.Release(t.Context(), []core.Permit{x}) == nil
	}, patient, time.Millisecond)

	var wg sync.WaitGroup
	over := make(chan struct{})
	tries := func(try func() error) {
		wg.Go(func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for ; ; <-tick.C {
				err := try()
				select {
				case <-over:
					if err == nil {
						return
					}
				default:
				}
			}
		})
	}
	proxy.Blackhole()
	time.AfterFunc(outage, func() {
		proxy.Pass()
		close(over)
	})
	tries(func() error { return s.Release(t.Context(), []core.Permit{x}) })
	if requests {
		tries(func() error {
			_, err := s.Acquire(t.Context(), x)
			return err
		})
	}
	<-over
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select { // a call that began before the end may take its second, and another one be waited for
	case <-done:
	case <-time.After(patient):
		require.Fail(t, "nothing comes back")
	}
}

// charged takes cost for each of so many keys, and returns refunds of units of each.
func charged(t *testing.T, s *redisstore.Store, p core.Policy, keys int, cost, units int64) (refunds []core.Refund) {
	t.Helper()
	for i := range keys {
		take := core.Take{Policy: p, Key: fmt.Sprint(i), Cost: cost}
		res, err := s.Take(t.Context(), take)
		require.NoError(t, err)
		refunds = append(refunds, core.Refund{Policy: p, Key: take.Key, Receipt: res, Units: units})
	}
	return refunds
}

// tearing is a connection that breaks, when tear is set, in the middle of a long write.
type tearing struct {
	net.Conn
	tear *atomic.Bool
}

func (c tearing) Write(b []byte) (int, error) {
	const arrives = 8 << 10
	if len(b) <= 2*arrives || !c.tear.CompareAndSwap(true, false) {
		return c.Conn.Write(b)
	}
	n, _ := c.Conn.Write(b[:arrives])
	return n, &net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}
}

// A pipeline that breaks while it is written has run in part: units are not given back a
// second time, and what is harmless is done all the same.
func TestTornPipeline(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	var tear atomic.Bool
	o := unhurried(redisstore.ClientOptions(server.Addr())).Simple()
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return tearing{conn, &tear}, err
	}
	rdb := redis.NewClient(o)
	defer func() { assert.NoError(t, rdb.Close()) }()
	s := newStore(t, rdb, redisstore.Options{Deadline: patient})
	p := core.MustParse("torn: 10/1d fixed-window")
	refunds := charged(t, s, p, 200, 9, 1)
	require.NoError(t, s.Refund(t.Context(), refunds), "which loads the script")
	tear.Store(true)
	var partly *core.BatchError
	require.ErrorAs(t, s.Refund(t.Context(), refunds), &partly)
	given := 0
	for i, err := range partly.Errs {
		var failed *core.StoreError
		require.ErrorAs(t, err, &failed)
		assert.True(t, failed.MaybeExecuted)
		assert.Equal(t, core.ClassLost, failed.Class)
		n := 8 - used(t, s, p, refunds[i].Key)
		assert.LessOrEqual(t, n, int64(1))
		given += int(n)
	}
	assert.Positive(t, given, "the beginning has arrived")

	permits := permitPolicy(t, "torn", 1, time.Hour)
	var held []core.Permit
	for i := range 200 {
		held = append(held, core.Permit{Policy: permits, Key: fmt.Sprint(i), ID: "a"})
	}
	lost, err := s.Renew(t.Context(), held)
	require.NoError(t, err)
	require.Empty(t, lost)
	tear.Store(true)
	require.NoError(t, s.Release(t.Context(), held))
	assert.False(t, tear.Load())
}

// A batch needs few commands, and the text of an unknown script travels once.
func TestBatchesAreCheap(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	s := newStore(t, server.Client(t), redisstore.Options{Deadline: patient})
	limit, permits := core.MustParse("cheap: 10/1d fixed-window"), permitPolicy(t, "cheap", 100, time.Hour)
	refunds := charged(t, s, limit, 100, 3, 2)
	var held []core.Permit
	for i := range 100 {
		acquire(t, s, permits, fmt.Sprint(i))
		held = append(held, core.Permit{Policy: permits, Key: "k", ID: fmt.Sprint(i)})
	}
	require.NoError(t, server.Client(t).ScriptFlush(t.Context()).Err())
	for _, test := range []struct {
		name    string
		do      func() error
		scripts int64
	}{
		{"refund", func() error { return s.Refund(t.Context(), refunds) }, 100},
		{"renew", func() error { _, err := s.Renew(t.Context(), held); return err }, 2},
		{"release", func() error { return s.Release(t.Context(), held) }, 2},
	} {
		server.ResetStats(t)
		require.NoError(t, test.do(), test.name)
		calls := server.CommandStats(t)
		assert.EqualValues(t, 1, calls["eval"], test.name)
		assert.Equal(t, 2*test.scripts-1, calls["evalsha"], "%s: each once, and all but one again", test.name)
	}
	for i := range 100 {
		assert.EqualValues(t, 1, used(t, s, limit, fmt.Sprint(i)))
	}
	assert.EqualValues(t, 99, acquire(t, s, permits, "last").Remaining)
}
