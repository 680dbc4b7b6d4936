package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/admin/internal/recordtest"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/publish"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/redissource"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/hosttest"
	"github.com/weir-go/weir/internal/redistest"
)

// pricing is a run of "cost".
type pricing struct {
	testing.TB

	apps, policies, rate int
	turn                 time.Duration // with changes, and then the same without
	turns                int
	quick                bool

	server    *redistest.Server
	rdb       *redis.Client // of who looks
	record    *record.Record
	publisher *publish.Publisher
	sent      commands
	decider   *hosttest.Process
	sources   []*redissource.Source
	written   int
}

func cost(ctx context.Context, args []string) error {
	p := &pricing{}
	flags := flag.NewFlagSet("cost", flag.ContinueOnError)
	flags.IntVar(&p.apps, "apps", 50, "number of apps; the document of the last one is as large as one may be")
	flags.IntVar(&p.policies, "policies", 200, "policies of each")
	flags.IntVar(&p.rate, "rate", 10, "changes a second")
	flags.DurationVar(&p.turn, "turn", 5*time.Second, "length of a turn, with changes or without")
	flags.IntVar(&p.turns, "turns", 4, "number of turns of each kind")
	flags.BoolVar(&p.quick, "quick", false, "check that it works, in a few seconds")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if p.quick {
		p.apps, p.turn, p.turns = min(p.apps, 5), time.Second, 1
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	return hosttest.Run(ctx, "soak", func(tb testing.TB) {
		p.TB = tb
		p.run(tb.Context())
	})
}

func (p *pricing) run(ctx context.Context) {
	p.server = redistest.Single(p)
	p.rdb = p.server.Client(p)
	p.record = recordtest.Open(p, sqltest.SQLite(p))
	publishing := p.server.Client(p, func(o *redis.Options) { o.MaxRetries = -1 })
	publishing.AddHook(&p.sent)
	p.publisher = publish.New(p.record, publishing, nil)
	p.fill(ctx)

	working, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	work.Go(func() { p.publisher.Run(working) })
	for app := range p.apps {
		s, err := redissource.New(p.rdb, p.app(app), redissource.Options{})
		if err != nil {
			p.Fatal(err)
		}
		defer s.Close()
		if err := s.Ready(ctx); err != nil {
			p.Fatal(err)
		}
		p.sources = append(p.sources, s)
	}
	p.decider = hosttest.Start(p, serviceEnv, settings{Addr: p.server.Addr(), Decides: true})
	stepAside()
	var with, without []time.Duration
	stats := map[string]stat{}
	for range p.turns {
		without = append(without, p.decide(ctx, func(context.Context) {})...)
		if err := p.rdb.ConfigResetStat(ctx).Err(); err != nil {
			p.Fatal(err)
		}
		with = append(with, p.decide(ctx, p.change)...)
		for name, s := range p.stats(ctx) {
			stats[name] = stat{stats[name].calls + s.calls, stats[name].micros + s.micros}
		}
	}
	p.arrived(ctx)
	p.print(stats, with, without)
}

// app names an app; the last one is the large one.
func (p *pricing) app(n int) string {
	if n == p.apps-1 {
		return "large"
	}
	return fmt.Sprint("app", n)
}

// fill writes the policies: of each app, and those of the large one, whose document has nearly as many bytes as one may
// have.
func (p *pricing) fill(ctx context.Context) {
	for app := range p.apps {
		c := record.Change{App: p.app(app), Action: "apply"}
		large := 0
		if app == p.apps-1 {
			large = 8
		}
		for i := range p.policies - large {
			c.Edits = append(c.Edits, record.Edit{Name: fmt.Sprint("policy", i), Policy: &policies.Policy{Text: "100/1m; shadow"}})
		}
		for i := range large {
			keys := map[string]string{}
			for n := range 550 {
				keys[fmt.Sprintf("user=%037d", n)] = "blocked"
			}
			c.Edits = append(c.Edits, record.Edit{Name: fmt.Sprint("large", i), Policy: &policies.Policy{Text: "1/1s", Keys: keys}})
		}
		if _, err := p.record.Change(ctx, c); err != nil {
			p.Fatal(err)
		}
	}
	if err := p.publisher.Round(ctx); err != nil {
		p.Fatal(err)
	}
	size, err := p.rdb.HStrLen(ctx, redissource.Key("large"), redissource.FieldDocument).Result()
	if err != nil {
		p.Fatal(err)
	}
	fmt.Printf("%d apps of %d policies, of which one has %d KiB; %d changes a second\n", p.apps, p.policies, size>>10, p.rate)
}

// change changes policies at the rate until ctx ends.
func (p *pricing) change(ctx context.Context) {
	tick := time.NewTicker(time.Second / time.Duration(p.rate))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p.written++
		app := p.written % p.apps
		_, err := p.record.Change(context.WithoutCancel(ctx), record.Change{App: p.app(app), Action: "set", Edits: []record.Edit{
			{Name: "policy0", Policy: &policies.Policy{Text: fmt.Sprintf("%d/1m", p.written)}},
		}})
		if err != nil {
			p.Errorf("%v", err)
		}
		p.publisher.Wake()
	}
}

// decide lets the process of decisions make some for a turn beside something, and returns how long each took.
func (p *pricing) decide(ctx context.Context, beside func(context.Context)) []time.Duration {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { beside(ctx) })
	var took []time.Duration
	err := p.decider.Ask(p.turn.String(), &took)
	cancel()
	work.Wait()
	if err != nil {
		p.Fatal(err)
	}
	return took
}

// decider is a process of its own, as that of a service is: it makes decisions for each turn that it reads.
func decider(ctx context.Context, addr string, in io.Reader, out io.Writer) error {
	rdb := redis.NewUniversalClient(redisstore.ClientOptions(addr))
	defer rdb.Close()
	source, err := redissource.New(rdb, "app0", redissource.Options{})
	if err != nil {
		return err
	}
	defer source.Close()
	store, err := redisstore.New(rdb, redisstore.Options{})
	if err != nil {
		return err
	}
	limiter, err := enforce.New(store, core.MustParse("decisions: 1000000/1s"), enforce.Options{Source: source})
	if err != nil {
		return err
	}
	return hosttest.Answer(in, out, func(line string) (any, error) {
		turn, err := time.ParseDuration(line)
		if err != nil {
			return nil, err
		}
		return decisions(ctx, limiter, turn)
	})
}

// decisions returns how long each decision of four callers took, each of whom makes some 700 a second.
func decisions(ctx context.Context, limiter *enforce.Limiter, turn time.Duration) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, turn)
	defer cancel()
	var work sync.WaitGroup
	errs := make([]error, 4)
	took := make([][]time.Duration, 4)
	for i := range took {
		work.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				began := time.Now()
				if _, err := limiter.Allow(context.WithoutCancel(ctx), fmt.Sprint("user=", n%1000)); err != nil {
					errs[i] = fmt.Errorf("a decision: %w", err)
					return
				}
				took[i] = append(took[i], time.Since(began))
				pause(ctx, time.Millisecond+time.Duration(rand.IntN(int(time.Millisecond))))
			}
		})
	}
	work.Wait()
	return slices.Concat(took...), errors.Join(errs...)
}

type stat struct{ calls, micros int64 }

var line = regexp.MustCompile(`(?m)^cmdstat_(\w+):calls=(\d+),usec=(\d+)`)

// stats returns what Redis says of each command since they were reset.
func (p *pricing) stats(ctx context.Context) map[string]stat {
	text, err := p.rdb.Info(ctx, "commandstats").Result()
	if err != nil {
		p.Fatal(err)
	}
	all := map[string]stat{}
	for _, m := range line.FindAllStringSubmatch(text, -1) {
		var s stat
		_, _ = fmt.Sscan(m[2]+" "+m[3], &s.calls, &s.micros) // digits, by the pattern
		all[m[1]] = s
	}
	return all
}

// arrived waits until every source has what the record says.
func (p *pricing) arrived(ctx context.Context) {
	for app, s := range p.sources {
		if err := until(ctx, func() error {
			h, _, err := p.record.Head(ctx, p.app(app))
			if st := s.Status(); err == nil && st.Version != h.Version {
				err = fmt.Errorf("app %s: a service has %v, the record %v", p.app(app), st.Version, h.Version)
			}
			return err
		}); err != nil {
			p.Fatal(err)
		}
	}
}

func (p *pricing) print(stats map[string]stat, with, without []time.Duration) {
	fmt.Printf("%d changes, all of them arrived; a publisher sent %d commands, of which scripts: %d\n",
		p.written, p.sent.all.Load(), p.sent.scripts.Load())
	if p.sent.scripts.Load() > 0 || p.sent.all.Load() == 0 || stats["hset"].calls == 0 || stats["hmget"].calls == 0 {
		p.Fatalf("a publisher must send commands, and no scripts: %v", stats)
	}
	if p.quick {
		return
	}
	for _, name := range []string{"hset", "hmget", "hstrlen", "publish", "evalsha"} {
		if s := stats[name]; s.calls > 0 {
			fmt.Printf("%-8s %7d calls, %6.1f us each\n", name, s.calls, float64(s.micros)/float64(s.calls))
		}
	}
	for _, q := range []float64{.5, .99, .999} {
		a, b := quantile(with, q), quantile(without, q)
		fmt.Printf("p%-5v of decisions: %8v beside changes, %8v without: %+.1f %%\n", q*100, a, b, 100*(float64(a)/float64(b)-1))
	}
}

func quantile(all []time.Duration, q float64) time.Duration {
	slices.Sort(all)
	return all[int(q*float64(len(all)-1))].Round(time.Microsecond)
}

// commands counts what a client sends.
type commands struct{ all, scripts atomic.Int64 }

func (c *commands) count(all ...redis.Cmder) {
	for _, cmd := range all {
		c.all.Add(1)
		if strings.HasPrefix(cmd.Name(), "eval") || strings.HasPrefix(cmd.Name(), "fcall") || cmd.Name() == "script" {
			c.scripts.Add(1)
		}
	}
}

// DialHook implements redis.Hook.
func (c *commands) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements redis.Hook.
func (c *commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.count(cmd)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (c *commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, all []redis.Cmder) error {
		c.count(all...)
		return next(ctx, all)
	}
}
