package api

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/rights"
)

// Options are those of New.
type Options struct {
	// Manager does what requests ask for.
	Manager *manage.Manager
	// Authenticate returns who sends a request, with the rights of now, or an error if it is not known. There is no API
	// without it.
	Authenticate func(*http.Request) (*rights.Person, error)
	// Trusted are the networks of the proxies in front; see keyfunc.ForwardedIP.
	Trusted []netip.Prefix
	// Known are the numbers for a token, or a person with a session, and Strangers those for an address without one: ""
	// is "600/1m" and "60/1m". They are for tests that send more.
	Known, Strangers string
	// Log receives what no client sees; nil is slog.Default().
	Log *slog.Logger
}

// Bounds of the API.
const (
	maxBody    = 256 << 10
	bodyWithin = 5 * time.Second // from its first byte to its last
	maxAtOnce  = 64              // requests
	maxWaiting = 448             // requests that wait for others to end
	waiting    = 5 * time.Second // for one of them
	maxOfOne   = 48              // of them, of one person or program: the others have places left
)

type server struct {
	*manage.Manager

	log   *slog.Logger
	ready ready
}

// New returns the handler of the API.
func New(o Options) (http.Handler, error) {
	switch {
	case o.Manager == nil:
		return nil, errors.New("api: Manager is nil; give one")
	case o.Authenticate == nil:
		return nil, errors.New("api: Authenticate is nil, so that anybody could change every limit; give People.Authenticate or the like")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	s := &server{Manager: o.Manager, log: o.Log}
	mux := http.NewServeMux()
	config := huma.DefaultConfig("weir-admin", "1")
	config.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	config.DocsPath = ""                                                                        // a page with scripts of others
	config.SchemasPath = ""                                                                     // openapi.json has them
	config.CreateHooks = nil                                                                    // no links to schemas in the bodies
	config.Transformers = nil                                                                   // as above
	config.Formats = map[string]huma.Format{"application/json": strictJSON, "json": strictJSON} // of problem+json as well
	s.routes(humago.New(mux, config))
	limit, err := limits(o.Trusted, cmp.Or(o.Strangers, ofStrangers), cmp.Or(o.Known, ofKnown), o.Log)
	if err != nil {
		return nil, err
	}
	guarded := s.guarded(limit, problems(mux), o.Authenticate)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch asks := r.Method == http.MethodGet || r.Method == http.MethodHead; {
		case asks && r.URL.Path == PathHealthz:
			w.WriteHeader(http.StatusNoContent)
		case asks && r.URL.Path == PathReadyz:
			s.readyz(w, r)
		default:
			guarded.ServeHTTP(w, r)
		}
	}), nil
}

// schemaName returns the name of a type in the description of the API. Some types of the Manager extend those of the
// command, and have their names.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if strings.HasSuffix(t.PkgPath(), "/internal/adminapi") && (name == "App" || name == "Apps" || name == "Held") {
		name = "Bare" + name
	}
	return name
}
