package guard

import (
	"context"
	"math"
)

// unreported stands for a handler that has reported nothing.
const unreported = -1

// Report adds n units to what the request with the context ctx has really used, such as the tokens of a language model.
// [Reported], or a Settle or After of the program's own, charges them when the request is over. A handler may report as
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
