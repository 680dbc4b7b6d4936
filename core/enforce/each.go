package enforce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/core"
)

// Each is one of the decisions of [AllowEach].
type Each struct {
	// Limiter has the policy.
	Limiter *Limiter
	// Key, Cost and AtMost are as in [Ask].
	Key    string
	Cost   int64
	AtMost bool
	// Keep marks units that were used already: what is taken stays taken although another one refuses, and is asked for
	// although another one is known to refuse. With AtMost it charges as many as there are, and refuses if these are not
	// all: with 10/1m and 8 used, a Cost of 5 leaves a Result.Taken of 2, and refuses.
	Keep bool
	// Trial marks a limit that is tried out: it counts, and its Result says what it would do, but it refuses nothing.
	// Nor is a store that fails under its "fail closed" an error.
	Trial bool
	// Result is the answer, which AllowEach fills in. It is zero, without an At, if it was not asked for because
	// another one had refused.
	Result core.Result
}

// AllowEach takes units of several policies and keys, such as those of a user, a tenant and all together, and reports
// whether all of them admit. It asks a remote store for all at once, in one round trip to each server instead of one for
// each decision.
//
// It is not atomic. If one refuses, what the others have taken is given back in the background, as by [Limiter.Refund],
// and their Results say what is left then, with a Taken of 0, but for the Remaining of a policy with debt; until then
// others may be refused for want of it. So a client that is refused by its own limit may, by asking again and again, keep
// others from a limit that it shares with them. If one is sure to refuse, by what the store remembers of it, in the
// process, or because the key is blocked, the others are not asked at all: that takes most of this away. Where it
// matters, ask one after the other, the narrowest first, as a guard does.
//
// Each decision is that of [Limiter.AllowN], or with AtMost that of [Limiter.UpTo], by the fail word of its policy.
// In a LeakyBucket, wait for the longest Result.Delay before going on. An error is the first that there is: then what
// was taken is given back, too. With a mistake, such as an empty key, nothing is asked.
func AllowEach(ctx context.Context, each []Each) (admitted bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	d := newDecisions(each)
	defer func() { // also if a store panics
		d.conclude(admitted)
		d.release()
	}()
	for i := range each {
		x := &each[i]
		if x.Limiter == nil {
			return false, fmt.Errorf("enforce: AllowEach, number %d: no Limiter; give one, or leave it out", i+1)
		}
		l := x.Limiter.now(x.Key)
		d.takes[i] = core.Take{Policy: l.policy, Key: x.Key, Cost: x.Cost, AtMost: x.AtMost}
		if err := d.takes[i].Validate(); err != nil {
			return false, fmt.Errorf("enforce: AllowEach, number %d: %w", i+1, err)
		}
		d.admissions[i].limiter, d.admissions[i].key = l, x.Key
	}
	for i := range d.admissions {
		if a := &d.admissions[i]; a.limiter.waits && a.limiter.asksStore {
			a.asks = a.limiter.engine.waiters.askers.add(a.key)
		}
	}
	d.recall(ctx)
	d.askAlone(ctx)
	d.askTogether(ctx)
	return !d.refused, d.err
}

// decisions are those of an AllowEach.
type decisions struct {
	each       []Each
	admissions []Admission
	takes      []core.Take
	done       []bool
	refused    bool  // one of them, or it has failed
	err        error // the first

	together []core.Take // of one store
	which    []int       // those are
}

// fewDecisions is the number of those that are kept for the next AllowEach.
const fewDecisions = 16

var oldDecisions = sync.Pool{New: func() any { return new(decisions) }}

func newDecisions(each []Each) *decisions {
	d := oldDecisions.Get().(*decisions)
	d.each = each
	d.admissions = slices.Grow(d.admissions, len(each))[:len(each)]
	d.takes = slices.Grow(d.takes, len(each))[:len(each)]
	d.done = slices.Grow(d.done, len(each))[:len(each)]
	return d
}

// release keeps the memory of d, without what was in it.
func (d *decisions) release() {
	if len(d.each) > fewDecisions {
		return
	}
	clear(d.admissions)
	clear(d.takes)
	clear(d.done)
	clear(d.together)
	*d = decisions{admissions: d.admissions[:0], takes: d.takes[:0], done: d.done[:0], together: d.together[:0], which: d.which[:0]}
	oldDecisions.Put(d)
}

// recall decides where no store need be asked, and so is quick to find a refusal. What a store remembers is of use beside
// others alone: a store that is asked looks there itself.
func (d *decisions) recall(ctx context.Context) {
	for i := range d.admissions {
		a := &d.admissions[i]
		if !a.limiter.asksStore {
			d.note(i, a.limiter.answer.fill(ctx, d.takes[i].Cost, &a.Result))
		} else if store := a.limiter.engine.many; store != nil && len(d.each) > 1 {
			if res, refused := store.Recall(d.takes[i]); refused {
				a.Result = res
				d.note(i, nil)
			}
		}
	}
}

// due reports whether one is still to be asked for.
func (d *decisions) due(i int) bool { return !d.done[i] && (!d.refused || d.each[i].Keep) }

// note notes what has come of one. The error is that of decide.
func (d *decisions) note(i int, err error) {
	a, x := &d.admissions[i], &d.each[i]
	switch d.done[i] = true; {
	case err != nil && !a.Result.Local:
		a.Result = core.Result{}
		if x.Trial && errors.As(err, new(*core.StoreError)) {
			break
		}
		if d.refused = true; d.err == nil {
			d.err = err
		}
	case !a.Result.Allowed() || x.Keep && x.AtMost && a.Result.Taken < x.Cost:
		d.refused = d.refused || !x.Trial
	case a.Result.Delay > 0:
		a.turn = time.Now().Add(a.Result.Delay)
	}
}

// askAlone asks stores for one after the other that cannot decide for many, such as those in the process.
func (d *decisions) askAlone(ctx context.Context) {
	for i := range d.admissions {
		if d.admissions[i].limiter.engine.many == nil && d.due(i) {
			d.ask(ctx, i)
		}
	}
}

func (d *decisions) ask(ctx context.Context, i int) {
	a := &d.admissions[i]
	d.note(i, a.limiter.engine.decide(ctx, &d.takes[i], &a.Result))
}

// askTogether asks each of the other stores for all that is due there.
func (d *decisions) askTogether(ctx context.Context) {
	for first := range d.admissions {
		if !d.due(first) {
			continue
		}
		e := d.admissions[first].limiter.engine
		d.which, d.together = d.which[:0], d.together[:0]
		for i := first; i < len(d.admissions); i++ {
			if d.admissions[i].limiter.engine == e && d.due(i) {
				d.which, d.together = append(d.which, i), append(d.together, d.takes[i])
			}
		}
		if len(d.which) == 1 {
			d.ask(ctx, first)
			continue
		}
		all, err := e.many.TakeMany(ctx, d.together)
		for k, i := range d.which {
			res, err := &d.admissions[i].Result, one(err, k)
			if err == nil {
				*res = all[k]
			}
			d.note(i, e.afterAnswer(ctx, &d.takes[i], res, err))
		}
	}
}

// one returns the error of number k of those whose error is err.
func one(err error, k int) error {
	var some *core.BatchError
	if err != nil && errors.As(err, &some) && k < len(some.Errs) {
		return some.Errs[k]
	}
	return err
}

// conclude gives back what was taken in vain, the last first, and fills in the Results.
func (d *decisions) conclude(admitted bool) {
	for i := len(d.each) - 1; i >= 0; i-- {
		a := &d.admissions[i]
		if !admitted && !d.each[i].Keep {
			a.GiveBack(a.Result.Taken)
			undo(&a.Result)
		}
		a.asks.done()
		d.each[i].Result = a.Result
	}
}

// undo makes res the answer to a look, after which nothing is taken. What is left of a debt it cannot know.
func undo(res *core.Result) {
	if res.Taken == 0 {
		return
	}
	units, limits := res.Taken, res.Policy().Limits()
	res.Taken = 0
	if slices.ContainsFunc(limits, func(l core.Limit) bool { return l.Debt > 0 }) {
		return
	}
	if res.Outcome == core.AtLimit {
		res.Outcome = core.Admitted
	}
	res.Remaining = min(res.Limit, res.Remaining+units)
	for i, l := range limits {
		if l.Algorithm == core.Concurrent {
			continue
		}
		part := res.Each(i)
		part.Remaining = min(l.Burst, part.Remaining+units)
		res.SetEach(i, part)
	}
}
