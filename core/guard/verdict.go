package guard

import (
	"context"
	"net/textproto"
	"slices"
	"sync/atomic"

	"github.com/weir-go/weir/core"
)

// Action is what becomes of a request.
type Action uint8

// The actions. The zero Action refuses.
const (
	// Reply writes the Verdict's Status and Body and does not call the handler.
	Reply Action = iota
	// Pass calls the handler.
	Pass
	// Native calls Verdict.Native, a handler of the framework's own kind.
	Native
)

// Verdict is what a [Guard] decided: set the headers, then act, then call Finish. The zero Verdict refuses. Over-limit
// handlers build one from Action, Status, Body, Native and SetField; the Guard fills in the rest.
type Verdict struct {
	// Action is what to do.
	Action Action
	// Status is the reply's status code, from 200 to 999; any other is replaced by 429. If a Native handler writes
	// nothing, the adapter writes Status and Body.
	Status int
	// Body is the reply's body.
	Body []byte
	// Native is the handler to call if Action is Native; see [HandleNative].
	Native any

	// Policy is the policy's name, or "" if nothing was decided.
	Policy string
	// Result is the limiter's answer.
	Result core.Result
	// Err is why Result is not the store's; see [Event].
	Err error

	fields []field
	guard  *Guard
	rule   *rule
	owed   *owed // nil if nothing is
	marks  bool
}

type field struct{ name, value string }

// SetField adds a header to the answer, or replaces the one of that name.
func (v *Verdict) SetField(name, value string) {
	name = textproto.CanonicalMIMEHeaderKey(name)
	for i := range v.fields {
		if v.fields[i].name == name {
			v.fields = slices.Clone(v.fields) // it may be shared
			v.fields[i].value = value
			return
		}
	}
	v.fields = append(slices.Clip(v.fields), field{name, value})
}

// Final is how a request ended.
type Final struct {
	// Status is the answer's status code. It is that of a returned error where the framework writes it only later,
	// and 500 after a panic that nobody has answered yet.
	Status int
	// Bytes is the size of the answer's body, or -1 if unknown.
	Bytes int64
	// Panicked reports whether the handler panicked.
	Panicked bool
}

// owed is what must be done when the request is over. Copies of a Verdict share it.
type owed struct {
	admission core.Admission
	settles   bool
	done      atomic.Bool
}

// owe puts an admission on the heap, which is not done for one that owes nothing.
func owe(a core.Admission, settles bool) *owed { return &owed{admission: a, settles: settles} }

// Finish releases the permit and settles what depends on how the request ended. It never waits for a remote store,
// and only the first call counts. Defer it, so that it runs after a panic too.
func (v *Verdict) Finish(f Final) {
	if v.owed == nil || !v.owed.done.CompareAndSwap(false, true) {
		return
	}
	a := &v.owed.admission
	a.Finish(f.Panicked)
	if v.owed.settles {
		taken := a.Result.Taken
		a.GiveBack(taken - min(max(v.rule.Settle(f, taken), 0), taken))
	}
}

// needsFinal reports whether Finish wants to know how the request ended.
func (v *Verdict) needsFinal() bool { return v.owed != nil && v.owed.settles }

// Detach lets the permit of the request with that context outlive its handler, for a connection that is hijacked or a
// stream that is written after the handler has returned. The code that does that work calls Claim on the result, at
// its start: a permit that nobody has claimed within a lease after the handler has returned is given back, and so it is
// if the handler panics. Where there is no permit, the result is nil, whose Claim may be called all the same.
func Detach(ctx context.Context) *core.Detached {
	v, _ := ctx.Value(verdictKey{}).(*Verdict)
	if v == nil || v.owed == nil {
		return nil
	}
	return v.owed.admission.Detach()
}

// context is what the handler's context must be, or nil if any will do: almost no request pays for one of its own.
// With a permit it ends with that.
func (v *Verdict) context(ctx context.Context) context.Context {
	held := v.owed != nil && v.owed.admission.Held()
	if !held && !v.marks {
		return nil
	}
	if held {
		ctx = v.owed.admission.Context(ctx)
	}
	kept := *v
	return verdictContext{ctx, &kept}
}

// verdictKey is the context key of the innermost Verdict.
type verdictKey struct{}

// verdictContext carries a Verdict.
type verdictContext struct {
	context.Context
	verdict *Verdict
}

// Value implements context.Context.
func (c verdictContext) Value(key any) any {
	if key == (verdictKey{}) || key == c.verdict.guard.mark() {
		return c.verdict
	}
	return c.Context.Value(key)
}
