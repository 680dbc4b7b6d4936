package core

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func permitPolicy(n int64, lease time.Duration) Policy {
	p, err := NewPolicy("permits", Options{}, Limit{Algorithm: Concurrent, Burst: n, Lease: lease})
	if err != nil {
		panic(err)
	}
	return p
}

func permitMemory(t testing.TB) *Memory {
	t.Helper()
	m, err := NewMemory(MemoryOptions{})
	require.NoError(t, err)
	return m
}

func TestExplainPermit(t *testing.T) {
	p := Permit{Policy: permitPolicy(3, time.Second), Key: "k", ID: "a"}
	for _, bad := range [][]int64{
		nil,
		{1},
		{0, 1, 0, 0},
		{1, 1, -1, 0},
		{1, 1, 0, -1},
		{maxNow + 1, 1, 0, 0},
		{1, 1, 0, 0, 0},
		{1000, 1, 0, 1000},
		{1000, 0, 0, 2000},
		{1000, -1 - 3, 900, 1500},
		{1000, -1 - 3, 0, 0},
		{1000, -1 - 3, 1 << 62, 1 << 62},
		{1000, 1, 0, 1 << 62},
	} {
		_, err := p.Explain(bad)
		require.Error(t, err, "%v", bad)
	}
	_, err := (&Permit{}).Explain([]int64{1, 1, 0, 0})
	require.Error(t, err)
	res, err := p.Explain([]int64{1000, -1 - 5, 1001, 800})
	require.NoError(t, err)
	us := time.Microsecond
	assert.Equal(t, Result{Limit: 3, At: 1000, RetryAfter: us, Each: [MaxLimits]LimitResult{{Refused: true, RetryAfter: us}}}, res, "nothing is negative")
}

// Nothing is left of keys without permits, and of permits that nobody gave back only
// until others come.
func TestMemoryForgetsPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := permitMemory(t)
		keys := func() (n int) {
			for i := range m.permits {
				n += len(m.permits[i].keys)
			}
			return n
		}
		p := permitPolicy(2, time.Second)
		take := func(key string) Permit {
			x := Permit{Policy: p, Key: key, ID: "a"}
			_, err := m.Acquire(t.Context(), x)
			require.NoError(t, err)
			return x
		}
		for i := range 1000 {
			x := take(fmt.Sprint(i))
			_, err := m.Acquire(t.Context(), Permit{Policy: p, Key: x.Key, ID: "b", Weight: 3})
			require.NoError(t, err)
			require.NoError(t, m.Release(t.Context(), x))
			require.NoError(t, m.Release(t.Context(), x))
			_, err = m.Acquire(t.Context(), Permit{Policy: p, Key: "never", ID: "b", Weight: 3})
			require.NoError(t, err)
		}
		require.Zero(t, keys())
		for i := range 1000 {
			take(fmt.Sprint(i))
		}
		require.Equal(t, 1000, keys())
		advance(time.Second)
		for i := range 1000 {
			require.NoError(t, m.Release(t.Context(), take(fmt.Sprint("new", i))))
		}
		require.Less(t, keys(), 100)
		var zero Memory
		_, err := zero.Acquire(t.Context(), Permit{Policy: p, Key: "k", ID: "a"})
		require.Error(t, err)
	})
}
