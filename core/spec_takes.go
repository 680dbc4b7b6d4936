package core

import (
	"errors"
	"fmt"
)

// ExplainEach is [Spec.Explain] for the script takes, which decides for many keys at once.
// t is each of the calls, whatever its Key: it has no AtMost, and has passed
// [Take.Validate]. counts says how many calls there were for each of the keys, 1 to 65536,
// in the order of the keys.
//
// It calls visit for each call, with the number of the key and the number of the call
// among those for that key; both in order, from 0. res is nil if the server did not decide
// for this key, and has changed nothing: ask for each of these calls by itself, and the
// reply says why. said is the part of reply about the key: after the time, it is the reply
// of the script take to the last of its calls. res and said are valid until
// visit returns, and may be copied.
//
// If again is not 0, nothing was decided, as in Explain, and it is the server's clock to ask
// again with. ExplainEach fails if no script can have written reply; visit may have been
// called for keys before the one where it noticed.
func (s Spec) ExplainEach(t Take, reply []int64, counts []int, visit func(key, call int, res *Result, said []int64)) (again int64, err error) {
	if t.AtMost {
		return 0, errors.New("core: ExplainEach of a Take with AtMost; the script takes has no such calls: use Explain")
	}
	for _, n := range counts {
		if n < 1 || n > maxCalls {
			return 0, fmt.Errorf("core: a key with %d calls; give 1 to %d", n, maxCalls)
		}
	}
	if s.p == nil || len(reply) == 0 || reply[0] <= 0 || reply[0] > maxNow {
		return 0, s.malformed(reply)
	}
	d := visits{rest: reply[1:], visit: visit}
	d.decisions = decisions{p: s.p, t: t, now: reply[0], workspace: workspaces.Get().(*workspace)}
	defer workspaces.Put(d.workspace)
	if len(d.rest) == 0 && s.p.calendar && len(counts) > 0 {
		return d.now, nil
	}
	for key, n := range counts {
		before := d.rest
		if !d.next(key, n) {
			return 0, s.malformed(before[:min(len(before), s.p.reply+1)])
		}
	}
	if len(d.rest) > 0 {
		return 0, s.malformed(d.rest[:min(len(d.rest), s.p.reply+1)])
	}
	return 0, nil
}

// undecided is the reply of the script takes for a key for which nothing was decided.
const undecided = -1 << 53

// maxCalls is the largest number of calls for one key that the script takes decides at once.
const maxCalls = 1 << 16

// visits go through the calls, one after the other.
type visits struct {
	decisions
	visit func(key, call int, res *Result, said []int64)
	rest  []int64 // of the reply
	said  []int64 // of the key
}

// next visits the calls for one key, and reports whether a script can have written what was
// replied of them.
func (d *visits) next(key, n int) (ok bool) {
	if len(d.rest) > 0 && d.rest[0] == undecided {
		d.rest = d.rest[1:]
		for call := range n {
			d.visit(key, call, nil, nil)
		}
		return true
	}
	if len(d.rest) < d.p.reply || !d.read(d.rest[:d.p.reply]) {
		return false
	}
	d.said, d.rest = d.rest[:d.p.reply], d.rest[d.p.reply:]
	if n == 1 {
		if ok = d.explain(&d.res, d.t.Cost); ok {
			d.visit(key, 0, &d.res, d.said)
		}
		return ok
	}
	times := int64(n)
	if !d.admitted {
		if len(d.rest) == 0 || d.rest[0] < 0 || d.rest[0] >= int64(n) {
			return false
		}
		times, d.rest = d.rest[0], d.rest[1:]
	}
	return d.replay(key, n, int(times))
}

// replay visits n calls for one key, of which times were admitted: it goes back to the state
// before the first, and from there to the last.
func (d *visits) replay(key, n, times int) (ok bool) {
	if times < n && !d.explain(&d.refused, 0) {
		return false
	}
	if d.t.Cost > 0 && times > 0 {
		if d.t.Cost > d.p.limits[0].Burst+d.p.limits[0].Debt {
			return false
		}
		for i, a := range d.p.algorithms {
			if !a.Rewind(d.states[i][:], d.now, int64(times)*d.t.Cost) {
				return false
			}
		}
	}
	if d.p.alone != nil && d.t.Cost > 0 && times > 0 { // and so the cost is one that fits
		d.charges(key, times)
	} else if !d.eachAdmitted(key, times) {
		return false
	}
	for call := times; call < n; call++ {
		d.visit(key, call, &d.refused, d.said)
	}
	return true
}

// eachAdmitted visits the calls for one key that were admitted.
func (d *visits) eachAdmitted(key, times int) (ok bool) {
	d.fit, d.admitted = [MaxLimits]bool{true, true, true, true}, true
	for call := range times {
		if d.t.Cost > 0 {
			for i, a := range d.p.algorithms {
				a.Charge(d.states[i][:], d.now, d.t.Cost)
			}
		}
		if !d.explain(&d.res, d.t.Cost) {
			return false
		}
		d.visit(key, call, &d.res, d.said)
	}
	return true
}

// charges is eachAdmitted for a single GCRA limit, which most policies are, in a fifth of the
// time.
func (d *visits) charges(key, times int) {
	d.res = Result{At: d.now, Taken: d.t.Cost, policy: d.p}
	charges := d.p.alone.Charges(d.states[0][:], d.now, d.t.Cost)
	for call := range times {
		charges.Next(&d.res.each[0])
		d.p.summarize(&d.res, d.t.Cost, 1)
		d.visit(key, call, &d.res, d.said)
	}
}
