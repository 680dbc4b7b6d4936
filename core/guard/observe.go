package guard

import (
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/keyfunc"
)

// Event is the argument of Config.Observe: a rule has decided on a request, or, with Settled, it is known how much
// the request has used in the end. There is none for a rule that the request was exempted from, nor for one whose
// decision did not matter because another rule has refused.
//
// Policy, Rule, Tier, Outcome and Shadow have few values, none of which a client chooses, so that they can be labels of
// a metric.
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
	// Shadow reports that the policy is a trial, which refuses nothing, whatever the Outcome.
	Shadow bool
	// Outcome is the decision, which is that of the policy's fail word if Err is a *core.StoreError.
	Outcome core.Outcome
	// Result is the limiter's answer, and the zero Result where nothing was decided. Its Local reports that the store
	// did not answer. Its Delay is the wait that was announced at the decision; the real one may be shorter, and on
	// trial there is none. With After it is what was waited.
	Result core.Result
	// Took is the duration of the decision, without the waiting for the turn.
	Took time.Duration
	// Err is nil, or the error on the way to the decision: a *core.StoreError, the error of the key function (also where
	// NoKeyShared made the store decide all the same), the context's error of a client that left, or enforce.ErrClosed.
	Err error

	// Settled reports that the request is over, and that Used units were used where the Result took Taken. An Event of
	// this kind has no Took, Route and Key.
	Settled bool
	// Used is the number of units that Settle or After has returned, at least 0. Of what is beyond the units that were
	// taken, as much is charged as the policy's debt allows.
	Used int64

	about *about
}

// Route returns the pattern of the request's route. It is worked out when asked for, and only while Observe runs: of an
// Event that is kept it is "".
func (e Event) Route() string {
	if e.about == nil || e.about.request == nil {
		return ""
	}
	return e.about.request.Route()
}

// Key returns the key that was counted, or "" if the request has none. Like Route it is for the time of Observe only.
// Clients bring about any number of keys, so that a key can be in a line of an audit log, but not a label.
func (e Event) Key() string {
	if e.about == nil || e.about.request == nil {
		return ""
	}
	var k keyfunc.Key
	err := e.about.rule.Key.AppendTo(&k, e.about.request)
	if (err != nil || k.Len() == 0) && e.about.rule.NoKey == NoKeyShared {
		return sharedKey
	}
	return k.String()
}

// about is the subject of an Event while Observe runs: frameworks reuse requests.
type about struct {
	request keyfunc.Request
	rule    *rule
}

// seen holds the parts of a decision that only Observe needs.
type seen struct {
	tier string
	took time.Duration
}

// observeDecision calls Observe with the decision of the rule of t. It is called only if there is an Observe.
func (g *Guard) observeDecision(r keyfunc.Request, t *taken, err error) {
	subject := &about{r, t.rule}
	defer func() { subject.request = nil }()
	e := t.rule.event(&t.admission.Result, t.seen.tier)
	e.Took, e.Err, e.about = t.seen.took, err, subject
	g.observe(e)
}

// observeSettled calls Observe with the units that a request has used.
func (g *Guard) observeSettled(d *due, used int64) {
	if g.observe != nil {
		e := d.rule.event(&d.admission.Result, d.tier)
		e.Settled, e.Used = true, used
		g.observe(e)
	}
}

func (ru *rule) event(res *core.Result, tier string) Event {
	return Event{Policy: ru.name, Rule: ru.place, Tier: tier, Revision: ru.revision, Shadow: ru.shadow, Outcome: res.Outcome, Result: *res}
}
