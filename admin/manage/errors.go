package manage

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// RightError reports that a person may not do something.
type RightError struct {
	Verdict rights.Verdict // Hidden or Forbidden
	Action  rights.Action
	App     string // the first app that does not allow it, "" if it concerns none
}

func (e *RightError) Error() string {
	switch {
	case e.Verdict == rights.Hidden && e.App != "":
		return (&record.NotFoundError{App: e.App}).Error() // as if there were none
	case e.App != "":
		return fmt.Sprintf("you may see app %q, and may not %q there; an owner of it can give you the right", e.App, e.Action)
	}
	return fmt.Sprintf("only admins may %q", e.Action)
}

// Errors of calls that say too little.
var (
	ErrNoRevision = errors.New("the revision that the change replaces is missing; give the one that was read")
	ErrNoReason   = errors.New("a reason is missing; give one, for those who read the audit")
)

// ErrNotYet reports that a part of this package is not built yet.
var ErrNotYet = errors.New("manage: this is not built yet")

// refusal returns a problem of the call itself.
func refusal(status int, format string, args ...any) error {
	return &adminapi.Problem{Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

// Problem returns an error of a Manager as the API answers it. Its status also tells the page which kind it is.
func Problem(err error) *adminapi.Problem {
	var already *adminapi.Problem
	var right *RightError
	var missing *record.NotFoundError
	var stale *record.StaleError
	var taken *record.TakenError
	var invalid *record.InvalidError
	var form *record.FormError
	var unavailable *sqldb.UnavailableError
	p := &adminapi.Problem{Detail: err.Error()}
	switch {
	case errors.As(err, &already):
		return already
	case errors.As(err, &right):
		p.Status = http.StatusForbidden
		if right.Verdict == rights.Hidden {
			p.Status = http.StatusNotFound
		}
	case errors.Is(err, ErrNoRevision):
		p.Status = http.StatusPreconditionRequired
	case errors.Is(err, ErrNoReason):
		p.Status = http.StatusUnprocessableEntity
	case errors.Is(err, ErrNotYet):
		p.Status = http.StatusNotImplemented
	case errors.As(err, &missing):
		p.Status = http.StatusNotFound
	case errors.As(err, &stale):
		p.Status, p.Current = http.StatusPreconditionFailed, stale.Current
		if stale.Expected == NoRevision {
			p.Detail = fmt.Sprintf("none of the given revisions is current; %d is; read it and try again", stale.Current)
		}
	case errors.As(err, &taken):
		p.Status = http.StatusConflict
	case errors.As(err, &invalid):
		p.Status = http.StatusUnprocessableEntity
		p.Errors = mistakes(err)
		if len(p.Errors) > 0 {
			p.Detail = "the policies have mistakes, and nothing was changed; mend each of them"
		}
	case errors.As(err, &form):
		p.Status = http.StatusUnprocessableEntity
		for _, no := range form.CannotUse {
			p.CannotUse = append(p.CannotUse, adminapi.CannotUse(no))
		}
	case errors.As(err, &unavailable), errors.Is(err, sqldb.ErrUnknown):
		p.Status = http.StatusServiceUnavailable
	default:
		p.Status = http.StatusInternalServerError
	}
	p.Title = http.StatusText(p.Status)
	return p
}

// maxMistakes bounds what an answer lists.
const maxMistakes = 100

// mistakes lists those of a document or policy.
func mistakes(err error) []adminapi.Mistake {
	var found policies.Mistakes
	if !errors.As(err, &found) {
		return nil
	}
	var list []adminapi.Mistake
	for i, m := range found {
		if i == maxMistakes {
			break
		}
		location := m.Path
		m.Path = ""
		list = append(list, adminapi.Mistake{Location: location, Message: m.Error()})
	}
	return list
}
