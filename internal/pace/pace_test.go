package pace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func newPace() *Pace { return New(Options{MaxWait: 30 * time.Second, Waiting: 1000}) }

// quota is an answer with a window of which so much is left.
func quota(remaining int64, reset time.Duration) Answer {
	return Answer{Quotas: []Quota{{Limit: 100, Window: 10 * time.Second, Remaining: remaining, Reset: reset, More: true}}}
}

// wait is Wait for a test.
func wait(t *testing.T, p *Pace, key string) *Turn {
	t.Helper()
	turn, err := p.Wait(t.Context(), key, time.Time{})
	require.NoError(t, err)
	return turn
}

// 1000 callers wait whose contexts end at random: those that stay are served in the order in which they came, and the
// turns of those that leave are not lost.
func TestWaitersThatLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Options{MaxWait: time.Hour, Waiting: 1000})
		const n = 1000
		used := int64(0)
		answer := func() Answer { // a window of 100 per 10 s
			used++
			now := p.now()
			return quota(max(0, 100-used%100), 10*time.Second-now%(10*time.Second))
		}
		wait(t, p, "k").Answered(answer())
		var mu sync.Mutex
		served := map[uint64]int{} // callers by their turns
		var left int
		var all sync.WaitGroup
		for i := range n {
			ctx, cancel := context.WithCancel(t.Context())
			after := time.Duration(1 + rand.Int64N(int64(60*time.Second)))
			if i%3 == 0 { // stays
				after = 2 * time.Hour
			}
			stop := time.AfterFunc(after, cancel)
			all.Go(func() {
				defer cancel()
				defer stop.Stop()
				turn, err := p.Wait(ctx, "k", time.Time{})
				mu.Lock()
				if err != nil {
					left++
					require.ErrorIs(t, err, context.Canceled)
				} else {
					served[turn.number] = i
				}
				if err == nil {
					turn.Answered(answer())
				}
				mu.Unlock()
			})
			synctest.Wait() // so that they come in order
		}
		start := time.Now()
		all.Wait()
		require.Equal(t, n, len(served)+left)
		var order []int
		for _, number := range slices.Sorted(maps.Keys(served)) {
			order = append(order, served[number])
		}
		require.IsIncreasing(t, order)
		require.Greater(t, left, n/10)
		for i := 0; i < n; i += 3 {
			require.Contains(t, order, i)
		}
		// At least ten a second went, of which those that left have taken none away.
		require.Less(t, time.Since(start).Seconds(), float64(len(served))/10+15)
		l := p.table.lines["k"]
		require.True(t, l.idle())
		require.Nil(t, l.head)
		require.Nil(t, l.tail)
		require.Zero(t, l.turns.count(p.now()))
	})
}

// A turn that comes in the moment in which its caller leaves is that of the next.
func TestTurnOfOneThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace()
		l := p.table.line("k", p)
		l.mu.Lock()
		first, second := &waiter{ready: make(chan struct{})}, &waiter{ready: make(chan struct{})}
		l.enter(first)
		l.serve()
		for range firstUnderWay - 1 {
			l.take(0, 0, 0)
		}
		l.enter(second)
		l.serve()
		l.mu.Unlock()
		require.NotNil(t, first.turn)
		require.Nil(t, second.turn)
		l.abandon(first)
		require.NotNil(t, second.turn)
		l.abandon(second)
		require.Equal(t, firstUnderWay-1, l.turns.count(p.now()))
		l.timer.Stop()
	})
}

// Until a key has an answer, ten requests of it are under way, and one more each 10 s; a server that says nothing of
// limits is never waited for.
func TestFirstRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace()
		var turns []*Turn
		for range firstUnderWay {
			turns = append(turns, wait(t, p, "k"))
		}
		start := time.Now()
		turns = append(turns, wait(t, p, "k"))
		require.Equal(t, patience, time.Since(start))
		turns[0].Failed()
		turns[1].Answered(Answer{})
		for range 100 {
			turns = append(turns, wait(t, p, "k"))
		}
		require.Equal(t, patience, time.Since(start))
		for _, turn := range turns {
			turn.Failed()
			turn.Answered(quota(0, time.Hour)) // does nothing any more
		}
		wait(t, p, "k").Failed()
		require.True(t, p.table.lines["k"].idle())
	})
}

// A server that answers nothing keeps nobody for longer than MaxWait.
func TestSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace()
		var all sync.WaitGroup
		start := time.Now()
		sent, late := 0, 0
		var mu sync.Mutex
		for range 50 {
			all.Go(func() {
				_, err := p.Wait(t.Context(), "k", time.Time{})
				mu.Lock()
				defer mu.Unlock()
				var tooLate *WaitError
				if errors.As(err, &tooLate) {
					late++
					require.Equal(t, 30*time.Second, time.Since(start))
				} else {
					sent++
				}
			})
		}
		all.Wait()
		require.Equal(t, 50, sent+late)
		require.Greater(t, late, 0)
	})
}

// After Retry-After nobody sends, then one, and all when that was answered.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace()
		early := wait(t, p, "k")
		wait(t, p, "k").Answered(Answer{Refused: true, RetryAfter: 5 * time.Second})
		early.Answered(Answer{}) // sent before, so that it ends nothing
		start := time.Now()
		probe := wait(t, p, "k")
		require.Equal(t, 5*time.Second, time.Since(start))
		other := make(chan *Turn)
		go func() { other <- wait(t, p, "k") }()
		synctest.Wait()
		require.Equal(t, 1, p.table.lines["k"].waiting)
		probe.Failed() // so that the next is the one
		second := <-other
		second.Answered(Answer{Refused: true, RetryAfter: 2 * time.Second})
		probe = wait(t, p, "k")
		require.Equal(t, 7*time.Second, time.Since(start))
		probe.Answered(Answer{})
		for range 20 {
			wait(t, p, "k").Answered(Answer{})
		}
		require.Equal(t, 7*time.Second, time.Since(start))
		// Another key is another matter.
		wait(t, p, "k").Answered(Answer{Refused: true, RetryAfter: 20 * time.Second})
		wait(t, p, "other").Answered(Answer{})
		require.Equal(t, 7*time.Second, time.Since(start))
	})
}

// A wait that is certain to be too long is refused at once, and nothing is sent.
func TestRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace()
		start := time.Now()
		wait(t, p, "k").Answered(Answer{Refused: true, RetryAfter: time.Minute})
		_, err := p.Wait(t.Context(), "k", time.Time{})
		var tooLate *WaitError
		require.ErrorAs(t, err, &tooLate)
		require.Equal(t, time.Minute, tooLate.Wait)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.EqualError(t, err, "not sent, because the server's limit does not admit it in time; try again in 1m0s")
		require.False(t, tooLate.Timeout())

		wait(t, p, "empty").Answered(quota(0, 9*time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err = p.Wait(ctx, "empty", time.Time{})
		require.ErrorAs(t, err, &tooLate)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, tooLate.Timeout())
		require.Zero(t, time.Since(start))

		p = New(Options{Waiting: 1})
		wait(t, p, "never waits").Answered(quota(0, 9*time.Second))
		_, err = p.Wait(t.Context(), "never waits", time.Time{})
		require.ErrorAs(t, err, &tooLate)

		p = New(Options{MaxWait: 30 * time.Second, Waiting: 1})
		wait(t, p, "k").Answered(quota(0, 9*time.Second))
		done := make(chan error)
		go func() { _, err := p.Wait(t.Context(), "k", time.Time{}); done <- err }()
		synctest.Wait()
		_, err = p.Wait(t.Context(), "k", time.Time{})
		require.ErrorAs(t, err, &tooLate)
		require.Equal(t, 1, tooLate.Waiting)
		require.ErrorContains(t, err, "(waiting requests: 1)")
		require.NoError(t, <-done)
	})
}

// A request that is sent again keeps its place.
func TestPlaceKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace()
		first := wait(t, p, "k")
		time.Sleep(time.Second) //nolint:forbidigo // of the bubble
		first.Answered(quota(0, 5*time.Second))
		order := make(chan string, 2)
		send := func(name string, came time.Time) {
			turn, err := p.Wait(t.Context(), "k", came)
			require.NoError(t, err)
			order <- name
			turn.Answered(quota(0, time.Second))
		}
		go send("newcomer", time.Time{})
		synctest.Wait()
		go send("again", first.Came())
		require.Equal(t, "again", <-order)
		require.Equal(t, "newcomer", <-order)
	})
}

// At most 10 000 keys are known. Those in use stay, and what finds no place is not waited for.
func TestKeysAreBounded(t *testing.T) {
	unlearnt := 0
	p := New(Options{MaxWait: time.Second, Waiting: 10, Observe: func(string, string) { unlearnt++ }})
	busy := wait(t, p, "busy")
	for i := range 3 * maxKeys {
		wait(t, p, fmt.Sprint(i)).Answered(quota(50, time.Second))
		require.LessOrEqual(t, len(p.table.lines), maxKeys)
	}
	require.Same(t, busy.line, p.table.lines["busy"])
	require.Contains(t, p.table.lines, fmt.Sprint(3*maxKeys-1))
	require.NotContains(t, p.table.lines, "0")
	require.Zero(t, unlearnt)

	p = New(Options{MaxWait: time.Second, Waiting: 10, Observe: func(string, string) { unlearnt++ }})
	for i := range maxKeys {
		wait(t, p, fmt.Sprint(i))
	}
	turn := wait(t, p, "one more")
	turn.Answered(quota(0, time.Hour))
	wait(t, p, "one more").Failed()
	require.Equal(t, 2, unlearnt)
	require.Len(t, p.table.lines, maxKeys)
}

// A limit that no answer names any more does not rule for ever.
func TestLimitOfSomeRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace()
		login := Answer{Quotas: []Quota{{Name: "login", Limit: 5, Window: 20 * time.Second, Remaining: 1, Reset: 20 * time.Second}}}
		wait(t, p, "k").Answered(login)
		start := time.Now()
		for range 100 {
			wait(t, p, "k").Answered(Answer{})
		}
		require.Less(t, time.Since(start), 45*time.Second)
		require.Empty(t, p.table.lines["k"].buckets)
	})
}

// A key has a bounded number of limits.
func TestManyLimits(t *testing.T) {
	p := newPace()
	var a Answer
	for i := range 10 * maxBuckets {
		a.Quotas = append(a.Quotas, Quota{Name: fmt.Sprint(i), Limit: 10, Remaining: 9, Reset: time.Second})
	}
	wait(t, p, "k").Answered(a)
	require.Len(t, p.table.lines["k"].buckets, maxBuckets)
}

func BenchmarkNothingKnown(b *testing.B) {
	p := newPace()
	b.ReportAllocs()
	for b.Loop() {
		turn, _ := p.Wait(b.Context(), "https://api.example.com#0123456789abcdef", time.Time{})
		turn.Answered(Answer{})
	}
}

// A turn that is given a little late, because a timer was, does not delay the next; one that nobody wanted does.
func TestLateTurns(t *testing.T) {
	for late, lost := range map[time.Duration]time.Duration{
		0: 0, 20 * time.Millisecond: 0, catchUp: 0, catchUp + time.Second: time.Second,
	} {
		p := newPace()
		l := p.table.line("k", p)
		now := time.Second
		half := quota(50, 10*time.Second)
		l.learn(l.take(now, now, now), &half, now)
		due := l.next(now)
		require.Greater(t, due, now)
		now = due + late
		l.take(l.next(now), now, now)
		require.InDelta(t, due+lost, l.last, float64(10*time.Millisecond), late) // the pace changes a little meanwhile
	}
}
