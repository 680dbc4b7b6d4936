package api

import (
	"errors"
	"net/http"

	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// problem returns an error as the API answers it.
func problem(err error) *adminapi.Problem {
	var already *adminapi.Problem
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
	case errors.As(err, &missing):
		p.Status = http.StatusNotFound
	case errors.As(err, &stale):
		p.Status, p.Current = http.StatusPreconditionFailed, stale.Current
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

// refusal returns a problem of the request itself.
func refusal(status int, detail string) error {
	return &adminapi.Problem{Title: http.StatusText(status), Status: status, Detail: detail}
}
