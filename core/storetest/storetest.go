// Package storetest is the contract of [core.Store] as a test suite: a store that
// passes [Exercise] can be given to a Guard. [Compare] runs the same random
// operations against two stores and demands the same answers. [ExercisePermits] and
// [ComparePermits] do the same for [core.PermitStore].
//
// The suite forces the clock with Take.Now nearly everywhere, so that it neither
// waits nor depends on how fast a machine is.
package storetest

import (
	"testing"

	"github.com/weir-go/weir/core"
)

// Epoch is time 0 of the suite, in microseconds since the Unix epoch: all forced
// times lie around it.
const Epoch = 1_800_000_000_000_000

// The lengths of the suite, in microseconds.
const (
	second = 1_000_000
	hour   = 3600 * second
)

// Exercise demands of a store all that [core.Store] promises. newStore is called
// once for each part of the suite and should clean up after itself with
// t.Cleanup. It may return the same store each time, and one that others use: no
// key is used twice, not even by two runs.
func Exercise(t *testing.T, newStore func(*testing.T) core.Store) {
	for _, part := range []struct {
		name string
		run  func(*subject)
	}{
		{"traces", traces},
		{"arrivals", arrivals},
		{"calendar", calendar},
		{"burst, refusal, exact retry", exactRetry},
		{"cost", cost},
		{"peek", peek},
		{"never", never},
		{"what there is", whatThereIs},
		{"whether there is any", whetherThereIs},
		{"what was used already", afterwards},
		{"reservations", reservations},
		{"cancelled reservations", cancelledReservations},
		{"queue", queue},
		{"invalid input", invalid},
		{"refund", refund},
		{"refund keeps the bound", refundBound},
		{"refund out of a window", refundWindow},
		{"refunds in a batch", refundBatch},
		{"refund under changed numbers", refundChanged},
		{"refund after a step back", refundSteppedBack},
		{"credit", credit},
		{"credits are all that is more", creditBound},
		{"reset", reset},
		{"policies do not share keys", policies},
		{"changed numbers keep the state", changedNumbers},
		{"changed periods keep times", changedPeriods},
		{"numbers that meet", numbersThatMeet},
		{"limits keep their own counts", renamedLimits},
		{"all limits or none", allOrNone},
		{"many at once", manyAtOnce},
		{"clock steps", clockSteps},
		{"the store's own clock", ownClock},
		{"a caller who left", cancelled},
		{"concurrency", concurrency},
		{"hostile keys", hostileKeys},
		{"invariants", invariants},
		{"shows its state", state},
		{"agrees with Step", agrees},
	} {
		t.Run(part.name, func(t *testing.T) {
			part.run(&subject{T: t, store: newStore(t), prefix: newPrefix()})
		})
	}
}

func agrees(s *subject) {
	for seed := range uint64(4) {
		Compare(s, s.store, Reference(), seed, 500)
	}
	for _, a := range Algorithms() {
		Compare(s, s.store, Reference(), 0, 500, a)
	}
}
