package guard

import (
	"context"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/keyfunc"
)

// Exchange is a request and its answer, as an adapter shows them to [Guard.Serve]. Its methods translate, and decide
// nothing. Applications have no use for it.
type Exchange interface {
	keyfunc.Request
	Header // of the answer; the method Header is that of the request

	// Scratch returns memory into which Serve writes the request's key and the numbers of the header, or nil. Return
	// nil if Set keeps the string that it is given, and if in doubt. If Set copies it, and exchanges are used again,
	// return a Scratch that is kept in the exchange, which saves allocations. No two requests may use one at the same
	// time.
	Scratch() *Scratch

	// Next calls the handler, with ctx in place of the request's context unless ctx is nil. An error is the
	// handler's, in a framework that has them.
	Next(ctx context.Context) error
	// Reply writes an answer. An Exchange that is a [Refuser] has its Refuse called instead.
	Reply(status int, body []byte)
	// Handle calls a handler that the adapter's own Handle was given, and reports whether it has answered. A body
	// without a status has that of v. known is false, and nothing done, if native is not one.
	Handle(native any, v *Verdict) (answered, known bool, err error)
	// BeforeHeader has f called right before the header is sent. It is called before a handler, and f once more after
	// that. It need do nothing in a framework that sends the header later.
	BeforeHeader(f func())
	// Routed returns, after Next, the pattern of the route that the request has taken, as its router has registered it,
	// without the method, and whether that route takes every method. It may be another one than Route found: a router
	// within the router knows more, middleware between may rewrite the path, and a handler may pass the request on to
	// the next route. Return "" if no router has said so.
	Routed() (pattern string, everyMethod bool)
	// Hijacked reports, after Next, whether the connection is served when the handler has returned. That gives back the
	// request's permits unless the handler has called [Detach], and the log has one line of it. Return false in a
	// framework that has no such handlers.
	Hijacked() bool
	// Watch is called before a handler if Final will be called after it.
	Watch()
	// Final returns how the request ended, after Watch: with the error of Next or Handle, or with a panic.
	Final(err error, panicked bool) Final
}

// Refuser is an [Exchange] that gets the Verdict of a refusal, where its protocol can say more than a status, a body and
// the header: gRPC sends the exact time to wait, and Retry-After has whole seconds.
type Refuser interface {
	// Refuse answers in place of Reply, after the header was set: with v.Status and v.Body, and what else v says, such as
	// [Verdict.RetryAfter]. It may keep v, which is a copy.
	Refuse(v *Verdict)
}

// isRefuser reports whether x answers refusals itself.
func isRefuser(x Exchange) bool { _, ok := x.(Refuser); return ok }

// Scratch is memory for the short texts of one request at a time. Those of the next one overwrite them. The zero
// Scratch is ready for use; see [Exchange].
type Scratch struct {
	key     keyfunc.Key
	numbers [64]byte
	shared  bool     // key is that of several rules, each of which overwrites the one before
	found   found    // in the table of routes
	subject *subject // of Events; nil before the first
}

// scratches are for exchanges without one.
var scratches = sync.Pool{New: func() any { return new(Scratch) }}

// Action is the next step of an adapter with a request.
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

// Verdict is the decision of a [Guard]: set the headers, then act, then call Finish. The zero Verdict refuses.
// Over-limit handlers build one from Action, Status, Body, Native and SetField; the Guard fills in the rest.
type Verdict struct {
	// Action is the next step.
	Action Action
	// Status is the reply's status code, from 200 to 999; any other is replaced by 429. It is also that of a body which
	// a Native handler writes without a status. If one writes nothing, the adapter writes Status and Body.
	Status int
	// Body is the reply's body.
	Body []byte
	// Native is the handler to call if Action is Native; see [HandleNative].
	Native any

	// Policy is the policy's name, or "" if nothing was decided.
	Policy string
	// Result is the limiter's answer.
	Result core.Result
	// Err is the reason why the Result is not the store's, or nil; see [Event].
	Err error

	fields   []field
	members  []member // of RateLimit and RateLimit-Policy
	guard    *Guard
	rule     *rule // whose Result it is
	owed     *owed // nil if nothing is
	traced   bool  // the handler gets a context in which an inner guard may find the rule
	degraded bool
}

// RetryAfter returns the time after which the request that v refuses would be admitted, if nobody else comes: exactly,
// where the header Retry-After has whole seconds, and without their jitter. If an over-limit handler has given
// another Retry-After, it returns that. It is 0 where waiting cannot help, as for a cost that never fits, and where v
// does not refuse. With 10/1s used up, it is 100ms.
func (v *Verdict) RetryAfter() time.Duration {
	if v.Action == Pass || v.degraded {
		return 0
	}
	for i := range v.fields {
		if v.fields[i].name == headerRetryAfter {
			seconds, err := strconv.ParseInt(v.fields[i].value, 10, 32)
			if err != nil { // a date, of which the handler knows more
				return 0
			}
			return time.Duration(max(0, seconds)) * time.Second
		}
	}
	if v.Result.Outcome != core.Refused {
		return 0
	}
	return max(0, v.Result.RetryAfter)
}

type field struct{ name, value string }

// oneLine takes line breaks out of the value of a header, which may come from the request.
var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

// SetField adds a header to the answer, or replaces the one of that name. Line breaks in the value become spaces: none
// of it becomes another header. What it says to caches has no effect on a refusal, which they must not keep.
func (v *Verdict) SetField(name, value string) {
	name, value = textproto.CanonicalMIMEHeaderKey(name), oneLine.Replace(value)
	for i := range v.fields {
		if v.fields[i].name == name {
			v.fields = slices.Clone(v.fields) // it may be shared
			v.fields[i].value = value
			return
		}
	}
	v.fields = append(slices.Clip(v.fields), field{name, value})
}
