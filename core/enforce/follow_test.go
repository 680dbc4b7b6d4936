package enforce_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/internal/remotetest"
	"github.com/weir-go/weir/internal/race"
)

// numbers is a Source that can be changed.
type numbers = atomic.Pointer[follow.Set]

func set(policy string, keys ...string) *follow.Set {
	s := &follow.Set{Policies: map[string]string{}, Keys: map[string]map[string]string{"job": {}}}
	if policy != "" {
		s.Policies["job"] = policy
	}
	for i := 0; i < len(keys); i += 2 {
		s.Keys["job"][keys[i]] = keys[i+1]
	}
	return s
}

func following(t testing.TB, store core.Store, policy string, o enforce.Options) *enforce.Limiter {
	l, err := enforce.New(store, core.MustParse(policy), o)
	require.NoError(t, err)
	return l
}

// Numbers hold from the next call on, and go again.
func TestLimiterFollows(t *testing.T) {
	source, log, ctx := new(numbers), new(strings.Builder), t.Context()
	l := following(t, nil, "job: 10/1h fixed-window", enforce.Options{Source: source, Log: slog.New(slog.NewTextHandler(log, nil))})
	remaining := func(key string, want int64) {
		t.Helper()
		assert.Equal(t, want, left(t, l, key))
	}
	_, err := l.AllowN(ctx, "a", 4)
	require.NoError(t, err)
	remaining("a", 6)
	source.Store(set("20/1h fixed-window", "b", "100/1h fixed-window", "c", "nonsense"))
	remaining("a", 16)
	remaining("b", 100)
	remaining("c", 20)
	assert.Equal(t, "job: 20/1h fixed-window", l.Policy().String())
	assert.Equal(t, 1, strings.Count(log.String(), "\n"), log)
	assert.Contains(t, log.String(), `"Keys[\"job\"][\"c\"]" text=nonsense`)
	assert.Contains(t, log.String(), "code=unusable-numbers")
	source.Store(set("2/1h", "c", "nonsense")) // of another algorithm
	remaining("a", 16)
	remaining("b", 20)
	assert.Equal(t, 2, strings.Count(log.String(), "\n"), log)
	source.Store(nil)
	remaining("a", 6)
	assert.Equal(t, "job: 10/1h fixed-window", l.Policy().String())
	assert.Equal(t, []string{"job"}, l.PolicyNames())

	other, err := l.With(core.MustParse("other: 1/1h"))
	require.NoError(t, err)
	source.Store(&follow.Set{Policies: map[string]string{"other": "7/1h"}, Tiers: map[string]map[string]string{"other": {"pro": "nonsense"}}})
	assert.EqualValues(t, 7, left(t, other, "a"))
	assert.Equal(t, 2, strings.Count(log.String(), "\n"), "a Limiter has no tiers")
	fixed, err := l.Variant(core.MustParse("30/1h fixed-window"))
	require.NoError(t, err)
	source.Store(set("20/1h fixed-window"))
	assert.EqualValues(t, 26, left(t, fixed, "a"), "a Variant follows nothing")

	_, err = enforce.New(nil, core.MustParse("job: 1/1h"), enforce.Options{Source: (*numbers)(nil)})
	require.EqualError(t, err, "enforce: Source is a nil *atomic.Pointer[github.com/weir-go/weir/core/follow.Set]; leave it out, or give one such as new(atomic.Pointer[follow.Set])")
}

// Each method goes by the numbers of its key.
func TestLimiterFollowsByKey(t *testing.T) {
	source, ctx := new(numbers), t.Context()
	l := following(t, nil, "job: 1/1h, 1 concurrent; wait 1h", enforce.Options{Source: source})
	source.Store(set("", "more", "5/1h, 5 concurrent", "bad", "blocked", "free", "unlimited"))
	for key, want := range map[string]int64{"one": 1, "more": 5, "bad": 0, "free": 9} {
		res, err := l.UpTo(ctx, key, 9)
		require.NoError(t, err)
		assert.Equal(t, want, res.Taken, key)
		if want > 0 {
			require.NoError(t, l.Refund(ctx, key, res, want), key)
		}
		_, err = l.AllowN(ctx, key, 0)
		require.NoError(t, err)
		res, err = l.Reserve(ctx, key, 2, time.Hour)
		require.NoError(t, err)
		assert.Equal(t, key == "more" || key == "free", res.Allowed(), "%s: %+v", key, res)
		require.NoError(t, l.Reset(ctx, key))
		holds := 0
		for range 9 {
			_, _, err := l.Acquire(ctx, key)
			if err != nil {
				break
			}
			holds++
			require.NoError(t, l.Reset(ctx, key)) // the units alone
		}
		assert.EqualValues(t, want, holds, key)
	}
	require.NoError(t, l.Wait(ctx, "free", 1000))

	// Nothing of what is unlimited reaches the store.
	deaf := following(t, unasked{t}, "job: 1/1h, 1 concurrent; wait 1h", enforce.Options{Source: source})
	var a enforce.Admission
	require.NoError(t, deaf.Begin(ctx, enforce.Ask{Key: "free", Cost: 5}, &a))
	assert.EqualValues(t, 5, a.Result.Taken)
	require.NoError(t, a.Wait(ctx))
	require.NoError(t, a.Acquire(ctx, 1))
	a.GiveBack(5)
	charged := false
	a.Charge(5, func() { charged = true })
	assert.True(t, charged)
	a.Finish(false)
	require.NoError(t, deaf.Close())
	require.ErrorContains(t, l.Wait(ctx, "bad", 1), "the key is blocked")
	_, err := l.Allow(ctx, "")
	require.Error(t, err)

	// What was taken before the key became unlimited comes back.
	res, err := l.Allow(ctx, "later")
	require.NoError(t, err)
	source.Store(set("", "later", "unlimited", "more", "blocked"))
	require.NoError(t, l.Refund(ctx, "later", res, 1))
	require.Error(t, l.Refund(ctx, "later", core.Result{}, 1))
	source.Store(nil)
	assert.EqualValues(t, 1, left(t, l, "later"))
	require.NoError(t, l.Close())
}

// More than numbers may change: the fail word, whether the store is dead or alive, the length of a wait, and the epoch.
func TestLimiterFollowsOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, ctx := new(numbers), t.Context()
		remote := remotetest.New(newMemory(t, 0))
		l := following(t, remote, "job: 10/1h burst 1; wait 1s; fail closed", enforce.Options{Source: source, Log: slog.New(slog.DiscardHandler)})
		remote.Fail(&core.StoreError{Class: core.ClassDown})
		for range 3 {
			source.Store(nil)
			_, err := l.Allow(ctx, "k")
			require.Error(t, err)
			source.Store(set("10/1h burst 1; fail open", "local", "10/1h burst 1"))
			res, err := l.Allow(ctx, "k")
			require.NoError(t, err)
			assert.True(t, res.Local && res.Allowed() && res.At == 0)
			res, err = l.Allow(ctx, "local") // the key has the options of the policy
			require.NoError(t, err)
			assert.True(t, res.Local && res.Allowed() && res.At == 0)
		}
		remote.Fail(nil)
		source.Store(nil)
		_, err := l.Allow(ctx, "k")
		require.NoError(t, err)
		over := new(enforce.OverLimitError)
		require.ErrorAs(t, l.Wait(ctx, "k", 1), &over, "six minutes are more than a second")
		for epoch := 1; epoch < 4; epoch++ {
			source.Store(set(fmt.Sprintf("10/1h burst 1; epoch %d", epoch)))
			require.NoError(t, l.Wait(ctx, "k", 1), "everybody starts afresh")
			require.ErrorAs(t, l.Wait(ctx, "k", 1), &over)
		}
		source.Store(set("10/1h burst 1; wait 1h"))
		require.NoError(t, l.Wait(ctx, "k", 1), "another wait has another shape, and so starts afresh")
		start := time.Now()
		require.NoError(t, l.Wait(ctx, "k", 1))
		assert.Equal(t, 6*time.Minute, time.Since(start))
		require.NoError(t, l.Close())
	})
}

// delayed is a Source that a caller may have asked long before it goes by the answer.
type delayed struct {
	numbers
	hold   atomic.Bool   // the next to ask gets its answer late
	has    chan struct{} // closed when that one has asked
	answer chan struct{} // closed when it gets its answer
}

func (d *delayed) Load() *follow.Set {
	set := d.numbers.Load()
	if d.hold.CompareAndSwap(true, false) {
		close(d.has)
		<-d.answer
	}
	return set
}

// A caller that comes late with an old Set does not bring its numbers back: where a text cannot be used, they would stay.
func TestLimiterDoesNotGoBack(t *testing.T) {
	source := newDelayed()
	l := following(t, nil, "job: 10/1h", enforce.Options{Source: source, Log: slog.New(slog.DiscardHandler)})
	source.Store(set("20/1h"))
	source.hold.Store(true)
	late := make(chan core.Policy)
	go func() { late <- l.Policy() }()
	<-source.has
	source.Store(set("30/1h"))
	require.Equal(t, "job: 30/1h", l.Policy().String())
	source.Store(set("nonsense"))
	require.Equal(t, "job: 30/1h", l.Policy().String())
	close(source.answer)
	<-late
	assert.Equal(t, "job: 30/1h", l.Policy().String(), "the numbers from before stay")
}

// preparing is a Listener as a source with a goroutine is one.
type preparing struct {
	mu        sync.Mutex
	followers []*follow.Follower
	shown     numbers
}

func (p *preparing) Load() *follow.Set { return p.shown.Load() }

func (p *preparing) Listen(f *follow.Follower) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.followers = append(p.followers, f)
	f.Prepare(p.shown.Load())
}

// show prepares a Set and shows it, and returns all entries.
func (p *preparing) show(s *follow.Set) (all []follow.Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	living := p.followers[:0]
	for _, f := range p.followers {
		if entries, alive := f.Prepare(s); alive {
			all, living = append(all, entries...), append(living, f)
		}
	}
	p.followers = living
	p.shown.Store(s)
	return all
}

// What a Listener prepares is taken up as it is, and its reports are those of the Limiters.
func TestListener(t *testing.T) {
	source := new(preparing)
	l := following(t, nil, "job: 10/1h; fail closed", enforce.Options{Source: source, Log: slog.New(slog.DiscardHandler)})
	assert.Equal(t, []follow.Rule{{Policy: "job", Text: "job: 10/1h; fail closed", Store: l.Store()}}, source.followers[0].Rules())
	entries := source.show(set("20/1h; shadow", "user=7", "nonsense", "user=8", "blocked"))
	require.Len(t, entries, 3)
	assert.Equal(t, follow.Entry{Policy: "job", Field: "Policies", Text: "20/1h; shadow", Now: "job: 20/1h; fail closed; shadow", Trial: true}, entries[0])
	require.Error(t, entries[1].Err)
	entries[1].Err = nil
	assert.Equal(t, follow.Entry{Policy: "job", Field: "Keys", Key: "user=7", Text: "nonsense", Now: "job: 20/1h; fail closed; shadow", Trial: true}, entries[1])
	assert.Equal(t, follow.Entry{Policy: "job", Field: "Keys", Key: "user=8", Text: "blocked", Now: "blocked", Trial: true}, entries[2])
	assert.EqualValues(t, 20, left(t, l, "user=7"))
	// Sets that nobody has seen count as those before: their numbers stay where the next cannot be used.
	source.show(set("30/1h"))
	source.show(set("nonsense"))
	assert.EqualValues(t, 30, left(t, l, "user=7"))
	// A Source may also show what it has not prepared, and prepare what it shows already.
	unprepared := set("40/1h")
	source.shown.Store(unprepared)
	assert.EqualValues(t, 40, left(t, l, "user=7"))
	assert.Len(t, source.show(unprepared), 1)
	assert.EqualValues(t, 40, left(t, l, "user=7"))
	assert.Empty(t, source.show(nil))
	assert.EqualValues(t, 10, left(t, l, "user=7"))
	// A Set that was prepared for what there was then, and comes again later, follows what there is now.
	again := set("nonsense")
	source.show(again)
	assert.EqualValues(t, 10, left(t, l, "user=7"))
	source.shown.Store(set("50/1h"))
	assert.EqualValues(t, 50, left(t, l, "user=7"))
	source.shown.Store(again)
	assert.EqualValues(t, 50, left(t, l, "user=7"))
}

// A Source that has another mistake for each call fills no log.
func TestMistakesAreLoggedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, log := new(numbers), new(strings.Builder)
		l := following(t, nil, "job: 10/1h", enforce.Options{Source: source, Log: slog.New(slog.NewTextHandler(log, nil))})
		for hours := 1; hours < 3; hours++ {
			for i := range 3000 {
				source.Store(set(fmt.Sprint("nonsense", i, strings.Repeat(" ", 1000))))
				l.Policy()
			}
			assert.Equal(t, 1000*hours, strings.Count(log.String(), "\n"))
			<-time.After(time.Hour)
		}
		assert.Less(t, log.Len(), 2000*1000)
	})
}

// Callers that come while Sets change get the numbers of one of them, and never go back.
func TestListenerUnderLoad(t *testing.T) {
	source := new(preparing)
	l := following(t, nil, "job: 1/1s", enforce.Options{Source: source})
	const changes = 200
	var callers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		callers.Go(func() {
			last := int64(0)
			for {
				select {
				case <-stop:
					return
				default:
				}
				n := l.Policy().Limits()[0].Rate
				if !assert.GreaterOrEqual(t, n, last) {
					return
				}
				last = n
				_, err := l.Allow(context.Background(), "user=7")
				assert.NoError(t, err)
			}
		})
	}
	for i := 2; i < changes; i++ {
		text := fmt.Sprintf("%d/1s", i)
		s := set(text, "user=7", text)
		if i%3 == 0 { // as a Source without a goroutine
			source.shown.Store(s)
		} else {
			source.show(s)
		}
		runtime.Gosched()
	}
	close(stop)
	callers.Wait()
	assert.EqualValues(t, changes-1, l.Policy().Limits()[0].Rate)
}

// A Listener keeps nobody alive.
func TestFollowersAreHeldWeakly(t *testing.T) {
	source := new(preparing)
	kept := following(t, nil, "job: 10/1h", enforce.Options{Source: source})
	for i := range 10_000 {
		_, err := kept.With(core.MustParse(fmt.Sprintf("p%d: 1/1h", i%10)))
		require.NoError(t, err)
	}
	assert.Len(t, source.followers, 10_001)
	assert.Eventually(t, func() bool {
		runtime.GC()
		source.show(set("20/1h"))
		return len(source.followers) == 1
	}, time.Minute, time.Millisecond)
	assert.EqualValues(t, 20, left(t, kept, "k"))
}

// A Source that does not change costs no memory, nor does a Set with a thousand keys.
func TestSourceCostsNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	keys := []string{}
	for i := range 1000 {
		keys = append(keys, fmt.Sprint("user=", i), fmt.Sprintf("%d/1s", i+1))
	}
	source, ctx := new(numbers), t.Context()
	l := following(t, nil, "job: 10/1s", enforce.Options{Source: source})
	for _, s := range []*follow.Set{nil, set("20/1s"), set("20/1s", keys...)} {
		source.Store(s)
		key := strings.Clone("user=77")
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			for _, k := range []string{key, "another"} {
				if _, err := l.Allow(ctx, k); err != nil {
					t.Error(err)
				}
			}
			l.Policy()
		}))
	}
}

// BenchmarkSource reports what a Source adds to a decision in the process, in nanoseconds: one whose Set does not change,
// and one whose Set has a thousand keys. All take turns, so that the medians are of one machine at one time.
func BenchmarkSource(b *testing.B) {
	keys := []string{}
	for i := range 1000 {
		keys = append(keys, fmt.Sprint("user=", i), "20/1h")
	}
	one, many := new(numbers), new(numbers)
	one.Store(set("20/1h"))
	many.Store(set("20/1h", keys...))
	const calls = 2000
	names, took := []string{"none", "unchanged", "keys"}, [3][]float64{}
	var limiters [3]*enforce.Limiter
	for i, source := range []follow.Source{nil, one, many} {
		limiters[i] = following(b, nil, "job: 20/1h", enforce.Options{Source: source})
	}
	ctx := b.Context()
	for b.Loop() {
		for i, l := range limiters {
			began := time.Now()
			for range calls {
				if _, err := l.Allow(ctx, "user=77"); err != nil {
					b.Fatal(err)
				}
			}
			took[i] = append(took[i], float64(time.Since(began).Nanoseconds())/calls)
		}
	}
	for i := range took {
		slices.Sort(took[i])
		median := took[i][len(took[i])/2]
		if i > 0 {
			median -= took[0][len(took[0])/2]
		}
		b.ReportMetric(median, names[i]+"-ns")
	}
	b.ReportMetric(0, "ns/op")
}

// An epoch that begins while permits are held and units are owed: what is held goes on and is renewed, the new epoch
// has all permits and units, and what was admitted without the store is charged to the epoch that it was admitted in.
func TestEpochBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, ctx, memory := new(numbers), t.Context(), newMemory(t, 0)
		store := &remotePermits{Remote: remotetest.New(memory), PermitStore: memory}
		l := following(t, store, "job: 10/1h fixed-window, 1 concurrent lease 3s", enforce.Options{Source: source, Log: slog.New(slog.DiscardHandler)})
		old, release, err := l.Acquire(ctx, "k")
		require.NoError(t, err)
		store.Fail(&core.StoreError{Class: core.ClassDown})
		_, err = l.AllowN(ctx, "k", 3)
		require.NoError(t, err)
		source.Store(set("10/1h fixed-window, 1 concurrent lease 3s; epoch 1"))
		_, err = l.AllowN(ctx, "k", 5)
		require.NoError(t, err)
		store.Fail(nil)
		next, releaseNext, err := l.Acquire(ctx, "k")
		require.NoError(t, err, "the new epoch has all permits")
		<-time.After(time.Minute)
		require.NoError(t, old.Err())
		require.NoError(t, next.Err())
		_, _, err = l.Acquire(ctx, "k")
		require.Error(t, err)
		for _, want := range []int64{10 - 5 - 1, 10 - 3 - 1} { // in the new epoch and in the old one
			left(t, l, "k") // the store answers for the key
			synctest.Wait()
			assert.Equal(t, want, left(t, l, "k"), l.Policy().String())
			source.Store(nil)
		}
		release()
		require.ErrorIs(t, old.Err(), context.Canceled)
		synctest.Wait() // it is given back behind
		_, again, err := l.Acquire(ctx, "k")
		require.NoError(t, err)
		again()
		require.NoError(t, next.Err())
		releaseNext()
		require.NoError(t, l.Close())
	})
}

// remotePermits is a store outside the process that has permits, which never fail.
type remotePermits struct {
	*remotetest.Remote
	core.PermitStore
}

func newDelayed() *delayed { return &delayed{has: make(chan struct{}), answer: make(chan struct{})} }

// What was prepared is taken up as it is, by whoever comes when it is shown; what was shown before stays meanwhile, also
// if nobody has come by it yet. A caller that comes late with a Set, after others were prepared and shown, makes
// nothing, and brings nothing back.
func TestFollowing(t *testing.T) {
	for _, shows := range []int{1, 2, 3} {
		for _, taken := range []bool{false, true} {
			t.Run(fmt.Sprint(shows, taken), func(t *testing.T) {
				source, made := newDelayed(), 0
				f := follow.NewFollowing(source, "none", func(s *follow.Set, before string) string {
					made++
					return fmt.Sprint(before, " ", s.Revision)
				})
				revision := func(n int) *follow.Set { return &follow.Set{Revision: fmt.Sprint(n)} }
				want := "none"
				assert.Equal(t, want, f.Now())
				first := revision(0)
				assert.Equal(t, "none 0", f.Prepare(first))
				assert.Equal(t, want, f.Now(), "it is not shown yet")
				source.Store(first)
				want += " 0"
				source.hold.Store(true)
				answered := make(chan string)
				go func() { answered <- f.Now() }()
				<-source.has
				for i := range shows {
					next := revision(i + 1)
					f.Prepare(next)
					if taken {
						assert.Equal(t, want, f.Now(), "it is not shown yet")
					}
					source.Store(next)
					want += " " + next.Revision
				}
				close(source.answer)
				assert.Contains(t, []string{"none 0", want}, <-answered)
				assert.Equal(t, want, f.Now())
				assert.Equal(t, 1+shows, made)

				// What nobody has prepared is made by the first caller, and what was shown before is made again.
				source.Store(first)
				assert.Equal(t, want+" 0", f.Now())
				assert.Equal(t, want+" 0", f.Prepare(first))
				assert.Equal(t, want+" 0", f.Now())
				assert.Equal(t, 2+shows, made)
			})
		}
	}
}

// Units come back by the numbers of now, also where the code has smaller ones.
func TestRefundByTheNumbersOfNow(t *testing.T) {
	source, ctx := new(numbers), t.Context()
	l := following(t, nil, "job: 10/1h token-bucket", enforce.Options{Source: source})
	source.Store(set("20/1h token-bucket"))
	res, err := l.AllowN(ctx, "a", 4)
	require.NoError(t, err)
	assert.EqualValues(t, 16, left(t, l, "a"))
	require.NoError(t, l.Refund(ctx, "a", res, 3))
	assert.EqualValues(t, 19, left(t, l, "a"))
	source.Store(set("30/1h token-bucket; epoch 1"))
	require.NoError(t, l.Refund(ctx, "a", res, 1))
	assert.EqualValues(t, 30, left(t, l, "a"), "of another epoch")
	source.Store(set("20/1h token-bucket"))
	assert.EqualValues(t, 20, left(t, l, "a"), "it came back where it was taken")
}

// loud is a handler of a log that panics.
type loud struct{ slog.Handler }

func (loud) Handle(context.Context, slog.Record) error { panic("loud") }

// A panic while a Set is taken up reaches the caller, and the Sets that follow are taken up all the same.
func TestPanicWhileASetIsTakenUp(t *testing.T) {
	source := new(numbers)
	l := following(t, nil, "job: 10/1h", enforce.Options{Source: source, Log: slog.New(loud{slog.NewTextHandler(io.Discard, nil)})})
	source.Store(set("nonsense"))
	assert.Panics(t, func() { _, _ = l.Allow(t.Context(), "a") })
	source.Store(set("20/1h"))
	assert.EqualValues(t, 20, left(t, l, "a"))
}
