// Command soak lets a fleet decide on one redis-server while faults come and go, and holds what it did against a model
// after each of them. It needs redis-server and Linux:
//
//	go run ./soak -duration 10m                    # all checks
//	go run ./soak -duration 20s -short             # without those that a busy machine may break
//	go run ./soak -seed 7                          # the faults of another run again, in the same order
//	go run ./soak -first                           # end after the first fault after which something does not hold
//	go test ./soak/mutants -v -timeout 1h -soak 3m # break the library on purpose, and see that the soak notices it
//
// A fleet is two processes of a hundred callers each, one by TLS, each behind a proxy of its own. The faults are
// latency, bandwidth, a black hole, connections that hang, are reset or refused, replies that are lost after the server
// has done what it was asked for, once or again and again, SIGSTOP of the server and of a process, a server that is
// killed and comes back empty, and one that forgets its scripts: each kind once in every round, one at a time or two, of
// one process or of both.
//
// After each fault, when the callers stand still, this has to hold:
//
//   - bound: what the server admitted fits its limit in every window, by the server's own clock. A server that came back
//     empty begins anew. What a process admitted alone, while the server did not answer, fits the same limit, or its
//     share of it, over all outages together: so beside what the server admits, a limit of 100 a minute lets no more
//     than 100 a minute through each process, and "local 1/2" 50, however often the server comes and goes.
//   - enough: while nothing is wrong, limits of which the fleet asks for far more admit at least half of what comes back.
//   - once: of each key as much was charged as was answered, and besides no more than what was asked for where the
//     answer is not known. Units are given back, and handed back after an outage, once at most.
//   - permits: no more are held at the same time than there are, and all are back within two seconds, or when their
//     leases end if nobody can know of them.
//   - time: 99 of 100 answers during each fault come within the deadline of the decision, but for what the scheduler has
//     kept the process from running meanwhile, and 5 ms more for those that it has kept: they look for a reply that has
//     arrived by then. How many come later is printed.
//   - back: two and a half seconds after a fault nobody fails any more: a client of go-redis that could not connect tries
//     again each second, and an open breaker twice a second. A slow machine excuses more, up to six seconds.
//   - others: callers who stay under their own limit are never refused, and do not fail while nothing else does,
//     even if others never stop asking, leave early, or hold permits.
//   - growth: goroutines, memory and open files are as many as before, and the log has three lines a second at most.
//
// It prints a line for each fault, and what was broken in the end; then its status is 1. A program that is stopped by a
// signal, or fails, leaves nothing behind.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/weir-go/weir/internal/hosttest"
)

// settings are the flags of a soak.
type settings struct {
	duration time.Duration
	seed     uint64
	callers  int  // of each process
	short    bool // only what a busy machine cannot break
	first    bool // the first check that fails is the last
}

func main() {
	s := settings{}
	flag.DurationVar(&s.duration, "duration", time.Minute, "for how long faults begin")
	flag.Uint64Var(&s.seed, "seed", rand.Uint64(), "which faults, in which order; the same ones for the same seed")
	flag.IntVar(&s.callers, "callers", 100, "how many callers each of the two processes has")
	flag.BoolVar(&s.short, "short", false, "shorter faults, and only the checks that a busy machine cannot break")
	flag.BoolVar(&s.first, "first", false, "end after the first fault after which something does not hold")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // it is the program's
	defer stop()
	logging.Disable() // it has a line for each connection that cannot be made
	if isMember, err := member(ctx, os.Stdin, os.Stdout); isMember {
		exit(err)
	}
	if flag.NArg() > 0 || s.callers < 10 || s.duration <= 0 {
		exit(fmt.Errorf("soak: give flags only, at least 10 callers and a duration above 0; see -help"))
	}
	broken := []string(nil)
	err := hosttest.Run(ctx, "soak", func(tb testing.TB) {
		fmt.Printf("soak -duration %v -seed %d -callers %d -short=%t\n", s.duration, s.seed, s.callers, s.short)
		broken = soak(tb, s, os.Stdout)
	})
	for _, b := range broken {
		fmt.Println("BROKEN:", b)
	}
	if err == nil && len(broken) > 0 {
		err = fmt.Errorf("soak: %d checks failed; -seed %d repeats the faults", len(broken), s.seed)
	}
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
