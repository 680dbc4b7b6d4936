package enforce_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
)

// Programs that come from another library get the same answers. The answers
// expected here stand in the documentation of those libraries, or in their tests.

// redisRate is a Result as redis_rate words it: -1 where there is nothing to wait for.
type redisRate struct {
	allowed, remaining     int64
	retryAfter, resetAfter time.Duration
}

func inRedisRate(res core.Result) redisRate {
	out := redisRate{res.Taken, res.Remaining, -1, res.ResetAfter}
	if !res.Allowed() {
		out.retryAfter = res.RetryAfter
	}
	return out
}

// redis_rate: Limit{Rate, Burst, Period}, Allow, AllowN, AllowAtMost and Reset.
func TestMigrateRedisRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		l := newLimiter(t, nil, "10/1s") // redis_rate.PerSecond(10)
		const key = "test_id"
		expect := func(want redisRate, got core.Result, err error) {
			t.Helper()
			require.NoError(t, err)
			assert.Equal(t, want, inRedisRate(got))
		}
		res, err := l.AllowN(ctx, key, 0)
		expect(redisRate{0, 10, -1, 0}, res, err)
		res, err = l.Allow(ctx, key)
		expect(redisRate{1, 9, -1, 100 * ms}, res, err)
		require.NoError(t, l.Reset(ctx, key))
		res, err = l.Allow(ctx, key)
		expect(redisRate{1, 9, -1, 100 * ms}, res, err)
		res, err = l.AllowN(ctx, key, 2)
		expect(redisRate{2, 7, -1, 300 * ms}, res, err)
		res, err = l.AllowN(ctx, key, 7)
		expect(redisRate{7, 0, -1, 1000 * ms}, res, err)
		res, err = l.Allow(ctx, key)
		expect(redisRate{0, 0, 100 * ms, 1000 * ms}, res, err)

		// More than the burst never fits. There it has a RetryAfter, of 99 s, after which
		// it is refused again; here the Outcome is Never.
		res, err = l.AllowN(ctx, key, 1000)
		expect(redisRate{0, 0, 0, 1000 * ms}, res, err)
		assert.Equal(t, core.Never, res.Outcome)

		require.NoError(t, l.Reset(ctx, key))
		res, err = l.Allow(ctx, key)
		expect(redisRate{1, 9, -1, 100 * ms}, res, err)
		res, err = l.UpTo(ctx, key, 2) // AllowAtMost
		expect(redisRate{2, 7, -1, 300 * ms}, res, err)
		res, err = l.Peek(ctx, key)
		expect(redisRate{0, 7, -1, 300 * ms}, res, err)
		res, err = l.UpTo(ctx, key, 10)
		expect(redisRate{7, 0, -1, 1000 * ms}, res, err)
		res, err = l.UpTo(ctx, key, 1000)
		expect(redisRate{0, 0, 100 * ms, 1000 * ms}, res, err)

		// Rates and bursts of their own.
		l = newLimiter(t, nil, "1/1ms")
		refused := 0
		for range 1000 {
			res, err := l.Allow(ctx, key)
			require.NoError(t, err)
			if !res.Allowed() {
				refused++
				assert.LessOrEqual(t, res.RetryAfter, ms)
			}
		}
		assert.Equal(t, 999, refused, "time stands still")
	})
	// As limits are built.
	for want, l := range map[string]core.Limit{
		"10/1s":         core.PerSecond(10),
		"10/1m":         core.PerMinute(10),
		"10/1h":         core.PerHour(10),
		"5/10s burst 3": {Rate: 5, Burst: 3, Period: 10 * time.Second}, // the very fields of redis_rate.Limit
	} {
		assert.Equal(t, want, l.String())
	}
}

// periodLimit is go-zero's PeriodLimit.Take.
func periodLimit(t *testing.T, l *enforce.Limiter, key string) string {
	res, err := l.Allow(t.Context(), key)
	require.NoError(t, err)
	switch res.Outcome {
	case core.Admitted:
		return "Allowed"
	case core.AtLimit:
		return "HitQuota"
	default:
		return "OverQuota"
	}
}

// go-zero: NewPeriodLimit(seconds, quota) and Take.
func TestMigratePeriodLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The tests of go-zero: a quota of 5 and 100 calls.
		l := newLimiter(t, nil, "5/1s fixed-window")
		counts := map[string]int{}
		for range 100 {
			counts[periodLimit(t, l, "first")]++
		}
		assert.Equal(t, map[string]int{"Allowed": 4, "HitQuota": 1, "OverQuota": 95}, counts)

		// The period begins with the first call, whenever that is, and not again with those
		// that follow; then everything is there at once.
		advance(990 * ms)
		assert.Equal(t, "OverQuota", periodLimit(t, l, "first"))
		advance(10 * ms)
		assert.Equal(t, "Allowed", periodLimit(t, l, "first"))

		// A quota of 1 is hit by its first call.
		l = newLimiter(t, nil, "1/1s fixed-window")
		assert.Equal(t, "HitQuota", periodLimit(t, l, "k"))
		assert.Equal(t, "OverQuota", periodLimit(t, l, "k"))

		// NewPeriodLimit(86400, 5, ..., Align()): a day of the machine's zone. Here the zone
		// is said, and the day is the calendar's, of 23 to 25 hours.
		l = newLimiter(t, nil, "5/1d fixed-window calendar Asia/Shanghai")
		zone, err := time.LoadLocation("Asia/Shanghai")
		require.NoError(t, err)
		now := time.Now().In(zone)
		y, m, d := now.Date()
		<-time.After(time.Until(time.Date(y, m, d+1, 0, 0, 0, 0, zone).Add(-time.Minute)))
		for i, want := range []string{"Allowed", "Allowed", "Allowed", "Allowed", "HitQuota", "OverQuota"} {
			assert.Equal(t, want, periodLimit(t, l, "k"), "call %d", i)
		}
		<-time.After(time.Minute - time.Microsecond)
		assert.Equal(t, "OverQuota", periodLimit(t, l, "k"))
		<-time.After(time.Microsecond)
		assert.Equal(t, "Allowed", periodLimit(t, l, "k"), "midnight in Shanghai")

		// Align() with any other period: multiples of it since 1970.
		l = newLimiter(t, nil, "2/10s fixed-window aligned")
		<-time.After(time.Until(time.Now().Truncate(10 * time.Second).Add(19 * time.Second)))
		assert.Equal(t, "Allowed", periodLimit(t, l, "k"))
		assert.Equal(t, "HitQuota", periodLimit(t, l, "k"))
		advance(time.Second)
		assert.Equal(t, "Allowed", periodLimit(t, l, "k"), "one second later is another period")
	})
}

// x/time/rate: NewLimiter(r, b) and Allow, as its documentation says and its tests have it
// for a rate of 10 and a burst of 2.
func TestMigrateTimeRateAllow(t *testing.T) {
	m := newMemory(t, 0)
	p := core.MustParse("10/1s burst 2") // rate.NewLimiter(10, 2)
	for i, c := range []struct {
		at int64 // in tenths of a second
		n  int64
		ok bool
	}{
		{0, 1, true},
		{0, 1, true},
		{0, 1, false},
		{1, 1, true},
		{1, 1, false},
		{1, 1, false},
		{2, 1, true},
		{2, 1, false},
		{9, 1, true},
		{9, 1, true},
		{9, 1, false},
		{9, 3, false},
		{10, 3, false}, // more than the burst
		{20, 2, true},
		{20, 1, false},
		{21, 2, false},
		{22, 2, true},
	} {
		res, err := m.Take(t.Context(), core.Take{Policy: p, Key: "k", Cost: c.n, Now: epoch + c.at*second/10})
		require.NoError(t, err)
		assert.Equal(t, c.ok, res.Allowed(), "line %d", i)
	}
}

// ReserveN, Delay and Cancel; then SetLimit.
func TestMigrateTimeRateReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		const forever = core.MaxPeriod
		l := newLimiter(t, nil, "10/1s burst 2; wait 366d") // rate.NewLimiter(10, 2)
		reserve := func(n int64) core.Result {
			res, err := l.Reserve(ctx, "k", n, forever)
			require.NoError(t, err)
			return res
		}
		reserve(2)
		assert.Equal(t, 200*ms, reserve(2).Delay) // r.Delay()
		assert.False(t, reserve(3).Allowed())     // r.OK(): more than the burst

		// Cancel gives back, but for what was reserved after it. There, what is left of two
		// units when one is reserved behind them is given to the next, beside the one who
		// is behind; here it is nobody's.
		last := reserve(2)
		assert.Equal(t, 400*ms, last.Delay)
		require.NoError(t, l.Refund(ctx, "k", last, last.Taken)) // r.Cancel()
		assert.Equal(t, 400*ms, reserve(2).Delay)
		first := reserve(2)
		assert.Equal(t, 700*ms, reserve(1).Delay)
		require.NoError(t, l.Refund(ctx, "k", first, first.Taken))
		assert.Equal(t, 800*ms, reserve(1).Delay)

		// After its time, Cancel has no effect.
		advance(10 * time.Second)
		now := reserve(2)
		advance(200 * ms)
		require.NoError(t, l.Refund(ctx, "k", now, now.Taken))
		assert.Zero(t, reserve(2).Delay)
		assert.Equal(t, 100*ms, reserve(1).Delay, "two are two")

		// SetLimit and SetBurst: another policy of the same name on the same store.
		store := newMemory(t, 0)
		slow, fast := newLimiter(t, store, "api: 10/1s"), newLimiter(t, store, "api: 20/1s")
		_, err := slow.AllowN(ctx, "k", 10)
		require.NoError(t, err)
		res, err := fast.Allow(ctx, "k")
		require.NoError(t, err)
		assert.False(t, res.Allowed(), "what was taken stays taken")
		advance(time.Second / 2)
		res, err = fast.AllowN(ctx, "k", 10)
		require.NoError(t, err)
		assert.True(t, res.Allowed())
		res, err = newLimiter(t, store, "api: 20/1s burst 30").AllowN(ctx, "k", 30)
		require.NoError(t, err)
		assert.True(t, res.Allowed(), "a bucket that takes another time to fill is another one")
	})
}

// Wait and WaitN.
func TestMigrateTimeRateWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		l := newLimiter(t, nil, "10/1s burst 3; wait 366d") // rate.NewLimiter(10, 3)
		over := &enforce.OverLimitError{}
		gone, leave := context.WithCancel(t.Context())
		leave()
		require.ErrorIs(t, l.Wait(gone, "k", 1), context.Canceled)
		require.ErrorAs(t, l.Wait(t.Context(), "k", 4), &over, "exceeds the burst")
		for i, want := range []time.Duration{0, 200 * ms, 300 * ms} {
			require.NoError(t, l.Wait(t.Context(), "k", []int64{3, 2, 1}[i]))
			assert.Equal(t, want, time.Since(start))
		}
		short, cancel := context.WithTimeout(t.Context(), 150*ms)
		defer cancel()
		require.ErrorAs(t, l.Wait(short, "k", 3), &over, "would exceed the deadline")
		require.NotErrorIs(t, over, context.DeadlineExceeded)
		assert.Equal(t, 300*ms, time.Since(start), "it says so at once")
		require.NoError(t, l.Wait(short, "k", 1), "and takes nothing")
		assert.Equal(t, 400*ms, time.Since(start))
	})
}

// A redis_rate program: limiter.Allow(ctx, "project:123", redis_rate.PerSecond(10)).
func ExampleLimiter_fromRedisRate() {
	limiter, err := enforce.New(nil, core.MustParse("project: 10/1s"), enforce.Options{}) // or a redisstore.Store
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	res, err := limiter.Allow(ctx, "project:123")
	if err != nil {
		panic(err)
	}
	fmt.Println("allowed", res.Taken, "remaining", res.Remaining)

	res, err = limiter.UpTo(ctx, "project:123", 20) // AllowAtMost
	if err != nil {
		panic(err)
	}
	fmt.Println("allowed", res.Taken, "remaining", res.Remaining)
	// Output:
	// allowed 1 remaining 9
	// allowed 9 remaining 0
}

// A go-zero program: limit.NewPeriodLimit(60, 3, store, "sms").Take(phone).
func ExampleLimiter_fromPeriodLimit() {
	limiter, err := enforce.New(nil, core.MustParse("sms: 3/60s fixed-window"), enforce.Options{})
	if err != nil {
		panic(err)
	}
	for range 4 {
		res, err := limiter.Allow(context.Background(), "+86 555 0100")
		if err != nil {
			panic(err)
		}
		switch res.Outcome {
		case core.Admitted:
			fmt.Println("Allowed")
		case core.AtLimit:
			fmt.Println("HitQuota")
		default:
			fmt.Println("OverQuota")
		}
	}
	// Output:
	// Allowed
	// Allowed
	// HitQuota
	// OverQuota
}

// A program of golang.org/x/time/rate: rate.NewLimiter(1000, 1) and Wait. The wait word
// says how long a queue may become; without it nobody would wait.
func ExampleLimiter_Wait() {
	limiter, err := enforce.New(nil, core.MustParse("1000/1s burst 1; wait 1m"), enforce.Options{})
	if err != nil {
		panic(err)
	}
	start := time.Now()
	for range 3 {
		if err := limiter.Wait(context.Background(), "api.example.org", 1); err != nil {
			panic(err)
		}
	}
	fmt.Println(time.Since(start) >= 2*time.Millisecond)

	// A turn that would come after the deadline is refused at once.
	slow, err := enforce.New(nil, core.MustParse("1/1d; wait 7d"), enforce.Options{})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for range 2 {
		err := slow.Wait(ctx, "report", 1)
		fmt.Println(err == nil, errors.As(err, new(*enforce.OverLimitError)))
	}
	// Output:
	// true
	// true false
	// false true
}

// A reservation tells when its turn is, and may be given back.
func ExampleLimiter_Reserve() {
	limiter, err := enforce.New(nil, core.MustParse("1/10s; wait 1m"), enforce.Options{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for range 3 {
		res, err := limiter.Reserve(ctx, "printer", 1, 15*time.Second)
		if err != nil {
			panic(err)
		}
		fmt.Println(res.Outcome, res.Delay.Round(time.Second), res.RetryAfter.Round(time.Second))
		if res.Delay > 0 { // not needed after all
			if err := limiter.Refund(ctx, "printer", res, res.Taken); err != nil {
				panic(err)
			}
		}
	}
	// Output:
	// at-limit 0s 0s
	// at-limit 10s 0s
	// at-limit 10s 0s
}

// Some of what is asked for is better than nothing.
func ExampleLimiter_UpTo() {
	limiter, err := enforce.New(nil, core.MustParse("5/1h"), enforce.Options{})
	if err != nil {
		panic(err)
	}
	for range 3 {
		res, err := limiter.UpTo(context.Background(), "batch", 3)
		if err != nil {
			panic(err)
		}
		fmt.Println(res.Taken, res.Outcome)
	}
	// Output:
	// 3 admitted
	// 2 at-limit
	// 0 refused
}
