package core

import (
	"fmt"
	"sync"

	"github.com/weir-go/weir/core/internal/algo"
)

// TakeArgs returns the exact integers that a script of package lua takes for t, for
// stores that decide in a script: those of each limit in turn, and with t.AtMost the
// cost. With t.AtMost they are for the script upto, otherwise for the script take, or
// takes for many keys at once. t must have passed [Take.Validate]. guess is the caller's
// idea of the store's clock, in microseconds, which matters only for limits that are
// aligned to the calendar; if it was wrong, [Spec.Explain] and [Spec.ExplainEach] say so.
func (s Spec) TakeArgs(t Take, guess int64) []int64 {
	if s.p == nil {
		return nil
	}
	b := make([]int64, 0, 1+8*len(s.p.limits))
	ahead := s.p.ahead(&t)
	for _, a := range s.p.algorithms {
		if t.AtMost {
			b = a.AppendUpTo(b, t.Debt, guess)
		} else {
			b = a.AppendTake(b, t.Cost, ahead, guess)
		}
	}
	if t.AtMost {
		b = append(b, t.Cost)
	}
	return b
}

// RefundArgs is TakeArgs for the script refund: the arguments of each limit in turn, and
// the instant of the charge. For a Credit they are those of the script credit, without an
// instant.
func (s Spec) RefundArgs(r Refund, guess int64) []int64 {
	if s.p == nil {
		return nil
	}
	b := make([]int64, 0, 1+8*len(s.p.limits))
	if r.Credit {
		for _, a := range s.p.algorithms {
			b = a.AppendCredit(b, r.Units, guess)
		}
		return b
	}
	units := s.p.refundable(&r.Receipt, r.Units)
	for i, a := range s.p.algorithms {
		b = a.AppendRefund(b, units, s.p.receipt(&r.Receipt, i), guess)
	}
	return append(b, r.Receipt.At)
}

// Explain turns the reply of a script of package lua into the Result of t: the
// script decides, and Explain says what that means. reply is the server's time, with
// t.AtMost how many units were taken, and each limit's reply. t must have passed
// [Take.Validate].
//
// If again is true, nothing was decided, because the server's clock is in another window
// of a calendar than the guess of TakeArgs: ask again with that clock, which is in
// Result.At. Explain fails if no script can have written reply.
func (s Spec) Explain(t Take, reply []int64) (res Result, again bool, err error) {
	if s.p == nil || len(reply) == 0 || reply[0] <= 0 || reply[0] > maxNow {
		return Result{}, false, s.malformed(reply)
	}
	d := decisions{p: s.p, t: t, now: reply[0], workspace: workspaces.Get().(*workspace)}
	defer workspaces.Put(d.workspace)
	switch rest := reply[1:]; {
	case len(rest) == 0 && s.p.calendar:
		return Result{At: d.now}, true, nil
	case t.AtMost:
		if len(rest) == 1+s.p.reply && rest[0] >= 0 && rest[0] <= t.Cost && d.read(rest[1:]) {
			ok := t.Cost == 0 || d.admitted == (rest[0] > 0)
			if ok && d.explain(&res, rest[0]) {
				return res, false, nil
			}
		}
	default:
		if len(rest) == s.p.reply && d.read(rest) && d.explain(&res, t.Cost) {
			return res, false, nil
		}
	}
	return Result{}, false, s.malformed(reply)
}

func (s Spec) malformed(reply []int64) error {
	return fmt.Errorf("core: the reply %v is not one of a script for %q", reply, Policy(s))
}

// decisions reads what a script has replied to equal takes.
type decisions struct {
	p   *policy
	t   Take
	now int64

	// Of the latest key.
	fit      [MaxLimits]bool
	admitted bool
	*workspace
}

// read reads what was replied of the limits, for one key.
func (d *decisions) read(reply []int64) (ok bool) {
	d.admitted = true
	for i, a := range d.p.algorithms {
		own := d.own[:copy(d.own[:], reply[:a.Reply()])]
		reply = reply[len(own):]
		if d.fit[i] = own[0] >= 0; !d.fit[i] {
			own[0], d.admitted = -1-own[0], false
		}
		cost, state := d.t.Cost, d.states[i][:]
		if d.t.AtMost {
			cost = d.p.least(&d.t, i)
		}
		if !a.ParseReply(state, own, d.now, cost) || !d.fit[i] && a.Admits(state, d.now, cost, d.p.ahead(&d.t)) {
			return false
		}
	}
	return true
}

// explain fills in res from the states, after the charge of taken units if all limits admitted.
func (d *decisions) explain(res *Result, taken int64) (ok bool) {
	if !d.admitted {
		taken = 0
	}
	*res = Result{At: d.now, Taken: taken, policy: d.p}
	if len(d.p.algorithms) > len(res.each) {
		res.more = new(more)
	}
	for i, a := range d.p.algorithms {
		cost := d.t.Cost
		if d.t.AtMost {
			cost = d.p.least(&d.t, i)
		}
		if d.fit[i] && max(cost, taken) > d.p.limits[i].Burst+d.p.limits[i].Debt {
			return false
		}
		if d.fit[i] { // and if another refused, nothing was charged
			cost = taken
		}
		e := res.at(i)
		if *e = a.Explain(d.states[i][:], d.now, cost, d.p.ahead(&d.t), !d.fit[i]); e.Wait < 0 { // less in use than was taken
			return false
		}
	}
	d.p.summarize(res, d.t.Cost, len(d.p.algorithms))
	return true
}

// workspace is memory to read a reply into: the states of the limits, as far as it has them, and one limit's part; and
// for what is visited then.
type workspace struct {
	states       [MaxLimits][algo.MaxReplyState]int64
	own          [maxReply]int64
	res, refused Result
}

var workspaces = sync.Pool{New: func() any { return new(workspace) }}

// maxReply is the largest number of integers with which one limit replies.
const maxReply = 4
