package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// asked is a hook that counts the questions of which it is asked, and answers none.
type asked struct{ n int }

func (*asked) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *asked) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { a.n++; return nil }
}

func (a *asked) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { a.n++; return nil }
}

// What would be sent and abandoned, because the process was stopped and the server is further away than its callers
// still wait, is not sent, wherever the process was stopped. It counts neither for the breaker nor as a timeout.
func TestNothingIsAskedInVain(t *testing.T) {
	t.Parallel()
	policy := core.MustParse("p: 10/1m")
	for name, c := range map[string]struct {
		trip, stopped time.Duration
		asked         int
	}{
		"near, in time":   {time.Millisecond, 0, 1},
		"near, too late":  {time.Millisecond, time.Hour, 1}, // as the callers poll for a moment
		"far, in time":    {10 * time.Millisecond, 0, 1},
		"far, just so":    {10 * time.Millisecond, time.Minute - 20*time.Second, 1},
		"far, too late":   {10 * time.Millisecond, time.Hour, 0},
		"far, hardly any": {10 * time.Second, time.Minute - 9*time.Second, 0},
		"unknown":         {0, time.Hour, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hook := &asked{}
			s := unreachable(t, Options{Deadline: time.Minute, DenyCache: -1}, hook)
			l := s.only.lanes[deciding]
			l.shortestTrip, l.shortest, l.answers = c.trip, [2]time.Duration{c.trip, c.trip}, 1
			program, err := s.programs.of(s.names, policy)
			require.NoError(t, err)
			take := core.Take{Policy: policy, Key: "k", Cost: 1}
			e := entry{policy: policy, script: program.take, args: program.unit, mayShare: true, program: program}
			came := time.Now().Add(-c.stopped)
			notAsked := func(err error) {
				t.Helper()
				if c.asked == 0 {
					require.ErrorIs(t, err, errPaused)
					assert.Nil(t, l.trouble.Load(), "nothing that the server has done")
				}
				assert.Equal(t, c.asked, hook.n)
				hook.n = 0
				l.mu.Lock() // its timer may go off
				defer l.mu.Unlock()
				l.shortestTrip = c.trip
				assert.Zero(t, l.out)
				assert.Zero(t, l.queue.Len())
			}

			// Between the call and the flight.
			var res core.Result
			_, err = l.ask(t.Context(), came, &e, &take, &res)
			notAsked(err)

			// Between the decision to leave alone and the sending.
			l.mu.Lock()
			l.takeOff(e.policy, 1)
			l.mu.Unlock()
			alone := &flight{lane: l, policy: e.policy, own: e, sent: came, shortestTrip: c.trip, entries: 1}
			alone.only[0].entry, alone.calls = &alone.own, alone.only[:]
			alone.fly(t.Context())
			notAsked(alone.own.err)

			// Between boarding and the sending.
			p := passengers.Get().(*passenger).enter(&e, &take, came)
			l.mu.Lock()
			l.shortestTrip = 0
			l.enqueue(p)
			f := l.next(came)
			require.NotNil(t, f)
			f.sent, f.shortestTrip, f.delay = came, c.trip, time.Microsecond
			l.mu.Unlock()
			l.run(f)
			_, err = p.wait(t.Context(), l, l.deadline/2, l.deadline, &res)
			notAsked(err)

			// While it waited.
			p = passengers.Get().(*passenger).enter(&e, &take, came)
			l.mu.Lock()
			l.shortestTrip = c.trip
			l.enqueue(p)
			f = l.next(time.Now())
			l.mu.Unlock()
			assert.Equal(t, c.asked, map[bool]int{true: 1}[f != nil])
			l.run(f)
			_, err = p.wait(t.Context(), l, l.deadline/2, l.deadline, &res)
			notAsked(err)
		})
	}
}

// A server whose first answer took nearly all of the time that there is, as where the process was short of processors
// then, is asked all the same: only another answer can say that it is near.
func TestOneSlowAnswerIsNotForEver(t *testing.T) {
	t.Parallel()
	hook := &asked{}
	s := unreachable(t, Options{Deadline: time.Minute, DenyCache: -1}, hook)
	l := s.only.lanes[deciding]
	slow := &flight{lane: l, sent: time.Now().Add(-time.Minute), entries: 1}
	l.takeOff(slow.policy, slow.entries)
	slow.land(true, false)
	for n := range 3 {
		_, err := s.Take(t.Context(), core.Take{Policy: core.MustParse("p: 10/1m"), Key: "k", Cost: 1})
		require.NotErrorIs(t, err, errPaused)
		require.Error(t, err, "the hook answers nothing")
		assert.Equal(t, n+1, hook.n)
	}
}

// lostScript is a hook of a server that does not know a script, and panics when that is sent again.
type lostScript struct {
	asked

	says redis.Error
}

func (h *lostScript) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { return h.answer(cmd) }
}

func (h *lostScript) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error { return h.answer(cmds...) }
}

func (h *lostScript) answer(cmds ...redis.Cmder) error {
	if h.n++; h.n > 1 {
		panic("a hook")
	}
	for _, cmd := range cmds {
		cmd.SetErr(h.says)
	}
	return h.says
}

// A flight that ends in a panic when something of it is sent again is no longer the timer's, also if its caller flew it.
func TestPanicOfSomethingSentAgain(t *testing.T) {
	t.Parallel()
	s := unreachable(t, Options{Deadline: time.Minute}, &lostScript{says: serverError("NOSCRIPT No matching script.")})
	policy := core.MustParse("p: 10/1m")
	assert.PanicsWithValue(t, "a hook", func() {
		_, _ = s.TakeMany(t.Context(), []core.Take{{Policy: policy, Key: "a", Cost: 1}, {Policy: policy, Key: "b", Cost: 1}})
	})
	l := s.only.lanes[deciding]
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Empty(t, l.flights)
	assert.Empty(t, l.firsts)
	assert.Zero(t, l.out)
}

// serverError is an error that a server answers with.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}
