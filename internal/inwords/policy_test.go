package inwords

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

func TestPolicy(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Policy{
		"100/10s":                                     {AtOnce: 100, Within: []Within{{"10s", 199}}},
		"100/10s debt 50":                             {AtOnce: 150, Within: []Within{{"10s", 249}}},
		"100/10s burst 20":                            {AtOnce: 20, Within: []Within{{"10s", 119}}},
		"100/10s token-bucket":                        {AtOnce: 100, Within: []Within{{"10s", 199}}},
		"100/10s leaky-bucket":                        {AtOnce: 100, Within: []Within{{"10s", 100}}},
		"100/10s fixed-window":                        {AtOnce: 100, Within: []Within{{"10s", 199}}},
		"100/10s fixed-window aligned":                {AtOnce: 100, Within: []Within{{"10s", 200}}},
		"100/10s sliding-window":                      {AtOnce: 100, Within: []Within{{"10s", 100}}},
		"100/10s sliding-counter":                     {AtOnce: 100, Within: []Within{{"10s", 199}}},
		"100/10s sliding-log":                         {AtOnce: 100, Within: []Within{{"10s", 100}}},
		"20/1s, 1000/1d":                              {AtOnce: 20, Within: []Within{{"1s", 39}, {"1d", 1999}}},
		"1000/1d fixed-window calendar Europe/Berlin": {AtOnce: 1000, Within: []Within{{"1d", 2000}}},
		"10/1mo fixed-window calendar UTC, 1/1d":      {AtOnce: 1, Within: []Within{{"1d", 1}, {"31d", 20}}},
		"20 concurrent lease 10s":                     {AtOnce: 20, Within: []Within{}, Concurrent: 20},
		"5 concurrent, 20/1s":                         {AtOnce: 5, Within: []Within{{"1s", 39}}, Concurrent: 5},
		"2147483648/1ms, 1/366d":                      {AtOnce: 1, Within: []Within{{"1ms", 1}, {"366d", 1}}},
	} {
		got := Of(core.MustParse(text))
		assert.Equal(t, want.AtOnce, got.AtOnce, text)
		assert.Equal(t, want.Within, got.Within, text)
		assert.Equal(t, want.Concurrent, got.Concurrent, text)
	}
}

// What Of says is never exceeded, however well a client times its requests; and for a single limit a search finds
// a client that gets as much, or nearly.
func TestBounds(t *testing.T) {
	t.Parallel()
	for text, least := range map[string]int64{ // percents of the bound that the search must find at least
		"10/10s":                                          100,
		"10/10s burst 3":                                  100,
		"10/10s burst 30":                                 100,
		"10/10s debt 4":                                   100,
		"10/10s token-bucket":                             100,
		"10/10s token-bucket burst 3":                     100,
		"10/10s token-bucket debt 4":                      90,
		"10/10s leaky-bucket":                             100,
		"10/10s leaky-bucket burst 3":                     100,
		"10/10s fixed-window":                             100,
		"10/10s fixed-window aligned":                     100,
		"60/1m fixed-window calendar UTC":                 100,
		"10/10s sliding-window":                           100,
		"10/10s sliding-window buckets 3":                 100,
		"10/10s sliding-counter":                          90,
		"10/10s sliding-log":                              100,
		"3/2s, 10/10s":                                    0,
		"3/2s sliding-log, 10/10s":                        0,
		"4/3s fixed-window, 10/10s":                       0,
		"5/3s token-bucket, 20/10s":                       0,
		"5/4s sliding-counter, 9/10s":                     0,
		"2/3s sliding-window, 5/10s aligned fixed-window": 0,
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			policy := core.MustParse("p: " + text)
			x := Of(policy)
			found := search(t, policy)
			for i, w := range x.Within {
				assert.LessOrEqual(t, found[i], w.Most, "in any %s", w.Time)
				assert.GreaterOrEqual(t, found[i]*100, w.Most*least, "in any %s: the search found %d", w.Time, found[i])
			}
		})
	}
}

// search returns the most units that clients got in less than each period of a policy, of clients that come at random
// and at the moments at which most comes back.
func search(t *testing.T, policy core.Policy) []int64 {
	t.Helper()
	all := periods(policy.Limits())
	longest := all[len(all)-1]
	best := make([]int64, len(all))
	r := rand.New(rand.NewPCG(1, 2)) // the same search each time
	for range 400 {
		const epoch = 1_767_225_600_000_000 // a midnight
		store, err := core.NewMemory(core.MemoryOptions{})
		require.NoError(t, err)
		// A first unit, at times one moment before a period's end, and then whatever there is at some moments, or
		// at all.
		var moments []time.Duration
		base := 2*longest - time.Duration(r.IntN(2))*time.Microsecond
		moments = append(moments, base)
		if r.IntN(2) == 0 {
			moments = append(moments, base-all[r.IntN(len(all))]+time.Duration(r.IntN(3)-1)*time.Microsecond)
		}
		step := (longest / time.Duration([]int{5, 10, 20, 60, 100}[r.IntN(5)])).Truncate(time.Microsecond)
		for i, n := 0, r.IntN(120); i < n; i++ {
			moments = append(moments, base+time.Duration(i)*step, base+time.Duration(i)*step-time.Microsecond)
		}
		slices.Sort(moments)
		type taken struct {
			at    time.Duration
			units int64
		}
		var out []taken
		first := r.IntN(2) == 0
		for _, at := range moments {
			most := int64(1 << 20)
			if first && at < base-time.Microsecond {
				most = 1
			}
			take := func(cost int64, atMost bool) int64 {
				res, err := store.Take(t.Context(), core.Take{
					Policy: policy, Key: "k", Cost: cost, AtMost: atMost, Now: epoch + at.Microseconds(),
				})
				require.NoError(t, err)
				if res.Taken > 0 {
					out = append(out, taken{at + res.Delay, res.Taken})
				}
				return res.Taken
			}
			if debt := policy.Limits()[0].Debt; debt > 0 { // which is lent to one request, when there is nothing left
				take(most, true)
				if most > 1 {
					take(debt, false)
				}
				continue
			}
			for ; most > 0 && take(1, false) > 0; most-- { // one by one, since each leaves a bucket by itself
				continue
			}
		}
		for i, d := range all {
			slices.SortFunc(out, func(a, b taken) int { return int(a.at - b.at) })
			sum, from := int64(0), 0
			for _, o := range out {
				sum += o.units
				for o.at-out[from].at >= d {
					sum -= out[from].units
					from++
				}
				best[i] = max(best[i], sum)
			}
		}
	}
	return best
}

func TestStateBytes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]int{ // at least and at most
		"100/10s":                       {10, 40},
		"100/10s, 1000/1d fixed-window": {20, 80},
		"1000/10s sliding-log":          {5000, 10000},
		"20 concurrent":                 {0, 0},
	} {
		got := StateBytes(core.MustParse(text))
		assert.GreaterOrEqual(t, got, want[0], text)
		assert.LessOrEqual(t, got, want[1], text)
	}
}
