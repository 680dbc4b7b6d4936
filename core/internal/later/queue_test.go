package later_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/internal/later"
)

// post is a queue of numbers, and what became of them.
type post struct {
	later.Queue[int]
	group   later.Group
	mu      sync.Mutex
	batches [][]int // in the order in which they were sent
	fail    func(item int) error
	delay   time.Duration
	ended   []int
	givenUp []error
}

func newPost() *post {
	p := new(post)
	p.Group, p.Batch = &p.group, 3
	p.Send = func(ctx context.Context, batch []int) []error {
		p.mu.Lock()
		p.batches = append(p.batches, slices.Clone(batch))
		p.mu.Unlock()
		<-time.After(p.delay)
		errs := make([]error, len(batch))
		for i, item := range batch {
			if errs[i] = ctx.Err(); p.fail != nil {
				errs[i] = p.fail(item)
			}
		}
		return errs
	}
	p.GaveUp = func(n int, err error) { p.givenUp = append(p.givenUp, slices.Repeat([]error{err}, n)...) }
	p.Done = func(item int) { p.ended = append(p.ended, item) }
	return p
}

func (p *post) sent() [][]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.batches)
}

var errGone = errors.New("gone")

// A lone item leaves at once; what comes while a batch is out goes together, in order, in batches that are not too
// long.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost()
		p.delay = time.Second / 2
		p.Add(1)
		synctest.Wait()
		p.AddAll([]int{2, 3})
		p.Add(4)
		p.Add(5)
		assert.Equal(t, [][]int{{1}}, p.sent())
		assert.Equal(t, 5, p.Left())
		require.NoError(t, p.group.Wait(t.Context()))
		assert.Equal(t, [][]int{{1}, {2, 3, 4}, {5}}, p.sent())
		assert.Equal(t, []int{1, 2, 3, 4, 5}, p.ended)
		assert.Zero(t, p.Unsent())
		require.NoError(t, p.group.Wait(t.Context()), "there is nothing to wait for")
	})
}

// What fails is sent again while Keep says so, after pauses that all share, and then it is given up, once.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, begin := newPost(), time.Now()
		p.fail = func(item int) error { return map[bool]error{true: errGone}[item > 1] }
		p.Keep = func(item int, err error) bool {
			require.ErrorIs(t, err, errGone)
			return item == 3 && time.Since(begin) < 10*time.Second
		}
		p.AddAll([]int{1, 2, 3})
		synctest.Wait()
		assert.Equal(t, []int{1, 2}, p.ended)
		assert.Equal(t, []error{errGone}, p.givenUp)
		assert.Equal(t, 1, p.Left())
		<-time.After(later.FirstPause + time.Millisecond)
		synctest.Wait()
		assert.Len(t, p.sent(), 2)
		require.NoError(t, p.group.Wait(t.Context()))
		assert.Equal(t, []int{1, 2, 3}, p.ended)
		assert.Len(t, p.givenUp, 2)
		assert.InDelta(t, 10*time.Second/later.LastPause, len(p.sent()), 4)
		assert.Equal(t, 2, p.Unsent(), "those that were given up")
		assert.Zero(t, p.Unsent())
	})
}

// A queue holds Max items, and gives up those beyond at once; a Send that panics, or takes too long, fails.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost()
		p.Max, p.delay = 4, time.Hour
		p.Send = func(ctx context.Context, batch []int) []error {
			<-ctx.Done()
			if slices.Contains(batch, 5) {
				panic("a hook")
			}
			return slices.Repeat([]error{ctx.Err()}, len(batch))
		}
		p.Add(1)
		synctest.Wait()
		for item := 2; item <= 6; item++ {
			p.Add(item)
		}
		assert.Equal(t, []int{6}, p.ended)
		assert.ErrorContains(t, p.givenUp[0], "4 others wait")
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		require.ErrorIs(t, p.group.Wait(ctx), context.DeadlineExceeded)
		cancel()
		begin := time.Now()
		require.NoError(t, p.group.Wait(t.Context()))
		assert.LessOrEqual(t, time.Since(begin), 3*later.Timeout)
		assert.Equal(t, []int{6, 1, 2, 3, 4, 5}, p.ended)
		require.Len(t, p.givenUp, 6)
		require.ErrorIs(t, p.givenUp[3], context.DeadlineExceeded)
		assert.ErrorContains(t, p.givenUp[5], "a hook")
		assert.Equal(t, 6, p.Unsent())
	})
}

// A GaveUp that blocks holds up its queue, and no other one of the group.
func TestGaveUpThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked, other := newPost(), newPost()
		other.Group = blocked.Group
		release := make(chan struct{})
		blocked.fail = func(int) error { return errGone }
		blocked.GaveUp = func(int, error) { <-release }
		blocked.Add(1)
		synctest.Wait()
		blocked.Add(2)
		other.Add(3)
		synctest.Wait()
		assert.Len(t, blocked.sent(), 1)
		assert.Equal(t, []int{3}, other.ended)
		close(release)
		require.NoError(t, blocked.group.Wait(t.Context()))
		assert.Equal(t, []int{1, 2}, blocked.ended)
	})
}

// Stats shows what waits and is out, how old the oldest of all is, also of what has failed before, and all that was lost.
func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost()
		assert.Zero(t, p.Stats())
		p.delay = 10 * time.Millisecond
		p.Keep = func(item int, _ error) bool { return item == 2 }
		var mended atomic.Bool
		p.fail = func(item int) error { return map[bool]error{true: errGone}[item < 3 && !mended.Load()] }
		p.AddAll([]int{1, 2, 3, 4})
		synctest.Wait()
		assert.Equal(t, later.Stats{Pending: 1, Out: 3}, p.Stats())
		<-time.After(15 * time.Millisecond)
		assert.Equal(t, later.Stats{Pending: 1, Out: 1, Lost: 1, Oldest: 15 * time.Millisecond}, p.Stats(), "2 has failed, 4 is out")
		<-time.After(10 * time.Millisecond)
		p.Add(5)
		synctest.Wait()
		assert.Equal(t, later.Stats{Pending: 1, Out: 1, Lost: 1, Oldest: 25 * time.Millisecond}, p.Stats(), "2 waits, 5 is out")
		assert.Equal(t, 3, p.Unsent(), "two are left, and one was lost")
		assert.EqualValues(t, 1, p.Stats().Lost, "it only grows")
		mended.Store(true)
		require.NoError(t, p.group.Wait(t.Context()))
		assert.Equal(t, later.Stats{Lost: 1}, p.Stats())
	})
}
