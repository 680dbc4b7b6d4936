package guard

import (
	"context"

	"github.com/weir-go/weir/core"
)

// resultKey is the context key of the Result.
type resultKey struct{}

// FromContext returns what a handler may show of the limits of its request: the Result that the headers speak of, of all
// guards around the handler whose Config.Results asks for it. ok is false where nothing was counted. In Fiber the
// context is c.UserContext().
func FromContext(ctx context.Context) (res core.Result, ok bool) {
	kept, ok := ctx.Value(resultKey{}).(*core.Result)
	if !ok {
		return core.Result{}, false
	}
	return *kept, true
}

// shows reports whether the handler may ask for the Result, and there is one.
func (v *Verdict) shows() bool { return v.guard.results && v.Result.Limit > 0 }

// withResult is ctx with the Result, unless an outer guard has a tighter one.
func (v *Verdict) withResult(ctx context.Context) context.Context {
	outer, ok := ctx.Value(resultKey{}).(*core.Result)
	if ok && v.Result.Allowed() && (!outer.Allowed() || tighter(outer, &v.Result)) {
		return ctx
	}
	kept := v.Result
	return context.WithValue(ctx, resultKey{}, &kept)
}
