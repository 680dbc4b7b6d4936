package denials_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore/internal/denials"
)

// epoch is a time of the server, in microseconds.
const epoch = 1_800_000_000_000_000

var started = time.Now()

// refused is the reply of the script to one unit that does not fit, after the time.
var refused = []struct {
	policy string
	reply  []int64
}{
	{"gcra: 1/1h", []int64{-1 - 3_600_000_000}},
	{"token-bucket: 1/1h token-bucket", []int64{-1 - (epoch - 1000), 0}},
	{"leaky-bucket: 1/1h leaky-bucket", []int64{-1 - 3_600_000_000}},
	{"fixed-window: 1/1h fixed-window", []int64{-1 - 1, epoch + 3_000_000_000}},
	{"calendar: 1/1d fixed-window calendar Europe/Berlin", []int64{-1 - 1, epoch + 3_000_000_000}},
	{"sliding-window: 1/1h sliding-window", []int64{-1 - (epoch - epoch%360_000_000), 1, 0, 0}},
	{"sliding-counter: 1/1h sliding-counter", []int64{-1 - 1, 0}},
	{"sliding-log: 1/1h sliding-log", []int64{-1 - 1, epoch - 1000, epoch - 1000, epoch - 1000}},
	{"two: 1/1h, 5/1d", []int64{-1 - 3_600_000_000, 17_280_000_000}},
}

// filled is a cache that has seen such a refusal.
func filled(t testing.TB, c *denials.Cache, policy string, reply []int64) (*denials.Policy, core.Take) {
	t.Helper()
	take := core.Take{Policy: core.MustParse(policy), Key: "ip=203.0.113.7", Cost: 1}
	p := c.Policy(take.Policy.Name(), take.Policy)
	sent := c.Now()
	reply = append([]int64{epoch}, reply...)
	res, again, err := take.Policy.Spec().Explain(take, append([]int64(nil), reply...))
	require.NoError(t, err)
	require.False(t, again)
	require.False(t, res.Allowed())
	c.Keep(p, &take, reply, &res, sent)
	return p, take
}

// still is a clock that hardly moves, so that nothing dies during a benchmark.
func still() time.Duration { return time.Second + time.Since(started)/1_000_000 }

func BenchmarkHit(b *testing.B) {
	for _, r := range refused {
		c := denials.New(1<<16, still)
		p, take := filled(b, c, r.policy, r.reply)
		b.Run(take.Policy.Name(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := c.Answer(p, &take, c.Now()); !ok {
					b.Fatal("a miss")
				}
			}
		})
		b.Run(take.Policy.Name()+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(50)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, ok := c.Answer(p, &take, c.Now()); !ok {
						b.Error("a miss")
					}
				}
			})
		})
	}
}

// A miss is paid by every request that is admitted.
func BenchmarkMiss(b *testing.B) {
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprint("user=", i)
	}
	for _, full := range []bool{false, true} {
		c := denials.New(1<<16, still)
		p, take := c.Policy("p", core.MustParse("p: 10/1s")), core.Take{Cost: 1}
		if full {
			_, take = filled(b, c, refused[0].policy, refused[0].reply)
		}
		b.Run(map[bool]string{false: "empty", true: "others refused"}[full], func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				take.Key = keys[i%len(keys)]
				if _, ok := c.Answer(p, &take, c.Now()); ok {
					b.Fatal("a hit")
				}
			}
		})
	}
}

// BenchmarkSeen measures the additional cost of each request that Redis admits.
func BenchmarkSeen(b *testing.B) {
	for _, full := range []bool{false, true} {
		c := denials.New(1<<16, still)
		p, take := c.Policy("p", core.MustParse("p: 10/1s")), core.Take{Cost: 1}
		if full {
			_, _ = filled(b, c, refused[0].policy, refused[0].reply)
		}
		keys := make([]string, 10_000)
		for i := range keys {
			keys[i] = fmt.Sprint("user=", i)
		}
		res := core.Result{Outcome: core.Admitted, Taken: 1, At: epoch}
		b.Run(map[bool]string{false: "empty", true: "others refused"}[full], func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				take.Key, res.At = keys[i%len(keys)], epoch+int64(i)
				c.Seen(p, &take, &res, c.Now())
			}
		})
	}
}
