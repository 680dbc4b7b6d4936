package api

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/adminapi"
)

// ready keeps whether the database has answered, for a second: anybody may ask.
type ready struct {
	mu    sync.Mutex
	asked time.Time
	err   error
}

const (
	readyFor    = time.Second
	readyWithin = 2 * time.Second
)

// readyz answers 204 if the database answers, so that requests can be served, and 503 if it does not. Without Redis all
// but publishing works, and so it is not asked for.
func (s *server) readyz(w http.ResponseWriter, r *http.Request) {
	if err := s.isReady(r.Context()); err != nil {
		writeProblem(w, &adminapi.Problem{
			Type: adminapi.TypeUnavailable, Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable,
			Detail: "the database does not answer",
		})
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *server) isReady(ctx context.Context) error {
	s.ready.mu.Lock()
	defer s.ready.mu.Unlock()
	if time.Since(s.ready.asked) < readyFor {
		return s.ready.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyWithin) // the answer is for others as well
	defer cancel()
	s.ready.err = s.Ready(ctx)
	s.ready.asked = time.Now()
	return s.ready.err
}
