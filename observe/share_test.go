package observe_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/observe"
)

// boards keep what was added in memory, exactly.
type boards struct {
	mu      sync.Mutex
	failing string // a policy whose boards fail
	calls   int
	units   map[string]map[string]int64
}

func (b *boards) called() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls
}

func (b *boards) failFor(policy string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failing = policy
}

func (b *boards) AddScores(_ context.Context, all []stats.Scores) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	if b.units == nil {
		b.units = map[string]map[string]int64{}
	}
	failed := &core.BatchError{Errs: make([]error, len(all))}
	for i, add := range all {
		policy, _, _ := strings.Cut(add.Board, ":")
		if policy == b.failing {
			failed.Errs[i] = &core.StoreError{Class: core.ClassDown, Err: errors.New("gone")}
			continue
		}
		if b.units[add.Board] == nil {
			b.units[add.Board] = map[string]int64{}
		}
		for key, n := range add.Units {
			b.units[add.Board][key] += n
		}
	}
	if len(failed.Unwrap()) > 0 {
		return failed
	}
	return nil
}

func (b *boards) Scores(_ context.Context, names []string, n int) (scores []stats.Score, rest int64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sums := map[string]int64{}
	for _, name := range names {
		for key, n := range b.units[name] {
			sums[key] += n
		}
	}
	for _, key := range slices.Sorted(maps.Keys(sums)) {
		scores = append(scores, stats.Score{Key: key, Low: sums[key], High: sums[key]})
	}
	slices.SortStableFunc(scores, func(a, b stats.Score) int { return int(b.Low - a.Low) })
	return scores[:min(n, len(scores))], 0, nil
}

// refuse lets a guard of a policy refuse a key n times.
func refuse(t *testing.T, o *observe.Observer, policy, key string, n int) {
	t.Helper()
	g := newGuard(t, policy+": 1/1h", keyfunc.Header("X-User"), func(e guard.Event) {
		if !e.Outcome.Allowed() {
			o.Observe(e)
		}
	})
	for range n + 1 {
		r := newRequest()
		r.key = key
		v := g.Check(r)
		v.Finish(guard.Final{})
	}
}

func fleet(t *testing.T, b observe.Boards, policy string, last time.Duration) (texts []string) {
	t.Helper()
	all, rest, err := observe.FleetWorst(t.Context(), b, policy, last, 10)
	require.NoError(t, err)
	assert.Zero(t, rest)
	for _, c := range all {
		assert.Equal(t, policy, c.Policy)
		texts = append(texts, fmt.Sprint(strings.TrimPrefix(c.Key, "header.x-user="), " ", c.Count-c.Error, " ", c.Count))
	}
	return texts
}

func TestShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &boards{}
		var all []*observe.Observer
		for range 2 {
			o := newObserver(t, observe.Options{})
			require.NoError(t, o.Share(b, "login", "api"))
			all = append(all, o)
		}
		<-time.After(time.Minute + time.Millisecond) // a little after those who share
		assert.Zero(t, b.called(), "there is nothing to add")
		refuse(t, all[0], "login", "a", 5)
		refuse(t, all[0], "private", "a", 5)
		refuse(t, all[1], "login", "a", 3)
		refuse(t, all[1], "login", "b", 4)
		refuse(t, all[1], "api", "c", 2)
		<-time.After(10 * time.Second)
		assert.Equal(t, 2, b.called())
		assert.Equal(t, []string{"a 8 8", "b 4 4"}, fleet(t, b, "login", time.Minute))
		assert.Equal(t, []string{"c 2 2"}, fleet(t, b, "api", time.Minute))
		assert.Empty(t, fleet(t, b, "private", time.Minute))

		refuse(t, all[0], "login", "a", 1)
		<-time.After(10 * time.Second)
		assert.Equal(t, 3, b.called(), "only what is new is added")
		assert.Equal(t, []string{"a 9 9", "b 4 4"}, fleet(t, b, "login", time.Minute))

		// What surely was not added is added later, of the policy that failed alone.
		b.failFor("login")
		refuse(t, all[0], "login", "b", 7)
		refuse(t, all[0], "api", "c", 7)
		<-time.After(10 * time.Second)
		assert.Equal(t, []string{"a 9 9", "b 4 4"}, fleet(t, b, "login", 5*time.Minute))
		assert.Equal(t, []string{"c 9 9"}, fleet(t, b, "api", 5*time.Minute))
		failed := time.Now().Add(-time.Millisecond)
		<-time.After(10 * time.Second)
		assert.WithinDuration(t, failed, all[0].Snapshot().Sharing.FailsSince, time.Second, "the first failure")
		assert.Contains(t, all[0].Snapshot().Sharing.Err, "gone")
		assert.Zero(t, all[1].Snapshot().Sharing)
		b.failFor("")
		<-time.After(10 * time.Second)
		assert.Zero(t, all[0].Snapshot().Sharing)
		assert.Equal(t, []string{"b 11 11", "a 9 9"}, fleet(t, b, "login", 5*time.Minute))

		<-time.After(10 * time.Minute)
		assert.Empty(t, fleet(t, b, "login", 5*time.Minute))
		assert.NotEmpty(t, fleet(t, b, "login", 20*time.Minute))

		// Close adds the rest at once.
		refuse(t, all[0], "login", "late", 3)
		for _, o := range all {
			require.NoError(t, o.Close())
			require.NoError(t, o.Close())
			assert.Error(t, o.Share(b))
			assert.Equal(t, observe.Boards(b), o.Boards())
		}
		assert.Equal(t, []string{"late 3 3"}, fleet(t, b, "login", time.Minute))
	})
}

// Without names, the first policies that refuse somebody are shared.
func TestShareWithoutNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, o := &boards{}, newObserver(t, observe.Options{})
		assert.Nil(t, o.Boards())
		require.NoError(t, o.Share(b))
		for i := range 20 {
			refuse(t, o, "p"+strconv.Itoa(i), "a", 2)
		}
		require.NoError(t, o.Close())
		assert.Len(t, b.units, 8)
		assert.Equal(t, []string{"a 2 2"}, fleet(t, b, "p7", time.Minute))
	})
}

func TestShareMistakes(t *testing.T) {
	o := newObserver(t, observe.Options{})
	assert.Error(t, o.Share(nil))
	assert.Error(t, o.Share(&boards{}, make([]string, 33)...))
	require.NoError(t, o.Share(&boards{}))
	assert.ErrorContains(t, o.Share(&boards{}), "call it once")
	require.NoError(t, o.Close())
	o = newObserver(t, observe.Options{})
	require.NoError(t, o.Close())
	assert.ErrorContains(t, o.Share(&boards{}), "after Close")
}
