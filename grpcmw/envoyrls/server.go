package envoyrls

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	extpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/follow"
)

// Config is the configuration of [New], but for the limits, which [Server.Load] takes. The zero value is a good choice.
type Config struct {
	// MergeDomains lets several files have one domain. Without it that is a mistake.
	MergeDomains bool
	// Shadow answers OK to all requests. The statuses of the descriptors say what would have been refused.
	Shadow bool
	// Quota answers OK for all descriptors that are over their limits. Metadata lists them.
	Quota bool
	// ChargeAll charges all descriptors of a request, also if another one is refused, as envoyproxy/ratelimit does.
	// Without it a request that is refused is charged for nothing but what was spent already: for the descriptors that
	// have a hits_addend. With it, windows of a unit count one hit more than they admit, so that a hits_addend of 0 is
	// refused only after another hit was; not so if there is a Source.
	ChargeAll bool
	// Metadata adds dynamic metadata to each response: its domain, descriptors and hits, and which descriptors are over
	// a limit in quota mode.
	Metadata bool
	// Headers are the names of the headers that are added to responses. The zero value adds none.
	Headers Headers
	// StartHealthy makes the service healthy before anything is loaded. Its answers are errors until then.
	StartHealthy bool
	// NeedDomains makes the service unhealthy for as long as the configuration has no domain.
	NeedDomains bool
	// PerSecond is another store, for limits by the second. nil means that one store counts all.
	PerSecond core.Store
	// NearLimit is the part of a limit beyond which hits are counted as near it, from 0 to 1. 0 means 0.8.
	NearLimit float64
	// Source has other numbers for the policies of rules while the program runs. nil means that the numbers never change
	// but by Load.
	Source follow.Source
	// Log receives a line for each class of failure of the store, and of other troubles. nil means slog.Default().
	Log *slog.Logger
}

// Headers are the names of headers, such as "RateLimit-Limit". One that is "" is not added.
type Headers struct {
	// Limit has the number of requests of the tightest limit, and Remaining what is left of it.
	Limit, Remaining string
	// Reset has the seconds until its window ends.
	Reset string
}

// Server is Envoy's rate limit service, built by [New]. It is safe for concurrent use.
type Server struct {
	rlspb.UnimplementedRateLimitServiceServer

	config    Config
	root      *enforce.Limiter // of which all others are made
	perSecond *enforce.Limiter // of which those by the second are made, which may be root
	overrides overrides
	health    health
	counters  *counters

	loading sync.Mutex // held while the tree is replaced
	tree    atomic.Pointer[tree]
}

// New builds a Server that counts in a store. It has no limits until [Server.Load] has given it some: until then it is
// not healthy, and requests fail. The error reports all mistakes of the Config.
//
// The store must bound the time of its answers: a request waits for it even if its caller has left. A redisstore.Store
// does so by its Deadline, which is to be below the 20 ms for which Envoy waits, such as 15 ms.
func New(store core.Store, c Config) (*Server, error) {
	var mistakes []error
	if c.NearLimit < 0 || c.NearLimit > 1 {
		mistakes = append(mistakes, fmt.Errorf(
			"envoyrls: Config.NearLimit is %v; give a number from 0 to 1, or 0 for 0.8", c.NearLimit))
	}
	if store == nil {
		mistakes = append(mistakes, errors.New("envoyrls: the store is nil; give one, such as a redisstore.Store"))
	}
	if mistakes != nil {
		return nil, errors.Join(mistakes...)
	}
	if c.NearLimit == 0 {
		c.NearLimit = 0.8
	}
	base, err := windowed(overrideName, 1, units[len(units)-1], 1)
	if err != nil {
		return nil, err
	}
	root, err := enforce.New(store, base, enforce.Options{Log: c.Log, Source: c.Source})
	if err != nil {
		return nil, err
	}
	s := &Server{config: c, root: root, perSecond: root, health: newHealth(), counters: newCounters()}
	if c.PerSecond != nil {
		if s.perSecond, err = enforce.New(c.PerSecond, base, enforce.Options{Log: c.Log, Source: c.Source}); err != nil {
			return nil, errors.Join(err, root.Close())
		}
	}
	s.overrides = overrides{
		base: root, perSecond: s.perSecond, chargeAll: c.ChargeAll && c.Source == nil, byLimit: map[override]*kept{},
	}
	s.updateHealth()
	return s, nil
}

// Load replaces all limits by those of the files, at once for each request: none sees a part of both. What was counted
// stays, as far as the limits can share it. If there is a mistake anywhere, nothing is replaced, and the error has all
// mistakes with file and line.
func (s *Server) Load(files ...File) error {
	return s.replace(load(files, s.config.MergeDomains))
}

// replace replaces the tree by another one, unless that has a mistake.
func (s *Server) replace(t *tree, err error) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	if err == nil {
		err = s.limit(t)
	}
	if err != nil {
		s.counters.failedLoads.Add(1)
		return err
	}
	s.counters.tidy() // before, because the rules of a tree remember their series
	s.tree.Store(t)
	s.counters.loads.Add(1)
	s.updateHealth()
	return nil
}

// limit makes the Limiters of a tree. A policy that has not changed stays the same value, so that a store finds what
// it has computed for it.
func (s *Server) limit(t *tree) error {
	known := map[string]core.Policy{}
	if before := s.tree.Load(); before != nil {
		for _, r := range before.rules {
			if !r.policy.IsZero() {
				known[r.policy.Name()] = r.policy
			}
		}
	}
	rules := map[*enforce.Limiter][]*rule{}
	for _, r := range t.rules {
		if r.nothing && !s.overrides.chargeAll {
			r.period, r.policy = r.policy.Limits()[0].Period, core.Policy{} // everything is over the limit, whatever was charged
		}
		if r.policy.IsZero() {
			continue
		}
		if r.policy.Name() == overrideName {
			return fmt.Errorf("envoyrls: the policy of %.200q has the name %q, which is that of all overrides; "+
				"give it another one", r.path, overrideName)
		}
		r.prepare(s.overrides.chargeAll)
		if k, ok := known[r.policy.Name()]; ok && k.String() == r.policy.String() {
			r.policy = k
		}
		root := s.root
		if bySecond(lengthOf(r.current.GetUnit(), r.current.GetUnitMultiplier().GetValue())) {
			root = s.perSecond
		}
		rules[root] = append(rules[root], r)
	}
	for root, rules := range rules {
		policies := make([]core.Policy, len(rules))
		for i, r := range rules {
			policies[i] = r.policy
		}
		limiters, err := root.WithAll(policies...)
		if err != nil {
			return err
		}
		for i, r := range rules {
			r.limiter = limiters[i]
		}
	}
	return nil
}

// bySecond reports whether a limit for so long is one for Config.PerSecond.
func bySecond(length time.Duration) bool { return 0 < length && length <= time.Second }

// Register registers the service, and that of its health, with a server of gRPC.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	rlspb.RegisterRateLimitServiceServer(r, s)
	healthpb.RegisterHealthServer(r, s.health.server)
}

// errNotLoaded has the code and the text of envoyproxy/ratelimit.
var errNotLoaded = status.Error(codes.Unknown, "no rate limit configuration loaded")

// ShouldRateLimit implements envoy.service.ratelimit.v3.RateLimitService.
func (s *Server) ShouldRateLimit(ctx context.Context, r *rlspb.RateLimitRequest) (*rlspb.RateLimitResponse, error) {
	s.counters.requests.Add(1)
	var few [4]demand
	all, err := s.demands(few[:0], r)
	if err == nil {
		err = s.decide(ctx, all)
	}
	if err != nil {
		return nil, s.failure(err)
	}
	s.count(all)
	return s.response(r, all), nil
}

// failure counts a request that failed, and returns the status of gRPC for its error.
func (s *Server) failure(err error) error {
	switch _, known := status.FromError(err); {
	case known:
	case ofStore(err):
		s.counters.storeErrors.Add(1)
		return status.Error(codes.Unavailable, "the store of the limits does not answer, and a policy fails closed")
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	default:
		err = status.Error(codes.Internal, err.Error())
	}
	s.counters.serviceErrors.Add(1)
	return err
}

// Reset forgets what was counted for a descriptor of a domain: it is as if it had never come. It fails if the
// configuration has no limit for it, and if the store does.
func (s *Server) Reset(ctx context.Context, domain string, d *extpb.RateLimitDescriptor) error {
	all, err := s.demands(nil, &rlspb.RateLimitRequest{Domain: domain, Descriptors: []*extpb.RateLimitDescriptor{d}})
	if err != nil {
		return err
	}
	x := &all[0]
	if x.form == free || x.rule.nothing {
		return fmt.Errorf(
			"envoyrls: nothing is counted for the descriptor in the domain %.80q; give one that has a limit", domain)
	}
	return x.rule.limiter.Reset(ctx, x.key)
}

// Close gives back what is still to be given back to a remote store, for half a second at most. No store is closed.
func (s *Server) Close() error {
	err := s.root.Close()
	if s.perSecond != s.root {
		err = errors.Join(err, s.perSecond.Close())
	}
	return err
}
