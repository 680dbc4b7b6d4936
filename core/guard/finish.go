package guard

import (
	"context"
	"math"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/core/enforce"
)

// owed holds the work at the end of a request: permits to release, units to settle. Copies of a Verdict share it, and
// the context of the handler is a part of it.
type owed struct {
	context handlerContext
	dues    *[]due // nil when all is done
	settles bool   // some rule has a Settle or an After

	reported atomic.Int64 // by the handler; -1 if nothing was

	mu       sync.Mutex
	finished bool // the handler has returned
	settled  bool
	handover *handover // nil if nothing was detached
}

// due is the work that a request owes to one rule when it ends.
type due struct {
	rule      *rule
	admission enforce.Admission
	attempt   *attempt
	settles   bool
	tier      string
	from      From // for Observe alone
}

// dues are reused, because they are large. Only owed refers to them, which is not reused, because handlers may keep it
// with their context.
var dues = sync.Pool{New: func() any { return new([]due) }}

// newOwed is called only for requests that owe something: others allocate nothing.
func newOwed(g *Guard, all []taken) *owed {
	o := &owed{context: handlerContext{guard: g}, dues: dues.Get().(*[]due)}
	o.reported.Store(unreported)
	for i := range all {
		if t := &all[i]; t.admits() && t.owes() {
			*o.dues = append(*o.dues, due{rule: t.rule, attempt: t.attempt, settles: t.settles(), tier: t.seen.tier})
			d := &(*o.dues)[len(*o.dues)-1]
			if g.observe != nil {
				d.from = g.from(t, t.admission.Err)
			}
			d.admission = t.admission // in place: it is large
			o.settles = o.settles || d.settles
		}
	}
	return o
}

// done lets the dues be reused.
func (o *owed) done() {
	clear(*o.dues)
	*o.dues = (*o.dues)[:0]
	dues.Put(o.dues)
	o.dues = nil
}

// settles reports whether the end of the request says what it costs.
func (t *taken) settles() bool {
	return t.rule.settles && (t.admission.Result.Taken > 0 || t.rule.After != nil)
}

// owes reports whether there is something to do when the request is over.
func (t *taken) owes() bool { return t.settles() || t.admission.Held() }

// settle settles each part. f describes the end of the handler.
func (o *owed) settle(f Final) {
	f.Reported = o.reported.Load()
	o.settleFrom(0, f)
}

// settleFrom settles the parts from i on, also those after one for which code of the program panics. If it panics for
// several, the last panic is the one that is seen.
func (o *owed) settleFrom(i int, f Final) {
	defer func() {
		if i < len(*o.dues) {
			o.settleFrom(i, f)
		}
	}()
	for i < len(*o.dues) {
		d := &(*o.dues)[i]
		i++
		if d.settles {
			o.settleDue(d, f)
		}
	}
}

// settleDue gives back what was not used of a part, and charges what was used beyond what was taken.
func (o *owed) settleDue(d *due, f Final) {
	g := o.context.guard
	taken, attempt := d.admission.Result.Taken, d.attempt
	var charged func()
	defer func() {
		if charged == nil { // also if code of the program panics
			attempt.end(false)
		}
	}()
	var used int64
	if d.rule.After != nil {
		used = d.rule.After(f)
		g.watchErrors(d.rule, f, used)
	} else {
		f.reads = &d.rule.reported
		used = d.rule.Settle(f, taken)
		d.rule.charged.found()
		g.watchReports(d.rule, f)
	}
	if used = max(used, 0); used > taken {
		if attempt != nil {
			charged = func() { attempt.end(true) }
		}
		d.admission.Charge(used-taken, charged)
	} else {
		d.admission.GiveBack(taken - used)
	}
	if g.observe != nil {
		g.observeSettled(o, d, used)
	}
}

// Final describes how a request ended, for Settle and After.
type Final struct {
	// Status is the answer's status code. It is that of a returned error where the framework writes it only later,
	// and 500 after a panic that nobody has answered yet. So is that of an error which says no status, whatever the
	// program's own error handler makes of it later: look at Err.
	Status int
	// Err is the error that the handler has returned, in a framework that has them.
	Err error
	// Bytes is the size of the answer's body, or -1 if unknown.
	Bytes int64
	// Panicked reports whether the handler panicked, or a method of its error.
	Panicked bool
	// Reported is the sum of what the handler reported, by [Report], or -1 if it reported nothing.
	Reported int64

	reads *atomic.Bool // set by Reported, if it is called by the Settle of a rule
}

// end finishes a request that adapters serve, also if x.Final panics: it looks at the handler's error, whose methods
// are code of the program.
func (v *Verdict) end(x Exchange, err error, panicked bool) {
	final := Final{Status: 500, Err: err, Bytes: -1, Panicked: true}
	defer func() { v.Finish(final) }()
	if !v.owed.settles {
		final.Panicked = panicked
		return
	}
	final = x.Final(err, panicked)
	final.Err = err
}

// Finish releases the permits and settles what depends on how the request ended. It never waits for a remote store,
// and only the first call counts. Defer it, so that it runs after a panic too.
func (v *Verdict) Finish(f Final) {
	o := v.owed
	if o == nil {
		return
	}
	o.mu.Lock()
	first := !o.finished
	if first {
		o.finished = true
		o.settled = !o.handover.keeps(f)
	}
	settles, detached := first && o.settled, o.handover != nil
	o.mu.Unlock()
	if !first {
		return
	}
	for i := range *o.dues {
		(*o.dues)[i].admission.Finish(f.Panicked)
	}
	if settles {
		o.settle(f)
	}
	if !detached {
		o.done()
	}
}

// unreported stands for a handler that has reported nothing.
const unreported = -1

// Report adds n units to those that the request of ctx has used, such as the tokens of a language model.
// [Reported], or another Settle or an After, charges them when the request is over. A handler may report as
// often as it likes, from any goroutine, until it returns, or until what it has detached is released. A negative n
// counts as 0, and Report does nothing if no rule settles. For the context see [FromContext].
func Report(ctx context.Context, n int64) {
	for c := innermost(ctx); c != nil; c = c.outer {
		if c.owed != nil {
			c.owed.report(max(n, 0))
		}
	}
}

func (o *owed) report(n int64) {
	for {
		before := o.reported.Load()
		sum := max(before, 0)
		if sum += min(n, math.MaxInt64-sum); o.reported.CompareAndSwap(before, sum) {
			return
		}
	}
}

// Reported is a Settle for handlers that call [Report]: it returns what they have reported. If they have not, as after
// a panic, what was taken stays taken: a client that leaves in the middle has used something, too.
func Reported(f Final, taken int64) int64 {
	if f.reads != nil && !f.reads.Load() {
		f.reads.Store(true)
	}
	if f.Reported < 0 {
		return taken
	}
	return f.Reported
}
