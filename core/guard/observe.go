package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/keyfunc"
)

// Event is the argument of Config.Observe: a rule has decided on a request, or, with Settled, it is known how much
// the request has used in the end. There is none for a rule that the request was exempted from, nor for one whose
// decision did not matter because another rule has refused.
//
// Policy, Rule, Tier, Outcome, From and Shadow have few values, none of which a client chooses, so that they can be
// labels of a metric.
//
// An Event may be kept, and used by other goroutines. Only Context, Route and Key are for the time of Observe:
// frameworks use requests again.
type Event struct {
	// Policy is the policy's name.
	Policy string
	// Rule is the place of the rule in the Config: "Rule", "Rules[1]" or `Routes["POST /login"]`; or "With".
	Rule string
	// Tier is the sender's tier, if the rule has numbers for it, or "". It is "" as well where the Source has numbers for
	// the request's key.
	Tier string
	// Revision is that of the Set by which the request went, such as "3.17", or "" without one. It changes with each
	// change, so it is for a log rather than a label.
	Revision string
	// Result is the limiter's answer, and the zero Result where nothing was decided. Its Local reports that the store
	// did not answer. Its Delay is the wait that was announced at the decision; the real one is in Waited. With After it
	// is the real one, too.
	Result core.Result
	// Outcome is the decision, which is that of the policy's fail word if Err is a *core.StoreError.
	Outcome core.Outcome
	// From is the place where that was decided: the store, or what stands in for it.
	From From
	// Shadow reports that the policy is a trial, which refuses nothing, whatever the Outcome.
	Shadow bool
	// Settled reports that the request is over, and that Used units were used where the Result took Taken. An Event of
	// this kind has no Took, Waited, Route and Key.
	Settled bool
	// At is the instant at which the decision began, in microseconds since the epoch, by the clock of this process:
	// time.UnixMicro makes a time.Time of it. The decision was there when Took and then Waited had passed. With Settled it
	// is the end of the request.
	At int64
	// Took is the duration of the decision, without the waiting for the turn. It is 0 where it was not measured: the
	// store was not asked, or it is in the process, where a decision takes well under a microsecond. There only one of 32
	// is measured, taken at random, because reading the clock takes a third as long as the decision.
	Took time.Duration
	// Waited is the time that the request has waited for its turn, also if it was refused in the end, and 0 if its turn
	// came at once.
	Waited time.Duration
	// Used is the number of units that Settle or After has returned, at least 0. Of what is beyond the units that were
	// taken, as much is charged as the policy's debt allows.
	Used int64
	// Err is nil, or the error on the way to the decision: a *core.StoreError, the error of the key function (also where
	// NoKeyShared made the store decide all the same), the context's error of a client that left, or enforce.ErrClosed.
	Err error

	asked
}

// LogValue implements [slog.LogValuer]: an Event is a group of attributes with the names of the metrics, such as
// weir.policy, weir.outcome and weir.from, and those of its Result. Texts, durations and flags that are zero are left
// out. The key is not among them, since it may name a person, and neither is the route, since a log may ask for the value
// when Observe has returned: add both where they are wanted,
//
//	slog.Info("refused", "", e, "weir.key", e.Key(), "http.route", e.Route())
//
// where the name "" makes the group's attributes those of the line.
func (e Event) LogValue() slog.Value {
	result := e.Result.LogValue().Group()[1:] // without the outcome
	attrs := append(make([]slog.Attr, 0, 10+len(result)), slog.String("weir.policy", e.Policy), slog.String("weir.rule", e.Rule))
	text := func(name, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(name, value))
		}
	}
	duration := func(name string, d time.Duration) {
		if d > 0 {
			attrs = append(attrs, slog.Duration(name, d))
		}
	}
	text("weir.tier", e.Tier)
	attrs = append(attrs, slog.String("weir.outcome", e.Outcome.String()), slog.String("weir.from", e.From.String()))
	if e.Shadow {
		attrs = append(attrs, slog.Bool("weir.shadow", true))
	}
	text("weir.revision", e.Revision)
	attrs = append(attrs, result...)
	if e.Settled {
		attrs = append(attrs, slog.Int64("weir.units.settled", e.Used))
	}
	duration("weir.decision.duration", e.Took)
	duration("weir.request.time_in_queue", e.Waited)
	if failed := (*core.StoreError)(nil); errors.As(e.Err, &failed) {
		text("error.type", failed.Class)
		text("server.address", failed.Server)
	}
	if e.Err != nil {
		text("error.message", e.Err.Error())
	}
	return slog.GroupValue(attrs...)
}

// From is the place where a request was decided: the store, or what stands in for it; see [Event].
type From uint8

// The places where a request may be decided.
const (
	// FromNone, the zero From: nothing was decided, because the request has no key, its client has left, or the Guard
	// was closed while it waited for its turn.
	FromNone From = iota
	// FromStore: a store outside of the process.
	FromStore
	// FromDenyCache: the process, which remembers what a store outside has refused; see core.Result.Remembered.
	FromDenyCache
	// FromCircuit: the circuit of the key, which is open; see [Break].
	FromCircuit
	// FromProcess: the in-process store of a Guard that has no other, or the numbers alone, where those of the key or
	// the tier are "unlimited" or "blocked".
	FromProcess
	// FromFallback: the in-process store, because the store has failed and the policy says "fail local".
	FromFallback
	// FromOpen: the policy's "fail open", which let the request pass uncounted because the store has failed.
	FromOpen
	// FromClosed: the policy's "fail closed", which refused the request because the store has failed.
	FromClosed
)

// String returns the text of f, as it suits a label: "none", "store", "deny-cache", "circuit", "process", "fallback",
// "open" or "closed".
func (f From) String() string {
	if int(f) < len(fromTexts) {
		return fromTexts[f]
	}
	return fmt.Sprintf("From(%d)", uint8(f))
}

var fromTexts = [...]string{
	FromNone: "none", FromStore: "store", FromDenyCache: "deny-cache", FromCircuit: "circuit",
	FromProcess: "process", FromFallback: "fallback", FromOpen: "open", FromClosed: "closed",
}

// asked leads an Event to the request and the rule that it is about.
type asked struct {
	of         *subject // nil if there is none
	generation int64    // of the subject, while Observe runs
	live       *live
}

// Context returns the context of the request, for what it carries, such as a span. It is valid while Observe runs: of an
// Event that is kept it is context.Background(). With Settled it is the context of the handler, which may have ended, or
// context.Background() if the handler got none from the Guard.
func (a asked) Context() context.Context {
	ctx := context.Background() //nolint:forbidigo // there is no request any more
	if s := a.subject(); s != nil {
		defer s.leave()
		switch {
		case s.ctx != nil:
			ctx = s.ctx
		case s.request != nil:
			ctx = s.request.Context()
		}
	}
	return ctx
}

// Route returns the pattern of the request's route. It is worked out when asked for, and only while Observe runs: of an
// Event that is kept it is "".
func (a asked) Route() string {
	s := a.subject()
	if s == nil {
		return ""
	}
	defer s.leave()
	if s.request == nil {
		return ""
	}
	return s.request.Route()
}

// Key returns the key that was counted, or "" if the request has none. Like Route it is for the time of Observe only.
// Clients bring about any number of keys, so that a key can be in a line of an audit log, but not a label.
func (a asked) Key() string {
	s := a.subject()
	if s == nil {
		return ""
	}
	defer s.leave()
	if s.borrowed {
		return strings.Clone(s.key)
	}
	return s.key
}

// AppendKey appends what Key returns to b, and allocates nothing but room in b: for code that only hashes the key, or
// looks it up.
func (a asked) AppendKey(b []byte) []byte {
	if s := a.subject(); s != nil {
		b = append(b, s.key...)
		s.leave()
	}
	return b
}

// Memo returns the Memo of the rule, which is the same for all its Events.
func (a asked) Memo() *Memo {
	if a.live == nil {
		return new(Memo) // of an Event that no Guard has made
	}
	return &a.live.memo
}

// subject returns the subject for reading, until leave is called, or nil if the Event was kept.
func (a asked) subject() *subject {
	if a.of == nil {
		return nil
	}
	for {
		switch state := a.of.state.Load(); {
		case state&^readers != a.generation:
			return nil
		case a.of.state.CompareAndSwap(state, state+1):
			return a.of
		}
	}
}

// subject has what an Event needs while Observe runs. It is used again for the next Event, which is another generation:
// so Events allocate nothing, and one that is kept finds nothing. It belongs to one goroutine at a time; others, to which
// Observe has given an Event, read it between asked.subject and leave.
type subject struct {
	state     atomic.Int64 // the generation, in units of oneGeneration, and the number of goroutines that read it
	request   keyfunc.Request
	ctx       context.Context //nolint:containedctx // in place of that of the request, which is over; or nil
	key       string
	borrowed  bool   // key is only valid while Observe runs
	observing bool   // Observe runs, or has panicked
	event     Event  // the argument of Observe, which is copied from here
	rule      *rule  // of event
	random    uint64 // of the sample of decisions that are measured
}

// newSubject returns a subject whose sample does not begin as that of others does: pools drop what they have.
func newSubject() *subject { return &subject{random: rand.Uint64()} } //nolint:gosec // any numbers will do

const (
	oneGeneration = 1 << 16
	readers       = oneGeneration - 1
)

func (s *subject) leave() { s.state.Add(-1) }

// forget is called when Observe has returned. Events that have led to s do so no more.
func (s *subject) forget() {
	s.observing = false
	if state := s.state.Load(); state&readers != 0 || !s.state.CompareAndSwap(state, state+oneGeneration) {
		s.state.Add(oneGeneration)
		for s.state.Load()&readers != 0 { // another goroutine has begun to read
			runtime.Gosched()
		}
	}
	s.request, s.ctx = nil, nil
}

// Memo is room for what an observer keeps about a rule, so that it need not look that up by the Event's texts. It lives
// as long as the rule, also where a Source changes the numbers. The zero Memo is empty.
type Memo struct{ first atomic.Pointer[memo] }

// memo is the value of one observer.
type memo struct {
	owner, value any
	next         *memo
}

// Load returns the value of an owner, or nil if there is none yet. The owner is the observer, such as a pointer to it:
// several may observe one rule.
func (m *Memo) Load(owner any) any {
	for at := m.first.Load(); at != nil; at = at.next {
		if at.owner == owner {
			return at.value
		}
	}
	return nil
}

// LoadOrStore returns the value of an owner, after it has stored the one given if there is none yet.
func (m *Memo) LoadOrStore(owner, value any) any {
	for {
		first := m.first.Load()
		for at := first; at != nil; at = at.next {
			if at.owner == owner {
				return at.value
			}
		}
		if m.first.CompareAndSwap(first, &memo{owner, value, first}) {
			return value
		}
	}
}

// seen holds the parts of a decision that only Observe needs.
type seen struct {
	tier         string
	began        int64 // microseconds since the epoch, if the decision is measured, and else 0
	took, waited time.Duration
}

// begin notes that the decision is measured from now on.
func (s *seen) begin() time.Time {
	now := time.Now()
	s.began = now.UnixMicro()
	return now
}

// sampled reports whether to measure the next decision of an in-process store: one of 32. A generator of its own costs a fifth of one that the program shares.
func (s *subject) sampled() bool {
	s.random = s.random*6364136223846793005 + 1442695040888963407
	return s.random>>(64-5) == 0
}

// observeDecision calls Observe with the decision of the rule of t. It is called only if there is an Observe. If that
// panics, the caller calls forget.
func (g *Guard) observeDecision(r keyfunc.Request, t *taken, d *Scratch, err error) {
	if err == nil {
		err = t.keyless
	}
	s, ru, res := d.subject, t.rule, &t.admission.Result
	s.request, s.key, s.borrowed = r, t.key, ru.forgets && !d.shared
	e := &s.event // an Event is large: what is as before stays
	if s.rule != ru {
		s.rule = ru
		e.Policy, e.Rule, e.Revision, e.Shadow = ru.name, ru.place, ru.revision, ru.shadow
	}
	e.Result = *res
	e.Tier, e.Outcome, e.From = t.seen.tier, res.Outcome, g.from(t, err)
	e.At, e.Took, e.Waited, e.Err = g.began(t), t.seen.took, t.seen.waited, err
	e.asked = asked{s, s.state.Load(), ru.live}
	s.observing = true
	g.observe(*e)
	s.forget()
}

// began returns when the decision began. That of the in-process store has the time by the same clock.
func (g *Guard) began(t *taken) int64 {
	switch at := t.admission.Result.At; {
	case t.seen.began != 0:
		return t.seen.began
	case g.inProcess && at != 0:
		return at
	default: // the Result of a wait that has failed does not have it
		return time.Now().Add(-t.seen.waited).UnixMicro()
	}
}

// from returns the place where the request of t was decided.
func (g *Guard) from(t *taken, err error) From {
	res := &t.admission.Result
	switch {
	case t.barred:
		return FromCircuit
	case res.Local, t.admission.Err != nil:
		if t.admission.Policy().Options().Fail == core.FailOpen {
			return FromOpen
		}
		return FromFallback
	case t.exempt:
		return FromNone
	case err != nil && res.At == 0 && res.Outcome == core.Refused && res.RetryAfter == 0: // nothing was decided
		if failed := (*core.StoreError)(nil); errors.As(err, &failed) {
			return FromClosed
		}
		return FromNone
	case res.Remembered:
		return FromDenyCache
	case g.inProcess, res.At == 0 && res.Limit == 0: // unlimited or blocked
		return FromProcess
	default:
		return FromStore
	}
}

// subjects are those of requests that are over.
var subjects = sync.Pool{New: func() any { return new(subject) }}

// observeSettled calls Observe with the units that a request has used. It is called only if there is an Observe.
func (g *Guard) observeSettled(o *owed, d *due, used int64) {
	s, ru, res := subjects.Get().(*subject), d.rule, &d.admission.Result
	s.ctx = o.context.Context
	defer func() {
		s.forget()
		subjects.Put(s)
	}()
	g.observe(Event{
		Policy: ru.name, Rule: ru.place, Tier: d.tier, Revision: ru.revision,
		Result: *res, Outcome: res.Outcome, From: d.from, Shadow: ru.shadow,
		Settled: true, At: time.Now().UnixMicro(), Used: used, asked: asked{s, s.state.Load(), ru.live},
	})
}
