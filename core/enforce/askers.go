package enforce

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// askers counts the callers that may have a turn which is not in its line: from before they ask the store, or take over
// a turn that is free, until they wait for it or leave. A store takes back only the last turn of a key, so that no
// earlier one goes back meanwhile.
//
// They are counted by their keys, of which some share a count, and by the time at which they began, in steps of
// idleTurn. A caller that began askerSteps before, which are 6.4 s, is forgotten: its answer may never come. In a crowd
// that asks a store far away, the last may well take seconds.
type askers struct {
	began  time.Time
	counts []atomic.Uint64 // askerSteps for each of askerKeys: the step, and how many in it
}

// askerKeys is a power of two.
const (
	askerKeys  = 8
	askerSteps = 128
)

// asker is a caller that is counted, or that was: the zero asker.
type asker struct {
	count *atomic.Uint64
	step  uint32
}

var askerSeed = maphash.MakeSeed()

func newAskers() *askers {
	return &askers{began: time.Now(), counts: make([]atomic.Uint64, askerKeys*askerSteps)}
}

// of returns the counts of a key.
func (a *askers) of(key string) []atomic.Uint64 {
	k := maphash.String(askerSeed, key) % askerKeys * askerSteps
	return a.counts[k : k+askerSteps]
}

// stepAt returns the step of a time, from 1.
func (a *askers) stepAt(t time.Time) uint32 { return uint32(t.Sub(a.began)/idleTurn) + 1 } //nolint:gosec // six years of steps

// add counts a caller that begins to ask for a turn of key now.
func (a *askers) add(key string) asker {
	x := asker{step: a.stepAt(time.Now())}
	x.count = &a.of(key)[x.step%askerSteps]
	for {
		old := x.count.Load()
		switch step := uint32(old >> 32); {
		case step > x.step: // it was stopped for so long that it is forgotten already
			return asker{}
		case step < x.step && x.count.CompareAndSwap(old, uint64(x.step)<<32|1):
			return x
		case step == x.step && x.count.CompareAndSwap(old, old+1):
			return x
		}
	}
}

// done is called when the turn is in its line, or there is none. Only the first call counts. A nil asker is none.
func (x *asker) done() {
	if x == nil || x.count == nil {
		return
	}
	for {
		old := x.count.Load()
		if uint32(old>>32) != x.step || x.count.CompareAndSwap(old, old-1) {
			x.count = nil
			return
		}
	}
}

// any reports whether somebody of those counted there still asks for a turn who began at that time or before.
func (a *askers) any(counts []atomic.Uint64, began, now time.Time) bool {
	last, forgotten := int64(a.stepAt(began)), int64(a.stepAt(now))-askerSteps
	for i := range counts {
		c := counts[i].Load()
		if step := int64(c >> 32); uint32(c) > 0 && step <= last && step > forgotten {
			return true
		}
	}
	return false
}
