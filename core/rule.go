package core

import (
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/weir-go/weir/keyfunc"
)

// Rule is a policy and the code around it: who is counted, at what cost, and what
// happens over the limit. A [Guard] enforces one.
type Rule struct {
	// Policy is what holds.
	Policy Policy
	// Key says who is counted. In [Guard.WithRule], the zero Func means that of
	// the Config, as zero does for the fields below.
	Key keyfunc.Func
	// Cost is how many units a request takes: 0 only looks and is always admitted.
	// A negative cost, such as the -1 of an unknown ContentLength, is a mistake:
	// the request is answered with 503 and the log is told. nil means 1.
	Cost func(keyfunc.Request) int64
	// Settle is asked when the request is over how many of the taken units it
	// really used; the rest is given back. So a rule can count failures alone.
	// nil means all.
	Settle func(f Final, taken int64) int64
	// OverLimit answers what the policy refuses. nil means Reject.
	OverLimit OverLimit
	// NoKey says what happens to a request that has no key.
	NoKey NoKey
}

// NoKey says what happens to a request without a key, such as one without a user
// where users are counted, or one whose key function failed.
type NoKey uint8

// What may happen to a request without a key.
const (
	// NoKeyDefault, the zero NoKey, is that of the Config, and there it is
	// NoKeyRefuse.
	NoKeyDefault NoKey = iota
	// NoKeyRefuse hands the request to the OverLimit handler, which by default
	// answers 403: who cannot be counted does not pass.
	NoKeyRefuse
	// NoKeyShared counts all requests without a key together.
	NoKeyShared
	// NoKeyPass lets the request pass uncounted.
	NoKeyPass
)

// sharedKey is that of all requests without one. Every key that a keyfunc.Func
// builds has a "=", so that none can meet it.
const sharedKey = "none"

// rule is a Rule with everything filled in, and what depends on it alone.
type rule struct {
	Rule
	// limits are the header texts of the policy's bursts.
	limits [MaxLimits]string
	watch  watch
	// misplaced and mistake are mistakes in use that are told once each.
	misplaced, mistake sync.Once
}

// prepareRule checks r, and fills in from base what it leaves out.
func prepareRule(r, base Rule) (*rule, error) {
	var mistakes []error
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
	if r.NoKey == NoKeyDefault {
		r.NoKey = base.NoKey
	}
	if r.Policy.IsZero() {
		mistakes = append(mistakes, errors.New("core: Policy is missing; give one, such as core.MustParse(\"100/1m\")"))
	} else if r.Policy.Name() == "" {
		mistakes = append(mistakes, fmt.Errorf("core: the policy %q has no name; give it one, as in \"login: %v\"", r.Policy, r.Policy))
	}
	if r.Key.String() == "" {
		mistakes = append(mistakes, errors.New("core: Key is missing; say who is counted, as with keyfunc.IP()"))
	} else if err := r.Key.Err(); err != nil {
		mistakes = append(mistakes, fmt.Errorf("core: Key: %w", err))
	}
	if h, ok := r.OverLimit.(interface{ Err() error }); ok && h.Err() != nil {
		mistakes = append(mistakes, fmt.Errorf("core: OverLimit: %w", h.Err()))
	}
	if r.NoKey > NoKeyPass {
		mistakes = append(mistakes, fmt.Errorf("core: NoKey is %d; give NoKeyRefuse, NoKeyShared or NoKeyPass", r.NoKey))
	}
	if mistakes != nil {
		return nil, errors.Join(mistakes...)
	}
	out := &rule{Rule: r}
	for i, l := range r.Policy.p.limits {
		out.limits[i] = strconv.FormatInt(l.Burst, 10)
	}
	return out, nil
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

// keyError is the error of a key function that does not work. Who cannot be named
// has no key.
type keyError struct{ error }

func (f keyError) Unwrap() error { return f.error }

func (keyError) Is(target error) bool { return target == keyfunc.ErrNoKey }
