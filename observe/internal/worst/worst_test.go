package worst_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

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
	const counters = 4096
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
			found := 0
			for r := range 20 {
				assert.Greater(t, truth[r], uint64(requests/counters), "the table promises nothing of those who have less")
				if slices.ContainsFunc(top[:20], func(k worst.Key) bool { return k.Key == "key-"+strconv.Itoa(r) }) {
					found++
				}
			}
			assert.GreaterOrEqual(t, found, 18, "it is 19 or 20 nearly always; the seed of the hash is another one each time")
			t.Logf("%d of the first 20, who have %d and more; one in %d is %d", found, truth[19], counters, requests/counters)
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
			table := worst.New(worst.Options{Counters: 4096, Period: time.Hour}, 0)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				table.Add(0, keys[i&(len(keys)-1)], 1)
				i++
			}
		})
	}
}

// step is something that happens to a table.
type step struct {
	do     string
	key    int
	weight uint64
	wait   time.Duration
}

// Whatever is counted, and however the periods change: Top and the sums of News have bounds that hold for every key, also
// for those that they do not name.
func TestBoundsHold(t *testing.T) {
	draw := rapid.Custom(func(r *rapid.T) step {
		return step{
			do:     rapid.SampledFrom([]string{"add", "add", "add", "add", "add", "add", "add", "add", "add", "add", "add", "add", "add", "add", "add", "add", "add", "add", "add", "add", "news", "wait"}).Draw(r, "do"),
			key:    int(math.Pow(2, rapid.Float64Range(2, 4).Draw(r, "key"))),
			weight: rapid.SampledFrom([]uint64{1, 1, 1, 7}).Draw(r, "weight"),
			wait:   rapid.SampledFrom([]time.Duration{time.Second, time.Second, time.Minute, 3 * time.Minute}).Draw(r, "wait"),
		}
	})
	rapid.Check(t, func(r *rapid.T) {
		const period = time.Minute
		n := rapid.SampledFrom([]int{1, 5, 16}).Draw(r, "n")
		table := worst.New(worst.Options{Counters: rapid.SampledFrom([]int{8, 16}).Draw(r, "counters"), Period: period}, 0)
		type seen struct {
			at     time.Duration
			key    string
			weight uint64
		}
		var all []seen
		now, sums, missed := time.Duration(0), map[string]uint64{}, uint64(0)
		news := func() {
			some, short := table.News(now, n)
			for key, k := range some {
				sums[key] += k
			}
			missed += short
		}
		for _, s := range rapid.SliceOfN(draw, 100, 300).Draw(r, "steps") {
			switch key := strconv.Itoa(s.key); s.do {
			case "add":
				table.Add(now, []byte(key), s.weight)
				all = append(all, seen{now, key, s.weight})
			case "news":
				news()
			case "wait":
				now += s.wait
			}
		}
		top, since := table.Top(now, 1000)
		assert.LessOrEqual(r, now-since, 2*period)
		assert.True(r, slices.IsSortedFunc(top, func(a, b worst.Key) int { return cmp.Compare(b.Count-b.Error, a.Count-a.Error) }))
		truth, lately := map[string]uint64{}, map[string]uint64{}
		for _, s := range all {
			truth[s.key] += s.weight
			if s.at >= since {
				lately[s.key] += s.weight
			}
		}
		for _, k := range top {
			assert.LessOrEqual(r, lately[k.Key], k.Count, k.Key)
			assert.GreaterOrEqual(r, lately[k.Key], k.Count-k.Error, k.Key)
		}
		news()
		for key, n := range truth {
			assert.LessOrEqual(r, sums[key], n, key)
			assert.GreaterOrEqual(r, sums[key]+missed, n, key)
		}
	})
}

// Keys that are long are cut, and those that begin alike are counted apart.
func TestLongKeys(t *testing.T) {
	table := worst.New(worst.Options{Counters: 16, Period: time.Minute}, 0)
	for _, last := range []string{"a", "b"} {
		for range 3 {
			table.Add(0, []byte(strings.Repeat("x", 1000)+last), 1)
		}
	}
	top, _ := table.Top(0, 10)
	assert.Len(t, top, 2)
	for _, k := range top {
		assert.Equal(t, worst.Key{Key: strings.Repeat("x", 200) + "…", Count: 3}, k)
	}
}

// Many goroutines count, read and change the period at a time.
func TestTableAtOnce(t *testing.T) {
	table := worst.New(worst.Options{Counters: 1024, Period: time.Hour}, 0)
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 5000 {
				table.Add(0, strconv.AppendInt(nil, int64(i%(10*(g+1))), 10), 1)
			}
		})
	}
	all.Go(func() {
		for range 100 {
			table.Top(0, 10)
			table.News(0, 10)
		}
	})
	all.Wait()
	sum := uint64(0)
	top, _ := table.Top(0, 1000)
	for _, k := range top {
		sum += k.Count - k.Error
	}
	assert.LessOrEqual(t, sum, uint64(20_000))
	assert.Equal(t, uint64(500+250+167+125), top[0].Count, "key %s", top[0].Key)
}
