package observe

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
)

// mostRecent is the number of refusals that are kept, and of those that are kept of one second.
const mostRecent = 100

// recent keeps the last refusals. A flood of them costs nothing: those of a second beyond the first are left out.
type recent struct {
	kept atomic.Int64 // the second, shifted, and how many of it were kept
	mu   sync.Mutex
	ring []kept // with room for mostRecent
	next int
}

const keptBits = 8

// kept is a refusal that is kept. Texts are in memory that is used again.
type kept struct {
	at               int64 // in microseconds since the epoch
	policy, rule     string
	outcome          core.Outcome
	from             guard.From
	shadow           bool
	tier, key, route []byte
	retryAfter       time.Duration
	err              string
}

// add keeps a refusal, unless enough of this second were kept.
func (r *recent) add(e *guard.Event, withKey bool) {
	second := e.At / 1e6
	was := r.kept.Load()
	if was>>keptBits == second && was&(1<<keptBits-1) >= mostRecent {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if was = r.kept.Load(); was>>keptBits != second {
		was = second << keptBits
	}
	r.kept.Store(was + 1)
	if r.ring == nil {
		r.ring = make([]kept, 0, mostRecent)
	}
	if len(r.ring) < mostRecent {
		r.ring = append(r.ring, kept{})
	}
	k := &r.ring[r.next]
	r.next = (r.next + 1) % mostRecent
	*k = kept{
		at: e.At, policy: e.Policy, rule: e.Rule, tier: cut(append(k.tier[:0], e.Tier...)), outcome: e.Outcome, from: e.From, shadow: e.Shadow,
		key: k.key[:0], route: cut(append(k.route[:0], e.Route()...)), retryAfter: e.Result.RetryAfter,
	}
	if withKey {
		k.key = cut(e.AppendKey(k.key))
	}
	if e.Err != nil {
		k.err = string(cut([]byte(e.Err.Error())))
	}
}

// cut cuts what could be long.
func cut(text []byte) []byte { return text[:min(len(text), 256)] }

// all returns the refusals, the newest first.
func (r *recent) all() []Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Refusal, 0, len(r.ring))
	for i := range r.ring {
		k := &r.ring[(r.next-1-i+2*mostRecent)%mostRecent]
		all = append(all, Refusal{
			At: time.UnixMicro(k.at), Policy: k.policy, Rule: k.rule, Tier: string(k.tier), Outcome: k.outcome.String(), From: k.from.String(),
			Shadow: k.shadow, Key: string(k.key), Route: string(k.route), RetryAfter: k.retryAfter, Err: k.err,
		})
	}
	return all
}
