package redisstore

import (
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

// newProgram computes the program of a policy whose keys have these names.
func newProgram(names keys.Names, p core.Policy, cache *denials.Cache) (*program, error) {
	shared, err := scriptsOf(p.Spec().Kinds())
	if err != nil {
		return nil, err
	}
	v := &program{scripts: shared, names: names, before: names.Before(p, p.Spec().Shape()), cache: cache}
	v.denials = cache.Policy(v.before, p)
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
	return v, nil
}

// name returns the name of a key.
func (p *program) name(key string) string { return p.names.Of(p.before, key) }
