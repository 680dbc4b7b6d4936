package redisstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore/internal/keys"
)

// unreachable returns a store of a server that does not exist, on a client with these hooks.
func unreachable(t *testing.T, o Options, hooks ...redis.Hook) *Store {
	rdb := redis.NewUniversalClient(ClientOptions("127.0.0.1:1"))
	t.Cleanup(func() { _ = rdb.Close() })
	for _, h := range hooks {
		rdb.AddHook(h)
	}
	s, err := New(rdb, o)
	require.NoError(t, err)
	return s
}

// crowded returns a store of a server that does not exist, with a lane that no flight leaves, in which as many wait as may.
func crowded(t *testing.T, k kind) (*Store, *lane) {
	s := unreachable(t, Options{})
	l := s.only.lanes[k]
	l.out = l.maxOut
	for range maxWaiting {
		require.True(t, l.board(time.Now(), passengers.Get().(*passenger).enter(&entry{key: "others"}, nil, time.Now())))
	}
	return s, l
}

// A caller that found no place and gives up is not taken out of a queue in which it never was.
func TestNoPlaceAndNoTime(t *testing.T) {
	t.Parallel()
	s, l := crowded(t, refunding)
	first, last := l.oldest(), l.queue.Last(core.Policy{})
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		entries := []entry{{key: "late"}}
		s.askAll(ctx, refunding, entries)
		require.ErrorIs(t, entries[0].err, errFull.Err)
	}
	assert.Equal(t, maxWaiting, l.queue.Len())
	assert.Same(t, first, l.oldest())
	assert.Same(t, last, l.queue.Last(core.Policy{}))
}

// However much is given back at once, it is not too much if nobody else waits.
func TestLargeBatch(t *testing.T) {
	t.Parallel()
	s := unreachable(t, Options{})
	entries := make([]entry, maxWaiting+1)
	for i := range entries {
		entries[i].key = "k"
	}
	s.askAll(t.Context(), refunding, entries)
	for i := range entries {
		require.NotErrorIs(t, entries[i].err, errFull.Err)
	}
}

// swallow is a hook that neither asks the server nor says so.
type swallow struct{}

func (swallow) DialHook(next redis.DialHook) redis.DialHook { return next }

func (swallow) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { return nil }
}

func (swallow) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { return nil }
}

// What nobody has answered is a failure of the store, and no refusal.
func TestNoReplyAndNoError(t *testing.T) {
	t.Parallel()
	s := unreachable(t, Options{Deadline: time.Minute}, swallow{})
	take := core.Take{Policy: core.MustParse("p: 10/1m"), Key: "k", Cost: 1}
	_, err := s.Take(t.Context(), take)
	var failed *core.StoreError
	ok := errors.As(err, &failed)
	require.True(t, ok, "%v", err)
	assert.Equal(t, core.ClassReply, failed.Class)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // which is less than all of it, and so it is a passenger
	defer cancel()
	_, err = s.Take(ctx, take)
	failed = nil
	ok = errors.As(err, &failed)
	require.True(t, ok, "%v", err)
	assert.Equal(t, core.ClassReply, failed.Class)
}

// The first requests of a program come at once, and have their scripts composed but once.
func TestScriptsAreComposedOnce(t *testing.T) { //nolint:paralleltest // it counts allocations
	allocated := func(f func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	one := allocated(func() { _, _ = newScripts("gd") })
	all := allocated(func() {
		var ready, wg sync.WaitGroup
		ready.Add(1)
		for range 64 {
			wg.Go(func() {
				ready.Wait()
				_, err := scriptsOf("gd")
				assert.NoError(t, err)
			})
		}
		ready.Done()
		wg.Wait()
	})
	assert.Less(t, all, one*3/2)
}

// Passengers leave when their time is over, whatever becomes of their flight, and of those before.
func TestTimePasses(t *testing.T) {
	t.Parallel()
	s := unreachable(t, Options{Flights: 1, Deadline: 20 * time.Millisecond})
	l := s.only.lanes[deciding]
	l.maxAside = 0
	first := passengers.Get().(*passenger).enter(&entry{key: "first"}, nil, time.Now())
	l.mu.Lock()
	l.add(first)
	f := l.next(time.Now())
	l.mu.Unlock()
	require.NotNil(t, f, "which never lands")
	_, err := first.wait(t.Context(), l, l.deadline/2, l.deadline, nil)
	require.ErrorIs(t, err, errNoAnswer)
	_, err = l.ask(t.Context(), time.Now(), &entry{key: "waits"}, nil, nil)
	require.True(t, errors.Is(err, errNotSent) || errors.Is(err, errPaused), "%v", err) // if the machine is that busy
	assert.Zero(t, l.queue.Len())
}

// A passenger leaves a little before its time is over, so that its caller has its answer by then. One that comes too
// late to do so, because the process was stopped, polls for some time, in which a reply that has arrived is read.
func TestPassengersLeaveInTime(t *testing.T) {
	t.Parallel()
	for _, limit := range []time.Duration{time.Millisecond, 10 * time.Millisecond, DefaultDeadline, time.Second} {
		for name, own := range map[string]time.Duration{"of the lane": limit, "of its own": limit / 3} {
			t.Run(fmt.Sprint(limit, " ", name), func(t *testing.T) {
				t.Parallel()
				o := ClientOptions("127.0.0.1:1")
				o.MinIdleConns = 0
				rdb := redis.NewUniversalClient(o)
				t.Cleanup(func() { _ = rdb.Close() })
				s, err := New(rdb, Options{Deadline: limit})
				require.NoError(t, err)
				l, look := s.only.lanes[deciding], pollEvery(own)
				synctest.Test(t, func(t *testing.T) {
					for _, before := range []time.Duration{0, own / 3, own + maxPoll, 10*own + maxPoll} {
						start := time.Now()
						p := &passenger{woken: make(chan struct{}, 1), timer: time.NewTimer(time.Hour), entered: start.Add(-before)}
						p.place.Value = p
						l.mu.Lock()
						l.out, l.newest = 0, time.Time{}
						l.add(p)
						f := l.next(start)
						l.mu.Unlock()
						require.NotNil(t, f, "which never lands")
						_, err := p.wait(t.Context(), l, own/2, own, nil)
						require.ErrorIs(t, err, errNoAnswer)
						l.untrack(f)
						if before < own {
							assert.GreaterOrEqual(t, time.Since(p.entered), answerBy(own))
							assert.Less(t, time.Since(p.entered), own)
							continue
						}
						assert.GreaterOrEqual(t, time.Since(start), pollsLate*look)
						assert.LessOrEqual(t, time.Since(start), (pollsLate+1)*look)
					}
				})
			})
		}
	}
}

// What is sent again has the rest of its callers' time, and more only if the process came too late for that.
func TestSentAgainInTime(t *testing.T) {
	t.Parallel()
	s := unreachable(t, Options{Deadline: time.Minute})
	l := s.only.lanes[deciding]
	now := time.Now()
	again := (&flight{lane: l, sent: now}).prolong()
	again.timer.Stop()
	assert.Equal(t, now.Add(l.deadline-pollEvery(l.deadline)), again.at)
	again = (&flight{lane: l, sent: now.Add(-l.deadline)}).prolong()
	again.timer.Stop()
	assert.WithinRange(t, again.at, now.Add(grace(l.deadline)), time.Now().Add(grace(l.deadline)))
}

// Callers that leave while they wait are noticed, whoever waits before and behind them, also if the timer fires just
// after they have come.
func TestLeavingWhileWaiting(t *testing.T) {
	t.Parallel()
	s := unreachable(t, Options{Flights: 1, Deadline: time.Hour})
	l := s.only.lanes[deciding]
	l.out, l.maxAside = l.maxOut, 0 // by a flight that never lands
	short, end := context.WithTimeout(t.Context(), 30*time.Minute)
	defer end()
	ended := make([]chan error, 5)
	leave := make([]context.CancelFunc, len(ended))
	for i := range ended {
		ctx := t.Context()
		if i%2 == 0 { // one who pollsLate from the beginning
			ctx = short
		}
		ctx, leave[i] = context.WithCancel(ctx)
		ended[i] = make(chan error, 1)
		if i > 0 {
			l.mu.Lock()
			l.timerAt = time.Now()
			l.mu.Unlock()
		}
		go func() {
			_, err := l.ask(ctx, time.Now(), &entry{key: "waits"}, nil, nil)
			ended[i] <- err
		}()
		require.Eventually(t, func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.queue.Len() == i+1
		}, time.Minute, 50*time.Microsecond)
	}
	l.tick()
	for _, i := range []int{3, 0, 1, 4, 2} {
		leave[i]()
		require.ErrorIs(t, <-ended[i], context.Canceled)
	}
	assert.Zero(t, l.queue.Len())
	assert.Nil(t, l.queue.Marked)
}

// A crowd whose time is old does not take from those that poll the time to do so.
func TestAlarmsAreApart(t *testing.T) {
	t.Parallel()
	s := unreachable(t, Options{})
	l := s.only.lanes[deciding]
	l.mu.Lock()
	defer l.mu.Unlock() // so that the timer does not fire
	begun := time.Now()
	l.out = l.maxOut
	old := &passenger{entered: begun.Add(-10 * l.deadline)}
	old.place.Value = old
	l.add(old)
	for range 3 {
		l.setTimer(begun.Add(-l.deadline))
		assert.False(t, l.timerAt.Before(begun.Add(pollEvery(l.deadline))))
		l.timerAt = time.Time{}
	}
	l.timerAt = begun.Add(pollEvery(l.deadline))
	l.setTimer(begun.Add(-l.deadline))
	assert.Equal(t, begun.Add(pollEvery(l.deadline)), l.timerAt, "it is not put off")
	l.timer.Stop()
}

// A name that was given before is the one that would be given now.
func TestNameOfBefore(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"", "0123456789abcdef"} {
		n := keys.New("weir", []byte(secret))
		p0, other := &program{names: n, before: "weir:1:p:g:"}, &program{names: n, before: "weir:1:q:g:"}
		readable := &program{names: keys.New("weir", nil), before: p0.before} // of another store
		all := []string{"a", "b", "ab", "~", "~a", "p:g:a", "a\n", strings.Repeat("a", 201)}
		for _, k := range slices.Clip(all) { // also the texts of hashes
			all = append(all, n.Of("", k), keys.New("weir", []byte("0123456789abcdef")).Of("", k))
		}
		for _, wanted := range all {
			want := n.Of(p0.before, wanted)
			after := func(before *program, key string) string {
				p := new(passenger).enter(&entry{program: before}, &core.Take{Key: key}, time.Now())
				return p.enter(&entry{program: p0}, &core.Take{Key: wanted}, time.Now()).key
			}
			for _, before := range all {
				assert.Equal(t, want, after(p0, before), "%q after %q", wanted, before)
				assert.Equal(t, want, after(other, before), "%q after %q", wanted, before)
				assert.Equal(t, want, after(readable, before), "%q after %q", wanted, before)
			}
			named := new(passenger).enter(&entry{program: p0, key: want}, &core.Take{Key: wanted}, time.Now())
			assert.Equal(t, want, named.key)
			assert.Equal(t, want, named.enter(&entry{program: p0}, &core.Take{Key: wanted}, time.Now()).key)
			assert.Equal(t, "other", named.enter(&entry{program: p0, key: "other"}, nil, time.Now()).key)
			assert.Equal(t, want, named.enter(&entry{program: p0}, &core.Take{Key: wanted}, time.Now()).key)
		}
	}
}

// Equal calls that wait merge, and weigh as one, whoever of them leaves before.
func TestEqualCallsThatWait(t *testing.T) {
	t.Parallel()
	s := unreachable(t, Options{})
	policy := core.MustParse("p: 10/1m")
	program, err := s.programs.of(s.names, policy)
	require.NoError(t, err)
	const others = "bbaaaabba" // the keys of those who wait, beside a first one
	for gone := range 1 << len(others) {
		l := &lane{node: s.only, maxOut: 1, out: 1, maxEntries: flightEntries, maxWeight: decisionWeight, deadline: time.Hour}
		l.mu.Lock() // for the timer, too
		var all []*passenger
		for _, key := range "c" + others {
			e := &entry{script: program.take, args: program.unit, weight: program.weight, mayShare: true, program: program}
			p := passengers.Get().(*passenger).enter(e, &core.Take{Policy: policy, Key: string(key), Cost: 1}, time.Now())
			l.add(p)
			all = append(all, p)
		}
		left := "c"
		for i, p := range all[1:] {
			if gone>>i&1 == 1 {
				l.queue.Remove(&p.place)
			} else {
				left += others[i : i+1]
			}
		}
		rows, runs := map[byte]int{}, 0
		for i := range left {
			if rows[left[i]]++; i == 0 || left[i] != left[i-1] {
				runs++
			}
		}
		// Those whom one has left between them are not together, although they might be.
		assert.GreaterOrEqual(t, l.queue.Weight(), int64(runs)*program.weight, "%b", gone)
		assert.LessOrEqual(t, l.queue.Weight(), int64(len(left))*program.weight, "%b", gone)
		l.out = 0
		f := l.next(time.Now())
		l.timer.Stop()
		l.mu.Unlock()
		require.Zero(t, l.queue.Weight(), "%b", gone)
		f.group(DefaultMaxKeys)
		require.Len(t, f.calls, 1)
		if len(left) == 1 {
			continue
		}
		got := map[byte]int{}
		for i, r := range f.calls[0].rows {
			n := 0
			for p := r.first; p != nil; p = p.nextOfKey {
				n++
			}
			assert.Equal(t, f.calls[0].counts[i], n)
			got[r.key[len(r.key)-1]] += n
		}
		assert.Equal(t, rows, got, "%b", gone)
	}
}

// A caller whose policy keeps no flight busy leaves at once, although all flights are out, as long as there are
// connections to spare; those of a crowd do not.
func TestAsideOfACrowd(t *testing.T) {
	t.Parallel()
	hook := &asked{}
	s := unreachable(t, Options{Deadline: time.Minute, DenyCache: -1}, hook)
	l := s.only.lanes[deciding]
	require.Positive(t, l.maxAside)
	l.out = l.maxOut // by flights that never land
	crowd, lone := core.MustParse("crowd: 10/1m"), core.MustParse("lone: 10/1m")
	l.mu.Lock()
	l.enqueue(passengers.Get().(*passenger).enter(&entry{key: "k", policy: crowd}, nil, time.Now()))
	assert.False(t, l.aside(crowd), "one of them waits")
	assert.True(t, l.aside(lone))
	l.mu.Unlock()
	_, err := s.Take(t.Context(), core.Take{Policy: lone, Key: "k", Cost: 1})
	require.Error(t, err, "the hook does not answer")
	assert.Equal(t, 1, hook.n)
	assert.Empty(t, l.asides)
	assert.Equal(t, l.maxOut, l.out)
	assert.Equal(t, 1, l.queue.Len())

	l.mu.Lock()
	defer l.mu.Unlock()
	l.asides = []core.Policy{lone}
	assert.False(t, l.aside(lone), "one has left like that")
	l.asides = policiesOf(l.maxAside)
	assert.False(t, l.aside(lone), "there are no more connections")
	l.asides, l.firsts = nil, []core.Policy{lone}
	assert.False(t, l.aside(lone), "one comes first in a flight that is out: it may be of a crowd")
	l.firsts, l.out = nil, l.maxOut-1
	assert.False(t, l.aside(lone), "there is an ordinary flight")
}

// Of a crowd whose flights are all out nobody leaves alone, until these have given out all of their answers.
func TestNobodyOfACrowdLeavesAside(t *testing.T) {
	t.Parallel()
	s := unreachable(t, Options{Deadline: time.Minute, Flights: 1}, &asked{})
	l := s.only.lanes[deciding]
	l.mu.Lock()
	defer l.mu.Unlock()
	crowd, lone := core.MustParse("crowd: 10/1m"), core.MustParse("lone: 10/1m")
	l.enqueue(passengers.Get().(*passenger).enter(&entry{key: "k", policy: crowd}, nil, time.Now()))
	f := l.next(time.Now())
	require.NotNil(t, f)
	require.Zero(t, l.queue.Len())
	land := func(stay bool) {
		l.mu.Unlock()
		defer l.mu.Lock()
		assert.Nil(t, f.land(true, stay))
	}
	assert.False(t, l.aside(crowd))
	assert.True(t, l.aside(lone))
	land(true)
	assert.False(t, l.aside(crowd), "it gives out its answers")
	assert.True(t, l.aside(lone))
	land(false)
	assert.Empty(t, l.firsts)
	assert.Zero(t, l.out)
}

// What a flight says of the server does not count if the process looked at it much too late.
func TestStarvedProcess(t *testing.T) {
	t.Parallel()
	s := unreachable(t, Options{Deadline: time.Minute})
	for age, want := range map[time.Duration]string{time.Minute: core.ClassTimeout, 2 * time.Minute: core.ClassBusy} {
		f := &flight{lane: s.only.lanes[deciding], sent: time.Now().Add(-age)}
		var failed *core.StoreError
		ok := errors.As(f.judge(&call{}, context.DeadlineExceeded), &failed)
		require.True(t, ok)
		assert.Equal(t, core.ClassTimeout, failed.Class)
		assert.Equal(t, want, classOf(f.failure))
	}
}

// What a flight says of the server does not count either if goroutines wait long for a processor, unless the server has
// been silent for longer than a flight may take to be noticed.
func TestShortOfProcessors(t *testing.T) { //nolint:paralleltest // it takes all processors
	s := unreachable(t, Options{Deadline: time.Minute})
	l := s.only.lanes[deciding]
	judged := func(silence time.Duration) string {
		l.answeredAt.set(time.Now().Add(-silence))
		f := &flight{lane: l, sent: time.Now()}
		assert.Equal(t, core.ClassTimeout, classOf(f.judge(&call{}, context.DeadlineExceeded)))
		return classOf(f.failure)
	}
	var over atomic.Bool
	var begun, ended sync.WaitGroup
	for range 1000 * runtime.GOMAXPROCS(0) { // of which each processor takes 100 ms for a round
		begun.Add(1)
		ended.Go(func() {
			begun.Done()
			for !over.Load() {
				for start := time.Now(); time.Since(start) < 100*time.Microsecond; { //nolint:revive // it works
				}
				runtime.Gosched()
			}
		})
	}
	begun.Wait()
	assert.Equal(t, core.ClassBusy, judged(0))
	assert.Equal(t, core.ClassTimeout, judged(time.Minute))
	over.Store(true)
	ended.Wait()
}

// While a process asks for more than the server decides, what fails because time has passed is busy, and no breaker
// counts it. A server that is silent all the same is not busy.
func TestTooMany(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		excess, heard time.Duration // how long ago, of a minute
		class         string
	}{
		"too many":       {10 * time.Second, 0, core.ClassBusy},
		"only before":    {50 * time.Second, 0, core.ClassTimeout},
		"silent as well": {10 * time.Second, 5 * time.Second, core.ClassTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := unreachable(t, Options{Deadline: time.Minute})
			l := s.only.lanes[deciding]
			synctest.Test(t, func(t *testing.T) {
				end := time.Now().Add(40 * time.Second)
				l.overloaded.set(end.Add(-c.excess))
				l.answeredAt.set(end.Add(-c.heard))
				ride := func(board bool) error {
					p := &passenger{woken: make(chan struct{}, 1), timer: time.NewTimer(time.Hour), entered: end.Add(-40 * time.Second)}
					p.place.Value = p
					p.timer.Stop()
					l.mu.Lock()
					l.enqueue(p)
					p.outOfOrder = true // so that it has its own eye on the time
					if board {
						require.Len(t, l.queue.Fill(1, backgroundWeight, takeWeight), 1)
					}
					l.mu.Unlock()
					_, err := p.wait(t.Context(), l, 40*time.Second, 40*time.Second+3*maxPoll, nil)
					assert.Zero(t, l.queue.Len())
					return err
				}
				err := ride(false)
				assert.Equal(t, c.class, classOf(err), "%v", err)
				l.answeredAt.set(time.Now().Add(-c.heard))
				err = ride(true)
				assert.Equal(t, c.class, classOf(err), "%v", err)

				l.answeredAt.set(time.Now().Add(-c.heard))
				f := &flight{lane: l, sent: end.Add(-40 * time.Second)}
				assert.Equal(t, c.class, classOf(f.judge(&call{}, context.DeadlineExceeded)))
				assert.Equal(t, c.class, classOf(f.failure))
			})
		})
	}
}

// That there are too many shows in those who leave without a flight while others are answered, and where there is no
// place.
func TestExcess(t *testing.T) {
	t.Parallel()
	_, l := crowded(t, deciding)
	start := time.Now().Add(-time.Second)
	first, second := l.oldest(), l.queue.First().Next().Value
	unsent, busy := l.leave(first)
	assert.True(t, unsent)
	assert.False(t, busy)
	assert.False(t, l.overloaded.after(start), "nobody was answered meanwhile")
	l.answers++
	unsent, busy = l.leave(second)
	assert.True(t, unsent)
	assert.True(t, busy)
	l.answeredAt.set(time.Now())
	assert.True(t, l.overloadedSince(start))

	_, l = crowded(t, deciding)
	_, err := l.ask(t.Context(), time.Now(), &entry{key: "others"}, nil, nil)
	require.ErrorIs(t, err, errFull)
	l.answeredAt.set(time.Now())
	assert.True(t, l.overloadedSince(start))
}

// A caller for whom nothing is asked lets others go first, before it may ask again.
func TestRefusedLetOthersGoFirst(t *testing.T) { //nolint:paralleltest // it takes all processors but one
	rdb := redis.NewUniversalClient(ClientOptions("127.0.0.1:1"))
	t.Cleanup(func() { _ = rdb.Close() })
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	open := newTrouble()
	open.lastSuccess.Store(int64(time.Since(started) - time.Hour))
	for name, c := range map[string]struct {
		prepare func(*lane)
		came    time.Duration // how long ago the caller did
		err     error
	}{
		"after a pause": {func(l *lane) { l.shortestTrip = answerBy(l.deadline) / 2 }, time.Hour, errPaused},
		"without a server": {func(l *lane) {
			l.trouble.Store(open)
			for range openAfter {
				l.report(nil, errNoAnswer)
			}
		}, 0, errOpen},
	} {
		refused, yielded := 0, 0
		for range 100 {
			s, err := New(rdb, Options{})
			require.NoError(t, err)
			l := s.only.lanes[deciding]
			c.prepare(l)
			ran := make(chan struct{})
			go close(ran)
			_, err = l.ask(t.Context(), time.Now().Add(-c.came), &entry{key: "k"}, nil, nil)
			if errors.Is(err, c.err) { // as long as the breaker is open
				refused++
				select {
				case <-ran:
					yielded++
				default: // the scheduler takes turns as it likes, now and then
				}
			}
			<-ran
		}
		assert.Greater(t, refused, 50, name)
		assert.Greater(t, yielded, refused/2, name)
	}
}

// A pilot waits for the next flight while one is out, flies it, and ends with the last that is back.
func TestPilotsWaitWhileFlightsAreOut(t *testing.T) {
	t.Parallel()
	s := unreachable(t, Options{})
	l := s.only.lanes[deciding]
	change := func(by int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.out += by
	}
	fly := func() { // with a passenger, as others are out
		_, err := l.ask(t.Context(), time.Now(), &entry{key: "waits"}, nil, nil)
		require.Error(t, err)
	}
	waits := func(n int64) func() bool { return func() bool { return l.parked.Load() == n } }
	change(1)
	for range 3 {
		fly()
		require.Eventually(t, waits(1), time.Minute, 50*time.Microsecond)
	}
	change(-1)
	fly() // alone, and so the last one
	assert.Zero(t, l.parked.Load())
	require.Eventually(t, func() bool { return len(l.handover) == 0 }, time.Minute, 50*time.Microsecond, "it has not ended")

	change(l.maxOut - 1) // many at once leave no more behind than may be out
	var all sync.WaitGroup
	for range 100 {
		all.Go(fly)
	}
	all.Wait()
	assert.LessOrEqual(t, l.parked.Load(), int64(l.maxOut))
	change(1 - l.maxOut)
	require.Eventually(t, func() bool { fly(); return l.parked.Load() == 0 }, time.Minute, 50*time.Microsecond)
}

// While the timer finds nothing to do, it leaves to flights what they do as well, but nobody's time passes unnoticed.
func TestTimerWhileFlightsComeAndGo(t *testing.T) {
	t.Parallel()
	s := unreachable(t, Options{})
	l := s.only.lanes[deciding]
	now := time.Now()
	p := passengers.Get().(*passenger).enter(&entry{key: "waits"}, nil, now.Add(time.Hour))
	fires := func(entered time.Time) (calm bool) {
		l.mu.Lock()
		p.entered, p.watching = entered, false
		l.queue.Marked = &p.place
		l.mu.Unlock()
		l.tick()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.timer.Stop()
		return !l.calmUntil.IsZero()
	}
	late, soon := now.Add(-time.Hour), now.Add(time.Hour)
	l.mu.Lock()
	l.out, l.inFlight = l.maxOut, 100 // so that it does not leave
	l.admit(p, l.deadline)
	l.mu.Unlock()
	for range 10 { // beside a flight that does not come back
		require.False(t, fires(soon))
		require.False(t, fires(late), "it was woken")
	}
	for range calmAfter - 1 {
		require.False(t, fires(soon), "nobody knows yet whether flights come back")
	}
	require.True(t, fires(soon))
	require.True(t, fires(soon))

	l.mu.Lock()
	defer l.mu.Unlock()
	l.out = 1
	p.entered, l.calmUntil = now, time.Time{}
	assert.Equal(t, now.Add(l.maxQueueDelay()), l.nextDue())
	l.calmUntil = now.Add(grace(l.deadline))
	assert.Equal(t, l.calmUntil, l.nextDue())
	p.entered = now.Add(time.Millisecond - l.queueLimit(l.deadline))
	assert.Equal(t, now.Add(time.Millisecond), l.nextDue(), "it leaves the queue in time all the same")
	l.enqueue(passengers.Get().(*passenger).enter(&entry{key: "comes late"}, nil, late))
	assert.Zero(t, l.calmUntil, "the timer is to wake it before")
}

// A passenger that waits for its answer alone is woken to watch its caller, also when the server has become slow meanwhile.
func TestWatchAfter(t *testing.T) {
	t.Parallel()
	l := unreachable(t, Options{}).only.lanes[deciding]
	for trip, want := range map[time.Duration]time.Duration{
		0: minWatchAfter, time.Millisecond: 2 * time.Millisecond, time.Second: maxWatchAfter,
	} {
		l.smoothedTrip = trip
		assert.Equal(t, want, l.watchAfter(), "%v", trip)
	}
}

// Flights with many passengers leave one after the other, and all others at once.
func TestStagger(t *testing.T) {
	t.Parallel()
	const us = time.Microsecond
	for _, test := range []struct {
		name    string
		trip    time.Duration
		flights []int // how many are in each, ready at the same time
		behind  int   // how many are left in the queue
		waited  time.Duration
		want    []time.Duration
	}{
		{"a millisecond away", 1040 * us, []int{8, 20, 9}, 0, 0, []time.Duration{0, 130 * us, 260 * us}},
		{"far away", 20 * time.Millisecond, []int{8, 64, 9}, 0, 0, []time.Duration{0, tripPerFlight, 2 * tripPerFlight}},
		{"near", 80 * us, []int{8, 8, 8, 8, 8}, 0, 0, []time.Duration{0, 0, 0, 30 * us, 40 * us}},
		{"none is back yet", 0, []int{8, 8, 8}, 0, 0, []time.Duration{0, 0, 0}},
		{"small ones between", 1040 * us, []int{8, 7, 1, 8}, 0, 0, []time.Duration{0, 0, 0, 130 * us}},
		{"others are left behind", 1040 * us, []int{8, 8, 8}, 1, 0, []time.Duration{0, 0, 0}},
		{"more than fit into a trip", 240 * us, slices.Repeat([]int{8}, 11), 0, 0, []time.Duration{
			0, 30 * us, 60 * us, 90 * us, 120 * us, 150 * us, 180 * us, 210 * us, 240 * us, 0, 0,
		}},
		{"no time to lose", 5 * time.Millisecond, []int{8, 9, 9, 8}, 0, 37 * time.Millisecond, []time.Duration{0, 0, 0, 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := unreachable(t, Options{}).only.lanes[deciding]
			l.mu.Lock()
			defer l.mu.Unlock()
			l.shortestTrip = test.trip
			for range test.behind {
				p := passengers.Get().(*passenger).enter(&entry{key: "behind"}, nil, time.Now())
				l.add(p)
			}
			now := time.Now()
			var got []time.Duration
			for _, entries := range test.flights {
				got = append(got, l.stagger(&flight{lane: l, entries: entries, waited: test.waited}, now))
			}
			assert.Equal(t, test.want, got)
			assert.Zero(t, l.stagger(&flight{lane: l, entries: 8}, now.Add(test.trip+time.Minute)), "time has passed")
		})
	}
}

// departures receives the time at which each pipeline leaves.
type departures chan time.Time

func (departures) DialHook(next redis.DialHook) redis.DialHook { return next }

func (departures) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (d departures) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { d <- time.Now(); return nil }
}

// A flight that waits leaves when its time has come, while the lane's timer looks at it.
func TestDeparture(t *testing.T) { //nolint:paralleltest // it needs a timer, of which there are few
	if runtime.GOOS != "linux" {
		t.Skip("flights leave at once")
	}
	left := make(departures, 1)
	l := unreachable(t, Options{Deadline: time.Minute}, left).only.lanes[deciding]
	l.mu.Lock()
	l.shortestTrip = time.Second
	for n := range minStaggered {
		l.add(passengers.Get().(*passenger).enter(&entry{key: strconv.Itoa(n)}, nil, time.Now()))
	}
	at := time.Now().Add(50 * time.Millisecond)
	l.nextLeaves = at
	f := l.next(time.Now())
	l.mu.Unlock()
	require.NotNil(t, f)
	ticked := make(chan struct{})
	go func() {
		defer close(ticked)
		for len(left) == 0 {
			l.tick()
			runtime.Gosched()
		}
	}()
	l.run(f)
	<-ticked
	assert.False(t, (<-left).Before(at))
}

// The time of a flight begins when it leaves, so that the round trip is not taken to be longer than it is.
func TestTimeBeginsWithDeparture(t *testing.T) { //nolint:paralleltest // as above
	if runtime.GOOS != "linux" {
		t.Skip("flights leave at once")
	}
	l := unreachable(t, Options{}).only.lanes[deciding]
	for _, delay := range []time.Duration{200 * time.Microsecond, 5 * time.Millisecond} {
		ready := time.Now()
		f := &flight{lane: l, sent: ready, waited: time.Hour, delay: delay}
		f.awaitDeparture()
		waited := f.sent.Sub(ready)
		assert.False(t, f.sent.After(time.Now()))
		if waited > 0 { // else it was stopped before
			assert.GreaterOrEqual(t, waited, delay)
		}
		assert.LessOrEqual(t, waited, delay+time.Millisecond)
		assert.Equal(t, time.Hour+waited, f.waited)
	}
}

// If the process was stopped while a flight waited, that counts, so that nothing is asked in vain.
func TestStoppedBeforeDeparture(t *testing.T) {
	t.Parallel()
	l := unreachable(t, Options{}).only.lanes[deciding]
	filled := time.Now().Add(-time.Hour)
	for name, wait := range map[string]func(*flight){
		"before it slept": (*flight).awaitDeparture,
		"while it slept":  func(f *flight) { f.begin(time.Now()) },
	} {
		f := &flight{lane: l, sent: filled, delay: time.Millisecond, shortestTrip: 20 * time.Millisecond}
		wait(f)
		assert.LessOrEqual(t, f.sent.Sub(filled), 2*time.Millisecond, name)
		assert.True(t, f.tooLate(), name)
	}
}
