package guard

import (
	"net/textproto"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/weir-go/weir/core"
)

// Action says what an adapter does next with a request.
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

// Verdict is the decision of a [Guard]: set the headers, then act, then call Finish. The zero Verdict refuses. Over-limit
// handlers build one from Action, Status, Body, Native and SetField; the Guard fills in the rest.
type Verdict struct {
	// Action says what to do next.
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
	// Err says why the Result is not the store's; see [Event].
	Err error

	fields   []field
	members  []member // of RateLimit and RateLimit-Policy
	guard    *Guard
	rule     *rule // whose Result it is
	owed     *owed // nil if nothing is
	traced   bool  // the handler gets a context in which an inner guard may find the rule
	degraded bool
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

// Final is how a request ended.
type Final struct {
	// Status is the answer's status code. It is that of a returned error where the framework writes it only later,
	// and 500 after a panic that nobody has answered yet. So is that of an error which says no status, whatever the
	// program's own error handler makes of it later: look at Err.
	Status int
	// Err is the error that the handler has returned, in a framework that has them.
	Err error
	// Bytes is the size of the answer's body, or -1 if unknown.
	Bytes int64
	// Panicked reports whether the handler panicked.
	Panicked bool
	// Reported is the sum of what the handler reported, by [Report], or -1 if it reported nothing.
	Reported int64

	reads *atomic.Bool // set by Reported, if it is called by the Settle of a rule
}
