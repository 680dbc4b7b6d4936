package page

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/internal/adminapi"
)

// errNoPage is that of an address that leads nowhere.
var errNoPage = &adminapi.Problem{
	Status: http.StatusNotFound, Title: "There is no such page",
	Detail: "The address may be misspelt, or you may lack the right to see what it names.",
}

// failure has the values of the screen of an error.
type failure struct {
	Status int
	Title  string
	Detail string
	Errors []adminapi.Mistake
	// Again has the fields of a form that was sent, so that nothing that was typed is lost: they may be sent to Path again.
	Again []field
	Path  string
	// Entry says that somebody has to log in first.
	Entry bool
}

type field struct{ Name, Value string }

// fail answers with what is wrong.
func (s *server) fail(v *visit, err error) {
	p := s.problem(v, err)
	entry := p.Status == http.StatusUnauthorized
	if entry && v.r.Method == http.MethodGet {
		s.sendIn(v)
		return
	}
	f := failure{Status: p.Status, Title: p.Title, Detail: p.Detail, Errors: p.Errors, Entry: entry}
	for _, c := range p.CannotUse {
		f.Errors = append(f.Errors, adminapi.Mistake{Message: c.String()})
	}
	if f.Title == "" {
		f.Title = http.StatusText(p.Status)
	}
	// Only what a page of this server has sent is offered again, or else another site could put words into a form here.
	if v.r.Method == http.MethodPost && v.r.Header.Get("Sec-Fetch-Site") == "same-origin" &&
		(entry || p.Status >= http.StatusInternalServerError || p.Status == http.StatusTooManyRequests) && formOf(v.r) == nil {
		f.Path = v.r.URL.Path
		for _, name := range slices.Sorted(maps.Keys(v.r.PostForm)) {
			for _, value := range v.r.PostForm[name] {
				f.Again = append(f.Again, field{name, value})
			}
		}
	}
	if v.fragment() {
		err = s.part(v, "failure", "live-failure", map[string]any{"F": f, "Live": withoutHave(v.r.URL)})
	} else {
		err = s.show(v, p.Status, "failure", frame{Title: f.Title, Body: f})
	}
	if err != nil {
		s.Log.ErrorContext(v.r.Context(), "page: cannot show a failure", "err", err)
		http.Error(v.w, "internal error", http.StatusInternalServerError)
	}
}

// problem returns what people see of an error of the inside, which the log has.
func (s *server) problem(v *visit, err error) *adminapi.Problem {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return &adminapi.Problem{
			Status: http.StatusRequestEntityTooLarge, Title: "That is too much",
			Detail: "A form may send 1 MiB. Larger policies go through weir apply.",
		}
	case errors.Is(err, context.Canceled):
		return &adminapi.Problem{Status: http.StatusServiceUnavailable, Title: "The request was given up"}
	}
	var many *people.TooManyError
	var crossSite *people.CrossSiteError
	switch {
	case errors.Is(err, people.ErrNobody), errors.Is(err, people.ErrToken):
		return &adminapi.Problem{Status: http.StatusUnauthorized, Title: "You are logged out", Detail: "The session has ended."}
	case errors.As(err, &many):
		v.w.Header().Set("Retry-After", strconv.Itoa(int(many.RetryAfter/time.Second)+1))
		return &adminapi.Problem{Status: http.StatusTooManyRequests, Title: "Too many attempts", Detail: many.Error()}
	case errors.As(err, &crossSite):
		return &adminapi.Problem{Status: http.StatusForbidden, Title: "That came from another site", Detail: crossSite.Error()}
	}
	p := manage.Problem(err)
	if p.Status < http.StatusInternalServerError {
		return p
	}
	s.Log.ErrorContext(v.r.Context(), "page: a screen has failed", "path", v.r.URL.Path, "err", err)
	if p.Status == http.StatusInternalServerError { // what it says is for the log alone
		return &adminapi.Problem{
			Status: p.Status, Title: "Something went wrong here", Detail: "The log of the server says what.",
		}
	}
	return p
}

// sendIn leads somebody to the entry, and from there back.
func (s *server) sendIn(v *visit) {
	back := v.r.URL.Path
	entry := "/login?" + url.Values{"next": {back}}.Encode()
	if v.fragment() { // the whole page goes there
		v.w.Header().Set("Hx-Redirect", entry)
		v.w.WriteHeader(http.StatusNoContent)
		return
	}
	v.goTo(entry)
}

// withoutHave returns the path of a live part, which then answers in full.
func withoutHave(u *url.URL) string {
	query := u.Query()
	query.Del("have")
	return addressOf(u.EscapedPath(), query)
}
