package guard

import (
	"cmp"
	"context"

	"github.com/weir-go/weir/core"
)

// handlerContext is the context of a handler that may ask the Guard something, or report to it. Handlers may keep it,
// so it is not reused.
type handlerContext struct {
	context.Context
	rule     *rule // whose Result the Verdict has, or nil
	guard    *Guard
	owed     *owed        // nil if nothing is
	result   *core.Result // for FromContext, or nil
	degraded bool
	of       *handlerContext // the handler's, if this one is of work that was detached from it
}

// The context keys: of the innermost handlerContext, of what Degraded asks for, and of the Result. A rule's is its
// mark.
type (
	handlerKey  struct{}
	degradedKey struct{}
	resultKey   struct{}
)

// Value implements context.Context.
func (c *handlerContext) Value(key any) any {
	switch {
	case key == handlerKey{}, c.degraded && key == degradedKey{}, c.rule != nil && key == mark{c.guard.family, c.rule.name}:
		return c
	case c.result != nil && key == resultKey{}:
		return c.result
	default:
		return c.Context.Value(key)
	}
}

// outer returns that of the guard around this one, or nil.
func (c *handlerContext) outer() *handlerContext { return innermost(cmp.Or(c.of, c).Context) }

// innermost returns what the innermost guard around a handler has made of its context, or nil.
func innermost(ctx context.Context) *handlerContext {
	c, _ := ctx.Value(handlerKey{}).(*handlerContext)
	return c
}

// derives reports whether the handler must have a context of its own. Almost no request pays for that.
func (v *Verdict) derives() bool { return v.owed != nil || v.marks || v.degraded || v.shows() }

// shows reports whether the handler may ask for the Result, and there is one.
func (v *Verdict) shows() bool { return v.guard.results && v.Result.Limit > 0 }

// context returns the handler's context. With permits it ends with them.
func (v *Verdict) context(ctx context.Context) context.Context {
	var c *handlerContext
	if v.owed != nil {
		c = &v.owed.context
	} else {
		c = new(handlerContext)
	}
	c.rule, c.guard, c.owed, c.degraded = v.rule, v.guard, v.owed, v.degraded
	if outer, ok := FromContext(ctx); v.shows() && !(ok && v.Result.Allowed() && (!outer.Allowed() || tighter(&outer, &v.Result))) {
		c.result = new(v.Result) // unless an outer guard has a tighter one
	}
	if v.owed != nil {
		for i := range *v.owed.debts {
			ctx = (*v.owed.debts)[i].admission.Context(ctx) //nolint:fatcontext // it ends with each of them
		}
	}
	c.Context = ctx
	return c
}

// FromContext returns what a handler may show of the limits of its request: the Result that the headers speak of, of
// all guards around the handler whose Config.Results asks for it. ok is false where nothing was counted. In Fiber the
// context is c.UserContext().
func FromContext(ctx context.Context) (res core.Result, ok bool) {
	kept, ok := ctx.Value(resultKey{}).(*core.Result)
	if !ok {
		return core.Result{}, false
	}
	return *kept, true
}
