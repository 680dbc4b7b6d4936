package guard

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/core"
)

// owed is what must be done when a request is over: permits to release, units to settle. Copies of a Verdict share it.
type owed struct {
	guard *Guard
	debts []debt

	reported atomic.Int64 // by the handler; -1 if nothing was

	mu       sync.Mutex
	finished bool  // the handler has returned,
	final    Final // in this way
	settled  bool
	handover *handover // nil if nothing was detached
}

// debt is one rule's part of it.
type debt struct {
	rule      *rule
	admission core.Admission
	settles   bool
	tier      string
}

// newOwed puts what is owed on the heap, which is not done for a request that owes nothing.
func newOwed(g *Guard, all []taken, n int) *owed {
	o := &owed{guard: g, debts: make([]debt, 0, n)}
	o.reported.Store(unreported)
	for i := range all {
		t := &all[i]
		if t.rule == nil {
			continue
		}
		if settles := t.settles(); settles || t.admission.Held() {
			o.debts = append(o.debts, debt{t.rule, t.admission, settles, t.seen.tier})
		}
	}
	return o
}

// settles reports whether it depends on the end of the request what it costs.
func (t *taken) settles() bool {
	return t.rule.settles && (t.admission.Result.Taken > 0 || t.rule.After != nil)
}

// settles reports whether somebody wants to know how the request ended.
func (o *owed) settles() bool {
	if o != nil {
		for i := range o.debts {
			if o.debts[i].settles {
				return true
			}
		}
	}
	return false
}

// settle gives back what was not used, and charges what was used beyond what was taken.
func (o *owed) settle() {
	f := o.final
	f.Reported = o.reported.Load()
	for i := range o.debts {
		d := &o.debts[i]
		if !d.settles {
			continue
		}
		taken, settle := d.admission.Result.Taken, d.rule.Settle
		if d.rule.After != nil {
			settle = func(f Final, _ int64) int64 { return d.rule.After(f) }
		}
		used := max(settle(f, taken), 0)
		if used > taken {
			d.admission.Charge(used - taken)
		} else {
			d.admission.GiveBack(taken - used)
		}
		o.guard.tellSettled(d, used)
	}
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
		o.finished, o.final = true, f
		o.settled = !o.handover.keeps(f)
	}
	settles := first && o.settled
	o.mu.Unlock()
	if !first {
		return
	}
	for i := range o.debts {
		o.debts[i].admission.Finish(f.Panicked)
	}
	if settles {
		o.settle()
	}
}

// context is what the handler's context must be, or nil if any will do: almost no request pays for one of its own.
// With permits it ends with them.
func (v *Verdict) context(ctx context.Context) context.Context {
	if v.owed == nil && !v.marks && !v.degraded && !v.shows() {
		return nil
	}
	if v.shows() {
		ctx = v.withResult(ctx)
	}
	if v.owed != nil {
		for i := range v.owed.debts {
			ctx = v.owed.debts[i].admission.Context(ctx) //nolint:fatcontext // it ends with each of them
		}
	}
	kept := *v
	kept.outer = verdictOf(ctx)
	return verdictContext{ctx, &kept}
}

// verdictKey is the context key of the innermost Verdict.
type verdictKey struct{}

func verdictOf(ctx context.Context) *Verdict {
	v, _ := ctx.Value(verdictKey{}).(*Verdict)
	return v
}

// verdictContext carries a Verdict.
type verdictContext struct {
	context.Context
	verdict *Verdict
}

// Value implements context.Context.
func (c verdictContext) Value(key any) any {
	if key == (degradedKey{}) && c.verdict.degraded {
		return c.verdict
	}
	if key == (verdictKey{}) || c.verdict.rule != nil && key == c.verdict.mark() {
		return c.verdict
	}
	return c.Context.Value(key)
}
