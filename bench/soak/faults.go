package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/internal/redistest"
)

// fault is something that goes wrong for a while.
type fault struct {
	name  string
	lasts time.Duration
	begin func(w *world)
	end   func(w *world) // nil if there is nothing to end
	// loses says that the server forgets all that was counted.
	loses bool
}

// kind makes a fault of some size, of one process or of all.
type kind func(rng *rand.Rand, scale func(least, longest time.Duration) time.Duration, whose []int) fault

// kinds are all that may go wrong.
var kinds = []kind{
	func(rng *rand.Rand, scale func(a, b time.Duration) time.Duration, whose []int) fault {
		d := scale(time.Millisecond, 40*time.Millisecond)
		return proxied("latency of "+d.String(), scale(200*time.Millisecond, time.Second), whose, func(p *redistest.Proxy) { p.Latency(d) })
	},
	func(rng *rand.Rand, scale func(a, b time.Duration) time.Duration, whose []int) fault {
		d := scale(60*time.Millisecond, 600*time.Millisecond)
		return proxied("latency of "+d.String(), scale(200*time.Millisecond, time.Second), whose, func(p *redistest.Proxy) { p.Latency(d) })
	},
	func(rng *rand.Rand, scale func(a, b time.Duration) time.Duration, whose []int) fault {
		n := 50_000 + rng.IntN(500_000)
		return proxied(fmt.Sprintf("bandwidth of %d bytes/s", n), scale(200*time.Millisecond, time.Second), whose, func(p *redistest.Proxy) { p.Bandwidth(n) })
	},
	func(_ *rand.Rand, scale func(a, b time.Duration) time.Duration, whose []int) fault {
		return proxied("black hole", scale(50*time.Millisecond, 2*time.Second), whose, (*redistest.Proxy).Blackhole)
	},
	func(_ *rand.Rand, scale func(a, b time.Duration) time.Duration, whose []int) fault {
		return proxied("half-open connections", scale(50*time.Millisecond, 300*time.Millisecond), whose, func(p *redistest.Proxy) { p.Disconnect(redistest.Hang) })
	},
	func(_ *rand.Rand, scale func(a, b time.Duration) time.Duration, whose []int) fault {
		return proxied("reset", scale(50*time.Millisecond, time.Second), whose, (*redistest.Proxy).Reset)
	},
	func(_ *rand.Rand, scale func(a, b time.Duration) time.Duration, whose []int) fault {
		return proxied("refused", scale(50*time.Millisecond, time.Second), whose, func(p *redistest.Proxy) {
			p.Refuse()
			p.Disconnect(redistest.EOF)
		})
	},
	losing("EOF", redistest.EOF), losing("reset", redistest.RST), losing("silence", redistest.Hang),
	func(_ *rand.Rand, scale func(a, b time.Duration) time.Duration, whose []int) fault {
		return flapping(scale(2*time.Second, 5*time.Second), whose)
	},
	func(_ *rand.Rand, scale func(a, b time.Duration) time.Duration, whose []int) fault {
		return fault{
			name: "SIGSTOP of a process", lasts: scale(20*time.Millisecond, time.Second),
			begin: func(w *world) { w.stop(whose[0]) },
			end:   func(w *world) { w.resume(whose[0]) },
		}
	},
	func(_ *rand.Rand, scale func(a, b time.Duration) time.Duration, _ []int) fault {
		return fault{
			name: "SIGSTOP of the server", lasts: scale(20*time.Millisecond, 2*time.Second),
			begin: func(w *world) { w.pause() },
			end:   func(w *world) { w.unpause() },
		}
	},
	func(_ *rand.Rand, scale func(a, b time.Duration) time.Duration, _ []int) fault {
		return fault{
			name: "the server is killed", lasts: scale(20*time.Millisecond, time.Second), loses: true,
			begin: func(w *world) {
				w.server.Kill()
				w.lost = time.Now().UnixMicro()
			},
			end: func(w *world) { w.server.Restart(w.tb) },
		}
	},
	func(_ *rand.Rand, scale func(a, b time.Duration) time.Duration, _ []int) fault {
		return fault{name: "scripts are flushed", lasts: scale(20*time.Millisecond, 100*time.Millisecond), begin: func(w *world) { w.flush() }}
	},
}

// proxied is a fault between some processes and the server.
func proxied(name string, lasts time.Duration, whose []int, begin func(*redistest.Proxy)) fault {
	each := func(do func(*redistest.Proxy)) func(*world) {
		return func(w *world) {
			for _, i := range whose {
				do(w.proxies[i])
			}
		}
	}
	if len(whose) == 1 {
		name = fmt.Sprintf("%s, process %d", name, whose[0])
	}
	return fault{name: name, lasts: lasts, begin: each(begin), end: each((*redistest.Proxy).Pass)}
}

// losing lets the server execute what it is asked for, and loses its replies.
func losing(name string, how redistest.Loss) kind {
	return func(_ *rand.Rand, scale func(a, b time.Duration) time.Duration, whose []int) fault {
		return proxied("replies are lost in "+name, scale(5*time.Millisecond, 300*time.Millisecond), whose, func(p *redistest.Proxy) { p.LoseReplies(how) })
	}
}

// flapping is a server some way off whose replies are lost again and again. In the pauses a process hands back what it
// has admitted alone, and the next loss comes while it does.
func flapping(lasts time.Duration, whose []int) fault {
	ended, done := make(chan struct{}), make(chan struct{})
	pass := proxied("", 0, whose, func(p *redistest.Proxy) {
		p.Pass()
		p.Latency(10 * time.Millisecond)
	}).begin
	lose := proxied("", 0, whose, func(p *redistest.Proxy) { p.LoseReplies(redistest.EOF) }).begin
	f := proxied("replies come and go", lasts, whose, nil)
	f.begin = func(w *world) {
		go func() {
			defer close(done)
			for {
				for _, step := range []struct {
					do    func(*world)
					lasts time.Duration
				}{{lose, 200 * time.Millisecond}, {pass, 600 * time.Millisecond}} {
					step.do(w)
					select {
					case <-time.After(step.lasts):
					case <-ended:
						return
					}
				}
			}
		}()
	}
	end := f.end
	f.end = func(w *world) {
		close(ended)
		<-done
		end(w)
	}
	return f
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
	next := kinds[d.left[0]]
	d.left = d.left[1:]
	whose := [][]int{{0, 1}, {1, 0}, {0}, {1}}[d.rng.IntN(4)]
	return next(d.rng, func(least, longest time.Duration) time.Duration {
		if d.short {
			longest = max(least, longest/3)
		}
		return (least + time.Duration(d.rng.Int64N(int64(longest-least)+1))).Round(time.Millisecond)
	}, whose)
}
