package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/redissource"
	"github.com/weir-go/weir/internal/adminapi"
	"github.com/weir-go/weir/internal/hosttest"
	"github.com/weir-go/weir/internal/redistest"
)

// killing is a run of "kill".
type killing struct {
	testing.TB

	ctx     context.Context //nolint:containedctx // that of the run
	random  *rand.Rand
	longest time.Duration // for which something stands still

	redis     *redistest.Server
	rdb       *redis.Client
	sql       *sqltest.Server // nil for SQLite
	file      string          // of SQLite
	location  string          // of the database
	rows      int64           // of the audit, when it was verified last
	program   string
	servers   []*server
	followers []*follower
	ledger    *ledger
	writers   []string // the tokens of those who write one policy at once
	alarms    int      // lines of alarms that were caused on purpose
	old       string   // an earlier hash of the first app
}

func kill(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("kill", flag.ContinueOnError)
	rounds := flags.Int("rounds", 5, "number of rounds")
	seed := flags.Uint64("seed", rand.Uint64(), "which faults, in which order")
	database := flags.String("db", "sqlite", "sqlite, postgres or mariadb")
	writers := flags.Int("writers", 200, "people who change one policy at once, besides two who change any")
	longest := flags.Duration("longest", 2*time.Second, "the longest time for which something is stopped or gone")
	if err := flags.Parse(args); err != nil {
		return err
	}
	fmt.Printf("soak kill -rounds %d -db %s -writers %d -longest %v -seed %d\n", *rounds, *database, *writers, *longest, *seed)
	return hosttest.Run(ctx, "soak", func(tb testing.TB) {
		k := &killing{TB: tb, ctx: tb.Context(), random: rand.New(rand.NewPCG(*seed, 1)), longest: *longest, ledger: newLedger()}
		k.set(*database)
		k.enter(*writers)
		for n := range *rounds {
			began := time.Now()
			what := k.round(n)
			l := k.ledger
			fmt.Printf("%3d  %-70s %6d written, %6d refused, %4d answers lost, %6d rows of the audit, %v\n", n+1, what,
				l.writes, l.refused, l.lost, k.rows, time.Since(began).Round(10*time.Millisecond))
		}
	})
}

// set starts the fleet.
func (k *killing) set(database string) {
	k.program = build(k)
	k.redis = redistest.Single(k)
	k.rdb = k.redis.Client(k, func(o *redis.Options) { o.MaxRetries = -1; o.ReadTimeout, o.DialTimeout = time.Second, time.Second })
	location := ""
	switch database {
	case "sqlite":
		k.file = sqltest.SQLite(k)
		location = k.file
	case "postgres":
		k.sql = sqltest.Postgres(k)
	case "mariadb":
		k.sql = sqltest.MariaDB(k)
	default:
		k.Fatalf("found -db %q; give sqlite, postgres or mariadb", database)
	}
	if k.sql != nil {
		location = k.sql.Database(k)
	}
	k.location = location
	for range 2 {
		k.servers = append(k.servers, newServer(k, k.program, location, k.redis.Addr()))
	}
	for _, app := range apps {
		f := &follower{settings: settings{App: app, Addr: k.redis.Addr(), Bridge: filepath.Join(k.TempDir(), "bridge")}}
		f.start(k)
		k.followers = append(k.followers, f)
		for _, name := range names { // so that each round has something to lose
			if _, err := k.servers[0].Put(k.ctx, app, name, policies.Policy{Text: "1/1h"}, adminapi.Write{Create: true, Reason: "a test"}); err != nil {
				k.Fatal(err)
			}
		}
	}
	for _, f := range k.followers {
		for _, name := range names {
			k.ledger.maybe[[2]string{f.settings.App, name}] = []string{"1/1h"}
		}
	}
	k.settle()
}

// some returns a part of the longest time.
func (k *killing) some() time.Duration { return time.Duration(k.random.Int64N(int64(k.longest))) }

// fault is something that goes wrong, and ends.
type fault struct {
	name   string
	target string // only one fault at a time has it
	kills  bool   // a server or the database, as kill -9 does
	do     func(time.Duration)
}

func (k *killing) faults() []fault {
	first := redissource.Key(apps[0])
	fields := []string{redissource.FieldGeneration, redissource.FieldRevision, redissource.FieldDigest, redissource.FieldDocument}
	field := fields[k.random.IntN(len(fields))]
	all := []fault{
		{"redis killed", "redis", false, func(d time.Duration) { k.redis.Kill(); pause(k.ctx, d); k.redis.Restart(k) }},
		{"redis stopped", "redis", false, func(d time.Duration) { k.redis.Pause(k); pause(k.ctx, d); k.redis.Resume(k) }},
		{"FLUSHALL", "keys", false, func(time.Duration) { k.rdb.FlushAll(k.ctx) }},
		{"hash deleted", "keys", false, func(time.Duration) { k.rdb.Del(k.ctx, first) }},
		{field + " deleted", "keys", false, func(time.Duration) { k.rdb.HDel(k.ctx, first, field) }},
		{"earlier hash", "keys", false, func(time.Duration) {
			if k.old != "" {
				k.rdb.RestoreReplace(k.ctx, first, 0, k.old)
			}
		}},
		{"code alone", "redis", false, k.codeAlone},
	}
	for i, s := range k.servers {
		name := fmt.Sprint("server ", i+1)
		all = append(all,
			fault{name + " killed", name, true, func(d time.Duration) { s.kill(); pause(k.ctx, d); s.start(k) }},
			fault{name + " stopped", name, false, func(d time.Duration) { s.stop(); pause(k.ctx, d); s.resume() }},
			fault{name + " stopped and killed", name, true, func(d time.Duration) {
				s.stop()
				pause(k.ctx, d/2)
				s.kill()
				s.start(k)
			}})
	}
	for _, f := range k.followers[1:] {
		all = append(all, fault{"service " + f.settings.App + " killed", f.settings.App, false, func(time.Duration) {
			f.kill()
			f.start(k)
		}})
	}
	if k.sql != nil {
		all = append(all,
			fault{"database killed", "database", true, func(d time.Duration) { k.sql.Kill(); pause(k.ctx, d); k.sql.Start(k) }},
			fault{"database stopped", "database", false, func(d time.Duration) { k.sql.Pause(k); pause(k.ctx, d); k.sql.Resume(k) }})
	}
	return all
}

// codeAlone kills Redis and the first service, and deletes its bridge: it goes by its code then.
func (k *killing) codeAlone(d time.Duration) {
	f := k.followers[0]
	k.redis.Kill()
	f.kill()
	remove(k, f.settings.Bridge)
	f.start(k)
	pause(k.ctx, d)
	r, err := f.ask()
	if err != nil || r.Version != (policies.Version{}) || r.Meaning != policies.Code && r.Meaning != policies.Stale {
		k.Fatalf("without Redis and without a bridge a service has %+v, %v", r, err)
	}
	k.redis.Restart(k)
}

// round lets people write while one to three faults come, the first of which kills a server or the database, and looks what
// is left of it.
func (k *killing) round(n int) string {
	if old, err := k.rdb.Dump(k.ctx, redissource.Key(apps[0])).Result(); err == nil {
		k.old = old
	}
	for _, s := range k.servers {
		s.enter(k)
	}
	stop := k.people()
	faults, targets := k.faults(), map[string]bool{}
	k.random.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	first := slices.IndexFunc(faults, func(f fault) bool { return f.kills })
	faults[0], faults[first] = faults[first], faults[0]
	count := 1 + k.random.IntN(3)
	over := make(chan struct{}, len(faults))
	var done []string
	for _, f := range faults {
		if len(done) == count || targets[f.target] {
			continue
		}
		targets[f.target] = true
		done = append(done, f.name)
		before, length := k.some()/4, k.some()
		go func() {
			defer func() { over <- struct{}{} }() // also when the run is given up
			pause(k.ctx, before)
			f.do(length)
		}()
	}
	for range done {
		<-over
	}
	pause(k.ctx, k.some()/8)
	stop()
	if k.Failed() {
		k.FailNow()
	}
	if n%5 == 4 && k.file != "" {
		done = append(done, k.worse())
	}
	k.settle()
	if alarms := k.alarmed(); alarms != k.alarms {
		k.Fatalf("%d alarms, and reason for %d; the servers:\n%s", alarms, k.alarms, k.logs())
	}
	return strings.Join(done, ", ")
}

// settle waits until all say the same, and what was acknowledged.
func (k *killing) settle() {
	err := until(k.ctx, func() error {
		for _, s := range k.servers {
			list, err := s.Apps(k.ctx)
			if err != nil {
				return err
			}
			for _, app := range list {
				if !app.Published || app.Alarm != "" {
					return fmt.Errorf("app %s is not published: %+v", app.App, app)
				}
			}
		}
		for _, f := range k.followers {
			if err := k.level(f); err != nil {
				return err
			}
		}
		return k.audited()
	})
	if err != nil {
		k.Fatalf("%v; the servers:\n%s", err, k.logs())
	}
}

// level compares what a service, Redis and the record have.
func (k *killing) level(f *follower) error {
	r, err := f.ask()
	if err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	f.seen = r
	app := f.settings.App
	document, err := k.servers[0].Document(k.ctx, app)
	if err != nil {
		return err
	}
	encoded, err := document.Encode()
	if err != nil {
		return err
	}
	hash, err := k.rdb.HGetAll(k.ctx, redissource.Key(app)).Result()
	if err != nil {
		return err
	}
	digest := policies.Digest(encoded)
	switch {
	case hash[redissource.FieldDigest] != digest || hash[redissource.FieldDocument] != string(encoded):
		return fmt.Errorf("app %s: Redis has revision %s, the record %v", app, hash[redissource.FieldRevision], document.Version)
	case r.Version != document.Version || r.Digest != digest || r.Meaning != policies.Fleet || r.Bridge != "":
		return fmt.Errorf("app %s: the service has %+v, the record %v", app, r, document.Version)
	}
	return nil
}

// alarmed counts the lines of alarms.
func (k *killing) alarmed() int { return strings.Count(k.logs(), "not published any more") }

func (k *killing) logs() string {
	var all strings.Builder
	for _, s := range k.servers {
		all.WriteString(s.text())
	}
	return all.String()
}
