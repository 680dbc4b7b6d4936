package enforce_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
)

// leavers come to a limiter at a rate, and leave after a while, until the returned function is called. It returns how
// many have had their turn.
func leavers(t *testing.T, l *enforce.Limiter, perSecond int, after time.Duration) (stop func() (served int)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	served, done := 0, make(chan struct{})
	answers := make(chan error)
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for waiting := 0; ctx.Err() == nil || waiting > 0; {
			select {
			case <-tick.C:
				if ctx.Err() != nil {
					continue
				}
				waiting++
				go func() {
					ctx, leave := context.WithCancel(context.WithoutCancel(ctx))
					defer time.AfterFunc(after, leave).Stop()
					answers <- l.Wait(ctx, "k", 1)
					leave()
				}()
			case err := <-answers:
				if waiting--; err == nil {
					served++
				}
			}
		}
	}()
	return func() int {
		cancel()
		<-done
		return served
	}
}

// honest comes 100 times, 20 times a second, and waits. It returns how often it was refused, and how long it has waited
// at most.
func honest(t *testing.T, l *enforce.Limiter) (refused int, longest time.Duration) {
	t.Helper()
	type answer struct {
		err  error
		took time.Duration
	}
	answers := make(chan answer, 100)
	for range 100 {
		go func() {
			start := time.Now()
			err := l.Wait(t.Context(), "k", 1)
			answers <- answer{err, time.Since(start)}
		}()
		<-time.After(50 * ms)
	}
	for range 100 {
		a := <-answers
		if longest = max(longest, a.took); a.err != nil {
			over := &enforce.OverLimitError{}
			require.ErrorAs(t, a.err, &over)
			refused++
		}
	}
	return refused, longest
}

// Callers that join a queue five times as fast as it moves, and leave at once, cost the one who waits no turn.
func TestAbandonedPlaces(t *testing.T) {
	for _, policy := range []string{
		"50/1s; wait 2s", "50/1s token-bucket; wait 2s", "50/1s leaky-bucket burst 100", "50/1s, 3000/1m; wait 2s",
	} {
		t.Run(policy, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, nil, policy)
				stop := leavers(t, l, 250, 8*ms)
				<-time.After(2 * time.Second)
				refused, longest := honest(t, l)
				served := stop()
				t.Logf("refused %d, waited %v at most; of the others %d were served", refused, longest, served)
				assert.LessOrEqual(t, refused, 2)
				assert.Less(t, longest, time.Second)
			})
		})
	}
}

// When ten thousand that have waited leave together, the next has the first of their turns, and a while later the store
// has all back.
func TestNewcomerAfterManyLeft(t *testing.T) {
	const many = 10_000
	for _, policy := range []string{"600/1s burst 1; wait 20s", "600/1s leaky-bucket burst 20000"} {
		t.Run(policy, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := newMemory(t, 0)
				l := newLimiter(t, memory, policy)
				ctx, leave := context.WithCancel(t.Context())
				gone := make(chan error, many)
				for range many {
					go func() { gone <- l.Wait(ctx, "k", 1) }()
				}
				synctest.Wait()
				leave()
				for range many {
					if err := <-gone; err != nil {
						require.ErrorIs(t, err, context.Canceled)
					}
				}
				start := time.Now()
				require.NoError(t, l.Wait(t.Context(), "k", 1))
				t.Logf("served after %v", time.Since(start))
				assert.LessOrEqual(t, time.Since(start), 2*ms)

				advance(2 * time.Second)
				peek, err := memory.Take(t.Context(), core.Take{Policy: l.Policy(), Key: "k"})
				require.NoError(t, err)
				assert.LessOrEqual(t, peek.ResetAfter, 2*ms, "all is back")
			})
		})
	}
}

// receipts is a store that remembers what it has charged and what was given back.
type receipts struct {
	core.Store
	mu             sync.Mutex
	taken, refunds map[[2]int64]int // by At and ResetAfter: no two charges that are not given back share them
}

func (s *receipts) Take(ctx context.Context, t core.Take) (core.Result, error) {
	res, err := s.Store.Take(ctx, t)
	if res.Taken > 0 {
		s.note(s.taken, &res)
	}
	return res, err
}

func (s *receipts) Refund(ctx context.Context, refunds []core.Refund) error {
	for i := range refunds {
		s.note(s.refunds, &refunds[i].Receipt)
	}
	return s.Store.Refund(ctx, refunds)
}

func (s *receipts) note(where map[[2]int64]int, r *core.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	where[[2]int64{r.At, r.ResetAfter.Microseconds()}]++
}

// Callers come, leave, wait, and settle in any order: those who wait are served in the order in which they came, no
// faster than the policy says, and each charge is given back once at most.
func TestTurnsAreExchanged(t *testing.T) {
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			memory := newMemory(t, 0)
			store := &receipts{Store: memory, taken: map[[2]int64]int{}, refunds: map[[2]int64]int{}}
			l := newLimiter(t, store, "10/1s burst 1; wait 3s")
			type caller struct {
				number  int
				leave   context.CancelFunc
				settles bool
				at      time.Time
			}
			var line, served []*caller
			var mu sync.Mutex
			settled := 0
			for n := range 60 {
				switch random.IntN(4) {
				case 0, 1:
					ctx, leave := context.WithCancel(t.Context())
					c := &caller{number: n, leave: leave, settles: random.IntN(2) == 0}
					line = append(line, c)
					go func() {
						var a enforce.Admission
						if l.Begin(ctx, enforce.Ask{Key: "k", Cost: 1, Wait: 3 * time.Second}, &a) != nil || !a.Result.Allowed() || a.Wait(ctx) != nil {
							return
						}
						mu.Lock()
						defer mu.Unlock()
						c.at = time.Now()
						if served = append(served, c); c.settles {
							settled++
							a.GiveBack(1)
						}
					}()
					synctest.Wait()
				case 2:
					if len(line) > 0 {
						line[random.IntN(len(line))].leave()
						synctest.Wait()
					}
				case 3:
					advance(time.Duration(random.IntN(150)) * ms)
				}
			}
			advance(10 * time.Second)
			require.NoError(t, l.Close())
			for i := range served[1:] {
				require.Less(t, served[i].number, served[i+1].number, "seed %d: in order", seed)
				if !served[i].settles {
					require.GreaterOrEqual(t, served[i+1].at.Sub(served[i].at), 100*ms, "seed %d: at the rate", seed)
				}
			}
			taken, refunds := 0, 0
			for r, n := range store.refunds {
				require.LessOrEqual(t, n, store.taken[r], "seed %d: %v is given back once", seed, r)
				refunds += n
			}
			for _, n := range store.taken {
				taken += n
			}
			require.GreaterOrEqual(t, taken-refunds, len(served)-settled, "seed %d: what was of use and not settled is charged", seed)
			for _, c := range line {
				c.leave()
			}
		})
	}
}

// What one process can lose of another's: callers of the one wait behind those of the other that have left, as far as
// they came behind them before that was known.
func TestAbandonedPlacesOfAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := newMemory(t, 0)
		one, other := newLimiter(t, memory, "50/1s; wait 2s"), newLimiter(t, memory, "50/1s; wait 2s")
		stop := leavers(t, one, 250, 8*ms)
		<-time.After(2 * time.Second)
		refused, longest := honest(t, other)
		served := stop()
		t.Logf("refused %d, waited %v at most; of the others %d were served", refused, longest, served)
		assert.LessOrEqual(t, refused, 2)
	})
}
