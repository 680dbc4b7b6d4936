package manage

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"unicode/utf8"

	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// RightError reports that a person may not do something.
type RightError struct {
	Verdict rights.Verdict // Hidden or Forbidden
	Action  rights.Action
	App     string // the first app that does not allow it, "" if it concerns none
	Lent    string // the policy that another app uses as well, which does not allow it, or ""
}

func (e *RightError) Error() string {
	switch {
	case e.Lent != "":
		return fmt.Sprintf("another app uses the policy %q of app %q, and you may not %q there; ask an owner of both", e.Lent, e.App, e.Action)
	case e.Verdict == rights.Hidden && e.App != "":
		return (&record.NotFoundError{App: e.App}).Error() // as if there were none
	case e.App != "" && !onlyAdmins(e.Action):
		return fmt.Sprintf("you may see app %q, and may not %q there; an owner of it can give you the right", e.App, e.Action)
	}
	return fmt.Sprintf("only admins may %q", e.Action)
}

// onlyAdmins reports whether no role in an app is enough for an action.
func onlyAdmins(a rights.Action) bool {
	return slices.ContainsFunc(rights.Table(), func(r rights.Right) bool { return r.Action == a && r.Least == rights.Admin })
}

// Errors of calls that say too little.
var (
	ErrNoRevision = errors.New("the revision that the change replaces is missing; give the one that was read")
	ErrNoReason   = errors.New("the reason is missing; give one, for those who read the audit")
)

// refusal returns a problem of the call itself.
func refusal(status int, format string, args ...any) error {
	return &adminapi.Problem{Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

// Problem returns an error of a Manager as the API answers it. Its status also tells the page which kind it is. What a
// database or a bug says is left out, since names of servers and contents of tables may be in it: a caller that answers
// with a status of 500 or more logs the error.
func Problem(err error) *adminapi.Problem {
	var already *adminapi.Problem
	var right *RightError
	var missing *record.NotFoundError
	var stale *record.StaleError
	var taken *record.TakenError
	var invalid *record.InvalidError
	var form *record.FormError
	var unavailable *sqldb.UnavailableError
	var unwritable *people.InvalidError
	var staleGrants *people.StaleError
	var gone *people.NotFoundError
	var crossSite *people.CrossSiteError
	var tooMany *people.TooManyError
	p := &adminapi.Problem{Detail: err.Error()}
	set := func(status int, kind string) { p.Status, p.Type = status, kind }
	switch {
	case errors.As(err, &already):
		*p = *already // several share one
		if p.Type == "" {
			p.Type = typeOf[p.Status]
		}
		return p
	case errors.As(err, &right):
		set(http.StatusForbidden, adminapi.TypeForbidden)
		if right.Verdict == rights.Hidden {
			set(http.StatusNotFound, adminapi.TypeNotFound)
		}
	case errors.Is(err, ErrNoRevision):
		set(http.StatusPreconditionRequired, adminapi.TypeNoRevision)
	case errors.Is(err, ErrNoReason):
		set(http.StatusUnprocessableEntity, adminapi.TypeNoReason)
	case errors.As(err, &missing):
		set(http.StatusNotFound, adminapi.TypeNotFound)
	case errors.As(err, &stale):
		set(http.StatusPreconditionFailed, adminapi.TypeStale)
		p.Current = stale.Current
		if stale.Expected == NoRevision {
			p.Detail = fmt.Sprintf("none of the given revisions is current; %d is; read it and try again", stale.Current)
		}
	case errors.As(err, new(*record.KeptError)), errors.As(err, new(*record.DecidedError)), errors.As(err, new(*record.LapsedError)):
		set(http.StatusConflict, adminapi.TypeTaken)
	case errors.As(err, &taken):
		set(http.StatusConflict, adminapi.TypeTaken)
	case errors.As(err, &invalid):
		set(http.StatusUnprocessableEntity, adminapi.TypeInvalid)
		p.Errors = mistakes(err)
		if len(p.Errors) > 0 {
			p.Detail = "the policies have mistakes, and nothing was changed; mend each of them"
		}
	case errors.As(err, &form):
		set(http.StatusUnprocessableEntity, adminapi.TypeCannotUse)
		for _, no := range form.CannotUse {
			p.CannotUse = append(p.CannotUse, adminapi.CannotUse(no))
		}
	case errors.As(err, &unwritable):
		set(http.StatusUnprocessableEntity, adminapi.TypeInvalid)
	case errors.As(err, &staleGrants):
		set(http.StatusPreconditionFailed, adminapi.TypeStale)
		p.Current = staleGrants.Current
	case errors.As(err, new(*people.LastAdminError)):
		set(http.StatusConflict, adminapi.TypeTaken)
	case errors.As(err, &gone):
		set(http.StatusNotFound, adminapi.TypeNotFound)
	case errors.As(err, &crossSite):
		set(http.StatusForbidden, adminapi.TypeForbidden)
	case errors.As(err, &tooMany):
		set(http.StatusTooManyRequests, adminapi.TypeTooMany)
	case errors.Is(err, people.ErrNobody), errors.Is(err, people.ErrToken):
		set(http.StatusUnauthorized, adminapi.TypeNobody)
	case errors.Is(err, sqldb.ErrUnknown):
		set(http.StatusServiceUnavailable, adminapi.TypeUnknown)
		p.Detail = sqldb.ErrUnknown.Error()
	case errors.As(err, &unavailable):
		set(http.StatusServiceUnavailable, adminapi.TypeUnavailable)
		p.Detail = "the database does not answer as it should, and nothing was written; try again"
	default:
		p.Status = http.StatusInternalServerError
		p.Detail = "something went wrong here; the log of the server says what"
	}
	p.Title = http.StatusText(p.Status)
	return p
}

// typeOf has the types of problems that have no other.
var typeOf = map[int]string{
	http.StatusForbidden: adminapi.TypeForbidden, http.StatusNotFound: adminapi.TypeNotFound, http.StatusConflict: adminapi.TypeTaken,
	http.StatusUnprocessableEntity: adminapi.TypeInvalid, http.StatusServiceUnavailable: adminapi.TypeUnavailable,
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
		location, column := m.Path, 0
		if unread := new(core.SyntaxError); errors.As(m.Err, &unread) {
			column = utf8.RuneCountInString(unread.Text[:min(unread.Offset, len(unread.Text))]) + 1
		}
		m.Path = ""
		list = append(list, adminapi.Mistake{Location: location, Message: m.Error(), Column: column})
	}
	return list
}
