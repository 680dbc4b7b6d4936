package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Store keeps what was counted and decides, in one atomic step for each call. Its
// methods are safe for concurrent use. Two stores come with weir: [Memory] and
// redisstore.Store. To write another one, use [Spec.Step], which needs nothing but
// compare-and-swap, and test it with package storetest; docs/stores.md in the repository
// has an example.
//
// A method fails with the context's error if the caller has left, with a
// [*StoreError] if the store could not decide, and with another error if it was
// asked for something impossible; see [Take.Validate]. Take may wrap the former two in
// a [*LateError], if it may still learn what has become of the decision.
//
// An enforce.Limiter also uses what else a store implements:
//
//   - [PermitStore], without which policies cannot have permits;
//   - [StateStore], without which Limiter.Explain fails;
//   - [ManyStore], without which what is asked together takes a round trip for each;
//   - Fallback() *Memory, which returns the in-process store that decides under "fail local"
//     while this one fails. All Limiters on the store then share it; without the method each
//     has its own;
//   - Failing(server string) bool, which reports whether the server of that name, as in
//     StoreError.Server, still fails: the log then says that it is back only when it has
//     answered itself, and without the method a second after its last failure.
type Store interface {
	// Take decides and charges: all limits of the policy, or none.
	Take(context.Context, Take) (Result, error)
	// Refund gives units back, as far as they still weigh: those of a meter (GCRA,
	// TokenBucket, LeakyBucket) weigh less with every microsecond since the receipt, those of
	// a window weigh while it lasts. A reservation is given back before its turn, as a whole,
	// if nobody has queued behind it, and otherwise not at all: so a part of what a meter
	// took in debt, or with a delay, is not given back. Refund never gives back more than
	// Units, nor more than the key has in use.
	//
	// A charge weighs by the numbers of the policy that made the receipt, whatever the numbers
	// of the Refund's policy are. A policy of another [Spec.Shape] has another state, so that
	// there is nothing to give back. The units of a receipt can be given back once; the store
	// does not check that. A Refund that is a Credit needs no receipt: in a [SlidingCounter] the
	// units of the window before give back what they still weigh, and where callers wait for
	// their turn, those that come later may get one beside them.
	//
	// The refunds of a batch are independent of each other. If some of them failed, the
	// error is a [*BatchError]; any other error means that nothing was given back.
	Refund(ctx context.Context, refunds []Refund) error
	// Reset forgets the key: it is as if unused.
	Reset(ctx context.Context, p Policy, key string) error
}

// ManyStore is a [Store] that decides about many takes in fewer round trips than it has takes. redisstore.Store is one,
// and enforce.AllowEach uses it; a store that is none is asked for one after the other.
type ManyStore interface {
	Store
	// TakeMany decides about each of the takes by itself, as Take does for callers that come at the same time. The Results
	// stand in the order of the takes. If some takes failed, the error is a [*BatchError]; any other error means that
	// nothing was decided. A mistake in one of the takes is such an error. The takes are the caller's again afterwards.
	TakeMany(context.Context, []Take) ([]Result, error)
	// Recall refuses t from memory if the store is sure to refuse it: then the server need not be asked, nor for what is
	// of use together with t alone. Otherwise ok is false.
	Recall(t Take) (res Result, ok bool)
}

// StateStore is a [Store] that shows what it keeps about a key, so that a Limiter can explain what it would decide. Both
// stores of weir implement it, and package storetest tests any further one.
type StateStore interface {
	// State returns what the store keeps for the policy and the key of t, at its clock or at t.Now. It changes nothing:
	// it takes nothing, corrects nothing, and counts as no use of the key. Its mistakes are those of [Take.ValidateState],
	// and it fails as Take does, then with a State that has the names and what is remembered at most.
	State(ctx context.Context, t Take) (State, error)
}

// State has all that a store keeps about one key under one policy; see [StateStore]. That of a key that was never used
// has a time and names, and nothing else.
type State struct {
	// At is the store's clock when it looked, in microseconds since the epoch, or the Now that was asked for.
	At int64
	// Text has the counts, as [Spec.Step] reads them. nil means that the key is as if unused.
	Text []byte
	// Leases are the instants at which the leases of permits end, in microseconds since the epoch, one for each place
	// that was acquired and not released, the earliest first. Those that have ended may be among them.
	Leases []int64
	// Name is the name under which the store keeps Text, such as a key of Redis, and PermitName that of the permits. They
	// are "" in a store that has no names, and where the policy has no rates or no permits.
	Name, PermitName string
	// Remembered is the Result with which the store would answer t from memory, without asking its server, and
	// RememberedFor the longest time for which it would do so. nil means that it would ask.
	Remembered    *Result
	RememberedFor time.Duration
}

// Refund is a number of units to give back; see [Store].
type Refund struct {
	// Policy and Key are those of the Take, the policy as it is now.
	Policy Policy
	Key    string
	// Receipt is the Result of the Take.
	Receipt Result
	// Units is the number of units to give back, at most Receipt.Taken.
	Units int64
	// Credit gives units back without a Receipt, which is then left out: the latest first, and as many as each limit has
	// in use, up to Units. With 10/1s and 6 used, a Credit of 8 leaves 10. It is for callers that do not know who has
	// taken what. What a limit admits is then its bound and the credits: with 10/1s and a Credit of 10 each second, 20/1s.
	Credit bool
	// Now forces the clock, as Take.Now does. 0 means the store's clock.
	Now int64
}

// Validate returns what is wrong with r: what is wrong with a [Take] of the same policy,
// key and time, more units than the receipt took, and a Receipt of nothing, or one of
// anything together with Credit. Every store calls it for each refund first and changes
// nothing if one fails.
func (r *Refund) Validate() error {
	t := Take{Policy: r.Policy, Key: r.Key, Now: r.Now}
	if err := t.Validate(); err != nil {
		return err
	}
	switch {
	case r.Units < 0:
		return fmt.Errorf("core: a refund of %d units; give 0 or more", r.Units)
	case r.Credit && (r.Receipt.Taken != 0 || r.Receipt.At != 0):
		return errors.New("core: a Credit with a Receipt; leave the Receipt out, or Credit to give back what it took")
	case r.Credit:
	case r.Units > 0 && r.Receipt.Taken == 0:
		return fmt.Errorf("core: the Result (%v) took nothing; there is nothing to give back", r.Receipt.Outcome)
	case r.Units > r.Receipt.Taken:
		return fmt.Errorf("core: a refund of %d units, but the Result (%v) took %d; give at most those", r.Units, r.Receipt.Outcome, r.Receipt.Taken)
	case r.Receipt.At <= 0:
		return errors.New("core: the Result of a refund has no At; give the one that Take or Allow returned")
	}
	return nil
}
