package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"golang.org/x/time/rate"

	"github.com/weir-go/weir/core"
)

// taker takes one unit for a key, and reports whether there was one.
type taker func(key string) bool

// limit is how many units there are in a period, all of which may be taken at once.
type limit struct {
	units  int64
	period time.Duration
}

var (
	// unlimited admits all that one key can be asked for.
	unlimited = limit{100_000_000, time.Second}
	// thousandPerHour admits what one of many keys is asked for. One unit weighs 3.6 s: then the key is as if unused.
	thousandPerHour = limit{1000, time.Hour}
)

// contender is something that limits by key in this process.
type contender struct {
	name  string
	build func(l limit, most int) taker
	// forgets is how long after its last use a key of thousandPerHour is surely forgotten; 0 is never.
	forgets time.Duration
}

var contenders = []contender{
	{"weir, Limiter.Allow", newWeir, 25 * time.Second},
	{"prototype: open addressing and compare-and-swap", newCAS, 0},
	{"prototype: sharded Go map", newShardedMap, 0},
	{"sethvargo/go-limiter, memorystore", newSethvargo, 5 * time.Second},
	{"x/time/rate in a sync.Map", newTimeRate, 0},
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newWeir(l limit, most int) taker {
	policy := must(core.Parse(fmt.Sprintf("p: %d/%v", l.units, l.period)))
	store := must(core.NewMemory(core.MemoryOptions{MaxKeys: 2 * most}))
	limiter := must(core.NewLimiter(store, policy, core.LimiterOptions{}))
	ctx := context.Background()
	return func(key string) bool {
		res, err := limiter.Allow(ctx, key)
		return err == nil && res.Allowed()
	}
}

// newSethvargo has more tokens in a longer interval than the limit says, because it never has so many again as it has
// at first: what is compared is that it admits.
func newSethvargo(l limit, most int) taker {
	config := memorystore.Config{Tokens: uint64(l.units), Interval: l.period, SweepInterval: time.Minute, SweepMinTTL: time.Minute}
	if l == unlimited {
		config.Tokens, config.Interval = 1<<40, 24*time.Hour
	}
	store := must(memorystore.New(&config))
	ctx := context.Background()
	return func(key string) bool {
		_, _, _, ok, err := store.Take(ctx, key)
		return err == nil && ok
	}
}

func newTimeRate(l limit, _ int) taker {
	var limiters sync.Map
	every := rate.Limit(float64(l.units) / l.period.Seconds())
	return func(key string) bool {
		limiter, ok := limiters.Load(key)
		if !ok {
			limiter, _ = limiters.LoadOrStore(key, rate.NewLimiter(every, int(l.units)))
		}
		return limiter.(*rate.Limiter).Allow()
	}
}
