package core

import (
	"context"
	"net/textproto"
	"slices"
	"sync/atomic"
)

// Action is what an adapter does with a request.
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

// Verdict is what a [Guard] decided, for an adapter to carry out: set the headers,
// then act, then call Finish. The zero Verdict refuses. Over-limit handlers build
// one from Action, Status, Body, Native and SetField; the Guard fills in the rest.
type Verdict struct {
	// Action is what to do.
	Action Action
	// Status is the reply's status code, 429 if left zero. After a Native
	// handler that wrote nothing it is written all the same.
	Status int
	// Body is the reply's body.
	Body []byte
	// Native is the handler to call if Action is Native.
	Native any

	// Policy is the policy's name, or "" if nothing was decided.
	Policy string
	// Result is the store's answer.
	Result Result
	// Err is why Result is not the store's; see [Event].
	Err error

	fields  []field
	rule    *rule
	family  *family
	receipt *receipt
	held    *hold // nil without a permit
	marks   bool
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

// NeedsContext tells whether the handler's context must be the one that
// [NewContext] derives. It is false for almost all requests, so that almost none
// pays for it.
func (v *Verdict) NeedsContext() bool { return v.marks || v.held != nil }

// NeedsFinal tells whether Finish wants to know how the request ended, for which
// an adapter may have to wrap the answer's writer.
func (v *Verdict) NeedsFinal() bool { return v.receipt != nil }

// NewContext returns a context that tells a later [Guard.Check] in the same request
// that v was decided, and from which [FromContext] gets v. With a permit, it ends with the
// cause [ErrPermitLost] if the permit is lost, and when it is given back. It takes a copy,
// so that the caller's v need not be on the heap.
func NewContext(ctx context.Context, v Verdict) context.Context {
	if v.held != nil {
		ctx = v.held.attach(ctx)
	}
	return verdictContext{ctx, &v}
}

// FromContext returns the Verdict that [NewContext] has put into ctx, or nil. The request
// of a handler behind a guard with permits has one.
func FromContext(ctx context.Context) *Verdict {
	v, _ := ctx.Value(verdictKey{}).(*Verdict)
	return v
}

// Detach lets the permit outlive the handler, for a connection that was hijacked or a
// stream that is written after the handler has returned: Finish then leaves it alone, and
// it is renewed until release is called. It may be called on a nil Verdict, and where there
// is no permit.
func (v *Verdict) Detach() (release func()) {
	if v == nil || v.held == nil {
		return func() {}
	}
	v.held.detach()
	return v.held.release
}

// Final is how a request ended.
type Final struct {
	// Status is the answer's status code. It is that of a returned error where
	// the framework writes it only later, and 500 after a panic that nobody has
	// answered yet.
	Status int
	// Bytes is the size of the answer's body, or -1 if unknown.
	Bytes int64
	// Panicked tells that the handler panicked.
	Panicked bool
}

// receipt is what is still to be settled. Copies of a Verdict share it.
type receipt struct {
	take   Take
	result Result
	done   atomic.Bool
}

// Finish gives back the permit and settles what depends on how the request ended. It never waits for the
// store, and only the first call counts. Adapters defer it, so that it runs after
// a panic too.
func (v *Verdict) Finish(f Final) {
	v.held.finish()
	r := v.receipt
	if r == nil || !r.done.CompareAndSwap(false, true) {
		return
	}
	taken := r.result.Taken
	if back := taken - min(max(v.rule.Settle(f, taken), 0), taken); back > 0 {
		v.family.settler.refund(settlement{r.take, r.result, back})
	}
}

// ForNative returns a copy of v to call the handler in Native with, or nil if there
// is none to call. An adapter says whether it knows the handler's type:
//
//	over, known := v.Native.(native)
//	answer := v.ForNative(known, "nethttp")
//
// A handler that it does not know was made for another framework: v becomes its
// plain reply then, and the log says so, once.
//
// It is no generic function that asserts the type itself, because v would escape to
// the heap through it, for each request.
func (v *Verdict) ForNative(known bool, framework string) *Verdict {
	if v.Action != Native {
		return nil
	}
	if known {
		answer := *v // the handler may keep it
		return &answer
	}
	v.Action = Reply
	if v.rule != nil {
		v.rule.misplaced.Do(func() {
			v.family.logger().Error("weir: an over-limit handler is of another framework; a plain answer is sent",
				"framework", framework, "policy", v.Policy, "handler", v.rule.OverLimit.String())
		})
	}
	return nil
}
