package envoyrls

import (
	"context"
	"sync"

	grpchealth "google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// healthName is the name of the service for which envoyproxy/ratelimit answers. It answers for "" as well.
const healthName = "ratelimit"

// health has the state of the service, for those who send requests to it.
type health struct {
	server *grpchealth.Server

	mu       sync.Mutex // held while it is decided and said, so that the last word is the latest
	troubles map[string]bool
}

func newHealth() health {
	return health{server: grpchealth.NewServer(), troubles: map[string]bool{}}
}

// SetHealthy notes whether something works that the service needs beside its configuration, such as its store. While
// something does not, the service is unhealthy.
func (s *Server) SetHealthy(what string, works bool) {
	s.health.mu.Lock()
	if works {
		delete(s.health.troubles, what)
	} else {
		s.health.troubles[what] = true
	}
	s.health.mu.Unlock()
	s.updateHealth()
}

// updateHealth sets the state by all that it depends on. It stays as it is while s drains.
func (s *Server) updateHealth() {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	t := s.tree.Load()
	now := healthpb.HealthCheckResponse_SERVING
	switch {
	case len(s.health.troubles) > 0,
		t == nil && !s.config.StartHealthy,
		s.config.NeedDomains && (t == nil || len(t.domains) == 0):
		now = healthpb.HealthCheckResponse_NOT_SERVING
	}
	s.health.server.SetServingStatus("", now)
	s.health.server.SetServingStatus(healthName, now)
}

// healthy reports what the service of gRPC for the health says.
func (s *Server) healthy() bool {
	res, err := s.health.server.Check(context.Background(), &healthpb.HealthCheckRequest{Service: healthName}) //nolint:forbidigo // it is a look at a map
	return err == nil && res.GetStatus() == healthpb.HealthCheckResponse_SERVING
}

// Drain makes s unhealthy for good, so that others send their requests elsewhere. It goes on answering.
func (s *Server) Drain() { s.health.server.Shutdown() }
