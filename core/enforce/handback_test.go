package enforce_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/internal/remotetest"
)

// unknown is a failure after which nobody knows whether the store has charged.
func unknown() error {
	return &core.StoreError{Class: core.ClassLost, MaybeExecuted: true, Err: errors.New("gone")}
}

// process is one of a fleet, on a store that fails when the test says so.
type process struct {
	*enforce.Limiter
	remote *remotetest.Remote
	local  *core.Memory
}

// Fail is that of the store.
func (p *process) Fail(err error) { p.remote.Fail(err) }

func (p *process) Fallback() *core.Memory { return p.local }

// newProcess is a process of the fleet that has redis.
func newProcess(t *testing.T, redis core.Store, policy string) *process {
	t.Helper()
	p := &process{remote: remotetest.New(redis), local: newMemory(t, 0)}
	store := struct {
		*remotetest.Remote
		fleetStore
	}{p.remote, p}
	l, err := enforce.New(store, core.MustParse(policy), enforce.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	p.Limiter = l
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	return p
}

type fleetStore interface{ Fallback() *core.Memory }

// take takes so many units at once, and lets what follows behind it finish.
func (p *process) take(t *testing.T, key string, n int64) core.Result {
	t.Helper()
	res, err := p.AllowN(t.Context(), key, n)
	require.NoError(t, err)
	synctest.Wait()
	return res
}

// used returns the number of units of "k" that are in use in a store.
func used(t *testing.T, s core.Store, p core.Policy) int64 {
	t.Helper()
	res, err := s.Take(t.Context(), core.Take{Policy: p, Key: "k"})
	require.NoError(t, err)
	return res.Limit - res.Remaining
}

// What a process has admitted by itself is charged to the store when that has answered for the key again: once, and
// never more than there is.
func TestHandBack(t *testing.T) {
	for _, limit := range []string{
		"10/1h", "10/1h token-bucket", "10/1h leaky-bucket", "10/1h fixed-window", "10/1h sliding-window", "10/1h sliding-counter",
		"10/1h sliding-log", "10/1h, 100/1d", "10/1h; wait 1h",
	} {
		t.Run(limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				redis := newMemory(t, 0)
				p := newProcess(t, redis, limit)
				policy := p.Policy()
				p.take(t, "k", 2)
				p.Fail(down())
				for range 3 {
					res := p.take(t, "k", 1)
					assert.True(t, res.Local)
					assert.True(t, res.Allowed())
				}
				assert.False(t, p.take(t, "k", 8).Allowed(), "a refusal is not handed back")
				assert.EqualValues(t, 3, used(t, p.local, policy))
				p.Fail(nil)
				synctest.Wait()
				assert.EqualValues(t, 2, used(t, redis, policy), "nothing happens by itself")
				p.take(t, "other", 1)
				assert.EqualValues(t, 2, used(t, redis, policy), "nor because of another key")
				assert.EqualValues(t, 7, p.take(t, "k", 1).Remaining)
				assert.EqualValues(t, 6, used(t, redis, policy))
				p.take(t, "k", 1)
				assert.EqualValues(t, 7, used(t, redis, policy), "once")
				assert.EqualValues(t, 3, used(t, p.local, policy), "and nothing is forgotten here")

				// The next outage goes on with what is here, and only what is new goes back, as far as there is room.
				p.Fail(down())
				assert.EqualValues(t, 2, p.take(t, "k", 5).Remaining)
				p.Fail(nil)
				p.take(t, "k", 0)
				assert.EqualValues(t, 10, used(t, redis, policy))
				assert.False(t, p.take(t, "k", 1).Allowed())
			})
		})
	}
}

// What nobody has counted here, and what the store may have charged already, is not handed back.
func TestHandBackOfNothing(t *testing.T) {
	for _, c := range []struct {
		policy string
		why    error
	}{{"10/1h; fail open", down()}, {"10/1h; fail closed", down()}, {"10/1h", unknown()}} {
		synctest.Test(t, func(t *testing.T) {
			redis := newMemory(t, 0)
			p := newProcess(t, redis, c.policy)
			p.Fail(c.why)
			for range 3 {
				_, _ = p.Allow(t.Context(), "k")
			}
			p.Fail(nil)
			p.take(t, "k", 1)
			p.take(t, "k", 1)
			assert.EqualValues(t, 2, used(t, redis, p.Policy()), c.policy)
		})
	}
}

// Units that drain, are given back or are forgotten here are not charged there.
func TestHandBackOfWhatStillWeighs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		redis := newMemory(t, 0)
		p := newProcess(t, redis, "10/10s; wait 5s")
		policy := p.Policy()
		outage := func(n int64) (res core.Result) {
			p.Fail(down())
			res = p.take(t, "k", n)
			return res
		}
		back := func() int64 {
			p.Fail(nil)
			p.take(t, "k", 0)
			return used(t, redis, policy)
		}
		outage(10)
		advance(4 * time.Second)
		assert.EqualValues(t, 6, back(), "some have drained")
		advance(time.Minute)
		outage(10)
		advance(time.Minute)
		assert.Zero(t, back(), "all have")
		res := outage(10)
		require.NoError(t, p.Refund(t.Context(), "k", res, 7))
		assert.EqualValues(t, 3, back())
		advance(time.Minute)
		outage(10)
		p.Fail(nil)
		require.NoError(t, p.Reset(t.Context(), "k"))
		assert.Zero(t, back())

		// What is charged later where it was decided here is handed back as well.
		p.Fail(down())
		var a enforce.Admission
		require.NoError(t, p.Begin(t.Context(), enforce.Ask{Key: "k", Cost: 1}, &a))
		a.Charge(4, nil)
		assert.EqualValues(t, 5, back())
	})
}

// A hand-back is sent once. If it surely was not made, it is still owed; if its reply is lost, it is not.
func TestHandBackFails(t *testing.T) {
	for _, c := range []struct {
		why  error
		want int64
	}{{down(), 3}, {unknown(), 0}} {
		synctest.Test(t, func(t *testing.T) {
			redis := newMemory(t, 0)
			p := newProcess(t, redis, "10/1h")
			p.Fail(down())
			p.take(t, "k", 3)
			p.remote.FailAfter(1, c.why)
			_, err := p.Peek(t.Context(), "k") // after which it is on its way
			require.NoError(t, err)
			synctest.Wait()
			p.Fail(nil)
			p.take(t, "k", 0)
			assert.Equal(t, c.want, used(t, redis, p.Policy()))
			if err := p.Close(); c.want > 0 {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "enforce: Close: 1 ", "it was lost on the way")
			}
		})
	}
}

// The Result of a share has the limit of the policy; the rest is about this process alone.
func TestShareResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		redis := newMemory(t, 0)
		p := newProcess(t, redis, "100/10s, 1000/1h fixed-window; fail local 1/4")
		p.Fail(down())
		res := p.take(t, "k", 5)
		assert.EqualValues(t, 100, res.Limit)
		assert.EqualValues(t, 20, res.Remaining)
		assert.Equal(t, 2*time.Second, res.ResetAfter)
		assert.Equal(t, core.AtLimit, p.take(t, "k", 20).Outcome)
		res = p.take(t, "k", 1)
		assert.Equal(t, core.Refused, res.Outcome)
		assert.EqualValues(t, 100, res.Limit)
		assert.Equal(t, 400*time.Millisecond, res.RetryAfter)

		res = p.take(t, "k", 26)
		assert.Equal(t, core.Refused, res.Outcome, "Redis would admit it one day")
		assert.Equal(t, time.Second, res.RetryAfter)
		assert.False(t, res.Each(0).Never)
		assert.Equal(t, core.Never, p.take(t, "k", 101).Outcome)
		upTo, err := p.UpTo(t.Context(), "new", 100)
		require.NoError(t, err)
		assert.EqualValues(t, 25, upTo.Taken)

		// A refund of the share goes to the share.
		require.NoError(t, p.Refund(t.Context(), "new", upTo, 10))
		upTo, err = p.UpTo(t.Context(), "new", 100)
		require.NoError(t, err)
		assert.EqualValues(t, 10, upTo.Taken)
		p.Fail(nil)
		require.NoError(t, p.Reset(t.Context(), "new"))
		p.Fail(down())
		upTo, err = p.UpTo(t.Context(), "new", 100)
		require.NoError(t, err)
		assert.EqualValues(t, 25, upTo.Taken)
	})
}

// While the store fails, all processes together admit the limit, and less than a unit each besides.
func TestSharesTogether(t *testing.T) {
	for _, limit := range []string{"100/10s", "101/10s token-bucket", "100/10s fixed-window", "100/10s sliding-window", "100/10s sliding-counter", "100/10s sliding-log"} {
		synctest.Test(t, func(t *testing.T) {
			const n = 7
			admitted := 0
			for range n {
				p := newProcess(t, newMemory(t, 0), fmt.Sprintf("%s; fail local 1/%d", limit, n))
				p.Fail(down())
				for range 200 {
					if p.take(t, "k", 1).Allowed() {
						admitted++
					}
				}
			}
			assert.GreaterOrEqual(t, admitted, 100, limit)
			assert.LessOrEqual(t, admitted, 101+n, limit)
		})
	}
}

// The experiment: four processes with a limit of 100/10s ask as often as they can for a minute, in which the store
// comes and goes each second.
func TestFlapping(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy string
		why    error
		bound  int
		want   int
	}{
		// The bound: the units that the store admits in a minute, 100 + 60*10, and as much of four shares, or wholes.
		{"nothing is handed back", "100/10s; fail local 1/4", unknown(), 700 + 4*175, 1377},
		{"handed back", "100/10s; fail local 1/4", down(), 700 + 4*175, 1115},
		{"without a share", "100/10s", down(), 700 + 4*700, 3155},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				redis := newMemory(t, 0)
				var fleet [4]*process
				for i := range fleet {
					fleet[i] = newProcess(t, redis, "flap: "+c.policy)
				}
				admitted := 0
				for step := range 6000 {
					for _, p := range fleet {
						if p.Fail(nil); step/100%2 == 1 {
							p.Fail(c.why)
						}
						if p.take(t, "k", 1).Allowed() {
							admitted++
						}
					}
					advance(10 * time.Millisecond)
				}
				assert.LessOrEqual(t, admitted, c.bound)
				assert.Equal(t, c.want, admitted, "as documented")
			})
		})
	}
}
