package guard

import (
	"fmt"
	"reflect"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/keyfunc"
)

// OverLimit answers a request that its policy refuses. It must be safe for
// concurrent use. [Reject] is the default; [HandlerFunc] makes one from a function, and
// each adapter's Handle from a handler of its framework.
type OverLimit interface {
	// Serve decides what becomes of the request.
	Serve(*Refusal) Verdict
	// String names the handler, for messages.
	String() string
}

// Refusal is a request that does not pass: over its limit, or one that could not be decided.
type Refusal struct {
	// Request is the request that is refused. It must not be kept.
	Request keyfunc.Request
	// Rule is the rule that refuses. It must not be changed.
	Rule *Rule
	// Result is the limiter's answer; the zero Result if there is none. It has no Limit where the Source has blocked the
	// key, for which nothing was counted.
	Result core.Result
	// Err is nil for a request over its limit, unless the store failed and the
	// process decided by itself ("fail local"): then it is a *core.StoreError, and
	// Result.Local is true. Where nothing could be decided, so that Result.Limit is 0,
	// Err says why: a *core.StoreError under "fail closed", an error of the key function
	// (often keyfunc.ErrNoKey), of a negative cost, the context's error of a client
	// that left, or enforce.ErrClosed.
	Err error

	bodies *bodies // of the rule's policy, or nil
}

// HandlerFunc makes an over-limit handler from a function, for what no other handler does. A Verdict whose Action is
// Pass lets the request through all the same. name is for messages.
func HandlerFunc(name string, f func(*Refusal) Verdict) OverLimit { return function{name, f} }

type function struct {
	name string
	f    func(*Refusal) Verdict
}

func (f function) Serve(x *Refusal) Verdict { return f.f(x) }
func (f function) String() string           { return f.name }

func (f function) Err() error {
	if f.f == nil {
		return fmt.Errorf("the function of %q is nil; give one", f.name)
	}
	return nil
}

// HandleNative makes an over-limit handler that an adapter carries out by calling
// handler, a value of the adapter's own type. Adapters build their Handle from it.
// A body that it writes without a status has the Verdict's, which is 429 over the
// limit. What it does not write, the adapter answers as [Reject] does, in plain
// text. A nil function is a mistake that New reports, like that of [HandlerFunc].
func HandleNative(name string, handler any) OverLimit {
	if f := reflect.ValueOf(handler); !f.IsValid() || f.Kind() == reflect.Func && f.IsNil() {
		return HandlerFunc(name, nil)
	}
	return native{name, handler}
}

type native struct {
	name    string
	handler any
}

func (n native) String() string { return n.name }

// Serve implements OverLimit. The answer that is sent if the handler writes none is plain text.
func (n native) Serve(x *Refusal) Verdict {
	v := Verdict{Action: Native, Native: n.handler}
	v.Status, v.Body, v.fields = plain.answer(nil, asNative, nameless, &x.Result, x.Err)
	return v
}
