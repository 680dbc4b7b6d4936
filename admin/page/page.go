package page

import (
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weir-go/weir/admin/rights"
)

// Options are those of New.
type Options struct {
	Manager Manager
	// Authenticate returns the person who sends a request, or an error.
	Authenticate func(*http.Request) (*rights.Person, error)
	// Entry serves the paths by which people log in and out: people.Handler. Its pages are those of the function [Entry].
	Entry http.Handler
	// Demo shows on each page that nothing of it is real.
	Demo bool
	// Log receives what goes wrong inside. Nil is slog.Default.
	Log *slog.Logger
	// Now returns the time. Nil is time.Now.
	Now func() time.Time
}

// New returns the handler of all pages.
func New(o Options) (http.Handler, error) {
	switch {
	case o.Manager == nil:
		return nil, errors.New("page: Options.Manager is nil")
	case o.Authenticate == nil:
		return nil, errors.New("page: Options.Authenticate is nil")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &server{Options: o}
	mux := http.NewServeMux()
	for _, route := range Routes() {
		mux.Handle(route, s.screen(screens[route]))
	}
	mux.HandleFunc("GET /static/", serveStatic)
	if o.Entry != nil {
		for _, path := range []string{"/login", "/login/", "/logout", "/link"} {
			mux.Handle(path, o.Entry)
		}
	}
	mux.Handle("/", s.screen(func(*server, *visit) error { return errNoPage }))
	return Protect(mux), nil
}

// screens are the screens by their routes. A route without rights for everybody needs a row in the table of rights:
// package rightstest fails without it.
var screens = map[string]screen{
	"GET /{$}":     (*server).home,
	"POST /search": (*server).search,

	"GET /apps/{app}":           (*server).app,
	"POST /apps/{app}/rollback": (*server).rollbackApp,

	"GET /apps/{app}/new":                     (*server).newPolicy,
	"GET /apps/{app}/policies/{name}":         (*server).policy,
	"POST /apps/{app}/policies/{name}/check":  (*server).check,
	"POST /apps/{app}/policies/{name}/edit":   (*server).edit,
	"POST /apps/{app}/policies/{name}/review": (*server).review,
	"POST /apps/{app}/policies/{name}/write":  (*server).write,
	"POST /apps/{app}/policies/{name}/trial":  (*server).trial,

	"POST /apps/{app}/key":         (*server).lookAt,
	"POST /apps/{app}/key/reset":   (*server).resetKey,
	"POST /apps/{app}/key/numbers": (*server).numbersOfKey,

	"GET /changes":         (*server).changes,
	"POST /changes/seen":   (*server).seen,
	"POST /proposals/{id}": (*server).decide,

	"GET /settings":                    (*server).settings,
	"POST /settings/tokens":            (*server).makeToken,
	"POST /settings/tokens/end":        (*server).endToken,
	"POST /settings/people":            (*server).somebody,
	"POST /settings/apps":              (*server).addApp,
	"GET /settings/apps/{app}":         (*server).appSettings,
	"POST /settings/apps/{app}":        (*server).putSettings,
	"POST /settings/apps/{app}/grants": (*server).putGrant,
	"POST /settings/apps/{app}/delete": (*server).deleteApp,
}

// Routes returns the patterns of all paths that ask who somebody is.
func Routes() []string {
	all := make([]string, 0, len(screens))
	for route := range screens {
		all = append(all, route)
	}
	return all
}

type server struct{ Options }

// screen answers a visit. Its error becomes a page.
type screen func(*server, *visit) error

// visit is a request of a person who is known.
type visit struct {
	w    http.ResponseWriter
	r    *http.Request
	who  *rights.Person
	now  time.Time
	app  string
	name string
}

// maxForm bounds what a form may send: a policy with all the keys it may have is below.
const maxForm = 1 << 20

func (s *server) screen(show screen) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &visit{w: w, r: r, now: s.Now(), app: r.PathValue("app"), name: r.PathValue("name")}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		who, err := s.Authenticate(r)
		v.who = who
		if err == nil && r.Method == http.MethodPost {
			if err = formOf(r); err == nil { // a form may take long, and rights may be gone meanwhile
				v.who, err = s.Authenticate(r)
			}
		}
		if err == nil {
			err = show(s, v)
		}
		if err != nil {
			s.fail(v, err)
		}
	})
}

// may reports whether the person may do something to the app of the visit.
func (v *visit) may(a rights.Action, apps ...string) bool {
	return rights.Decide(v.who, a, append([]string{v.app}, apps...)...) == rights.Allowed
}

// fragment reports whether htmx has asked, which shows a part of a page.
func (v *visit) fragment() bool { return v.r.Header.Get("Hx-Request") == "true" }

// goTo answers with another page of this server, as a GET.
func (v *visit) goTo(path string) {
	v.w.Header().Set("Location", path)
	v.w.WriteHeader(http.StatusSeeOther)
}

// pathTo returns a path below /, whose parts may have any characters.
func pathTo(parts ...string) string {
	var b strings.Builder
	for _, part := range parts {
		b.WriteString("/" + url.PathEscape(part))
	}
	return b.String()
}

func pathToPolicy(app, name string) string { return pathTo("apps", app, "policies", name) }
