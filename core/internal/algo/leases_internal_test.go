package algo

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// naive is a model of Leases, place by place and without any order.
type naive []lease

func (m *naive) heal(t Terms) (used int64) {
	for i := range *m {
		(*m)[i].end = min((*m)[i].end, t.Now+t.Lease)
		if (*m)[i].end > t.Now {
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

func (m *naive) hold(id string, places int64, t Terms) {
	*m = slices.DeleteFunc(*m, func(x lease) bool { return x.id == id || x.end <= t.Now })
	for range places {
		*m = append(*m, lease{t.Now + t.Lease, 1, id})
	}
}

// room is the first instant at which the places would be free if nobody renews.
func (m *naive) room(id string, places int64, t Terms) int64 {
	for now := t.Now; ; now++ {
		others := int64(0)
		for _, x := range *m {
			if x.id != id && x.end > now {
				others++
			}
		}
		if others+places <= t.Most {
			return now
		}
	}
}

// The arithmetic agrees with a model that is too simple to be wrong, and never are more
// places in use than there are, unless there were more before.
func TestLeasesAgreeWithAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Leases
		var m naive
		at := Terms{Now: 1000}
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
				at.Now = max(1, at.Now+rapid.Int64Range(-30, 60).Draw(t, "time"))
			},
			"acquire": func(t *rapid.T) {
				at.Most, at.Lease = rapid.Int64Range(1, 6).Draw(t, "most"), rapid.SampledFrom([]int64{20, 50, 50, 50}).Draw(t, "lease")
				id, places := ids.Draw(t, "id"), rapid.Int64Range(1, 7).Draw(t, "places")
				used := m.heal(at)
				held := m.held(id, at.Now)
				before := used
				want := [4]int64{at.Now}
				if fits := places <= held || used-held+places <= at.Most; fits {
					m.hold(id, places, at)
					used = used - held + places
					want[1], want[3] = used, at.Now+at.Lease
				} else {
					want[1] = -1 - used
					if places <= at.Most {
						want[2] = m.room(id, places, at)
					}
					for _, x := range m {
						want[3] = max(want[3], x.end)
					}
				}
				require.Equal(t, want, l.Acquire(id, places, at))
				require.LessOrEqual(t, used, max(at.Most, before))
			},
			"renew": func(t *rapid.T) {
				at.Most, at.Lease = rapid.Int64Range(1, 6).Draw(t, "most"), 50
				id, places := ids.Draw(t, "id"), rapid.Int64Range(1, 7).Draw(t, "places")
				used := m.heal(at)
				held := m.held(id, at.Now)
				want := held > 0 || used+places <= at.Most
				if want && held > 0 {
					m.hold(id, held, at)
				} else if want {
					m.hold(id, places, at)
				}
				require.Equal(t, want, l.Renew(id, places, at))
			},
			"release": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				m = slices.DeleteFunc(m, func(x lease) bool { return x.id == id })
				l.Release(id)
				l.Release(id)
			},
		})
	})
}
