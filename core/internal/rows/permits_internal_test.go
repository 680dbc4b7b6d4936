package rows

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/internal/algo"
)

// count returns the number of keys.
func (t *Permits) count() (n int) {
	for i := range t.shards {
		n += len(t.shards[i].keys)
	}
	return n
}

// acquire takes a place of two, and reports whether there was one.
func (t *Permits) acquire(policy, key, id string, places, now int64) bool {
	held := t.Lock(policy, 0, key)
	held.Ended = now
	defer held.Unlock()
	return held.Acquire(id, places, algo.Terms{Most: 2, Lease: 100, Now: now})[1] > 0
}

func (t *Permits) release(policy, key, id string) {
	held := t.Lock(policy, 0, key)
	defer held.Unlock()
	held.Release(id)
}

// Nothing is left of keys without permits, and of permits that nobody gave back only
// until others come.
func TestPermitsAreForgotten(t *testing.T) {
	var p Permits
	for i := range 1000 {
		key := fmt.Sprint(i)
		require.True(t, p.acquire("p", key, "a", 1, 1000))
		require.False(t, p.acquire("p", key, "b", 3, 1000))
		p.release("p", key, "a")
		p.release("p", key, "a")
		require.False(t, p.acquire("p", "never", "b", 3, 1000))
	}
	require.Zero(t, p.count())
	for i := range 1000 {
		require.True(t, p.acquire("p", fmt.Sprint(i), "a", 1, 1000))
	}
	require.Equal(t, 1000, p.count())
	for i := range 1000 {
		key := fmt.Sprint("new", i)
		held := p.Lock("p", 0, key)
		held.Acquire("a", 1, algo.Terms{Most: 2, Lease: 100, Now: 1100})
		held.Unlock()
		p.release("p", key, "a")
	}
	require.Equal(t, 1000, p.count(), "a forced time ends nobody else's leases")
	for i := range 1000 {
		key := fmt.Sprint("new", i)
		require.True(t, p.acquire("p", key, "a", 1, 1100))
		p.release("p", key, "a")
	}
	require.Less(t, p.count(), 100)
}

func TestPermitsOfPoliciesAreApart(t *testing.T) {
	var p Permits
	require.True(t, p.acquire("a", "k", "x", 2, 1))
	assert.False(t, p.acquire("a", "k", "y", 1, 1))
	assert.True(t, p.acquire("b", "k", "y", 2, 1))
	assert.True(t, p.acquire("a", "l", "y", 2, 1))
	p.release("b", "k", "y")
	assert.False(t, p.acquire("a", "k", "y", 1, 1))
	assert.True(t, p.acquire("b", "k", "z", 2, 1))
}
