package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/redistest"
)

// kind is a kind of fault.
type kind struct {
	name           string        // with a verb for its size, if it has one
	from, to       time.Duration // between which its size is
	least, longest time.Duration // for which it lasts
	begin          func(w *world, f fault) (end func())
	server         bool // it is the same for all processes
}

// fault is something that goes wrong for a while, for some of the processes.
type fault struct {
	kind
	size, lasts time.Duration
	whose       []int
}

const ms = time.Millisecond

// kinds are all that may go wrong.
var kinds = []kind{
	{name: "latency of %v", from: ms, to: 40 * ms, least: 200 * ms, longest: time.Second, begin: latency},
	{name: "latency of %v", from: 60 * ms, to: 600 * ms, least: 200 * ms, longest: time.Second, begin: latency},
	{name: "%v for a megabyte", from: 2 * time.Second, to: 20 * time.Second, least: 200 * ms, longest: time.Second, begin: bandwidth},
	{name: "black hole", least: 50 * ms, longest: 2 * time.Second, begin: way((*redistest.Proxy).Blackhole)},
	{name: "half-open connections", least: 50 * ms, longest: 300 * ms, begin: way(func(p *redistest.Proxy) { p.Disconnect(redistest.Hang) })},
	{name: "reset", least: 50 * ms, longest: time.Second, begin: way((*redistest.Proxy).Reset)},
	{name: "refused", least: 50 * ms, longest: time.Second, begin: way(refuse)},
	{name: "replies are lost in EOF", least: 5 * ms, longest: 300 * ms, begin: lose(redistest.EOF)},
	{name: "replies are lost in reset", least: 5 * ms, longest: 300 * ms, begin: lose(redistest.RST)},
	{name: "replies are lost in silence", least: 5 * ms, longest: 300 * ms, begin: lose(redistest.Hang)},
	{name: "replies come and go", least: 2 * time.Second, longest: 5 * time.Second, begin: flap},
	{name: "SIGSTOP", least: 20 * ms, longest: time.Second, begin: stop},
	{name: "SIGSTOP of the server", least: 20 * ms, longest: 2 * time.Second, begin: stopServer, server: true},
	{name: "the server is killed", least: 20 * ms, longest: time.Second, begin: killServer, server: true},
	{name: "scripts are flushed", least: 20 * ms, longest: 100 * ms, begin: flush, server: true},
}

func (f fault) String() string {
	text := f.name
	if f.size > 0 {
		text = fmt.Sprintf(text, f.size)
	}
	if len(f.whose) == 1 && !f.server {
		text += fmt.Sprintf(", process %d", f.whose[0])
	}
	return fmt.Sprintf("%s for %v", text, f.lasts)
}

// change changes what is between the processes of a fault and the server, and end changes it back.
func (w *world) change(f fault, change func(*redistest.Proxy)) (end func()) {
	for _, i := range f.whose {
		change(w.proxies[i])
	}
	return func() {
		for _, i := range f.whose {
			w.proxies[i].Pass()
		}
	}
}

func way(change func(*redistest.Proxy)) func(w *world, f fault) (end func()) {
	return func(w *world, f fault) func() { return w.change(f, change) }
}

func latency(w *world, f fault) (end func()) {
	return w.change(f, func(p *redistest.Proxy) { p.Latency(f.size) })
}

func bandwidth(w *world, f fault) (end func()) {
	return w.change(f, func(p *redistest.Proxy) { p.Bandwidth(int(1_000_000 / f.size.Seconds())) })
}

func refuse(p *redistest.Proxy) {
	p.Refuse()
	p.Disconnect(redistest.EOF)
}

// lose lets the server execute what it is asked for, and loses its replies.
func lose(how redistest.Loss) func(w *world, f fault) (end func()) {
	return way(func(p *redistest.Proxy) { p.LoseReplies(how) })
}

// flap puts the server some way off, and loses its replies again and again. In the pauses a process hands back what it
// has admitted alone, and the next loss comes while it does.
func flap(w *world, f fault) (end func()) {
	over := make(chan struct{})
	var flapping sync.WaitGroup
	flapping.Go(func() {
		for lost := true; ; lost = !lost {
			lasts := 600 * ms
			w.change(f, func(p *redistest.Proxy) {
				if lost {
					lasts = 200 * ms
					p.LoseReplies(redistest.EOF)
				} else {
					p.Pass()
					p.Latency(10 * ms)
				}
			})
			select {
			case <-time.After(lasts):
			case <-over:
				return
			}
		}
	})
	return func() {
		close(over)
		flapping.Wait()
		w.change(f, (*redistest.Proxy).Pass)
	}
}

// stop stops one process.
func stop(w *world, f fault) (end func()) {
	p := w.fleet[f.whose[0]]
	require.NoError(w.tb, p.Signal(syscall.SIGSTOP))
	return func() { require.NoError(w.tb, p.Signal(syscall.SIGCONT)) }
}

// stopServer stops the server, unless it was killed.
func stopServer(w *world, _ fault) (end func()) {
	if w.server.Running() {
		w.server.Pause(w.tb)
	}
	return func() {
		if w.server.Running() {
			w.server.Resume(w.tb)
		}
	}
}

func killServer(w *world, _ fault) (end func()) {
	w.server.Kill()
	w.lost = time.Now().UnixMicro()
	return func() { w.server.Restart(w.tb) }
}

// flush lets the server forget its scripts, unless it does not answer.
func flush(w *world, _ fault) (end func()) {
	ctx, cancel := context.WithTimeout(w.tb.Context(), time.Second)
	defer cancel()
	_ = w.hasty.ScriptFlush(ctx).Err()
	return func() {}
}

// deck deals faults: each kind once in a round, in an order of its own. The same seed deals the same ones.
type deck struct {
	rng   *rand.Rand
	short bool
	left  []int
}

func newDeck(seed uint64, short bool) *deck {
	return &deck{rng: rand.New(rand.NewPCG(seed, 0)), short: short} //nolint:gosec // the same numbers for the same seed
}

// deal is the next fault, or two, of which the second begins in the middle of the first.
func (d *deck) deal() []fault {
	all := []fault{d.one()}
	if d.rng.IntN(4) == 0 {
		all = append(all, d.one())
	}
	return all
}

func (d *deck) one() fault {
	if len(d.left) == 0 {
		d.left = d.rng.Perm(len(kinds))
	}
	f := fault{kind: kinds[d.left[0]], whose: [][]int{{0, 1}, {1, 0}, {0}, {1}}[d.rng.IntN(4)]}
	d.left = d.left[1:]
	if f.to > 0 {
		f.size = d.between(f.from, f.to)
	}
	f.lasts = d.between(f.least, f.longest)
	return f
}

// between draws a time.
func (d *deck) between(least, longest time.Duration) time.Duration {
	if d.short {
		longest = max(least, longest/3)
	}
	return (least + time.Duration(d.rng.Int64N(int64(longest-least)+1))).Round(time.Millisecond)
}
