package redisstore

import (
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore/internal/denials"
	"github.com/weir-go/weir/core/redisstore/internal/keys"
)

// program has what is computed once for a policy: the beginning of its keys' names, the scripts of its kinds, and the
// arguments of one unit.
type program struct {
	*scripts
	names   keys.Names
	before  string
	unit    []any // nil if they depend on the time, for windows of the calendar
	params  int   // how many arguments of the limits there are
	weight  int64 // of a decision
	denials *denials.Policy
	cache   *denials.Cache
}

// programs are those of the policies seen so far. They are kept up to maxPrograms, for a service that makes them as it
// runs.
type programs struct {
	denials  *denials.Cache
	byPolicy sync.Map // core.Policy -> *program
	policies atomic.Int64
}

const maxPrograms = 4096

// of returns the program of a policy whose keys have these names.
func (ps *programs) of(names keys.Names, p core.Policy) (*program, error) {
	if v, ok := ps.byPolicy.Load(p); ok {
		return v.(*program), nil //nolint:forcetypeassert // nothing else is stored
	}
	shared, err := scriptsOf(p.Spec().Kinds())
	if err != nil {
		return nil, err
	}
	v := &program{scripts: shared, names: names, before: names.Before(p, p.Spec().Shape()), cache: ps.denials}
	v.denials = ps.denials.Policy(v.before, p)
	for _, l := range p.Limits() {
		v.weight += moreWeight
		if l.Algorithm == core.SlidingLog {
			v.weight += min(l.Burst, fullLog) * fullLogWeight / fullLog
		}
	}
	v.weight += takeWeight - moreWeight
	params := p.Spec().TakeArgs(core.Take{Cost: 1}, 0)
	if v.params = len(params); !p.Spec().Calendar() {
		v.unit = arguments(short(params), 0)
	}
	if ps.policies.Add(1) > maxPrograms {
		ps.policies.Store(1)
		ps.byPolicy.Clear()
	}
	ps.byPolicy.Store(p, v)
	return v, nil
}

// name returns the name of a key.
func (p *program) name(key string) string { return p.names.Of(p.before, key) }
