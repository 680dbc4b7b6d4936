package core

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/weir-go/weir/keyfunc"
)

// OverLimit answers a request that its policy refuses. It must be safe for
// concurrent use. [Reject] is the default; [Func] makes one from a function, and
// each adapter's Handle from a handler of its framework.
type OverLimit interface {
	// Serve decides what becomes of the request.
	Serve(*Excess) Verdict
	// String names the handler, for messages.
	String() string
}

// Excess is a request over its limit, or one that could not be decided.
type Excess struct {
	// Request is what was asked. It must not be kept.
	Request keyfunc.Request
	// Rule is the rule that refuses. It must not be changed.
	Rule *Rule
	// Result is the store's answer; the zero Result if there is none.
	Result Result
	// Err is nil for a request over its limit. Otherwise it is why nothing could
	// be decided: a *StoreError under "fail closed", an error of the key function
	// (often keyfunc.ErrNoKey), or the context's error of a caller who left.
	Err error
}

// Statuses are plain integers here, so that core needs no HTTP package.
const (
	statusForbidden          = 403
	statusTooManyRequests    = 429
	statusServiceUnavailable = 503
)

// RejectOptions say how [Reject] answers. The zero value is a good choice.
type RejectOptions struct {
	// Status is that of a request over its limit, from 400 to 599; 0 means 429.
	Status int
}

// Reject answers with a short text: 429 over the limit, 503 where the store failed
// and the policy fails closed, 403 where there is no key.
func Reject(o RejectOptions) OverLimit {
	if o.Status == 0 {
		o.Status = statusTooManyRequests
	}
	return reject{o}
}

type reject struct{ o RejectOptions }

func (r reject) String() string { return fmt.Sprintf("reject(%d)", r.o.Status) }

// Err reports a mistake in the options to NewGuard.
func (r reject) Err() error {
	if r.o.Status < 400 || r.o.Status > 599 {
		return fmt.Errorf("core: RejectOptions.Status is %d; give 400 to 599, or 0 for 429", r.o.Status)
	}
	return nil
}

var (
	plainText   = []field{{headerType, "text/plain; charset=utf-8"}}
	retrySoon   = []field{plainText[0], {headerRetryAfter, "1"}}
	bodyOver    = []byte("too many requests\n")
	bodyNever   = []byte("this request costs more than its rate limit ever admits at once\n")
	bodyNoKey   = []byte("this request does not say who sent it, which its rate limit asks for\n")
	bodyNoStore = []byte("the rate limiter cannot decide at the moment\n")
)

// Serve implements OverLimit.
func (r reject) Serve(x *Excess) Verdict { return r.answer(&x.Result, x.Err) }

func (r reject) answer(res *Result, err error) Verdict {
	failed := (*StoreError)(nil)
	switch {
	case res.Outcome == Never:
		return Verdict{Status: r.o.Status, Body: bodyNever, fields: plainText}
	case err == nil, res.Local:
		return Verdict{Status: r.o.Status, Body: bodyOver, fields: plainText}
	case errors.As(err, &failed):
		return Verdict{Status: statusServiceUnavailable, Body: bodyNoStore, fields: retrySoon}
	case errors.Is(err, keyfunc.ErrNoKey):
		return Verdict{Status: statusForbidden, Body: bodyNoKey, fields: plainText}
	default:
		return Verdict{Status: statusServiceUnavailable, Body: bodyNoStore, fields: plainText}
	}
}

// Func makes an over-limit handler from a function, for what no other handler
// does. name is for messages.
func Func(name string, f func(*Excess) Verdict) OverLimit { return function{name, f} }

type function struct {
	name string
	f    func(*Excess) Verdict
}

func (f function) Serve(x *Excess) Verdict { return f.f(x) }
func (f function) String() string          { return f.name }

func (f function) Err() error {
	if f.f == nil {
		return fmt.Errorf("core: Func(%q, nil): give a function", f.name)
	}
	return nil
}

// HandleNative makes an over-limit handler that an adapter carries out by calling
// native, a value of the adapter's own type. Adapters build their Handle from it.
// What the handler does not write, the adapter answers as [Reject] does. A nil
// function is a mistake that NewGuard reports, like that of [Func].
func HandleNative(name string, native any) OverLimit {
	if f := reflect.ValueOf(native); !f.IsValid() || f.Kind() == reflect.Func && f.IsNil() {
		return Func(name, nil)
	}
	plain := Reject(RejectOptions{})
	return Func(name, func(x *Excess) Verdict {
		v := plain.Serve(x)
		v.Action, v.Native = Native, native
		return v
	})
}
