package enforce

import (
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/internal/algo"
)

// forecast decides about requests as the store would, on a copy of what it keeps.
type forecast struct {
	take   core.Take
	text   []byte
	leases *algo.Leases
	local  bool
}

// probe is the id of the permit of a request that is not made.
const probe = "\x00"

func (f *forecast) terms(now int64) algo.Terms {
	n, lease, _ := f.take.Policy.Concurrent()
	return algo.Terms{Most: n, Lease: lease.Microseconds(), Now: now}
}

// ask decides about a request at an instant. It leaves what the store would keep after it: if the permits refuse, its
// units are given back, and of an admitted one there is no permit.
func (f *forecast) ask(at int64) (res core.Result) {
	p := f.take.Policy
	if res.Outcome = core.Admitted; hasRates(p) {
		t := f.take
		t.Now = at
		var next []byte
		var ttl time.Duration
		if res, next, ttl = p.Spec().Step(f.text, t); ttl > 0 {
			f.text = next
		}
	}
	if _, _, permits := p.Concurrent(); permits && res.Allowed() {
		turn := at + res.Delay.Microseconds() // the permit is acquired when the wait is over
		permit := core.Permit{Policy: p, Key: f.take.Key, ID: "probe"}
		reply := f.leases.Acquire(probe, 1, f.terms(turn))
		f.leases.Release(probe)
		held, err := permit.Explain(reply[:])
		if err != nil { // as no reply that Acquire gives
			return core.Result{At: turn}
		}
		if !held.Allowed() {
			if back := (core.Refund{Policy: p, Key: f.take.Key, Receipt: res, Units: res.Taken, Now: at}); back.Units > 0 {
				if next, ttl := p.Spec().StepRefund(f.text, back); ttl > 0 {
					f.text = next
				}
			}
			res.Taken = 0
		}
		p.Combine(&res, &held)
	}
	res.Local = f.local
	return res
}

// soonest returns the first instant at which a request is admitted, after from, where one is refused, and no later than
// to, where its RetryAfter ends. Nearly always that is to. It is earlier where other numbers of the policy have counted
// on the key, and what they have counted is as if unused before all has come back by these numbers.
func (f *forecast) soonest(from, to int64) int64 {
	for to > from+1 {
		at := from + (to-from)/2
		if last := to - 1; at < last && !f.admits(last) {
			return to
		}
		if f.admits(at) {
			to = at
		} else {
			from = at
		}
	}
	return to
}

// admits reports whether a request is admitted at an instant, and leaves all as it is.
func (f *forecast) admits(at int64) bool {
	copied := *f
	copied.leases = f.leases.Clone()
	res := copied.ask(at)
	return res.Allowed()
}
