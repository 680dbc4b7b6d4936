package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/keyfunc"
)

// Config says what a [Guard] enforces. Policy and Key must be given; every other
// zero field is a good choice.
type Config struct {
	// Store keeps the counts. nil means a [Memory] of the Guard's own.
	Store Store
	// Policy is what holds for every request. Without a name it is "default".
	Policy Policy
	// Key says who is counted.
	Key keyfunc.Func
	// Cost, Settle, OverLimit and NoKey: see [Rule].
	Cost      func(keyfunc.Request) int64
	Settle    func(f Final, taken int64) int64
	OverLimit OverLimit
	NoKey     NoKey
	// Skip exempts requests, such as health checks: they pass untouched.
	Skip func(keyfunc.Request) bool
	// Observe is called once for each decision, with a policy and an outcome
	// that are fit to be labels of a metric. It must not block.
	Observe func(Event)
	// Log is told when the store fails and when it is back, at most once a
	// second, and of mistakes in use, once each. nil means slog.Default().
	Log *slog.Logger
}

// Event is one decision, as Config.Observe is told of it.
type Event struct {
	// Policy is the policy's name.
	Policy string
	// Outcome is what was decided, by the fail word's doing if Err is a
	// *StoreError.
	Outcome Outcome
	// Err is what went wrong on the way, or nil: a *StoreError, the error of the
	// key function (also where NoKeyShared made the store decide all the same), or
	// the context's error of a caller who left.
	Err error
}

// Guard, built by [NewGuard], enforces a rule on HTTP requests. It knows no framework: an adapter, such
// as nethttp.Limit, asks [Guard.Check] and carries out the [Verdict]. It is
// immutable and safe for concurrent use.
//
// A Guard that is mounted twice in one request counts it twice, and says so in the
// log, once.
type Guard struct {
	*family
	rule *rule
}

// family is what a Guard shares with all that its With and WithRule made.
type family struct {
	base    Rule
	store   *failover
	settler *settler
	waiters *waiters
	skip    func(keyfunc.Request) bool
	observe func(Event)
	log     *slog.Logger

	mu    sync.Mutex
	names map[string]Policy

	failing  atomic.Bool  // the store has failed, and it was not said that it is back
	failed   atomic.Int64 // when it last did, in Unix nanoseconds
	reported throttle     // the line that it fails
	dropped  throttle     // the line that settlements are lost
	doubtful sync.Once    // the line that addresses are not the sockets'
}

// NewGuard builds a Guard. It does no input or output. The error tells every
// mistake in c at once.
func NewGuard(c Config) (*Guard, error) {
	if c.Policy.p != nil && c.Policy.Name() == "" {
		c.Policy = c.Policy.Named("default")
	}
	if c.Store == nil {
		c.Store = defaultMemory()
	}
	f := &family{
		base: Rule{
			Policy: c.Policy, Key: c.Key, Cost: c.Cost, Settle: c.Settle, OverLimit: c.OverLimit, NoKey: c.NoKey,
		},
		store:   newFailover(c.Store),
		skip:    c.Skip,
		observe: c.Observe,
		log:     c.Log,

		names: map[string]Policy{},
	}
	if f.base.OverLimit == nil {
		f.base.OverLimit = Reject(RejectOptions{})
	}
	if f.base.NoKey == NoKeyDefault {
		f.base.NoKey = NoKeyRefuse
	}
	f.settler = newSettler(f.store, f.lost)
	f.waiters = newWaiters(f.settler)
	return f.guard(f.base)
}

func (f *family) guard(r Rule) (*Guard, error) {
	ru, err := prepareRule(r, f.base)
	if err := errors.Join(checkStore(f.store.store, r.Policy), err); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	name := ru.Policy.Name()
	if other, ok := f.names[name]; ok && other.String() != ru.Policy.String() {
		return nil, fmt.Errorf("core: the name %q stands for both %q and %q; they would share one count: rename one", name, other, ru.Policy)
	}
	f.names[name] = ru.Policy
	return &Guard{family: f, rule: ru}, nil
}

// With returns a Guard that enforces one more policy, for the routes on which it
// is mounted: an annotation. It shares the store, the key and everything else
// with g, and counts under its own name.
//
// It enforces that policy alone. What is mounted outside it, such as g on the
// whole application, has counted already: limits add up.
//
// With is for constants at start-up: like http.ServeMux.Handle it panics on a
// mistake. For text from elsewhere use [Guard.WithRule].
func (g *Guard) With(name, policy string) *Guard {
	p, err := Parse(policy)
	if err == nil && p.Name() != "" && p.Name() != name {
		err = fmt.Errorf("core: With(%q, %q): the policy brings another name; leave it out", name, policy)
	}
	if err == nil {
		err = checkName(name)
	}
	if err != nil {
		panic(err)
	}
	out, err := g.WithRule(Rule{Policy: p.Named(name)})
	if err != nil {
		panic(err)
	}
	return out
}

// WithRule is like [Guard.With] for a whole rule and for text that is only known
// at run time. What r leaves out is taken from g's Config. The policy must have a
// name, and one name stands for one policy.
func (g *Guard) WithRule(r Rule) (*Guard, error) { return g.guard(r) }

// Policy returns the policy that g enforces.
func (g *Guard) Policy() Policy { return g.rule.Policy }

// Close sends away the requests that wait for their turn, with 503, settles what is
// still to be given back, for half a second and one call of the store at most, and ends
// what g and its family run in the background; one call is enough for all of them.
// It is needed where a rule with Settle or with permits uses a remote store, after the
// server has shut down. The store is not closed. A Guard goes on deciding after it, but gives
// nothing back to a remote store.
func (g *Guard) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closingTime) //nolint:forbidigo // of many requests
	defer cancel()
	g.waiters.close(ctx)
	var permits sync.WaitGroup
	permits.Go(func() { g.store.held.close(ctx) })
	g.settler.close(ctx)
	permits.Wait()
	return nil
}

// Check decides on a request. Where the policy says that its turn is yet to come, it
// waits until then, until the client leaves, or until Close. The adapter sets the Verdict's headers, carries it
// out, and calls Finish when the request is over, whatever happened.
func (g *Guard) Check(r keyfunc.Request) Verdict {
	if g.skip != nil && g.skip(r) {
		return Verdict{Action: Pass}
	}
	ru := g.rule
	marks := ru.watch.next()
	if marks && r.Context().Value(g.mark()) != nil && ru.watch.found() {
		g.logger().Warn("weir: a guard is mounted twice in one request, which it counts twice", "policy", ru.Policy.Name(), "route", r.Route())
	}

	key, warning, unnamed := ru.key(r)
	if warning != "" {
		g.doubtful.Do(func() { g.logger().Warn("weir: "+warning, "policy", ru.Policy.Name()) })
	}
	if err := unnamed; err != nil {
		g.mistake(err)
		switch ru.NoKey {
		case NoKeyShared:
			key = sharedKey
		case NoKeyPass:
			g.tell(Admitted, err)
			return Verdict{Action: Pass, Policy: ru.Policy.Name(), Err: err}
		default:
			g.tell(Refused, err)
			return g.refuse(r, Result{}, err)
		}
	}
	t := Take{Policy: ru.Policy, Key: key, Cost: 1}
	if ru.Cost != nil {
		t.Cost = ru.Cost(r)
	}
	ctx := r.Context()
	res, h, err := g.store.admit(ctx, t, 1)
	given := h
	if h != nil { // until there is a Verdict to finish, as when Observe panics
		defer func() { given.release() }()
	}
	g.health(err)
	g.mistake(err)
	if res.Delay > 0 && res.Allowed() {
		if left := g.await(ctx, t, res); left != nil {
			h.release() // before a handler of the user's own answers
			res, err = Result{}, left
		}
	}
	g.tell(res.Outcome, cmp.Or(err, unnamed))
	if !res.Allowed() {
		return g.refuse(r, res, err)
	}
	v := Verdict{Action: Pass, Policy: ru.Policy.Name(), Result: res, Err: err, rule: ru, family: g.family, marks: marks, held: h}
	if ru.Settle != nil && res.Taken > 0 && len(ru.Policy.p.algorithms) > 0 {
		v.receipt = &receipt{take: t, result: res}
	}
	given = nil
	return v
}

// await waits for the turn of what was taken. Who leaves before gives it back. It is
// apart from Check, whose variables would be on the heap for each request otherwise.
func (g *Guard) await(ctx context.Context, t Take, res Result) error {
	return g.waiters.sleep(ctx, settlement{t, res, res.Taken})
}

// refuse lets the rule's handler answer, and makes its Verdict one that can be
// carried out.
func (g *Guard) refuse(r keyfunc.Request, res Result, err error) Verdict {
	ru := g.rule
	var v Verdict
	if plain, ok := ru.OverLimit.(reject); ok { // refusals are the attack: they cost little
		v = plain.answer(&res, err)
	} else {
		v = ru.OverLimit.Serve(&Excess{Request: r, Rule: &ru.Rule, Result: res, Err: err})
	}
	v.Policy, v.Result, v.Err = ru.Policy.Name(), res, err
	v.rule, v.family = ru, g.family
	if v.Action > Native || v.Action == Native && v.Native == nil {
		v.Action = Reply
	}
	if v.Status < 200 || v.Status > 999 {
		v.Status = statusTooManyRequests
	}
	return v
}

func (g *Guard) tell(o Outcome, err error) {
	if g.observe != nil {
		g.observe(Event{Policy: g.rule.Policy.Name(), Outcome: o, Err: err})
	}
}

func (f *family) logger() *slog.Logger {
	if f.log != nil {
		return f.log
	}
	return slog.Default()
}

// calm is how long the log is silent between two lines of one kind.
const calm = time.Second

// health says when the store fails and when it is back: calmly, because it may
// fail for every request, or for every second one.
func (f *family) health(err error) {
	if err == nil {
		if f.failing.Load() && time.Now().UnixNano()-f.failed.Load() >= int64(calm) && f.failing.CompareAndSwap(true, false) {
			f.logger().Info("weir: the store is back")
		}
		return
	}
	failed := (*StoreError)(nil)
	if !errors.As(err, &failed) {
		return
	}
	f.failed.Store(time.Now().UnixNano())
	f.failing.Store(true)
	if f.reported.due() {
		f.logger().Warn("weir: the store failed; each policy's fail word decides", "class", failed.Class, "error", failed.Err)
	}
}

// lost says that settlements were dropped.
func (f *family) lost() {
	if f.dropped.due() {
		f.logger().Warn("weir: the store is too slow for what is to be given back; some of it is lost")
	}
}

// mistake says, once for each rule, that its key or cost function does not work.
func (g *Guard) mistake(err error) {
	if err == nil {
		return
	}
	failed := (*StoreError)(nil)
	switch {
	case errors.As(err, &failed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return
	case errors.Is(err, keyfunc.ErrNoKey) && !errors.As(err, &keyError{}):
		return
	}
	g.rule.mistake.Do(func() {
		g.logger().Error("weir: a rule's key or cost cannot be used", "policy", g.rule.Policy.Name(), "key", g.rule.Key.String(), "error", err)
	})
}

// throttle lets something happen once in a while.
type throttle struct{ last atomic.Int64 } // Unix nanoseconds

func (t *throttle) due() bool {
	now, last := time.Now().UnixNano(), t.last.Load()
	return now-last >= int64(calm) && t.last.CompareAndSwap(last, now)
}
