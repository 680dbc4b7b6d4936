package envoyrls

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weir-go/weir/core"
)

// Handler returns a handler of what s answers over HTTP:
//
//   - /json takes a RateLimitRequest in JSON and answers with a RateLimitResponse: 200, or 429 if it is over the limit,
//     or 400 for a request with a mistake, or 500 if the store fails where a policy fails closed;
//   - /healthcheck is 200 while the service is healthy, and 500 otherwise;
//   - /rlconfig has a line for each rule;
//   - /metrics has the counters, as text for Prometheus.
//
// The last two show the configuration: let only those reach them who may see it. What a page of another origin sends from
// a browser, other than by GET and HEAD, is answered with 403: it must not use up limits where the browser can reach s.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/json", s.serveJSON)
	mux.HandleFunc("/healthcheck", s.serveHealth)
	mux.HandleFunc("/rlconfig", s.serveConfig)
	mux.HandleFunc("/metrics", s.serveMetrics)
	return http.NewCrossOriginProtection().Handler(mux)
}

func (s *Server) serveJSON(w http.ResponseWriter, r *http.Request) {
	fail := func(code int) { http.Error(w, http.StatusText(code), code) }
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	var request rlspb.RateLimitRequest
	if err != nil || protojson.Unmarshal(body, &request) != nil {
		fail(http.StatusBadRequest)
		return
	}
	response, err := s.ShouldRateLimit(r.Context(), &request)
	switch status.Code(err) {
	case codes.OK:
	case codes.Unavailable, codes.Internal:
		fail(http.StatusInternalServerError)
		return
	default:
		fail(http.StatusBadRequest)
		return
	}
	text, err := protojson.Marshal(response)
	if err != nil {
		fail(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if response.GetOverallCode() == rlspb.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(text) // the client may have left
}

// ResetHandler returns a handler that forgets what was counted for the descriptors of a request, as [Server.Reset]
// does: a RateLimitRequest in JSON, by POST. It answers 200 when all are forgotten, 400 for a request with a mistake or
// a descriptor without a limit, 403 for what a page of another origin sends from a browser, and 500 if the store fails.
// Let only those reach it who may lift limits.
func (s *Server) ResetHandler() http.Handler {
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(s.serveReset))
}

func (s *Server) serveReset(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "POST a RateLimitRequest in JSON", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	var request rlspb.RateLimitRequest
	if err == nil {
		err = protojson.Unmarshal(body, &request)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, d := range request.GetDescriptors() {
		switch err := s.Reset(r.Context(), request.GetDomain(), d); {
		case err == nil:
		case errors.As(err, new(*core.StoreError)):
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		default:
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	_, _ = io.WriteString(w, "OK\n") // the client may have left
}

func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	if !s.healthy() {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, "OK")
}

func (s *Server) serveConfig(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, s.dump())
}

func (s *Server) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_ = s.counters.write(w)
}

// dump returns a line for each rule, as envoyproxy/ratelimit shows them, with the policy that holds now if it has not
// only a unit, or a Source may change it.
func (s *Server) dump() string {
	var b strings.Builder
	t := s.tree.Load()
	if t == nil {
		return ""
	}
	for _, r := range t.rules {
		fmt.Fprintf(&b, "%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t", r.path,
			r.current.GetUnit(), r.current.GetRequestsPerUnit(), s.shadows(r), r.quota)
		if n := r.current.GetUnitMultiplier().GetValue(); n > 1 {
			fmt.Fprintf(&b, ", unit_multiplier: %d", n)
		}
		if r.limiter != nil && (r.period == 0 || s.config.Source != nil) {
			fmt.Fprintf(&b, ", policy: %v", r.limiter)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
