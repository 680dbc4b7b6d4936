package storetest

import (
	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/core"
)

// changedPeriods: every unit that was counted keeps its time, so that no stretch of the
// new period has more than there may be.
func changedPeriods(s *subject) {
	for _, kind := range []string{"sliding-window buckets 5", "sliding-window", "sliding-log"} {
		before, longer := policy("4/10s "+kind), policy("4/20s "+kind)
		s.admit(before, kind, 0, 2)
		s.admit(before, kind, 9*second, 2)
		for at := int64(9 * second); at < 20*second; at += second / 2 {
			s.refuse(longer, kind, at, 1)
		}
		s.admit(longer, kind, 24*second, 2)
		s.refuse(longer, kind, 28*second, 1)
		s.admit(longer, kind, 36*second, 2)
		// Of a shorter period the older ones are forgotten.
		shorter := policy("4/5s " + kind)
		s.remains(2, shorter, kind, 36*second)
		s.remains(4, shorter, kind, 45*second)
	}
	// Both windows of an estimate lie in this one.
	before, longer := policy("4/10s sliding-counter"), policy("4/20s sliding-counter")
	s.admit(before, "counter", 0, 2)
	s.admit(before, "counter", 15*second, 2)
	s.refuse(longer, "counter", 19*second, 1)
	s.remains(2, longer, "counter", 30*second)
}

// renamedLimits: a limit never goes on with what another one has counted.
func renamedLimits(s *subject) {
	before, after := policy("10/1s, 20/1h"), policy("1000/2h, 20/1h")
	s.admit(before, "a", 0, 10)
	s.admit(before, "a", second, 10)
	s.admit(after, "a", second, 20) // which starts afresh
	s.refuse(after, "a", second, 1)
	s.refuse(before, "a", second, 1) // and leaves alone what was there

	// Other rates keep the counts, and so does another order in the text.
	s.admit(policy("10/1h fixed-window, 100/1d fixed-window"), "b", 0, 10)
	s.refuse(policy("100/1d fixed-window, 10/1h fixed-window"), "b", 0, 1)
	raised := s.take(policy("20/1h fixed-window, 100/1d fixed-window"), "b", 0, 0)
	assert.Equal(s, [2]int64{10, 90}, [2]int64{raised.Each(0).Remaining, raised.Each(1).Remaining})

	// Where the periods are the same as well, no number is like another's.
	s.admit(policy("1/1s burst 20, 5/1s burst 5"), "c", 0, 5)
	res := s.take(policy("5/1s burst 5, 9/1s burst 20"), "c", 0, 0)
	assert.Equal(s, core.Admitted, res.Outcome)
	assert.Equal(s, [2]int64{5, 20}, [2]int64{res.Each(0).Remaining, res.Each(1).Remaining})
}
