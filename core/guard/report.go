package guard

import (
	"context"
	"math"
)

// unreported is what a handler has reported that reports nothing.
const unreported = -1

// Report says what the request with that context really used, such as the tokens of a language model: n units more than
// was reported before. [Reported], or a function of the program's own, charges them when the request is over. A handler
// may report as often as it likes, from any goroutine, until it returns, or until what it has detached is released. What
// is less than 0 counts as 0, and where nobody asks for it nothing happens.
func Report(ctx context.Context, n int64) {
	for c := innermost(ctx); c != nil; c = c.outer() {
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

// Reported is a Settle for handlers that call [Report]: it returns what they have reported. If they have not, as after a
// panic, what was taken stays taken: a client that leaves in the middle has used something, too.
func Reported(f Final, taken int64) int64 {
	if f.Reported < 0 {
		return taken
	}
	return f.Reported
}
