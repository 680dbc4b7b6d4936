package api

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/internal/adminapi"
)

type whoKey struct{}

// who returns who sent the request of a context.
func who(ctx context.Context) *rights.Person {
	p, _ := ctx.Value(whoKey{}).(*rights.Person)
	return p
}

type whyKey struct{}

// caller returns a text that is that of one token, or of a person in all their sessions.
func caller(p *rights.Person) string {
	if p.Token != 0 {
		return "token " + strconv.FormatInt(p.Token, 10)
	}
	return "person " + p.ID
}

// guarded refuses what must not reach a route: too many at once, requests of other sites' pages, those beyond the
// limits, and strangers.
func (s *server) guarded(
	limit func(http.Handler) http.Handler, routes http.Handler, authenticate func(*http.Request) (*rights.Person, error),
) http.Handler {
	places := &places{held: make(chan struct{}, maxAtOnce), asked: make(chan struct{}, maxAtOnce+maxWaiting)}
	limited := limit(s.known(routes))
	var crossOrigin http.CrossOriginProtection
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if !places.enter(r.Context()) {
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusServiceUnavailable,
				fmt.Sprintf("%d requests are under way, and others wait; try again in a second", maxAtOnce))
			return
		}
		defer places.leave()
		if err := crossOrigin.Check(r); err != nil {
			refuse(w, http.StatusForbidden, "a page of another site has sent this; use a client or a page of this server")
			return
		}
		for _, name := range []string{"If-Match", "If-None-Match"} { // huma reads the first line alone
			if lines := r.Header.Values(name); len(lines) > 1 {
				r.Header.Set(name, strings.Join(lines, ", "))
			}
		}
		person, err := authenticate(r)
		ctx := r.Context()
		if err != nil || person == nil {
			ctx = context.WithValue(ctx, whyKey{}, err)
		} else {
			ctx = context.WithValue(ctx, whoKey{}, person)
		}
		limited.ServeHTTP(w, r.WithContext(ctx))
	})
}

// known serves those who are known, and to others the description of the API.
func (s *server) known(routes http.Handler) http.Handler {
	people := &people{requests: map[string]int{}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		person := who(r.Context())
		if person == nil {
			if r.URL.Path == adminapi.PathOpenAPI && r.Method == http.MethodGet {
				routes.ServeHTTP(w, r)
				return
			}
			err, _ := r.Context().Value(whyKey{}).(error)
			s.stranger(w, err)
			return
		}
		if !people.enter(person.ID) {
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusServiceUnavailable, fmt.Sprintf("more than %d requests of yours at once; try again in a second", maxOfOne))
			return
		}
		defer people.leave(person.ID)
		if r.ContentLength != 0 && !isJSON(r.Header.Get("Content-Type")) {
			refuse(w, http.StatusUnsupportedMediaType, `found another "Content-Type" than application/json; send JSON`)
			return
		}
		routes.ServeHTTP(w, r)
	})
}

// places bounds the requests under way, and those that wait for a place.
type places struct {
	held  chan struct{}
	asked chan struct{} // held also by those that wait
}

// enter takes a place, and waits for one if there is none, unless too many wait already.
func (p *places) enter(ctx context.Context) bool {
	select {
	case p.asked <- struct{}{}:
	default:
		return false
	}
	select {
	case p.held <- struct{}{}:
		return true
	default:
	}
	patience := time.NewTimer(waiting)
	defer patience.Stop()
	select {
	case p.held <- struct{}{}:
		return true
	case <-patience.C:
	case <-ctx.Done():
	}
	<-p.asked
	return false
}

func (p *places) leave() {
	<-p.held
	<-p.asked
}

// stranger answers a request of which it is not known who sends it.
func (s *server) stranger(w http.ResponseWriter, err error) {
	if err != nil {
		switch p := manage.Problem(err); p.Status {
		case http.StatusServiceUnavailable:
			s.log.Warn("weir-admin: it cannot be found out who sends requests", "error", err)
			p.Detail = "the database does not answer, so that it is not known who you are; try again"
			writeProblem(w, p)
			return
		case http.StatusTooManyRequests, http.StatusForbidden: // wrong tokens, and pages of other sites
			var tooMany interface{ Wait() time.Duration }
			if errors.As(err, &tooMany) {
				w.Header().Set("Retry-After", strconv.FormatInt(int64((tooMany.Wait()+time.Second-1)/time.Second), 10))
			}
			writeProblem(w, p)
			return
		}
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="weir-admin"`)
	writeProblem(w, &adminapi.Problem{
		Type: adminapi.TypeNobody, Title: http.StatusText(http.StatusUnauthorized), Status: http.StatusUnauthorized,
		Detail: `found no token that is known; send "Authorization: Bearer" and a token, or log in`,
	})
}

// isJSON reports whether a body may be read. A form of another site can send none of these types, nor leave it out.
func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	of, _, err := mime.ParseMediaType(contentType)
	return err == nil && of == "application/json"
}

// people counts the requests under way of each person or program.
type people struct {
	mu       sync.Mutex
	requests map[string]int // of those who have any
}

// enter counts a request, unless there are maxOfOne.
func (p *people) enter(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.requests[id] == maxOfOne {
		return false
	}
	p.requests[id]++
	return true
}

func (p *people) leave(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.requests[id]--; p.requests[id] == 0 {
		delete(p.requests, id)
	}
}

// refuse answers a problem that has the type of its status, if there is one.
func refuse(w http.ResponseWriter, status int, detail string) {
	writeProblem(w, manage.Problem(refusal(status, detail)))
}
