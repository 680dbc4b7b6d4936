package guard

import "context"

// What only Serve needs, for tests.

func (v *Verdict) NeedsFinal() bool        { return v.needsFinal() }
func (v *Verdict) NeedsContext() bool      { return v.context(context.Background()) != nil }
func (g *Guard) Meet(h Header, v *Verdict) { g.meet(h, v) }

// Context is what the handler gets.
func (v *Verdict) Context(ctx context.Context) context.Context {
	if derived := v.context(ctx); derived != nil {
		return derived
	}
	return ctx
}
