package core

import "fmt"

// Failure is the fail word of a policy: it chooses the decision while the store does not answer. A guard never answers
// the failure itself with a 429, which would blame the caller.
type Failure uint8

// The fail words.
const (
	// FailLocal, "fail local": an in-process store decides with the same policy, or with
	// a share of its limits; see PolicyOptions.Processes. Each process then counts for itself.
	// This is the default.
	FailLocal Failure = iota
	// FailOpen, "fail open": everything passes, uncounted. For limits that
	// protect nothing but comfort.
	FailOpen
	// FailClosed, "fail closed": everything is refused, with status 503. For
	// limits that must hold, such as on guessing passwords.
	FailClosed
)

// String returns the word as the grammar has it: "local", "open" or "closed".
func (f Failure) String() string {
	switch f {
	case FailLocal:
		return "local"
	case FailOpen:
		return "open"
	case FailClosed:
		return "closed"
	default:
		return fmt.Sprintf("Failure(%d)", uint8(f))
	}
}
