package envoyrls

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	extpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
)

// overrideName is the name of the policy of all overrides. The names of rules have a dot, but for those that a
// configuration gives them.
const overrideName = "limit-override"

// maxOverrides bounds how many overrides are known at once.
const maxOverrides = 1024

// An override is a limit that a descriptor brings along, in the place of those of the configuration.
type override struct {
	requests, multiplier uint32
	unit                 rlspb.RateLimitResponse_RateLimit_Unit
}

// overrides are the rules of overrides: variants of one policy. When there is no room for another one, each that is new
// looks at the next place, and takes it if that one was not used in the last three rounds. So a caller that sends ever
// new ones takes the places of such as are not used again, and costs others nothing. What was counted does not depend
// on the places: it is that of the descriptor and the period.
type overrides struct {
	base      *enforce.Limiter
	perSecond *enforce.Limiter // base, or that of Config.PerSecond
	chargeAll bool

	mu      sync.RWMutex
	byLimit map[override]*kept
	ring    []*kept
	hand    int // the next place
}

type kept struct {
	override
	rule   *rule
	rounds atomic.Int32 // for which it stays, if it is not used
}

// unusedRounds is the number of rounds for which an override stays that is not used.
const unusedRounds = 3

// lengthOf returns the length of so many units, of which 0 is 1; or 0 if there is no such unit.
func lengthOf(pb rlspb.RateLimitResponse_RateLimit_Unit, multiplier uint32) time.Duration {
	u, _ := unitOf(pb)
	return u.length * time.Duration(max(1, multiplier))
}

func unitOf(pb rlspb.RateLimitResponse_RateLimit_Unit) (u unit, ok bool) {
	for _, u := range units {
		if u.pb == pb {
			return u, true
		}
	}
	return unit{}, false
}

func overrideOf(limit *extpb.RateLimitDescriptor_RateLimitOverride) override {
	return override{
		requests: limit.GetRequestsPerUnit(), multiplier: limit.GetUnitMultiplier().GetValue(),
		unit: rlspb.RateLimitResponse_RateLimit_Unit(limit.GetUnit()), // they have the same numbers
	}
}

// check returns what is wrong with the override of descriptor i, as a status of gRPC, or nil.
func (o override) check(i int) error {
	u, ok := unitOf(o.unit)
	switch {
	case !ok:
		return status.Errorf(codes.InvalidArgument, "the limit of descriptor %d has the unit %v; give %s", i+1, o.unit, unitNames)
	case int64(o.multiplier) > int64(core.MaxPeriod/u.length):
		return status.Errorf(codes.InvalidArgument, "the limit of descriptor %d has %d times a %s; give at most %d",
			i+1, o.multiplier, u.name, core.MaxPeriod/u.length)
	default:
		return nil
	}
}

// of returns the rule of an override that has no mistake.
func (s *overrides) of(o override) (*rule, error) {
	s.mu.RLock()
	k := s.byLimit[o]
	s.mu.RUnlock()
	if k == nil {
		r, err := s.rule(o)
		if err != nil {
			return nil, err
		}
		k = s.keep(&kept{override: o, rule: r})
	} else if k.rounds.Load() < unusedRounds {
		k.rounds.Store(unusedRounds)
	}
	return k.rule, nil
}

// rule makes the rule of an override.
func (s *overrides) rule(o override) (*rule, error) {
	u, _ := unitOf(o.unit)
	r := &rule{path: overrideName, nothing: o.requests == 0, current: shown(o.requests, u, o.multiplier, "")}
	var err error
	if r.policy, err = windowed(overrideName, max(1, o.requests), u, o.multiplier); err != nil {
		return nil, err
	}
	r.prepare(s.chargeAll)
	base := s.base
	if bySecond(lengthOf(o.unit, o.multiplier)) {
		base = s.perSecond
	}
	r.limiter, err = base.Variant(r.policy)
	return r, err
}

// keep keeps k if there is room for it, or returns the one that another caller has kept meanwhile.
func (s *overrides) keep(k *kept) *kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.byLimit[k.override]; other != nil {
		return other
	}
	if len(s.ring) < maxOverrides {
		s.ring = append(s.ring, k)
		s.byLimit[k.override] = k
		return k
	}
	at := s.hand
	s.hand = (at + 1) % len(s.ring)
	if old := s.ring[at]; old.rounds.Add(-1) < 0 {
		delete(s.byLimit, old.override)
		s.ring[at], s.byLimit[k.override] = k, k
	}
	return k
}

// overrideKey returns what is counted for a descriptor with an override: its domain, the period and its entries, so
// written that no two lists meet.
func overrideKey(domain string, d *extpb.RateLimitDescriptor, o override) string {
	var space [256]byte
	key := appendText(space[:0], domain)
	key = strconv.AppendInt(key, int64(lengthOf(o.unit, o.multiplier)/time.Second), 10)
	key = append(key, 's')
	for _, e := range d.GetEntries() {
		key = appendText(key, e.GetKey())
		key = appendText(key, e.GetValue())
	}
	return string(key)
}
