package core

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
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

// naive is what leases do, place by place and without any order.
type naive []lease

func (m *naive) heal(t terms) (used int64) {
	for i := range *m {
		(*m)[i].end = min((*m)[i].end, t.now+t.lease)
		if (*m)[i].end > t.now {
			used++
		}
	}
	return used
}

func (m *naive) held(id string, now int64) (n int64) {
	for _, x := range *m {
		if x.id == id && x.end > now {
			n++
		}
	}
	return n
}

func (m *naive) hold(id string, places int64, t terms) {
	*m = slices.DeleteFunc(*m, func(x lease) bool { return x.id == id || x.end <= t.now })
	for range places {
		*m = append(*m, lease{t.now + t.lease, 1, id})
	}
}

// room is the first instant at which the places would be free if nobody renews.
func (m *naive) room(id string, places int64, t terms) int64 {
	for now := t.now; ; now++ {
		others := int64(0)
		for _, x := range *m {
			if x.id != id && x.end > now {
				others++
			}
		}
		if others+places <= t.most {
			return now
		}
	}
}

// The arithmetic agrees with a model that is too simple to be wrong, and never are more
// places in use than there are, unless there were more before.
func TestLeasesAgreeWithAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l leases
		var m naive
		at := terms{now: 1000}
		ids := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				places := int64(0)
				for i, x := range l.order {
					places += x.places
					require.Equal(t, x.end, l.ends[x.id])
					require.True(t, i == 0 || l.order[i-1].end <= x.end, "in order")
				}
				require.Equal(t, places, l.total)
				require.Len(t, l.order, len(l.ends))
				require.EqualValues(t, len(m), l.total)
			},
			"tick": func(t *rapid.T) {
				at.now = max(1, at.now+rapid.Int64Range(-30, 60).Draw(t, "time"))
			},
			"acquire": func(t *rapid.T) {
				at.most, at.lease = rapid.Int64Range(1, 6).Draw(t, "most"), rapid.SampledFrom([]int64{20, 50, 50, 50}).Draw(t, "lease")
				id, places := ids.Draw(t, "id"), rapid.Int64Range(1, 7).Draw(t, "places")
				used := m.heal(at)
				held := m.held(id, at.now)
				before := used
				want := [4]int64{at.now}
				if fits := places <= held || used-held+places <= at.most; fits {
					m.hold(id, places, at)
					used = used - held + places
					want[1], want[3] = used, at.now+at.lease
				} else {
					want[1] = -1 - used
					if places <= at.most {
						want[2] = m.room(id, places, at)
					}
					for _, x := range m {
						want[3] = max(want[3], x.end)
					}
				}
				require.Equal(t, want, l.acquire(id, places, at))
				require.LessOrEqual(t, used, max(at.most, before))
			},
			"renew": func(t *rapid.T) {
				at.most, at.lease = rapid.Int64Range(1, 6).Draw(t, "most"), 50
				id, places := ids.Draw(t, "id"), rapid.Int64Range(1, 7).Draw(t, "places")
				used := m.heal(at)
				held := m.held(id, at.now)
				want := held > 0 || used+places <= at.most
				if want && held > 0 {
					m.hold(id, held, at)
				} else if want {
					m.hold(id, places, at)
				}
				require.Equal(t, want, l.renew(id, places, at))
			},
			"release": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				m = slices.DeleteFunc(m, func(x lease) bool { return x.id == id })
				l.release(id)
				l.release(id)
			},
		})
	})
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
