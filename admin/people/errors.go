package people

import (
	"errors"
	"fmt"
	"time"
)

// The errors of Authenticate for somebody who is not known.
var (
	// ErrNobody reports that a request has neither a session nor a token, or a session that has ended.
	ErrNobody = errors.New("nobody is logged in; log in, or send a token as \"Authorization: Bearer weir_...\"")
	// ErrToken reports a token that is unknown or has ended, or whose maker has no rights any more.
	ErrToken = errors.New("the token is unknown or has ended; make another one")
)

// CrossSiteError reports a request that changes something with a session, and of which no browser says that it comes
// from a page of this server.
type CrossSiteError struct{ found string }

func (e *CrossSiteError) Error() string {
	return "found " + e.found + " in a request with a session; " +
		"send it from a page of this server, in a browser that sends Sec-Fetch-Site or Origin, or use a token"
}

// TooManyError reports that an address has made too many attempts to enter.
type TooManyError struct{ RetryAfter time.Duration }

func (e *TooManyError) Error() string {
	return fmt.Sprintf("more attempts to enter than %s came from this address; try again in %s",
		ofAddress, e.RetryAfter.Round(time.Second))
}

// Wait returns the time until the address may try again.
func (e *TooManyError) Wait() time.Duration { return e.RetryAfter }

// InvalidError reports something that cannot be written as it was given.
type InvalidError struct{ Err error }

func (e *InvalidError) Error() string { return e.Err.Error() }

// Unwrap returns the mistake.
func (e *InvalidError) Unwrap() error { return e.Err }

func invalid(format string, args ...any) error { return &InvalidError{fmt.Errorf(format, args...)} }

// StaleError reports that grants were changed since they were read.
type StaleError struct{ Expected, Current int64 }

func (e *StaleError) Error() string {
	return fmt.Sprintf("revision %d of the grants is stale: %d is current; read them and try again", e.Expected, e.Current)
}

// LastAdminError reports a change after which nobody would be an admin.
type LastAdminError struct{}

func (*LastAdminError) Error() string {
	return "after this change nobody would be an admin without an end; make another person one first"
}

// NotFoundError reports something that is not there, or not any more.
type NotFoundError struct{ What string }

func (e *NotFoundError) Error() string { return "there is no " + e.What + "; it may have been deleted" }
