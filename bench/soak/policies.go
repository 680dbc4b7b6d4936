package main

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/core"
)

var (
	// private have a key for each caller and round, and nobody is ever over them: what was charged in the round can be
	// read from what is left.
	private = [...]core.Policy{
		own:  core.MustParse("own: 1000000/1d fixed-window; fail closed"),
		back: core.MustParse("back: 1000000/1d fixed-window; fail closed"),
		kept: core.MustParse("kept: 1000000/1d fixed-window; fail local"),
	}
	// light is the limit of callers who stay far below it, each with a key.
	light = core.MustParse("light: 100/1s burst 20; fail closed")
	// work has permits, for all.
	work = core.MustParse("work: 10 concurrent lease 10s; fail local 1/2")
)

// The policies of private.
const (
	own  = iota
	back // units of it are given back
	kept // what a process admits alone of it, it hands back to the server when that answers again
)

const (
	workers      = 10 // of work
	workersAlone = 5  // in a process without the server
	workLease    = 10 * time.Second
	// oneKey is the key of all that is shared.
	oneKey = "all"
)

// shared are limits that the fleet shares, each with one key. Each process alone asks for more than calm and hog allow.
var shared = [...]sharing{
	{core.MustParse("calm: 100/1s burst 20; fail local 1/2"), limit{every: 10_000, burst: 20}, limit{every: 20_000, burst: 10}, true},
	{core.MustParse("strict: 200/1s sliding-log; fail closed"), limit{window: 1_000_000, burst: 200}, limit{}, false},
	{core.MustParse("open: 300/1s burst 300; fail open"), limit{every: 3333, burst: 300}, limit{}, false},
	{core.MustParse("hog: 50/1s burst 50; fail local"), limit{every: 20_000, burst: 50}, limit{every: 20_000, burst: 50}, true},
}

// hog is the index of the limit for callers that never stop asking.
const hog = 3

type sharing struct {
	policy core.Policy
	limit  limit
	alone  limit // of a process without the server
	sought bool  // at any time the fleet asks for far more than limit admits
}

// ownKey returns the key of a caller of a process in a round. What is unknown of a round cannot hide what is charged
// twice in another.
func ownKey(process, caller, round int) string {
	return fmt.Sprintf("%d-%d-%d", process, caller, round)
}
