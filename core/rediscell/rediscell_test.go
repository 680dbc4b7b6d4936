package rediscell_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/rediscell"
)

const (
	epoch  = 1_800_000_000_000_000
	second = 1_000_000
	ms     = time.Millisecond
)

func newMemory(t testing.TB) *core.Memory {
	t.Helper()
	m, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	return m
}

// advance lets time pass in a bubble.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// failing is a store that fails.
type failing struct{ core.Store }

func (failing) Take(context.Context, core.Take) (core.Result, error) {
	return core.Result{}, &core.StoreError{Class: core.ClassDown}
}

// at is a store whose clock stands where it is set.
type at struct {
	core.Store
	now int64
}

func (s *at) Take(ctx context.Context, t core.Take) (core.Result, error) {
	t.Now = s.now
	return s.Store.Take(ctx, t)
}

// The table of redis-cell's own tests: five at once and one a second, here with times
// that are rounded up to seconds as CL.THROTTLE rounds them.
func TestThrottleAnswersLikeRedisCell(t *testing.T) {
	s := &at{Store: newMemory(t)}
	for i, c := range []struct {
		after    time.Duration
		quantity int64
		want     [5]int64
	}{
		{0, 6, [5]int64{1, 5, 5, -1, 0}}, // more than ever fits
		{0, 1, [5]int64{0, 5, 4, -1, 1}},
		{0, 1, [5]int64{0, 5, 3, -1, 2}},
		{0, 1, [5]int64{0, 5, 2, -1, 3}},
		{0, 1, [5]int64{0, 5, 1, -1, 4}},
		{0, 1, [5]int64{0, 5, 0, -1, 5}},
		{0, 1, [5]int64{1, 5, 0, 1, 5}},
		{3000 * ms, 1, [5]int64{0, 5, 2, -1, 3}},
		{3100 * ms, 1, [5]int64{0, 5, 1, -1, 4}},
		{4000 * ms, 1, [5]int64{0, 5, 1, -1, 4}},
		{8000 * ms, 1, [5]int64{0, 5, 4, -1, 1}},
		{9500 * ms, 1, [5]int64{0, 5, 4, -1, 1}},
		{9500 * ms, 0, [5]int64{0, 5, 4, -1, 1}}, // a peek
		{9500 * ms, 2, [5]int64{0, 5, 2, -1, 3}},
		{9500 * ms, 5, [5]int64{1, 5, 2, 3, 3}},
	} {
		s.now = epoch + c.after.Microseconds()
		got, err := rediscell.Throttle(t.Context(), s, "foo", 4, 1, time.Second, c.quantity)
		require.NoError(t, err)
		assert.Equal(t, c.want, got, "line %d", i)
	}
}

// The funnel: room for 15, and one runs out every two seconds.
func TestThrottleFunnel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		passes := func() bool {
			got, err := rediscell.Throttle(t.Context(), m, "laoqian:reply", 14, 30, time.Minute, 1)
			require.NoError(t, err)
			return got[0] == 0
		}
		for i := range 20 {
			assert.Equal(t, i < 15, passes(), "call %d", i)
		}
		advance(2*time.Second - 1)
		assert.False(t, passes())
		advance(1)
		assert.True(t, passes())
		assert.False(t, passes())
	})
}

// A caller that waits as long as the answer says is admitted: a part of a second counts as a whole.
func TestThrottleRoundsUp(t *testing.T) {
	s := &at{Store: newMemory(t), now: epoch}
	throttle := func(quantity int64) [5]int64 {
		got, err := rediscell.Throttle(t.Context(), s, "k", 2, 3, time.Second, quantity)
		require.NoError(t, err)
		return got
	}
	assert.Equal(t, [5]int64{0, 3, 2, -1, 1}, throttle(1))
	assert.Equal(t, [5]int64{0, 3, 0, -1, 1}, throttle(2))
	assert.Equal(t, [5]int64{1, 3, 0, 1, 1}, throttle(1), "333.334 ms")
	s.now += 333_333
	assert.Equal(t, [5]int64{1, 3, 0, 1, 1}, throttle(1), "1 us is more than no time")
	s.now++
	assert.Equal(t, [5]int64{0, 3, 0, -1, 1}, throttle(1))
	s.now = epoch + 10*second
	assert.Equal(t, [5]int64{0, 3, 3, -1, 0}, throttle(0), "as if unused")
	assert.Equal(t, [5]int64{0, 3, 3, -1, 0}, throttle(0), "a peek takes nothing")
}

// Numbers come with each call, and a change of them keeps what was counted if a full bucket takes the same time.
func TestThrottleReconfigures(t *testing.T) {
	s := &at{Store: newMemory(t), now: epoch}
	throttle := func(maxBurst, count int64, period time.Duration) [5]int64 {
		got, err := rediscell.Throttle(t.Context(), s, "k", maxBurst, count, period, 1)
		require.NoError(t, err)
		return got
	}
	assert.Equal(t, [5]int64{0, 10, 9, -1, 6}, throttle(9, 10, time.Minute))
	assert.Equal(t, [5]int64{0, 20, 17, -1, 9}, throttle(19, 20, time.Minute), "6 s are 2 units of 3 s")
	assert.Equal(t, [5]int64{0, 1, 0, -1, 6}, throttle(0, 10, time.Minute), "another bucket")
	assert.Equal(t, [5]int64{1, 1, 0, 6, 6}, throttle(0, 10, time.Minute), "and a burst of none is one at a time")
	assert.Equal(t, [5]int64{0, 20, 16, -1, 12}, throttle(19, 20, time.Minute), "which leaves the other one alone")
	other, err := rediscell.Throttle(t.Context(), s, "other", 9, 10, time.Minute, 1)
	require.NoError(t, err)
	assert.Equal(t, [5]int64{0, 10, 9, -1, 6}, other, "keys are apart")

	// It is the policy called throttle: a Limiter may look at the same count.
	l, err := enforce.New(s, core.MustParse("throttle: 10/1m"), enforce.Options{})
	require.NoError(t, err)
	res, err := l.Peek(t.Context(), "other")
	require.NoError(t, err)
	assert.Equal(t, int64(9), res.Remaining)
}

func TestThrottleMistakes(t *testing.T) {
	m := newMemory(t)
	for want, call := range map[string]func() ([5]int64, error){
		"rediscell: Throttle with a maxBurst of -1; give 0 to 2147483647": func() ([5]int64, error) {
			return rediscell.Throttle(t.Context(), m, "k", -1, 30, time.Minute, 1)
		},
		"a maxBurst of 2147483648;": func() ([5]int64, error) {
			return rediscell.Throttle(t.Context(), m, "k", core.MaxRate, 30, time.Minute, 1)
		},
		"a maxBurst of 9223372036854775807;": func() ([5]int64, error) {
			return rediscell.Throttle(t.Context(), m, "k", math.MaxInt64, 30, time.Minute, 1)
		},
		"Rate is 0; give 1 to 2147483648 units": func() ([5]int64, error) {
			return rediscell.Throttle(t.Context(), m, "k", 15, 0, time.Minute, 1)
		},
		"Period is 60ns; give 1ms to 366d": func() ([5]int64, error) { // seconds, as in Redis
			return rediscell.Throttle(t.Context(), m, "k", 15, 30, 60, 1)
		},
		"a cost of -1 units": func() ([5]int64, error) { // with which redis-cell gives back
			return rediscell.Throttle(t.Context(), m, "k", 15, 30, time.Minute, -1)
		},
		"the key is empty": func() ([5]int64, error) {
			return rediscell.Throttle(t.Context(), m, "", 15, 30, time.Minute, 1)
		},
		"rediscell: Throttle without a Store": func() ([5]int64, error) {
			return rediscell.Throttle(t.Context(), nil, "k", 15, 30, time.Minute, 1)
		},
		"Throttle without a Store; give": func() ([5]int64, error) {
			return rediscell.Throttle(t.Context(), (*core.Memory)(nil), "k", 15, 30, time.Minute, 1)
		},
	} {
		got, err := call()
		require.ErrorContains(t, err, want)
		assert.Zero(t, got)
	}
	assert.Zero(t, m.Len())

	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err := rediscell.Throttle(gone, m, "k", 15, 30, time.Minute, 1)
	require.ErrorIs(t, err, context.Canceled)
	store := failing{m}
	failed := &core.StoreError{}
	_, err = rediscell.Throttle(t.Context(), store, "k", 15, 30, time.Minute, 1)
	require.ErrorAs(t, err, &failed, "nobody else decides")
}

// A caller that makes up numbers as it goes neither fills the memory nor is confused.
func TestThrottleOfManyLimits(t *testing.T) {
	m := newMemory(t)
	var wg sync.WaitGroup
	for g := range int64(4) {
		wg.Go(func() {
			for i := range int64(3000) {
				got, err := rediscell.Throttle(t.Context(), m, fmt.Sprint(g, i), i, i+1, time.Hour, 1)
				assert.NoError(t, err)
				assert.Equal(t, [2]int64{i + 1, i}, [2]int64{got[1], got[2]})
			}
		})
	}
	wg.Wait()
}

func TestThrottleDoesNotAllocate(t *testing.T) {
	m := newMemory(t)
	assert.Zero(t, testing.AllocsPerRun(200, func() {
		if _, err := rediscell.Throttle(context.Background(), m, "k", 15, 30, time.Minute, 1); err != nil {
			panic(err)
		}
	}))
}

func ExampleThrottle() {
	store, err := core.NewMemory(core.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	// CL.THROTTLE user123 15 30 60 1
	reply, err := rediscell.Throttle(context.Background(), store, "user123", 15, 30, time.Minute, 1)
	if err != nil {
		panic(err)
	}
	fmt.Println(reply)

	// A funnel of 15 that lets one out every two seconds: twenty come at once.
	in, out := 0, 0
	for range 20 {
		reply, err := rediscell.Throttle(context.Background(), store, "laoqian:reply", 14, 30, time.Minute, 1)
		if err != nil {
			panic(err)
		}
		if reply[0] == 0 {
			in++
		} else {
			out++
		}
	}
	fmt.Println(in, "true,", out, "false")
	// Output:
	// [0 16 15 -1 2]
	// 15 true, 5 false
}
