package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bench/internal/network"
	"github.com/weir-go/weir/internal/redistest"
)

// redisLoad is the load of a section about Redis.
type redisLoad struct {
	goroutines int
	keys       int
	limits     []limit // several are spread over the goroutines
	exhausted  bool    // use up the limits before
	network    time.Duration
	cluster    bool
}

func redisSections() []section {
	plenty, lasting := []limit{plenty()}, []limit{lasting()}
	eight := make([]limit, 8)
	for i := range eight {
		eight[i] = limit{lasting[0].rate + i, lasting[0].period}
	}
	var all []section
	add := func(s section, l redisLoad) {
		s.note = cmp.Or(s.note, "100 goroutines. Each contender has one client; those of go-redis have their default of 10 connections for each core.")
		s.chart, s.unit = cmp.Or(s.chart, s.name), cmp.Or(s.unit, perSecond)
		s.baseline = cmp.Or(s.baseline, "redis_rate")
		if s.also == nil {
			s.also = []string{"rueidis EVALSHA"}
		}
		at, far := new(servers), l.network > 0 && l.goroutines > 1
		for _, r := range redisLimiters {
			if r.single && l.cluster || r.far && !far || s.chart == "redis-threads" && r.kind == peer && r.name != s.baseline {
				continue
			}
			s.rows = append(s.rows, r.row(l, at, 0))
			if far && (r.name == "weir" || r.name == "redis_rate" || r.name == "go-redis EVALSHA") {
				s.rows = append(s.rows, r.row(l, at, 100))
			}
		}
		all = append(all, s)
	}
	const many = 10_000
	const alone = "One goroutine, one key. The median of the times of single decisions, round trip included."
	one := section{
		name: "redis-one", chart: "redis-one", unit: halfOfThem, also: []string{"go-redis EVALSHA"},
		title: "A decision in Redis, one goroutine", panel: "on the same machine", shorter: 8,
		note: alone + " A processor that has fallen asleep while it waited takes five times as long, and whether it does " +
			"changes several times a second: slices are short, so that it happens to all.",
	}
	add(one, redisLoad{goroutines: 1, keys: 1, limits: plenty})
	const far = "A process on the same cores holds each answer for 1 ms. What it uses of them is in no column: much the same for " +
		"weir, rueidis and the shared script, an eighth of a core, and more where answers come one by one on many connections."
	one.name, one.panel, one.shorter, one.note = "redis-one-network", "1 ms away", 0, alone+" "+far
	add(one, redisLoad{goroutines: 1, keys: 1, limits: plenty, network: time.Millisecond})
	add(section{name: "redis-many", title: "100 goroutines, 10 000 keys, Redis"}, redisLoad{goroutines: 100, keys: many, limits: lasting})
	add(section{name: "redis-hot", title: "100 goroutines, one hot key, Redis"}, redisLoad{goroutines: 100, keys: 1, limits: plenty})
	add(section{name: "redis-denied", title: "100 goroutines, one key that is over its limit, Redis"},
		redisLoad{goroutines: 100, keys: 1, limits: []limit{few()}, exhausted: true})
	add(section{name: "redis-eight", title: "100 goroutines, 10 000 keys, eight policies at once, Redis"},
		redisLoad{goroutines: 100, keys: many, limits: eight})
	add(section{
		name: "redis-network", title: "100 goroutines, 10 000 keys, Redis 1 ms away",
		note: far + " Each contender has one client; those of go-redis have their default of 10 connections for each core, or 100. " +
			"A \"shared script\" is weir's, for up to 64 callers that wait, without weir's deadlines, breaker, fairness between policies " +
			"and cache of refusals. Compare by the ratios, which are those within a round: of two that differ by less than 3 %, neither is faster.",
	}, redisLoad{goroutines: 100, keys: many, limits: lasting, network: time.Millisecond})
	add(section{name: "redis-cluster", baseline: "go-redis EVALSHA", title: "100 goroutines, 10 000 keys, a Redis Cluster of three"},
		redisLoad{goroutines: 100, keys: many, limits: lasting, cluster: true})
	for _, threads := range []int{1, 10, 100} {
		add(section{
			name: "redis-threads-" + strconv.Itoa(threads), chart: "redis-threads", panel: strconv.Itoa(threads) + " threads",
			title: "One bucket for all, by threads, Redis",
			note: "A published limiter of two round trips reached 250, 2000 and 5000 a second with 1, 10 and 100 threads, " +
				"on a Redis of two cores and 4 GB across a network.",
		}, redisLoad{goroutines: threads, keys: 1, limits: plenty})
	}
	return all
}

// row is the limiter under a load, with that many connections.
func (r redisLimiter) row(l redisLoad, at *servers, conns int) row {
	name := r.name
	if conns > 0 {
		name += fmt.Sprintf(", %d connections", conns)
	}
	return row{name: name, kind: r.kind, open: func(tb testing.TB, s scale) slice {
		b := at.start(tb, l)
		b.conns = conns
		decides := r.open(tb, b, l.limits...)
		unhurried := b
		unhurried.patient = true
		checkExact(tb, r.open(tb, unhurried, few())[0].work(name))
		keys := make([]string, s.keys(l.keys))
		for i := range keys {
			keys[i] = address(i)
		}
		if l.exhausted {
			for range 2 * few().rate {
				_, err := decides[0](tb.Context(), keys[0])
				require.NoError(tb, err)
			}
		}
		return load{goroutines: l.goroutines, batch: 1, server: at.processorTime, work: func(g int) work {
			d := decides[g%len(decides)]
			return func(ctx context.Context, i int) (bool, error) {
				v, err := d(ctx, keys[(g*977+i*7919)%len(keys)])
				return v.admitted, err
			}
		}}.run
	}}
}

// address is a key such as a limiter by address has.
func address(i int) string { return fmt.Sprintf("ip=10.%d.%d.%d", i>>16&255, i>>8&255, i&255) }

// servers are the Redis of a section, for all of its contenders.
type servers struct {
	ctx     context.Context //nolint:containedctx // whose servers they are
	backend backend
	clients []*redis.Client // to ask them what they have used
}

// start returns how to reach the servers, and starts them if they are not running.
func (s *servers) start(tb testing.TB, l redisLoad) backend {
	tb.Helper()
	if s.ctx == tb.Context() {
		return s.backend
	}
	all := []*redistest.Server{}
	if l.cluster {
		all = redistest.StartCluster(tb).Nodes
	} else {
		all = append(all, redistest.Single(tb))
	}
	*s = servers{ctx: tb.Context()}
	for _, server := range all {
		s.backend.addrs = append(s.backend.addrs, server.Addr())
		s.clients = append(s.clients, server.Client(tb, func(o *redis.Options) { o.PoolSize = 1 }))
	}
	if l.network > 0 {
		s.backend.dial = network.Start(tb, l.network).Dial
	}
	return s.backend
}

// processorTime returns the processor time that all servers have used.
func (s *servers) processorTime() (time.Duration, error) {
	sum := 0.0
	for _, c := range s.clients {
		info := c.InfoMap(s.ctx, "cpu")
		for _, name := range []string{"used_cpu_sys", "used_cpu_user"} {
			seconds, err := strconv.ParseFloat(info.Item("CPU", name), 64)
			if err != nil {
				return 0, errors.Join(info.Err(), err)
			}
			sum += seconds
		}
	}
	return time.Duration(sum * float64(time.Second)), nil
}
