package circuits_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core/guard/internal/circuits"
)

// Whatever is refused, admitted and left undecided, and when: an open circuit refuses until its time is over, which is
// between Open and MaxOpen, and there are no more circuits open at a time than the table has places.
func TestTable(t *testing.T) {
	step := rapid.Custom(func(r *rapid.T) step {
		return step{
			do:   rapid.SampledFrom([]string{"refused", "refused", "refused", "ask", "admitted", "undecided", "wait"}).Draw(r, "do"),
			key:  strconv.Itoa(rapid.IntRange(0, 11).Draw(r, "key")),
			wait: time.Duration(rapid.IntRange(1, 9).Draw(r, "seconds")) * time.Second,
		}
	})
	rapid.Check(t, func(r *rapid.T) {
		steps := rapid.SliceOfN(step, 150, 300).Draw(r, "steps")
		synctest.Test(t, func(t *testing.T) { carryOut(t, steps) })
	})
}

type step struct {
	do, key string
	wait    time.Duration
}

func carryOut(t *testing.T, steps []step) {
	t.Helper()
	o := circuits.Options{Refusals: 2, Within: time.Minute, Open: 10 * time.Second, MaxOpen: 40 * time.Second, Keys: 8}
	table := circuits.New(o)
	until, probes := map[string]time.Time{}, map[string]bool{}
	for _, step := range steps {
		key := step.key
		switch {
		case step.do == "refused":
			if open := table.Refused("p", key); open > 0 {
				assert.LessOrEqual(t, open, o.MaxOpen)
				if end := time.Now().Add(open); end.After(until[key]) {
					assert.GreaterOrEqual(t, open, o.Open)
					until[key] = end
				}
				delete(probes, key)
			}
		case step.do == "ask":
			refuse, probe := table.Ask("p", key)
			if left := time.Until(until[key]); left > 0 {
				assert.Equal(t, left, refuse, "an open circuit refuses until its time is over")
			}
			if probes[key] = probe; probe {
				assert.Zero(t, refuse)
				until[key] = time.Now().Add(time.Second) // for which others are refused
			}
		case step.do == "admitted" && probes[key]:
			table.Admitted("p", key)
			delete(until, key)
			delete(probes, key)
		case step.do == "undecided" && probes[key]:
			table.Undecided("p", key)
			delete(until, key)
			delete(probes, key)
		case step.do == "wait":
			<-time.After(step.wait)
		}
		open := 0
		for _, end := range until {
			if end.After(time.Now()) {
				open++
			}
		}
		assert.LessOrEqual(t, open, 8, "no more are open than there are places")
		assert.Equal(t, open, table.Open())
	}
}

// Peek foresees what Ask and Refused then do, and leaves no trace.
func TestPeek(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 17))
		seen := map[circuits.Outlook]int{}
		for range 200 {
			table := circuits.New(circuits.Options{Refusals: 1 + random.IntN(4), Within: 3 * time.Second, Open: time.Second, MaxOpen: 4 * time.Second, Keys: 8})
			for range 40 {
				<-time.After(time.Duration(1 + random.Int64N(int64(time.Second)<<random.IntN(4))))
				said := table.Peek("p", "k")
				require.Equal(t, said, table.Peek("p", "k"))
				refuse, probe := table.Ask("p", "k")
				require.Equal(t, [...]any{said.Refuse, said.Probe}, [...]any{refuse, probe})
				said.Refuse = min(said.Refuse, 1)
				seen[said]++
				switch {
				case refuse > 0:
				case random.IntN(4) > 0:
					require.Equal(t, said.Opens, table.Refused("p", "k") > 0)
				case probe:
					table.Admitted("p", "k")
				}
			}
		}
		require.Len(t, seen, 4, "%v", seen)
	})
}
