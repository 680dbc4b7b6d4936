package guard

import (
	"sync/atomic"

	"github.com/weir-go/weir/keyfunc"
)

// repeats looks for a rule that is asked twice for one request, because its Guard is mounted twice. Only the context of
// the inner request can prove that, and deriving a context costs more than the rest of a check. So contexts are derived
// for tracedRequests requests at most, after one whose answer already had headers of a limit.
type repeats struct {
	suspected atomic.Bool
	traced    atomic.Int32
}

// tracedRequests bounds the cost of guards that are stacked on purpose.
const tracedRequests = 1000

// suspect notes that the answer already had headers of a limit.
func (t *repeats) suspect() {
	if !t.suspected.Load() {
		t.suspected.Store(true)
	}
}

// traces reports whether to derive a context for the next request.
func (t *repeats) traces() bool {
	return t.suspected.Load() && t.traced.Load() < tracedRequests && t.traced.Add(1) <= tracedRequests
}

// findRepeat logs that the rule has already been asked for the request, and ends the search.
func (g *Guard) findRepeat(r keyfunc.Request, ru *rule) {
	for c := innermost(r.Context()); c != nil; c = c.outer {
		if c.rule != nil && c.rule.live == ru.live {
			ru.repeats.traced.Store(tracedRequests)
			g.warnRepeat(ru, r.Route())
			return
		}
	}
}
