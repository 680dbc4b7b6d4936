package guard

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard/internal/accept"
	"github.com/weir-go/weir/keyfunc"
)

// Statuses are plain integers here, so that guard needs no HTTP package.
const (
	statusOK                 = 200
	statusForbidden          = 403
	statusTooManyRequests    = 429
	statusServiceUnavailable = 503
)

// RejectOptions are the options of [Reject]. The zero value is a good choice.
type RejectOptions struct {
	// Status is that of a request over its limit, from 400 to 599; 0 means 429.
	Status int
	// Body, unless empty, is the answer to every request over its limit, whatever the client accepts.
	Body string
	// Header are further headers, of every answer, but none for caches: no refusal may be kept. Content-Type is that of
	// Body; without it, Body is plain text.
	Header map[string]string
}

// Reject refuses: with 429 over the limit, with 503 where the store failed and the policy fails closed, and with 403
// where there is no key. It is the default, and costs less than any other handler, so that an attack is cheap to
// refuse.
//
// The body has the form that the client accepts: plain text unless it asks for application/json or
// application/problem+json (RFC 9457, with the problem types of the IETF's RateLimit headers). It reveals the policy's
// name and nothing else. A call of gRPC, which is a POST over HTTP/2, gets an answer that its library understands: the
// status 200 with RESOURCE_EXHAUSTED over the limit, UNAVAILABLE where the store failed, PERMISSION_DENIED without a
// key.
func Reject(o RejectOptions) OverLimit { return newReject(o) }

func newReject(o RejectOptions) *reject {
	if o.Status == 0 {
		o.Status = statusTooManyRequests
	}
	r := &reject{status: o.Status, body: []byte(o.Body)}
	r.err = r.check(o)
	var more []field
	contentType := field{headerType, accept.TypeText}
	for _, name := range slices.Sorted(maps.Keys(o.Header)) {
		f := field{textproto.CanonicalMIMEHeaderKey(name), o.Header[name]}
		if f.name == headerType {
			contentType = f
		} else {
			more = append(more, f)
		}
	}
	for k := range causes {
		for f := range formats {
			r.fields[k][f] = slices.Clip(append(k.fields(f), more...))
		}
	}
	r.own = slices.Clip(append([]field{contentType}, more...))
	return r
}

// reject has all its answers prepared, except the names of the policies in the bodies.
type reject struct {
	status int
	fields [causes][formats][]field
	body   []byte  // for all that is over the limit, unless it is empty
	own    []field // of that body
	err    error
}

func (r *reject) String() string { return fmt.Sprintf("reject(%d)", r.status) }

// Err reports the mistakes in the options to New.
func (r *reject) Err() error { return r.err }

func (r *reject) check(o RejectOptions) error {
	var mistakes []error
	if o.Status < 400 || o.Status > 599 {
		mistakes = append(mistakes, fmt.Errorf("RejectOptions.Status is %d; give 400 to 599, or 0 for 429", o.Status))
	}
	for _, name := range slices.Sorted(maps.Keys(o.Header)) {
		switch value := o.Header[name]; {
		case !isToken(name):
			mistakes = append(mistakes, fmt.Errorf("RejectOptions.Header: %q is not the name of a header; give letters, digits and \"-\", such as \"X-Reason\"", name))
		case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
			mistakes = append(mistakes, fmt.Errorf("RejectOptions.Header[%q] is %q; a header is one line of text", name, value))
		case forCaches(textproto.CanonicalMIMEHeaderKey(name)):
			mistakes = append(mistakes, fmt.Errorf("RejectOptions.Header[%q] is for caches, which must not keep a refusal: Cache-Control is \"no-store\"; leave it out", name))
		case strings.EqualFold(name, headerType) && o.Body == "":
			mistakes = append(mistakes, fmt.Errorf("RejectOptions.Header[%q] is the type of Body, which is empty; give both or neither", name))
		}
	}
	typed := slices.ContainsFunc(slices.Collect(maps.Keys(o.Header)), func(name string) bool { return strings.EqualFold(name, headerType) })
	if body := strings.TrimSpace(o.Body); !typed && body != "" && strings.ContainsRune("{[<", rune(body[0])) {
		mistakes = append(mistakes, fmt.Errorf("RejectOptions.Body begins with %q, as JSON or HTML does, and without a Content-Type it is plain text; give one in Header, such as \"application/json\"", body[:1]))
	}
	return errors.Join(mistakes...)
}

// isToken reports whether name can be that of a header, as RFC 9110 has it.
func isToken(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}

// format is the form of an answer.
type format uint8

const (
	asText    = format(accept.Text)
	asJSON    = format(accept.JSON)
	asProblem = format(accept.Problem)
)

const (
	asGRPC   format = iota + asProblem + 1
	asNative        // by the program's handler, which sets the type itself
	formats
)

// cause is a reason to refuse a request.
type cause uint8

const (
	isOver      cause = iota
	isNever           // its cost never fits
	isNoKey           // it has no key
	isNoStore         // the store failed
	isUndecided       // nothing was decided for another reason, such as a client that left
	causes
)

// overLimit reports whether a request was refused by its limit: not because nothing could be decided.
func overLimit(res *core.Result, err error) bool {
	return err == nil || res.Local || res.Outcome == core.Never
}

// undecided returns why nothing was decided.
func undecided(err error) cause {
	var failed *core.StoreError
	if errors.As(err, &failed) {
		return isNoStore
	}
	if errors.Is(err, keyfunc.ErrNoKey) {
		return isNoKey
	}
	return isUndecided
}

// statuses are those of the answers, or 0 where the handler has its own.
var statuses = [causes]int{isNoKey: statusForbidden, isNoStore: statusServiceUnavailable, isUndecided: statusServiceUnavailable}

func (k cause) text() string {
	switch k {
	case isOver:
		return "too many requests"
	case isNever:
		return "this request costs more than its rate limit ever admits at once"
	case isNoKey:
		return "this request does not say who sent it, which its rate limit asks for"
	default:
		return "the rate limiter cannot decide at the moment"
	}
}

// grpc is the status code of gRPC.
func (k cause) grpc() string {
	switch k {
	case isOver, isNever:
		return "8" // RESOURCE_EXHAUSTED
	case isNoKey:
		return "7" // PERMISSION_DENIED
	default:
		return "14" // UNAVAILABLE
	}
}

// fields are the headers of an answer.
func (k cause) fields(f format) (fields []field) {
	switch f {
	case asText, asJSON, asProblem:
		fields = []field{{headerType, []string{asText: accept.TypeText, asJSON: accept.TypeJSON, asProblem: accept.TypeProblem}[f]}, {headerVary, "Accept"}}
	case asNative, formats: // another handler's
	case asGRPC: // an answer without a body has its trailers in the header
		fields = []field{{headerType, "application/grpc"}, {"Grpc-Status", k.grpc()}, {"Grpc-Message", k.text()}}
	}
	if k == isNoStore {
		fields = append(fields, field{headerRetryAfter, "1"})
	}
	return fields
}

// bodies are the bodies of the answers for one policy, which they name.
type bodies struct {
	each [causes][formats][]byte
	// problems are those of application/problem+json over the limit, for each set of the limits that refuse, as bits. They
	// name the limits as RateLimit does. There are none for a policy of one limit.
	problems [isNever + 1][][]byte
}

// nameless are the bodies for a Refusal that is not a Guard's.
var nameless = newBodies("", nil)

// problem is a body of application/problem+json, as RFC 9457 has it; or, with reason, one of plain JSON.
type problem struct {
	reason, policy, uri, title, detail string
	policies                           []string
}

// newBodies prepares the bodies of a policy, whose limits are called names. The types and titles are those of
// draft-ietf-httpapi-ratelimit-headers.
func newBodies(policy string, names []string) *bodies {
	b := new(bodies)
	for k := range causes {
		p := problem{detail: k.text(), policies: names}
		switch k {
		case isOver, isNever:
			p.uri, p.title = "https://iana.org/assignments/http-problem-types#quota-exceeded", "Request cannot be satisfied as assigned quota has been exceeded"
		case isNoKey:
			p.uri, p.title, p.policies = "about:blank", "Forbidden", nil
		default:
			p.uri, p.title = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity", "Request cannot be satisfied due to temporary server capacity constraints"
		}
		b.each[k][asText] = []byte(k.text() + "\n")
		b.each[k][asNative] = b.each[k][asText]
		b.each[k][asJSON] = problem{reason: k.text(), policy: policy}.line()
		b.each[k][asProblem] = p.line()
		if k > isNever || len(names) < 2 {
			continue
		}
		b.problems[k] = make([][]byte, 1<<len(names))
		b.problems[k][0] = b.each[k][asProblem] // no limit refuses by itself, such as where there is no place to wait in
		for set := 1; set < len(b.problems[k]); set++ {
			p.policies = nil
			for i, name := range names {
				if set&(1<<i) != 0 {
					p.policies = append(p.policies, name)
				}
			}
			b.problems[k][set] = p.line()
		}
	}
	return b
}

// problem returns the body for a request over the limits that refuse.
func (b *bodies) problem(k cause, res *core.Result) []byte {
	set := 0
	for i := range core.MaxLimits {
		if l := res.Each(i); l.Refused && (k == isOver || l.Never) {
			set |= 1 << i
		}
	}
	return b.problems[k][set&(len(b.problems[k])-1)]
}

// line is the JSON of a problem on a line, without what is empty. All of it is printable ASCII, which strconv quotes as
// JSON does. encoding/json would add 100 KB to programs that have no other use for it.
func (p problem) line() []byte {
	var text []byte
	for _, field := range []struct{ name, value string }{
		{"error", p.reason}, {"policy", p.policy}, {"type", p.uri}, {"title", p.title}, {"detail", p.detail},
	} {
		if field.value != "" {
			text = append(strconv.AppendQuote(append(text, ','), field.name), ':')
			text = strconv.AppendQuote(text, field.value)
		}
	}
	for i, policy := range p.policies {
		text = append(text, [...]string{`,"violated-policies":[`, ","}[min(i, 1)]...)
		text = strconv.AppendQuote(text, policy)
	}
	if len(p.policies) > 0 {
		text = append(text, ']')
	}
	text[0] = '{' // which was a comma
	return append(text, "}\n"...)
}

// plain is the default handler.
var plain = newReject(RejectOptions{})

// Serve implements OverLimit.
func (r *reject) Serve(x *Refusal) (v Verdict) {
	b := x.bodies
	if b == nil {
		b = nameless
	}
	v.Status, v.Body, v.fields = r.answer(x.Request, asText, b, &x.Result, x.Err)
	return v
}

// answer does not allocate: refusals are the attack. q may be nil, and f is the format unless q asks for another.
func (r *reject) answer(q keyfunc.Request, f format, b *bodies, res *core.Result, err error) (status int, body []byte, fields []field) {
	k := isOver
	switch {
	case res.Outcome == core.Never:
		k = isNever
	case err != nil && !res.Local:
		k = undecided(err)
	}
	if q != nil {
		// What merely claims the type of gRPC gets the status of a refusal, which access logs and bans go by. A call of
		// gRPC-Web does too: its clients understand it.
		if q.ProtoMajor() == 2 && accept.IsGRPC(q.Header(headerType)) && q.Method() == "POST" {
			return statusOK, nil, r.fields[k][asGRPC]
		}
		if lines := q.Header(headerAccept); len(lines) > 0 {
			f = format(accept.Negotiate(lines))
		}
	}
	if k <= isNever && len(r.body) > 0 {
		return r.status, r.body, r.own
	}
	body = b.each[k][f]
	if f == asProblem && k <= isNever && b.problems[k] != nil {
		body = b.problem(k, res)
	}
	return cmp.Or(statuses[k], r.status), body, r.fields[k][f]
}
