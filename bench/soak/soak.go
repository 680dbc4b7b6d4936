package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/hosttest"
	"github.com/weir-go/weir/internal/redistest"
)

// What has to hold.
const (
	members = 2
	// soon bounds the time until all permits are back.
	soon = 2 * time.Second
	// again bounds the time after a fault in which callers fail: a client that could not connect tries again after a
	// second and its DialTimeout, a breaker half a second later, and it takes a moment to see it.
	again = 2600 * time.Millisecond
	// never is the same on a machine of any speed: a longer outage must not excuse itself.
	never = 6 * time.Second
	// patience is the longest wait for an event that must come.
	patience = 30 * time.Second
	// calmTime is the time after that in which nobody may fail.
	calmTime = 300 * time.Millisecond
	// noise is the delay of the server's answers, or of the processes, up to which a machine is fit for decisions within
	// their deadline.
	noise = deadline / 2

	// lines is the most lines that a log may have in a second.
	lines = 3

	moreGoroutines = 16
	moreFiles      = 24
	moreHeap       = 8 << 20
)

// world is the server, the fleet, the proxies between them, and a model of what they should have counted.
type world struct {
	settings
	tb      testing.TB
	server  redistest.Secure
	proxies []*redistest.Proxy
	fleet   []*hosttest.Process
	admin   *redis.Client
	hasty   *redis.Client // for what the server may not answer
	direct  *redisstore.Store
	canary  atomic.Int64 // the longest time for which the server has lately not answered
	slow    bool         // the machine was too slow to tell in the last calm
	round   int          // how often the callers began to ask

	lost   int64 // when the server last forgot everything, in microseconds, or 0
	remote [len(shared)]ledger
	alone  [members][len(shared)]ledger
	usual  []report // after the time without faults
	began  time.Time
	broken []string
	sums   totals
}

// totals are the sums in the last line.
type totals struct {
	faults, decisions, late int64
	latest                  time.Duration
	admitted, alone, held   int64
	slowest                 time.Duration // to be back
	excused                 int
}

// soak lets faults come and go for some time, and returns what was broken.
func soak(tb testing.TB, s settings, out io.Writer) []string {
	w := newWorld(tb, s)
	w.watch()
	w.start()
	<-time.After(time.Second)
	fmt.Fprintf(out, "%4d  no fault: %s\n", 0, w.check(nil))
	faults := newDeck(s.seed, s.short)
	most := wrongs
	if s.first {
		most = 1
	}
	for n, end := 1, time.Now().Add(s.duration); time.Now().Before(end) && len(w.broken) < most; n++ {
		w.sums.faults++
		fs := faults.deal()
		w.start()
		w.suffer(fs)
		said := w.check(fs)
		fmt.Fprintf(out, "%4d  %s: %s\n", n, names(fs), said)
	}
	w.expire()
	t := w.sums
	fmt.Fprintf(out, "%d faults, %d decisions, %d later than %v and %v (at most by %v), %d units admitted by the server and %d without, %d permits, back after %v at most, %d times the machine was too slow to tell\n",
		t.faults, t.decisions, t.late, deadline, tolerance, t.latest.Round(time.Millisecond), t.admitted, t.alone, t.held, t.slowest.Round(time.Millisecond), t.excused)
	return w.broken
}

func newWorld(tb testing.TB, s settings) *world {
	tb.Helper()
	w := &world{tb: tb, server: redistest.TLS(tb), settings: s}
	for i, addr := range []string{w.server.Addr(), w.server.TLSAddr} {
		w.proxies = append(w.proxies, redistest.NewProxy(tb, addr))
		m := membership{Process: i, Callers: s.callers, Seed: s.seed, Addr: w.proxies[i].Addr()}
		if addr == w.server.TLSAddr {
			m.CertFile = w.server.CertFile
		}
		w.fleet = append(w.fleet, enlist(tb, m))
	}
	w.admin = w.server.Client(tb, func(o *redis.Options) {
		o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled = patience, patience, true
	})
	w.hasty = w.server.Client(tb, func(o *redis.Options) { o.ContextTimeoutEnabled, o.MaxRetries = true, -1 })
	var err error
	w.direct, err = redisstore.New(w.admin, redisstore.Options{Deadline: patience, DenyCache: -1})
	require.NoError(tb, err)
	for i := range shared {
		w.remote[i].limit = shared[i].limit
		for m := range w.alone {
			w.alone[m][i].limit = shared[i].alone
		}
	}
	return w
}

// start lets the callers ask.
func (w *world) start() {
	w.began, w.lost = time.Now(), 0
	w.round++
	w.statuses(fmt.Sprintf("%s %d", sayGo, w.round))
}

// suffer lets faults begin, and end.
func (w *world) suffer(fs []fault) {
	ends := make([]func(), len(fs))
	for i, f := range fs {
		ends[i] = f.begin(w, f)
		if i < len(fs)-1 {
			<-time.After(f.lasts / 2)
		} else {
			<-time.After(f.lasts)
		}
	}
	for _, end := range ends {
		end()
	}
}

// violated notes what does not hold.
func (w *world) violated(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf("after fault %d: ", w.sums.faults)+fmt.Sprintf(format, args...))
}

// check waits until all is well again, lets the callers stand still, and holds what they did against the model.
func (w *world) check(fs []fault) string {
	before := len(w.broken)
	var said []string
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	if len(fs) > 0 {
		say("back after %v", w.recover().Round(time.Millisecond))
	}
	from, to := w.calm()
	reports := ask[report](w, sayPause)
	standing := time.Now()
	if w.usual == nil {
		w.usual = reports
	}
	say("%s", w.checkDecisions(reports))
	say("%s", w.checkBounds(reports, w.lost))
	w.checkEnough(reports, from, to)
	w.checkOnce(reports, w.lost > 0)
	say("permits back after %v", w.permitsBack(standing).Round(time.Millisecond))
	w.checkGrowth(reports, standing.Sub(w.began))
	if len(w.broken) == before {
		say("ok")
	} else {
		say("BROKEN: %s", strings.Join(w.broken[before:], "; "))
	}
	return strings.Join(said, "; ")
}

// recover waits until nobody fails, and returns how long that took.
func (w *world) recover() time.Duration {
	w.canary.Store(0)
	start, first := time.Now(), w.statuses(sayStatus)
	clean, then, last := start, first, first // clean is since when nobody has failed
	for time.Since(start) < patience {
		<-time.After(50 * time.Millisecond)
		asked, now := time.Now(), w.statuses(sayStatus)
		served := true
		last = now
		for i := range now {
			if now[i].Failed > then[i].Failed {
				clean, then = asked, now
			}
			served = served && now[i].Served > then[i].Served
		}
		if served && time.Since(clean) > 200*time.Millisecond {
			break
		}
	}
	took := clean.Sub(start)
	w.sums.slowest = max(w.sums.slowest, took)
	switch {
	case time.Since(start) >= patience:
		w.violated("back: somebody still fails after %v", patience)
	case took > never && !w.short || took > again && !w.noisy(first, last):
		w.violated("back: somebody still failed after %v", took)
	}
	return took
}

// calm lets some time pass in which nobody who stays under its limit may fail, and returns when it began and ended, by
// the server's clock.
func (w *world) calm() (from, to int64) {
	w.canary.Store(0)
	then, from := w.statuses(sayStatus), w.clock()
	<-time.After(calmTime)
	now, to := w.statuses(sayStatus), w.clock()
	for i := range now {
		if n := now[i].LightFailed - then[i].LightFailed; n > 0 && !w.noisy(then, now) {
			w.violated("others: %d decisions of callers under their limit failed in process %d, while nothing was wrong and the server answered within %v: %s",
				n, i, time.Duration(w.canary.Load()), now[i].LightLast)
		}
	}
	w.slow = w.late(then, now)
	return from, to
}

// clock returns the server's time in microseconds.
func (w *world) clock() int64 {
	now, err := w.admin.Time(w.tb.Context()).Result()
	require.NoError(w.tb, err)
	return now.UnixMicro()
}

// noisy reports whether the machine was too slow to tell, which excuses what does not hold.
func (w *world) noisy(then, now []status) bool {
	if !w.short && !w.late(then, now) {
		return false
	}
	w.sums.excused++
	return true
}

// late reports whether the server's answers, or the processes, were late between two statuses.
func (w *world) late(then, now []status) bool {
	late := time.Duration(w.canary.Load()) > noise
	for i := range now {
		late = late || now[i].Lost.Since(then[i].Lost) > noise
	}
	return late
}

// checkDecisions looks at how the members answered.
func (w *world) checkDecisions(reports []report) string {
	decisions, late, latest, failures := int64(0), int64(0), time.Duration(0), map[string]int64{}
	for i, r := range reports {
		decisions, late, latest = decisions+r.Decisions, late+r.Late, max(latest, r.Latest)
		for class, n := range r.Failures {
			failures[class] += n
		}
		for _, wrong := range r.Wrong {
			w.violated("process %d: %s", i, wrong)
		}
		if r.Late*100 > r.Decisions && !w.short {
			w.violated("time: %d of %d answers of process %d came later than %v and %v, one by %v", r.Late, r.Decisions, i, deadline, tolerance, r.Latest)
		}
	}
	w.sums.decisions, w.sums.late, w.sums.latest = w.sums.decisions+decisions, w.sums.late+late, max(w.sums.latest, latest)
	var classes []string
	for _, class := range slices.Sorted(maps.Keys(failures)) {
		classes = append(classes, fmt.Sprintf("%s %d", class, failures[class]))
	}
	return fmt.Sprintf("%d decisions, %d late (%v), failed: %s", decisions, late, latest.Round(time.Millisecond), strings.Join(classes, ", "))
}

// checkBounds holds what was admitted, and the permits that were held, against their limits.
func (w *world) checkBounds(reports []report, lost int64) string {
	var server, alone []string
	for i := range shared {
		var all []admission
		own := 0
		for m, r := range reports {
			all = append(all, r.Remote[i]...)
			own += len(r.Alone[i])
			if err := w.alone[m][i].replay(r.Alone[i], 0); err != nil {
				w.violated("bound: process %d alone admitted of %v: %v", m, shared[i].policy, err)
			}
		}
		if err := w.remote[i].replay(all, lost); err != nil {
			w.violated("bound: the server admitted of %v: %v", shared[i].policy, err)
		}
		server, alone = append(server, fmt.Sprint(len(all))), append(alone, fmt.Sprint(own))
		w.sums.admitted, w.sums.alone = w.sums.admitted+int64(len(all)), w.sums.alone+int64(own)
	}
	var holds []held
	for m, r := range reports {
		holds = append(holds, r.Held...)
		if n := most(r.HeldAlone, 0); n > workersAlone {
			w.violated("bound: process %d alone let %d be held at the same time, of %d", m, n, workersAlone)
		}
	}
	if n := most(holds, lost); n > workers {
		w.violated("bound: %d permits were held at the same time, of %d", n, workers)
	}
	w.sums.held += int64(len(holds))
	return fmt.Sprintf("admitted %s, alone %s", strings.Join(server, "/"), strings.Join(alone, "/"))
}

// checkEnough holds what the server admitted in the calm against what came back meanwhile, of limits of which the
// fleet asks for far more: half of it at least, and something even on a machine that is too slow to tell.
func (w *world) checkEnough(reports []report, from, to int64) {
	for i := range shared {
		if !shared[i].sought || w.short {
			continue
		}
		n := int64(0)
		for _, r := range reports {
			for _, a := range r.Remote[i] {
				if from <= a.At && a.At <= to {
					n += a.Units
				}
			}
		}
		if least := (to - from) / shared[i].limit.every / 2; n == 0 || n < least && !w.slow {
			w.violated("enough: the server admitted %d units of %v in %d us of calm, of at least %d", n, shared[i].policy, to-from, least)
		}
	}
}

// checkOnce holds what was charged in the round against what was answered.
func (w *world) checkOnce(reports []report, lost bool) {
	for m, r := range reports {
		for i, policy := range private {
			for c, t := range r.Private[i] {
				key := ownKey(m, c, w.round)
				res, err := w.direct.Take(w.tb.Context(), core.Take{Policy: policy, Key: key})
				if err != nil { // nor can the hundreds of other keys be asked for, each as slowly
					w.violated("back: the server cannot be asked for key %s of %v: %v", key, policy, err)
					return
				}
				if err := t.check(res.Limit-res.Remaining, lost); err != nil {
					w.violated("once: key %s of %v: %v", key, policy, err)
				}
			}
		}
	}
}

// permitsBack waits until all permits can be had, and returns how long that took.
func (w *world) permitsBack(since time.Time) time.Duration {
	p := core.Permit{Policy: work, Key: oneKey, ID: rand.Text(), Weight: workers}
	for time.Since(since) < workLease+patience {
		res, err := w.direct.Acquire(w.tb.Context(), p)
		if err != nil {
			w.violated("permits: the server cannot be asked: %v", err)
			break
		}
		if res.Allowed() {
			require.NoError(w.tb, w.direct.Release(w.tb.Context(), []core.Permit{p}))
			break
		}
		<-time.After(10 * time.Millisecond)
	}
	took := time.Since(since)
	switch {
	case took > workLease-soon: // however slow the machine is
		w.violated("permits: all are back only after %v, as their leases end", took)
	case took > soon && !w.noisy(nil, nil):
		w.violated("permits: all are back only after %v", took)
	}
	return took
}

// checkGrowth compares what the members need with what they needed at first.
func (w *world) checkGrowth(reports []report, asked time.Duration) {
	for i, r := range reports {
		if most := lines * (1 + int64(asked/time.Second)); r.Logged > most {
			w.violated("growth: process %d has logged %d lines in %v", i, r.Logged, asked)
		}
		if most := w.usual[i].Goroutines + moreGoroutines; r.Goroutines > most {
			w.violated("growth: process %d has %d goroutines, of at most %d", i, r.Goroutines, most)
		}
		if most := w.usual[i].Heap*3/2 + moreHeap; r.Heap > most {
			w.violated("growth: process %d needs %d bytes, of at most %d", i, r.Heap, most)
		}
		if most := w.usual[i].Files + moreFiles; r.Files > most {
			w.violated("growth: process %d has %d files open, of at most %d", i, r.Files, most)
		}
	}
}

// expire sees to it that nothing that was stored stays for ever.
func (w *world) expire() {
	for keys := w.admin.Scan(w.tb.Context(), 0, "weir:*", 1000).Iterator(); keys.Next(w.tb.Context()); {
		left, err := w.admin.PTTL(w.tb.Context(), keys.Val()).Result()
		require.NoError(w.tb, err)
		if left == -1 { // it has none
			w.violated("growth: the key %s never expires", keys.Val())
		}
	}
}

// watch lets a canary ask the server for nothing until the end, through a proxy without faults, and notes how long it
// took: on a machine that has no processor for the one or the other, decisions fail without any fault.
func (w *world) watch() {
	sound := redistest.NewProxy(w.tb, w.server.Addr())
	client := w.server.Client(w.tb, func(o *redis.Options) { o.Addr = sound.Addr() })
	ctx := w.tb.Context()
	go func() {
		for ctx.Err() == nil {
			start := time.Now()
			err := client.Ping(ctx).Err()
			if took := int64(time.Since(start)); (err == nil || errors.Is(err, context.DeadlineExceeded)) && took > w.canary.Load() {
				w.canary.Store(took)
			}
			<-time.After(10 * time.Millisecond)
		}
	}()
}

func names(fs []fault) string {
	all := make([]string, len(fs))
	for i, f := range fs {
		all[i] = f.String()
	}
	return strings.Join(all, " and ")
}
