package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/keyfunc"
)

// Config says what a [Guard] enforces. The Rule's Policy and Key must be given; every other zero field is a good
// choice.
type Config struct {
	// Rule is what holds for every request. A policy without a name is "default".
	Rule
	// Store keeps the counts. nil means a [core.Memory] of the Guard's own.
	Store core.Store
	// Skip exempts requests, such as health checks: they pass untouched.
	Skip func(keyfunc.Request) bool
	// Observe is called once for each decision, with a policy and an outcome that are fit to be labels of a metric.
	// It must not block.
	Observe func(Event)
	// Log is told when the store fails and when it is back, at most once a second, and of mistakes in use, once each.
	// nil means slog.Default().
	Log *slog.Logger
}

// Guard, built by [New] or [Must], enforces a rule on HTTP requests. It knows no framework: an adapter, such as
// nethttp.Limit, shows it each request. It is immutable and safe for concurrent use.
//
// A Guard that is mounted twice in one request counts it twice, and says so in the log, once.
type Guard struct {
	*family
	rule *rule
}

// family is what a Guard shares with all that its With and WithRule made.
type family struct {
	base    Rule
	limiter *core.Limiter // of the first rule, from which the others are made
	skip    func(keyfunc.Request) bool
	observe func(Event)
	log     *slog.Logger

	doubtful sync.Once // the line that addresses are not those of sockets
}

// New builds a Guard. It does no input or output. The error lists every mistake in c at once.
func New(c Config) (*Guard, error) {
	f := &family{base: c.Rule, skip: c.Skip, observe: c.Observe, log: c.Log}
	if f.base.OverLimit == nil {
		f.base.OverLimit = Reject(RejectOptions{})
	}
	if f.base.NoKey == NoKeyDefault {
		f.base.NoKey = NoKeyRefuse
	}
	ru, p, err := prepare(f.base, Rule{}, "default")
	if err != nil { // and a store that cannot be used by any policy
		_, unusable := core.NewLimiter(c.Store, core.MustParse("1/1s"), core.LimiterOptions{Log: c.Log})
		return nil, errors.Join(err, unusable)
	}
	if f.limiter, err = core.NewLimiter(c.Store, p, core.LimiterOptions{Log: c.Log}); err != nil {
		return nil, err
	}
	ru.limiter = f.limiter
	return &Guard{f, ru}, nil
}

// Must returns a Guard that counts in the process, for programs whose one policy is a constant:
//
//	r.Use(ginmw.Limit(guard.Must("100/1m", keyfunc.IP())))
//
// It panics on a mistake. For a store and everything else, use [New].
func Must(policy string, key keyfunc.Func) *Guard {
	g, err := New(Config{Rule: Rule{Policy: policy, Key: key}})
	if err != nil {
		panic(err)
	}
	return g
}

// With returns a Guard that enforces one more policy, for the routes on which it is mounted: an annotation. It shares
// the store, the key and everything else with g, and counts under its own name.
//
// It enforces that policy alone. What is mounted outside it, such as g on the whole application, has counted already:
// limits add up.
//
// With is for constants at start-up: like http.ServeMux.Handle it panics on a mistake. For text from elsewhere use
// [Guard.WithRule].
func (g *Guard) With(name, policy string) *Guard {
	out, err := g.with(Rule{Policy: policy}, name)
	if err == nil && out.rule.name != name {
		err = fmt.Errorf("guard: With(%q, %q): the policy brings another name; leave it out", name, policy)
	}
	if err != nil {
		panic(err)
	}
	return out
}

// WithRule is like [Guard.With] for a whole rule, and for text that is only known at run time. What r leaves out is
// taken from g's Config. The policy must have a name, and one name stands for one policy.
func (g *Guard) WithRule(r Rule) (*Guard, error) { return g.with(r, "") }

func (g *Guard) with(r Rule, name string) (*Guard, error) {
	ru, p, err := prepare(r, g.base, name)
	if err != nil {
		return nil, err
	}
	if ru.limiter, err = g.limiter.With(p); err != nil {
		return nil, err
	}
	return &Guard{g.family, ru}, nil
}

// Policy returns the policy that g enforces.
func (g *Guard) Policy() core.Policy { return g.rule.limiter.Policy() }

// Close does what [core.Limiter.Close] does, for g and all that its With and WithRule made: it refuses, with 503,
// the requests that wait for their turn, and waits half a second at most until a remote store has been given back
// what is due. It is needed where a rule with Settle or with permits uses a remote store, after the server has shut
// down. The store is not closed, and g goes on deciding; but requests that would have to wait for a turn get 503.
func (g *Guard) Close() error { return g.limiter.Close() }

// Check decides on a request. Where its turn is yet to come, as in a leaky-bucket, it waits for it, until the
// client leaves, or until Close. The caller carries the Verdict out, and calls its Finish when the request is
// over, whatever happened. Adapters call [Guard.Serve], which does all that, and which alone gives the handler a context
// with which [Detach] works, and which ends when a permit is lost.
func (g *Guard) Check(r keyfunc.Request) Verdict {
	if g.skip != nil && g.skip(r) {
		return Verdict{Action: Pass}
	}
	ru := g.rule
	marks := g.marks(r)
	key, warning, unnamed := ru.key(r)
	if warning != "" {
		g.doubt(warning)
	}
	if unnamed != nil {
		g.mistake(unnamed)
		switch ru.NoKey {
		case NoKeyShared:
			key = sharedKey
		case NoKeyPass:
			g.tell(core.Admitted, unnamed)
			return Verdict{Action: Pass, Policy: ru.name, Err: unnamed}
		default:
			return g.refuse(r, core.Result{}, unnamed, nil)
		}
	}
	ask := core.Ask{Key: key, Cost: 1, Permits: 1}
	if ru.Cost != nil {
		ask.Cost = ru.Cost(r)
	}
	a, err := ru.limiter.Begin(r.Context(), ask)
	if err != nil {
		g.mistake(err)
		return g.refuse(r, core.Result{}, err, unnamed)
	}
	if !a.Result.Allowed() {
		return g.refuse(r, a.Result, a.Err, unnamed)
	}
	if a.Result.Delay > 0 {
		if res, err := wait(r.Context(), a); res.Delay == 0 {
			return g.refuse(r, res, err, unnamed)
		}
	}
	v := Verdict{Action: Pass, Policy: ru.name, Result: a.Result, Err: a.Err, rule: ru, guard: g, marks: marks}
	if settles := ru.settles && a.Result.Taken > 0; settles || a.Held() {
		v.owed = owe(a, settles)
	}
	g.admitted(&v, unnamed)
	return v
}

// wait waits for the turn of what was taken. If it does not come to that, the Result is a refusal. It is apart from
// Check, whose variables would be on the heap for each request otherwise.
func wait(ctx context.Context, a core.Admission) (core.Result, error) {
	err := a.Wait(ctx)
	late := (*core.OverLimitError)(nil)
	switch {
	case err == nil:
		return a.Result, nil
	case errors.As(err, &late):
		return late.Result, nil
	default:
		return core.Result{}, err
	}
}

// refuse lets the rule's handler answer, and makes its Verdict one that can be carried out. unnamed is why the request
// was counted without a key of its own.
func (g *Guard) refuse(r keyfunc.Request, res core.Result, err, unnamed error) Verdict {
	g.tell(res.Outcome, cmp.Or(err, unnamed))
	ru := g.rule
	var v Verdict
	if plain, ok := ru.OverLimit.(reject); ok { // refusals are the attack: they cost little
		v = plain.answer(&res, err)
	} else {
		v = ru.OverLimit.Serve(&Refusal{Request: r, Rule: &ru.Rule, Result: res, Err: err})
	}
	v.Policy, v.Result, v.Err = ru.name, res, err
	v.rule, v.guard = ru, g
	if v.Action > Native || v.Action == Native && v.Native == nil {
		v.Action = Reply
	}
	v.Status = validStatus(v.Status, statusTooManyRequests)
	return v
}

// validStatus is a status that can be written: instead, where it is not one of an answer.
func validStatus(status, instead int) int {
	if status < 200 || status > 999 {
		return instead
	}
	return status
}
