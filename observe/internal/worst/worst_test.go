package worst_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/observe/internal/worst"
)

// zipf draws ranks, the lower the more often: rank r with the weight 1/r^s.
type zipf struct {
	sums   []float64
	random *rand.Rand
}

func newZipf(s float64, keys int, seed uint64) *zipf {
	z := &zipf{make([]float64, keys), rand.New(rand.NewPCG(seed, 1))}
	sum := 0.0
	for i := range z.sums {
		sum += math.Pow(float64(i+1), -s)
		z.sums[i] = sum
	}
	return z
}

func (z *zipf) draw() int {
	return sort.SearchFloat64s(z.sums, z.random.Float64()*z.sums[len(z.sums)-1])
}

// The table finds those who are seen most, and its bounds hold for every key that it names, also amid a flood.
func TestTopOfZipf(t *testing.T) {
	const counters = 2048
	requests := 2_000_000
	if testing.Short() {
		requests = 500_000
	}
	for _, c := range []struct {
		s     float64
		keys  int
		flood int // tenths
	}{{1.0, 300_000, 0}, {1.2, 300_000, 0}, {1.0, 300_000, 9}, {1.2, 300_000, 9}} {
		t.Run(fmt.Sprintf("%v, flood %d0%%", c.s, c.flood), func(t *testing.T) {
			t.Parallel()
			z := newZipf(c.s, c.keys, 1)
			table := worst.New(worst.Options{Counters: counters, Period: time.Hour}, 0)
			truth, floods := make([]uint64, c.keys), map[string]uint64{}
			b := make([]byte, 0, 32)
			for range requests {
				if z.random.IntN(10) < c.flood {
					b = strconv.AppendInt(append(b[:0], "flood-"...), z.random.Int64N(1_000_000), 10)
					floods[string(b)]++
				} else {
					r := z.draw()
					truth[r]++
					b = strconv.AppendInt(append(b[:0], "key-"...), int64(r), 10)
				}
				table.Add(0, b, 1)
			}
			top, _ := table.Top(0, counters)
			for _, k := range top {
				n, ok := floods[k.Key]
				if !ok {
					var r int
					_, err := fmt.Sscanf(k.Key, "key-%d", &r)
					assert.NoError(t, err)
					n = truth[r]
				}
				assert.LessOrEqual(t, n, k.Count, k.Key)
				assert.GreaterOrEqual(t, n, k.Count-k.Error, k.Key)
			}
			found, of := 0, 0
			for r, n := range truth[:20] {
				if n > uint64(requests/counters) {
					of++
					if slices.ContainsFunc(top[:20], func(k worst.Key) bool { return k.Key == "key-"+strconv.Itoa(r) }) {
						found++
					}
				}
			}
			t.Logf("%d of %d of the first 20 that have more than %d", found, of, requests/counters)
			assert.GreaterOrEqual(t, found, of-1)
		})
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, c := range []struct {
		name string
		keys int
	}{{"hot", 1}, {"many", 128}, {"flood", 1 << 20}} {
		b.Run(c.name, func(b *testing.B) {
			keys := make([][]byte, c.keys)
			for i := range keys {
				keys[i] = []byte("ip=203.0.113." + strconv.Itoa(i))
			}
			table := worst.New(worst.Options{Counters: 2048, Period: time.Hour}, 0)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				table.Add(0, keys[i&(len(keys)-1)], 1)
				i++
			}
		})
	}
}
