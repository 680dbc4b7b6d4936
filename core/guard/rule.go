package guard

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/keyfunc"
)

// Rule is a policy and the code around it: who is counted, at what cost, and what happens over the limit. A [Guard]
// enforces one.
type Rule struct {
	// Policy is what holds, as [core.Parse] reads it: "100/1m", or "login: 5/1m; fail closed".
	Policy string
	// Key says who is counted. In [Guard.WithRule], the zero Func means that of the Config, as zero does for the
	// fields below.
	Key keyfunc.Func
	// Cost is how many units a request takes: 0 only looks and is always admitted. A negative cost, such as the -1 of
	// an unknown ContentLength, is a mistake: the request is answered with 503 and the log is told. nil means 1.
	Cost func(keyfunc.Request) int64
	// Settle is asked when the request is over how many of the taken units it really used; the rest is given back. So
	// a rule can count failures alone. Until the request is over all of them are taken, and a remote store is told of
	// the rest some milliseconds later: for so long a client has less than its limit. A part of what a meter took in
	// debt or with a delay cannot be given back; see [core.Store]. At most 16384 charges wait
	// for a remote store that hangs; what is beyond expires by itself, and the log is told. nil means all.
	Settle func(f Final, taken int64) int64
	// OverLimit answers what the policy refuses. nil means Reject.
	OverLimit OverLimit
	// NoKey says what happens to a request that has no key.
	NoKey NoKey
}

// NoKey says what happens to a request without a key, such as one without a user where users are counted, or one
// whose key function failed.
type NoKey uint8

// What may happen to a request without a key.
const (
	// NoKeyDefault, the zero NoKey, is that of the Config, and there it is NoKeyRefuse.
	NoKeyDefault NoKey = iota
	// NoKeyRefuse hands the request to the OverLimit handler, which by default answers 403: what cannot be counted
	// does not pass.
	NoKeyRefuse
	// NoKeyShared counts all requests without a key together.
	NoKeyShared
	// NoKeyPass lets the request pass uncounted.
	NoKeyPass
)

// sharedKey is that of all requests without one. Every key that a keyfunc.Func builds has a "=", so that none can
// meet it.
const sharedKey = "none"

// rule is a Rule with everything filled in, and what depends on it alone.
type rule struct {
	Rule
	limiter *core.Limiter
	name    string
	settles bool // there is something to settle
	bursts  []burst
	watch   watch
	// misplaced and mistaken are mistakes in use that are told once each.
	misplaced, mistaken sync.Once
}

// burst is a limit's burst and its text in a header.
type burst struct {
	units int64
	text  string
}

// prepare checks r, after it has filled in from base what r leaves out. A policy without a name is given one.
func prepare(r, base Rule, name string) (*rule, core.Policy, error) {
	if r.Key.String() == "" {
		r.Key = base.Key
	}
	if r.Cost == nil {
		r.Cost = base.Cost
	}
	if r.Settle == nil {
		r.Settle = base.Settle
	}
	if r.OverLimit == nil {
		r.OverLimit = base.OverLimit
	}
	r.NoKey = cmp.Or(r.NoKey, base.NoKey)

	p, err := policy(r.Policy, name)
	mistakes := []error{err}
	wrong := func(format string, args ...any) { mistakes = append(mistakes, fmt.Errorf("guard: "+format, args...)) }
	if r.Key.String() == "" {
		wrong("Key is missing; say who is counted, as with keyfunc.IP()")
	} else if err := r.Key.Err(); err != nil {
		wrong("Key: %w", err)
	}
	if h, ok := r.OverLimit.(interface{ Err() error }); ok && h.Err() != nil {
		wrong("OverLimit: %w", h.Err())
	}
	if r.NoKey > NoKeyPass {
		wrong("NoKey is %d; give NoKeyRefuse, NoKeyShared or NoKeyPass", r.NoKey)
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, core.Policy{}, err
	}
	ru := &rule{Rule: r, name: p.Name()}
	for _, l := range p.Limits() {
		ru.bursts = append(ru.bursts, burst{l.Burst, strconv.FormatInt(l.Burst, 10)})
		ru.settles = ru.settles || r.Settle != nil && l.Algorithm != core.Concurrent
	}
	return ru, p, nil
}

// policy reads a policy's text, and names it if it does not do so itself.
func policy(text, name string) (core.Policy, error) {
	if text == "" {
		return core.Policy{}, errors.New("guard: Policy is missing; give one, such as \"100/1m\"")
	}
	p, err := core.Parse(text)
	switch {
	case err != nil || p.Name() != "":
		return p, err
	case name == "":
		return core.Policy{}, fmt.Errorf("guard: the policy %q has no name; give it one, as in \"login: %v\"", text, p)
	default:
		return core.NewPolicy(name, p.Options(), p.Limits()...)
	}
}

var keys = sync.Pool{New: func() any { return new(keyfunc.Key) }}

// key returns who sent r, and what is doubtful about that.
func (ru *rule) key(r keyfunc.Request) (text, warning string, err error) {
	k := keys.Get().(*keyfunc.Key)
	k.Reset()
	err = ru.Key.AppendTo(k, r)
	text, warning = k.String(), k.Warning()
	keys.Put(k)
	switch {
	case err == nil && text == "":
		err = keyfunc.ErrNoKey
	case err != nil && !errors.Is(err, keyfunc.ErrNoKey):
		err = keyError{err}
	}
	return text, warning, err
}

// keyError is the error of a key function that does not work. What cannot be named has no key.
type keyError struct{ error }

func (f keyError) Unwrap() error { return f.error }

func (keyError) Is(target error) bool { return target == keyfunc.ErrNoKey }
