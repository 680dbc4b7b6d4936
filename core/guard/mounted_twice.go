package guard

import (
	"sync/atomic"

	"github.com/weir-go/weir/keyfunc"
)

// watch looks for a rule that is mounted twice in one request. To find itself, a
// rule must leave a mark in the request's context, which costs more than the rest of
// a check; so it does that only for some requests, after it has seen an answer that
// had headers of a limit already.
type watch struct {
	marks atomic.Int32 // how many more requests are marked
	times atomic.Int32 // how often that was begun
	state atomic.Int32
}

const (
	watchNever int32 = iota // no outer guard was seen yet
	watchSeen               // one was
	watchFound              // the rule is mounted twice, and that was logged
)

// watched is how many requests are marked at a time, and watches how many times at
// most: two guards that only look alike must not cost anything for good.
const (
	watched = 100
	watches = 10
)

// outer is told that another guard, or the same, has set headers before; alike
// reports that they have the rule's own limit.
func (w *watch) outer(alike bool) {
	first := w.state.CompareAndSwap(watchNever, watchSeen)
	again := alike && w.state.Load() == watchSeen && w.marks.Load() <= 0
	if (first || again) && w.times.Load() < watches && w.times.Add(1) <= watches {
		w.marks.Store(watched)
	}
}

// next reports whether the next request is marked.
func (w *watch) next() bool { return w.marks.Load() > 0 && w.marks.Add(-1) >= 0 }

// found reports whether it is the first time that a mark is found.
func (w *watch) found() bool {
	w.marks.Store(0)
	return w.state.Swap(watchFound) != watchFound
}

// mark is the context key under which a policy finds that it has counted.
type mark struct {
	family *family
	policy string
}

// marks logs that the request has the mark of the rule already. It is called for the requests that the rule marks.
func (g *Guard) marks(r keyfunc.Request, ru *rule) {
	if r.Context().Value(mark{g.family, ru.name}) != nil && ru.watch.found() {
		g.logger().Warn("weir: a guard is mounted twice in one request, which it counts twice", "policy", ru.name, "route", r.Route(), "code", codeMounted)
	}
}
