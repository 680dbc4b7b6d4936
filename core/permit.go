package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Permit asks a [PermitStore] for the right to be one of the few that are under way for
// a key at the same time, and names that right afterwards.
type Permit struct {
	// Policy is the policy of the permit. It has a limit that is Concurrent; its other limits are
	// not looked at.
	Policy Policy
	// Key is the user, tenant or job that holds the permit: any text but the empty one. Policies of different names or
	// epochs never share a key's permits. It stands in the store in plain text; see [Take].
	Key string
	// ID distinguishes this permit from all others of the key. The caller chooses it, so
	// that acquiring again, after a reply that was lost, is harmless. It has 1 to 128
	// bytes, without "#" and control characters; crypto/rand.Text makes good ones.
	ID string
	// Weight is the number of places that the permit takes, all or none. 0 means 1. With "20 concurrent", a permit of
	// weight 5 takes a quarter of them. A weight above the number of permits, or above MaxPermitWeight, is answered with
	// Never.
	Weight int64
	// Now forces the clock, as Take.Now does. 0 means the store's clock.
	Now int64
}

// maxPermitID is the longest Permit.ID, in bytes.
const maxPermitID = 128

// Validate returns what is wrong with p: a zero policy or one without permits, an empty
// key, an id that cannot be one, a negative weight, and a time out of range. Every
// PermitStore calls it first and changes nothing if it fails.
func (p *Permit) Validate() error {
	switch {
	case p.Policy.p == nil:
		return errors.New("core: Permit.Policy is zero; build one with Parse or NewPolicy")
	case p.Policy.p.permits == nil:
		return fmt.Errorf("core: the policy %q has no permits; give one such as \"20 concurrent\"", p.Policy)
	case p.Key == "":
		return errors.New("core: the key is empty; give one, or every caller would share one count")
	case p.ID == "" || len(p.ID) > maxPermitID || strings.ContainsFunc(p.ID, func(r rune) bool { return r == '#' || r < ' ' || r == 0x7f }):
		return fmt.Errorf("core: Permit.ID is %.80q; give 1 to %d bytes without \"#\" and control characters, such as crypto/rand.Text makes", p.ID, maxPermitID)
	case p.Weight < 0:
		return fmt.Errorf("core: Permit.Weight is %d; give 1 or more, or 0 for 1", p.Weight)
	case p.Now < 0 || p.Now > maxNow:
		return fmt.Errorf("core: Permit.Now is %d; give microseconds since the epoch, up to the year 2112, or 0 for the store's clock", p.Now)
	}
	return nil
}

// Params returns the exact integers that the scripts acquire and renew of package lua
// take for p: the number of permits, the lease, and the forced time or 0. It is for
// stores that decide in a script, after [Permit.Validate].
func (p *Permit) Params() []int64 {
	n, lease, _ := p.Policy.Concurrent()
	return []int64{n, lease.Microseconds(), p.Now}
}

// Places returns the number of places that p takes: its weight, or 1. For a weight above MaxPermitWeight it returns
// more than there can be.
func (p *Permit) Places() int64 {
	if p.Weight > MaxPermitWeight {
		return maxPermits + 1
	}
	return max(1, p.Weight)
}

// Explain turns the reply of the script acquire of package lua into the Result of p: the
// script decides, and Explain adds the numbers. It fails if reply is not one
// that this script can have written.
func (p *Permit) Explain(reply []int64) (Result, error) {
	if err := p.Validate(); err != nil {
		return Result{}, err
	}
	malformed := func() (Result, error) {
		return Result{}, fmt.Errorf("core: the reply %v is not one of a script for permits of %q", reply, p.Policy)
	}
	if len(reply) != 4 || reply[0] <= 0 || reply[0] > maxNow || reply[2] < 0 || reply[3] < 0 {
		return malformed()
	}
	now, used, free, last := reply[0], reply[1], reply[2], reply[3]
	n, latest := p.Policy.p.permits.Burst, reply[0]+p.Policy.p.permits.Lease.Microseconds()
	if free > latest || last > latest || used >= 0 && (used < p.Places() || last <= now) || used < 0 && p.Places() <= n && free <= now {
		return malformed()
	}
	res, refused := Result{At: now, Limit: n, Taken: p.Places()}, used < 0
	if refused {
		res.Taken, used = 0, -1-used
	}
	until := func(at int64) time.Duration { return time.Duration(max(0, at-now)) * time.Microsecond }
	each := LimitResult{Remaining: max(0, n-used), ResetAfter: until(last), Refused: refused}
	switch {
	case refused && p.Places() > n:
		res.Outcome, each.Never = Never, true
	case refused:
		res.Outcome, each.RetryAfter = Refused, until(free)
	case each.Remaining == 0:
		res.Outcome = AtLimit
	default:
		res.Outcome = Admitted
	}
	res.Remaining, res.RetryAfter, res.ResetAfter = each.Remaining, each.RetryAfter, each.ResetAfter
	res.SetEach(len(p.Policy.p.algorithms), each) // permits are the last of the limits
	if whole := p.Policy.p.whole; whole != nil {
		whole.permitsOfShare(&res, p.Places())
	}
	return res, nil
}

// Combine adds the Result of p's permits to that of its rates, for what stands around a store. rates remains the
// receipt for the units, except for Local: it is set if either decision was made without the store. A rates that
// counted nothing is replaced.
func (p Policy) Combine(rates, permits *Result) {
	local, taken, delay, note := rates.Local || permits.Local, rates.Taken, rates.Delay, rates.Note()
	switch n := len(p.p.algorithms); {
	case rates.Limit == 0: // there are none, or they failed open
		*rates = *permits
	case permits.Limit > 0:
		rates.SetEach(n, permits.Each(n))
		p.p.summarize(rates, taken, len(p.p.limits))
	}
	rates.Local, rates.Taken, rates.Delay = local, taken, delay
	if note != nil && rates.Note() == nil {
		rates.SetNote(note)
	}
}

// PermitStore keeps permits, and for each the time until which it is held unless it is renewed. Its
// methods are safe for concurrent use and fail as those of [Store] do. Both stores of weir
// implement it, and package storetest tests any further one.
//
// A permit lives for the policy's lease, by the store's clock, and is renewed well before.
// So the place of a holder that has crashed comes back when its lease ends. But a holder
// that stalls for longer than its lease works on, until it notices, beside the one that got
// its place.
//
// The permits of a key are kept by the policy's name and [Spec.PermitShape]. The number and the lease of a policy may
// change under its name. More permits than
// there now are stay held, and none is granted meanwhile; a lease that ends later than a
// new one would is cut to that. The same happens when the store's clock has stepped
// back.
type PermitStore interface {
	// Acquire takes the places for a permit, all or none. If the id is held already, it is
	// admitted and its lease begins anew, so that asking again is harmless. With another
	// weight it is decided as if it held none, and if it is refused it keeps what it holds. A
	// smaller weight is never refused.
	//
	// Result.Remaining is the number of places that are left, and ResetAfter the time until all
	// are free if nobody renews. If refused, RetryAfter is the time after which there is
	// room if nobody renews and nobody else comes: mostly it comes sooner, because
	// permits are released. The part of the permits in Each has the same.
	Acquire(context.Context, Permit) (Result, error)
	// Renew begins the lease of each permit anew. One whose lease has ended, or that the
	// store has forgotten, is acquired again if there is room, else it is lost: it is
	// returned, and its holder must stop. A permit keeps the weight that it has.
	//
	// If some permits may not have been renewed, the error is a [*BatchError]; those
	// without an error were renewed, or are among the lost. Any other error means that
	// none was.
	Renew(context.Context, []Permit) (lost []Permit, err error)
	// Release gives permits back. It goes by the ids alone: releasing late, or twice,
	// does nothing. Errors are as those of Renew.
	Release(context.Context, []Permit) error
}
