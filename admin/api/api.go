package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/weir-go/weir/admin/publish"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
	"github.com/weir-go/weir/observe"
)

// Record is the part of a [record.Record] that the API needs.
type Record interface {
	Change(ctx context.Context, c record.Change) (*record.Outcome, error)
	Heads(ctx context.Context) ([]record.Head, error)
	Head(ctx context.Context, app string) (record.Head, bool, error)
	Document(ctx context.Context, app string) (*policies.Document, []byte, error)
	Policy(ctx context.Context, app, name string) (policies.Policy, int64, error)
	Owned(ctx context.Context, app string) (map[string]policies.Policy, error)
	History(ctx context.Context, app, name string, before int64, limit int) ([]record.Past, error)
	Version(ctx context.Context, app, name string, revision int64) (*policies.Policy, error)
}

// Publisher is the part of a [publish.Publisher] that the API needs.
type Publisher interface {
	Wake()
	Wait(ctx context.Context, app string, v policies.Version) publish.State
	State(app string) publish.State
}

// Options are those of New.
type Options struct {
	Record    Record
	Publisher Publisher
	// Services returns what the processes of an app have announced, and the number of announcements that cannot be read:
	// redissource.Processes.
	Services func(ctx context.Context, app string) (all []*policies.Process, unreadable int, err error)
	// Top returns the n callers of a policy that all processes whose stores have a prefix have counted most in the last
	// minutes; see observe.FleetWorst. nil leaves them out of the API: keys may be addresses and names of people, which
	// all who may change limits could then read.
	Top func(ctx context.Context, prefix, policy string, last time.Duration, n int) (callers []observe.Caller, rest uint64, err error)
	// Authenticate returns who sends a request, or false if nobody may know. There is no API without it.
	Authenticate func(*http.Request) (who string, ok bool)
	// Log receives what no client sees; nil is slog.Default().
	Log *slog.Logger
}

// Bounds of the API.
const (
	maxBody    = 1 << 20
	bodyWithin = 5 * time.Second  // from its first byte to its last
	maxAtOnce  = 64               // requests
	maxOfOne   = 48               // of them, of one person or program: the others have places left
	maxReaders = 8                // requests that read an inventory or wait for it, but for changes
	reading    = 20 * time.Second // for one of them: a thousand processes have up to 32 MiB
	publishing = time.Second      // a change waits for it
)

type server struct {
	Options

	reading chan struct{} // held while an inventory is read
	readers chan struct{} // held while a request reads an inventory, or waits for that
}

// New returns the handler of the API.
func New(o Options) (http.Handler, error) {
	switch {
	case o.Record == nil || o.Publisher == nil || o.Services == nil:
		return nil, errors.New("api: Record, Publisher or Services is missing; give all of them")
	case o.Authenticate == nil:
		return nil, errors.New("api: Authenticate is nil, so that anybody could change every limit; give Tokens or the like")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	s := &server{Options: o, reading: make(chan struct{}, 1), readers: make(chan struct{}, maxReaders)}
	mux := http.NewServeMux()
	config := huma.DefaultConfig("weir-admin", "1")
	config.DocsPath = ""      // a page with scripts of others
	config.CreateHooks = nil  // no links to schemas in the bodies
	config.Transformers = nil // as above
	s.routes(humago.New(mux, config))
	return s.guarded(mux), nil
}

type whoKey struct{}

// who returns who sent the request of a context.
func who(ctx context.Context) string {
	name, _ := ctx.Value(whoKey{}).(string)
	return name
}

// guarded refuses what must not reach a route: too many at once, requests of other sites' pages, and strangers.
func (s *server) guarded(routes http.Handler) http.Handler {
	places := make(chan struct{}, maxAtOnce)
	people := &people{requests: map[string]int{}}
	var crossOrigin http.CrossOriginProtection
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		default:
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusServiceUnavailable, "more than 64 requests at once; try again in a second")
			return
		}
		if err := crossOrigin.Check(r); err != nil {
			refuse(w, http.StatusForbidden, "a page of another site has sent this; use a client or a page of this server")
			return
		}
		name, ok := s.Authenticate(r)
		if !ok {
			w.Header().Set("WWW-Authenticate", `Bearer realm="weir-admin"`)
			refuse(w, http.StatusUnauthorized, `found no known token; send "Authorization: Bearer" and the secret of a line of the token file`)
			return
		}
		if !people.enter(name) {
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusServiceUnavailable, "more than 48 requests with your token at once; try again in a second")
			return
		}
		defer people.leave(name)
		r = r.WithContext(context.WithValue(r.Context(), whoKey{}, name))
		routes.ServeHTTP(w, r)
	})
}

// people counts the requests under way of each person or program.
type people struct {
	mu       sync.Mutex
	requests map[string]int // of those who have any
}

// enter counts a request, unless there are maxOfOne.
func (p *people) enter(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.requests[name] == maxOfOne {
		return false
	}
	p.requests[name]++
	return true
}

func (p *people) leave(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.requests[name]--; p.requests[name] == 0 {
		delete(p.requests, name)
	}
}

func refuse(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", adminapi.ProblemType)
	w.WriteHeader(status)
	p := adminapi.Problem{Title: http.StatusText(status), Status: status, Detail: detail}
	_ = json.NewEncoder(w).Encode(p) // the client is gone
}
