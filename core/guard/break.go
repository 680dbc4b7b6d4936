package guard

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard/internal/circuits"
)

// BreakOptions are the options of [Break]: when a circuit opens, for how long, and what answers. The zero value is a
// good choice to begin with.
type BreakOptions struct {
	// Refusals is the number of refusals of one key that open its circuit, if they come in the time Within since the first
	// of them: with 10 in a minute, the tenth opens it. A refusal that comes later is the first again. 0 means 10, and a
	// minute.
	Refusals int
	Within   time.Duration
	// Open is the time for which the circuit is open at first; 0 means a minute. Each time it opens again, that doubles,
	// up to MaxOpen; 0 means an hour, or Open if that is longer. It begins anew with a key that was not refused for as
	// long as MaxOpen.
	Open, MaxOpen time.Duration
	// Before answers what is refused while the circuit is closed. nil means Reject.
	Before OverLimit
	// Then answers while it is open, and when it opens. nil means Reject.
	Then OverLimit
	// MaxKeys is the number of keys that are watched at a time, about; 0 means 10000. Each takes 50 to 100 bytes, all at
	// the first refusal.
	MaxKeys int
}

// Break refuses a key that does not stop: after some refusals the circuit of the key opens, and for some time its
// requests are refused without asking the store, with a Retry-After that says for how long. Use it if refusing has a
// price, such as a round trip to Redis, or as a ban: of an address after failed logins. Each key of each policy has
// one circuit in this process.
//
// When the time is over, one request a second is let through to the store. If it is admitted, the circuit closes; if it
// is refused, it opens for twice the time.
//
// Only refusals by the limit count, and not those of an open circuit: a client that goes on asking does not make it
// longer. A request without a key, or one for which the store failed under "fail closed", is for Before to answer, and
// so is one of a rule with After that is refused while there are units left, because others that are under way may use
// them.
//
// Nobody can open the circuit of another key, or close it: what a key is refused counts for that key. A flood of keys
// takes no more memory than MaxKeys says. It displaces keys whose time is over before keys whose circuits are closed,
// and never one whose circuit is open. If all are open, further ones do not open, and those keys are refused by the
// limit alone.
//
// A request that passes pays for a look at its key's circuit; before the first refusal, nothing.
func Break(o BreakOptions) OverLimit {
	b := &breaker{err: o.check()}
	o.Refusals, o.Within = cmp.Or(o.Refusals, 10), cmp.Or(o.Within, time.Minute)
	o.Open = cmp.Or(o.Open, min(time.Minute, cmp.Or(o.MaxOpen, time.Minute)))
	o.MaxOpen = cmp.Or(o.MaxOpen, max(time.Hour, o.Open))
	o.MaxKeys = cmp.Or(o.MaxKeys, 10_000)
	if o.Before == nil {
		o.Before = plain
	}
	if o.Then == nil {
		o.Then = plain
	}
	b.o = o
	b.circuits = circuits.New(circuits.Options{Refusals: o.Refusals, Within: o.Within, Open: o.Open, MaxOpen: o.MaxOpen, Keys: o.MaxKeys})
	return b
}

// check reports the mistakes in the options.
func (o BreakOptions) check() error {
	var mistakes []error
	wrong := func(format string, args ...any) {
		mistakes = append(mistakes, fmt.Errorf("BreakOptions."+format, args...))
	}
	if o.Refusals < 0 {
		wrong("Refusals is %d; give how many open a circuit, or 0 for 10", o.Refusals)
	}
	if o.Within < 0 {
		wrong("Within is %v; give the time in which refusals count, or 0 for a minute", o.Within)
	}
	if o.Open < 0 {
		wrong("Open is %v; give how long a circuit is open, or 0 for a minute", o.Open)
	}
	if o.MaxOpen != 0 && o.MaxOpen < max(o.Open, 1) {
		wrong("MaxOpen is %v, and Open %v; give a MaxOpen that is not less, or 0 for an hour", o.MaxOpen, o.Open)
	}
	for _, d := range []struct {
		name string
		time time.Duration
	}{{"Within", o.Within}, {"Open", o.Open}, {"MaxOpen", o.MaxOpen}} {
		if d.time > 0 && d.time < time.Millisecond {
			wrong("%s is %v; give a unit with the number, as in %d * time.Second", d.name, d.time, d.time.Nanoseconds())
		}
	}
	if o.MaxKeys < 0 || o.MaxKeys > circuits.MaxKeys {
		wrong("MaxKeys is %d; give 1 to %d, or 0 for 10000", o.MaxKeys, circuits.MaxKeys)
	}
	for _, f := range []struct {
		name    string
		handler OverLimit
	}{{"Before", o.Before}, {"Then", o.Then}} {
		switch h := f.handler.(type) {
		case *breaker:
			wrong("%s: Break within Break; one circuit is enough", f.name)
		case degrade:
			if f.name == "Then" && h.goesOn() {
				wrong("Then: Degrade would let everybody pass whom the circuit keeps out; give it to Before, or a handler that answers")
			} else if err := h.Err(); err != nil {
				wrong("%s: %w", f.name, err)
			}
		case interface{ Err() error }:
			if err := h.Err(); err != nil {
				wrong("%s: %w", f.name, err)
			}
		}
	}
	return errors.Join(mistakes...)
}

// breaker is the handler of [Break]. The rule whose handler it is asks its circuits before the store, and counts its
// refusals there.
type breaker struct {
	o        BreakOptions
	err      error
	circuits *circuits.Table
}

func (b *breaker) String() string { return fmt.Sprintf("break(%v, %v)", b.o.Before, b.o.Then) }

// Err reports the mistakes in the options to New.
func (b *breaker) Err() error { return b.err }

// Serve implements OverLimit, for a custom handler that passes on what it does not answer. Circuits open only if Break
// is the handler of a rule.
func (b *breaker) Serve(x *Refusal) Verdict { return b.o.Before.Serve(x) }

// choose counts a refusal, and returns the handler that answers it. If the circuit is open now, it raises the
// RetryAfter of res to the time for which it is.
func (b *breaker) choose(t *taken, res *core.Result, err error) OverLimit {
	policy := t.rule.inEpoch
	switch {
	case t.barred:
		return b.o.Then
	case !overLimit(res, err), t.attempt != nil && t.attempt.forNow: // by others that may use nothing of the limit
		if t.probe {
			b.circuits.Undecided(policy, t.key)
		}
		return b.o.Before
	}
	open := b.circuits.Refused(policy, t.key)
	if open == 0 {
		return b.o.Before
	}
	res.RetryAfter = max(res.RetryAfter, open)
	return b.o.Then
}
