package adminapi

import (
	"fmt"
	"strings"
)

// ProblemType is the content type of a [Problem].
const ProblemType = "application/problem+json"

// Problem answers a request that is refused (RFC 9457).
type Problem struct { //nolint:errname // the name that RFC 9457 gives it
	// Type names the kind of the problem: one of the types of this package.
	Type   string    `json:"type,omitempty"`
	Title  string    `json:"title,omitempty"`
	Status int       `json:"status"`
	Detail string    `json:"detail,omitempty"`
	Errors []Mistake `json:"errors,omitempty"`
	// Current is the revision that holds, of a change that expected another one (status 412).
	Current int64 `json:"current,omitempty"`
	// Held is the policy that holds, of a change of one policy that expected another revision.
	Held *Held `json:"held,omitempty"`
	// CannotUse lists the rules that could not use what was sent (status 422). "?force=true" writes it all the same.
	CannotUse []CannotUse `json:"cannotUse,omitempty"`
}

// The types of problems.
const (
	types = "https://github.com/weir-go/weir/blob/main/docs/admin.md#problem-"

	TypeNotFound    = types + "not-found"   // 404: there is none, or the person may not know
	TypeNobody      = types + "nobody"      // 401: it is not known who sends the request
	TypeForbidden   = types + "forbidden"   // 403: the person may see it, and not do this
	TypeNoRevision  = types + "no-revision" // 428: the request does not say which revision it changes
	TypeStale       = types + "stale"       // 412: another revision holds
	TypeNoReason    = types + "no-reason"   // 422: the request has no reason
	TypeInvalid     = types + "invalid"     // 422: there are mistakes in what was sent
	TypeCannotUse   = types + "cannot-use"  // 422: services could not use it
	TypeTaken       = types + "taken"       // 409: something else has the name, or is in the way
	TypeUnavailable = types + "unavailable" // 503: the database or Redis does not answer, or too many requests are under way
	TypeUnknown     = types + "unknown"     // 503: it is not known whether the change was written
	TypeTooMany     = types + "too-many"    // 429: the token or address has sent too many requests
)

// Mistake is one of several in what was sent.
type Mistake struct {
	Location string `json:"location,omitempty"` // as in "policies.api.text"
	Message  string `json:"message"`
	// Column is the character of a policy's text at which it is, from 1 on, or 0.
	Column int `json:"column,omitempty"`
}

// Error returns the detail of p, and each mistake on a line of its own.
func (p *Problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d", p.Status)
	if text := p.Detail; text != "" {
		fmt.Fprintf(&b, ": %s", text)
	} else if p.Title != "" {
		fmt.Fprintf(&b, ": %s", p.Title)
	}
	for _, m := range p.Errors {
		b.WriteString("\n  ")
		if m.Location != "" {
			b.WriteString(m.Location + ": ")
		}
		b.WriteString(m.Message)
	}
	for _, c := range p.CannotUse {
		b.WriteString("\n  " + c.String())
	}
	return b.String()
}

// String returns c as a line of text, in which what a service said of itself is quoted.
func (c CannotUse) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "policy %q", c.Policy)
	if c.Entry != "" {
		fmt.Fprintf(&b, ", %s", c.Entry)
	}
	if c.Process != "" {
		fmt.Fprintf(&b, ", in process %q of %s", c.Process, c.App)
	}
	fmt.Fprintf(&b, ": %s", c.Why)
	return b.String()
}

// GetStatus returns the status of the response.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType returns the content type of the response.
func (p *Problem) ContentType(string) string { return ProblemType }
