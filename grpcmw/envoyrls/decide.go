package envoyrls

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	extpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
)

// A demand has the units that a descriptor of a request asks for, of the rule that holds for it, and the answer.
type demand struct {
	descriptor *extpb.RateLimitDescriptor
	rule       *rule // nil if none holds, or another one replaces it
	key        string
	metric     string // the name by which it is counted; "" for that of the rule
	form       form
	cost       int64
	shadow     bool // what it refuses passes
	answer
}

// An answer is the decision on a demand.
type answer struct {
	known     bool        // a Limiter has answered
	unlimited bool        // the key is, by a Source
	over      bool        // the cost does not fit
	policy    core.Policy // that decided; zero if none did
	limit     int64       // units of its tightest limit
	before    int64       // what was left of it before the demand was charged
	left      int64       // what is left of it now
	reset     time.Duration
	retry     time.Duration // after which the cost fits; 0 if it never does
	at        int64         // the time of the decision, in microseconds since the epoch; 0 if no store has decided
}

// uncounted is the answer where nothing was counted.
var uncounted = answer{before: math.MaxInt64, left: math.MaxInt64}

// form is the way in which a demand is charged.
type form uint8

const (
	free   form = iota // there is nothing to ask
	plain              // the cost is charged if the request is admitted
	spent              // the cost was spent already: it is charged as far as there is something left
	look               // nothing is charged, and there must be something left
	credit             // the cost is given back
)

// demands appends the demands of a request. An error is a status of gRPC.
func (s *Server) demands(all []demand, r *rlspb.RateLimitRequest) ([]demand, error) {
	if err := check(r); err != nil {
		return nil, err
	}
	t := s.tree.Load()
	if t == nil {
		return nil, errNotLoaded
	}
	known, replaces := t.knows(r.GetDomain()), false
	if !known {
		s.counters.unknownDomain.Add(1)
	}
	for _, d := range r.GetDescriptors() {
		all = append(all, demand{descriptor: d})
		x := &all[len(all)-1]
		switch {
		case !known:
		case d.GetLimit() != nil:
			var err error
			o := overrideOf(d.GetLimit())
			if x.rule, err = s.overrides.of(o); err != nil {
				return nil, err
			}
			x.key, x.metric = overrideKey(r.GetDomain(), d, o), entriesMetric(r.GetDomain(), d.GetEntries())
		default:
			if m, ok := t.find(r.GetDomain(), d); ok {
				if x.rule, x.key = m.rule, m.key; m.rule.valuesInMetric {
					x.metric = m.metric
				}
				replaces = replaces || len(m.rule.replaces) > 0
			}
		}
	}
	for i := range all {
		if x := &all[i]; x.rule != nil && !x.rule.unlimited && (!replaces || !replaced(all, x.rule.name)) {
			x.form, x.cost = s.form(r, x.descriptor)
			x.shadow, x.answer = s.shadows(x.rule), uncounted
		}
	}
	return all, nil
}

// replaced reports whether one of the rules replaces that of the name.
func replaced(all []demand, name string) bool {
	if name == "" {
		return false
	}
	for i := range all {
		if all[i].rule != nil && slices.Contains(all[i].rule.replaces, name) {
			return true
		}
	}
	return false
}

// form returns how a descriptor with a limit is charged, and its cost.
func (s *Server) form(r *rlspb.RateLimitRequest, d *extpb.RateLimitDescriptor) (form, int64) {
	cost, own := costOf(r, d)
	switch {
	case d.GetIsNegativeHits():
		return credit, cost
	case cost == 0:
		return look, 0
	case own || s.config.ChargeAll:
		return spent, cost
	default:
		return plain, cost
	}
}

// shadows reports whether a rule is in shadow mode now.
func (s *Server) shadows(r *rule) bool {
	if s.config.Source == nil || r.shadowMode || r.limiter == nil {
		return r.shadow
	}
	return r.limiter.Policy().Options().Shadow
}

// trial reports whether a refusal of x is hidden, so that it refuses nothing.
func (s *Server) trial(x *demand) bool {
	return x.shadow || x.rule.quota || s.config.Shadow || s.config.Quota
}

// decide fills in the answers. An error is that of a store under "fail closed", or that of the context.
func (s *Server) decide(ctx context.Context, all []demand) error {
	refused, credits, asks, last := false, false, 0, 0
	for i := range all {
		x := &all[i]
		credits = credits || x.givesBack()
		switch {
		case x.form == free:
		case x.rule.nothing:
			x.over = x.form != credit
			refused = refused || x.over && !s.trial(x)
		default:
			asks, last = asks+1, i
		}
	}
	if asks == 0 && !credits {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if credits {
		if err := s.giveBack(ctx, all); err != nil {
			return err
		}
	} else if ctx.Done() != nil {
		// The store has a deadline, which is shorter than that of Envoy. A caller that leaves would cost it more than one
		// that is answered in vain.
		ctx = context.WithoutCancel(ctx)
	}
	switch asks {
	case 0:
		return nil
	case 1:
		return s.decideOne(ctx, &all[last], refused)
	default:
		return s.decideMany(ctx, all, refused)
	}
}

// givesBack reports whether x gives something back. A rule that admits nothing has no counts, but an override that
// admits nothing has those of all overrides.
func (x *demand) givesBack() bool { return x.form == credit && x.cost > 0 && x.rule.limiter != nil }

// giveBack gives back the credits of a request at the same time, in half of the time that the caller has. A store that
// fails is an error only where a policy says so. Credits stay given back if the request fails later.
func (s *Server) giveBack(ctx context.Context, all []demand) error {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	errs := make([]error, len(all))
	var credits sync.WaitGroup
	for i := range all {
		if x := &all[i]; x.givesBack() {
			limiter, key, cost := x.rule.limiter, x.key, x.cost // so that all stays on the stack of its caller
			credits.Go(func() { errs[i] = limiter.Credit(ctx, key, cost) })
		}
	}
	credits.Wait()
	for i, err := range errs {
		if err != nil && (s.needs(&all[i]) || !ofStore(err) && ctx.Err() == nil) {
			return err
		}
	}
	return nil
}

// needs reports whether x needs the store: without it there is no answer.
func (s *Server) needs(x *demand) bool {
	return x.rule.limiter.Policy().Options().Fail == core.FailClosed && !s.trial(x)
}

func ofStore(err error) bool {
	var failed *core.StoreError
	return errors.As(err, &failed)
}

// decideOne is decide for a single demand that asks a Limiter. refused is set if the request is refused anyway.
func (s *Server) decideOne(ctx context.Context, x *demand, refused bool) error {
	e := s.each(x, refused)
	var err error
	if e.AtMost {
		e.Result, err = e.Limiter.UpTo(ctx, e.Key, e.Cost)
	} else {
		e.Result, err = e.Limiter.AllowN(ctx, e.Key, e.Cost)
	}
	if err != nil {
		if s.trial(x) && ofStore(err) {
			return nil
		}
		return err
	}
	x.note(&e)
	return nil
}

// decideMany is decide for several demands, of which some may ask no Limiter.
func (s *Server) decideMany(ctx context.Context, all []demand, refused bool) error {
	each := make([]enforce.Each, 0, len(all))
	for range 2 { // again for those that were not asked for because another one was known to refuse
		for i := range all {
			if x := &all[i]; x.due() {
				each = append(each, s.each(x, refused))
			}
		}
		if len(each) == 0 {
			break
		}
		admitted, err := enforce.AllowEach(ctx, each)
		if err != nil {
			return err
		}
		k := 0
		for i := range all {
			if x := &all[i]; x.due() {
				x.note(&each[k])
				k++
			}
		}
		if admitted { // what is not known is a trial for which the store has failed
			break
		}
		each, refused = each[:0], true
	}
	return nil
}

// due reports whether a Limiter is to be asked for x.
func (x *demand) due() bool { return x.form != free && !x.rule.nothing && !x.known }

// each returns what a Limiter is asked for x. If the request is refused anyway, what it would be charged is only looked
// at.
func (s *Server) each(x *demand, refused bool) enforce.Each {
	e := enforce.Each{Limiter: x.rule.limiter, Key: x.key, Trial: s.trial(x)}
	switch x.form {
	case spent:
		e.Cost, e.AtMost, e.Keep = x.cost, true, true
	case look:
		e.AtMost, e.Keep = true, true
	case credit:
		e.Keep = true
	default: // plain
		if !refused {
			e.Cost = x.cost
		}
	}
	return e
}

// note fills in the answer of a Limiter.
func (x *demand) note(e *enforce.Each) {
	res := &e.Result
	if res.At == 0 && !res.Local && !res.Allowed() && res.RetryAfter == 0 { // it was not asked
		return
	}
	x.answer = answer{
		known: true, policy: res.Policy(), limit: res.Limit, before: res.Remaining + res.Taken, left: res.Remaining,
		reset: res.ResetAfter, retry: res.RetryAfter, at: res.At,
	}
	if x.limit == 0 && res.Allowed() { // nothing was counted
		x.answer = uncounted
		x.known, x.unlimited = true, !res.Local
		return
	}
	b := x.rule.beyond
	x.limit, x.before, x.left = x.limit-b, x.before-b, max(0, x.left-b)
	switch {
	case x.form == credit:
	case b == 0 && x.form == spent:
		x.over = res.Taken < x.cost
	default:
		x.over = b == 0 && !res.Allowed() || x.before < x.cost
	}
}

// prepare fills in what a Server knows of the rule. If chargeAll is set, the policy of windows counts one unit more
// than the rule admits, so that it says whether the limit was exceeded when all that are refused are charged, too: then
// there is nothing left. So the answers are those of a count that has no bound.
func (r *rule) prepare(chargeAll bool) {
	limits := r.policy.Limits()
	l := limits[0]
	if len(limits) == 1 && l.Algorithm == core.FixedWindow && l.Align == "epoch" {
		r.period = l.Period
	}
	if !chargeAll || r.period == 0 {
		return
	}
	if !r.nothing { // else the policy has one already
		l.Rate, l.Burst = l.Rate+1, 0
	}
	if p, err := core.NewPolicy(r.policy.Name(), r.policy.Options(), l); err == nil {
		r.policy, r.beyond, r.nothing = p, 1, false
	}
}
