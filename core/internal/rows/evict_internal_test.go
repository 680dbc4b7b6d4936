package rows

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Eviction takes what is dead first, then what was not at its limit, then what
// expires first.
func TestTableEvicts(t *testing.T) {
	for _, c := range []struct {
		name    string
		expires []int64
		limited []bool
		left    []int64
		stats   [2]uint64 // displaced, and at their limits
	}{
		{"all dead", []int64{5, 6, 10}, []bool{false, true, true}, nil, [2]uint64{}},
		{"some dead", []int64{20, 10, 30, 9}, []bool{false, true, false, true}, []int64{20, 30}, [2]uint64{}},
		{"the earliest", []int64{30, 20, 40}, make([]bool, 3), []int64{30, 40}, [2]uint64{1, 0}},
		{"not at the limit", []int64{30, 20, 40, 50}, []bool{true, true, false, false}, []int64{20, 30, 50}, [2]uint64{1, 0}},
		{"all at the limit", []int64{30, 20, 40}, []bool{true, true, true}, []int64{30, 40}, [2]uint64{1, 1}},
		{"one", []int64{30}, []bool{true}, nil, [2]uint64{1, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &shard{most: 10, keys: len(c.expires)}
			s.first.array = new(atomic.Pointer[array])
			tab := s.table(plainPolicy("a", 1))
			for i, at := range c.expires {
				tab.mark(tab.put(uint64(i)<<62|usedBit, []int64{at, 0}), c.limited[i])
			}
			s.evict(10)
			assert.Equal(t, len(c.left), s.keys)
			assert.Equal(t, c.stats, [2]uint64{s.displaced, s.atLimit}, "what was dead is not missed by anybody")
			var left []int64
			for i := range tab.size() {
				if !tab.array.Load().empty(i) {
					left = append(left, tab.stateOf(i)[0])
				}
			}
			checkRows(t, tab)
			slices.Sort(left)
			assert.Equal(t, c.left, left)
		})
	}
}
