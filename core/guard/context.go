package guard

import (
	"context"

	"github.com/weir-go/weir/core"
)

// handlerContext is the context of a handler that may ask the Guard something, or report to it. Handlers may keep it,
// so it is not reused.
type handlerContext struct {
	context.Context
	rule     *rule // of the Result in the Verdict, or nil
	guard    *Guard
	owed     *owed        // nil if nothing is
	result   *core.Result // for FromContext, or nil
	degraded bool
	outer    *handlerContext // of the guard around this one, or nil
}

// ContextKey is the key under which an adapter keeps a handler's context in the framework's own store, where that store
// is a context.Context as well: Gin's *gin.Context, c.Context() of Fiber 2 and c itself of Fiber 3. So [Report], [FromContext], [Degraded] and
// [Detach] find in it what they find in the context of the request. It is a string, because Gin looks up no other keys.
// Applications have no use for it.
const ContextKey = "github.com/weir-go/weir/core/guard"

// The context keys: of the innermost handlerContext, of what Degraded asks for, and of the Result.
type (
	handlerKey  struct{}
	degradedKey struct{}
	resultKey   struct{}
)

// Value implements context.Context.
func (c *handlerContext) Value(key any) any {
	switch {
	case key == handlerKey{}, c.degraded && key == degradedKey{}:
		return c
	case c.result != nil && key == resultKey{}:
		return c.result
	default:
		return c.Context.Value(key)
	}
}

// lookup returns the value of ctx for a key of the guards', in the framework's store as well.
func lookup(ctx context.Context, key any) any {
	if value := ctx.Value(key); value != nil {
		return value
	}
	if kept, ok := ctx.Value(ContextKey).(context.Context); ok {
		return kept.Value(key)
	}
	return nil
}

// innermost returns the handlerContext of the innermost guard around a handler, or nil.
func innermost(ctx context.Context) *handlerContext {
	c, _ := lookup(ctx, handlerKey{}).(*handlerContext)
	return c
}

// derives reports whether a context is derived for the handler. Almost no request pays for that.
func (v *Verdict) derives() bool { return v.owed != nil || v.traced || v.degraded || v.shows() }

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
	c.rule, c.guard, c.owed, c.degraded, c.outer = v.rule, v.guard, v.owed, v.degraded, innermost(ctx)
	if outer, ok := FromContext(ctx); v.shows() && !(ok && v.Result.Allowed() && (!outer.Allowed() || tighter(&outer, &v.Result))) {
		result := v.Result
		c.result = &result // unless an outer guard has a tighter one
	}
	if v.owed != nil {
		for i := range *v.owed.dues {
			ctx = (*v.owed.dues)[i].admission.Context(ctx) //nolint:fatcontext // it ends with each of them
		}
	}
	c.Context = ctx
	return c
}

// FromContext returns the Result that the headers of a request show, for a handler that shows it as well. Of several
// guards around the handler it is the tightest, and Config.Results must be set. ok is false where nothing was counted.
// The context is
// that of the *http.Request; in Gin and Fiber 3 c itself will do, and in Fiber 2 it is c.UserContext() or c.Context().
func FromContext(ctx context.Context) (res core.Result, ok bool) {
	kept, ok := lookup(ctx, resultKey{}).(*core.Result)
	if !ok {
		return core.Result{}, false
	}
	return *kept, true
}
