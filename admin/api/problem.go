package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"path"

	"github.com/danielgtaylor/huma/v2"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/internal/adminapi"
)

func init() { //nolint:gochecknoinits // huma has one function for all APIs of a program
	huma.NewError = newError
}

// newError returns what huma has found wrong in a request, without the values that were sent: there may be secrets
// among them, and an answer is logged and copied.
func newError(status int, detail string, errs ...error) huma.StatusError {
	p := &adminapi.Problem{Title: http.StatusText(status), Status: status, Detail: detail}
	for _, err := range errs {
		var at huma.ErrorDetailer
		switch {
		case err == nil:
		case errors.As(err, &at):
			d := at.ErrorDetail()
			p.Errors = append(p.Errors, adminapi.Mistake{Location: d.Location, Message: d.Message})
		default:
			p.Errors = append(p.Errors, adminapi.Mistake{Message: err.Error()})
		}
	}
	return manage.Problem(p) // with the type of its status
}

func writeProblem(w http.ResponseWriter, p *adminapi.Problem) {
	w.Header().Set("Content-Type", adminapi.ProblemType)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client is gone
}

// problems lets a mux answer problems where it would answer plain text: paths that it does not know (404), and methods
// that a path has not (405).
func problems(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern != "" && path.Clean(r.URL.Path) == r.URL.Path {
			mux.ServeHTTP(w, r)
			return
		}
		plain := &plainText{header: http.Header{}, status: http.StatusOK}
		mux.ServeHTTP(plain, r)
		switch plain.status {
		case http.StatusMethodNotAllowed:
			w.Header().Set("Allow", plain.header.Get("Allow"))
			refuse(w, plain.status, "this path has not this method; it has "+plain.header.Get("Allow"))
		case http.StatusNotFound:
			refuse(w, plain.status, "there is no such path; "+adminapi.PathOpenAPI+" lists all of them")
		default: // a redirect to the path without dots
			refuse(w, http.StatusNotFound, "this path is written in another way than it is known; write it without dots and empty parts")
		}
	})
}

// plainText is the answer of a mux that has no route.
type plainText struct {
	header http.Header
	status int
}

func (p *plainText) Header() http.Header         { return p.header }
func (p *plainText) WriteHeader(status int)      { p.status = status }
func (p *plainText) Write(b []byte) (int, error) { return len(b), nil }
