package redisstore

import (
	"crypto/sha1" // the name by which Redis knows a script
	"encoding/hex"
	"strconv"
	"strings"
	"sync"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore/internal/denials"
	"github.com/weir-go/weir/core/redisstore/internal/keys"
	"github.com/weir-go/weir/lua"
)

// script is the text and the hash of a script, boxed once for the client's arguments.
type script struct {
	text, hash any
	takes      *script // the one that decides the same for many keys and calls, or nil
}

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{text: text, hash: hex.EncodeToString(sum[:])}
}

// scripts are the scripts for policies of the same kinds.
type scripts struct {
	take, takes, upTo, refund, credit *script

	log bool // one of the kinds keeps a log
}

// byKinds has the scripts of the kinds that the process has seen. Composing them takes milliseconds, so of a
// crowd that comes first one does it, for all stores.
var byKinds sync.Map // string -> func() (*scripts, error)

func scriptsOf(kinds string) (*scripts, error) {
	v, ok := byKinds.Load(kinds)
	if !ok {
		v, _ = byKinds.LoadOrStore(kinds, sync.OnceValues(func() (*scripts, error) { return newScripts(kinds) }))
	}
	return v.(func() (*scripts, error))() //nolint:forcetypeassert // nothing else is stored
}

func newScripts(kinds string) (*scripts, error) {
	s := &scripts{log: strings.Contains(kinds, "x")}
	for _, op := range []struct {
		into    **script
		compose func(string) (string, error)
	}{{&s.take, lua.Take}, {&s.takes, lua.Takes}, {&s.upTo, lua.UpTo}, {&s.refund, lua.Refund}, {&s.credit, lua.Credit}} {
		text, err := op.compose(kinds)
		if err != nil {
			return nil, err
		}
		*op.into = newScript(text)
	}
	s.take.takes = s.takes
	return s, nil
}

// short returns params without the zeros at their end, which the script take does without, unless the time is forced.
func short(params []int64) []int64 {
	for len(params) > 0 && params[len(params)-1] == 0 {
		params = params[:len(params)-1]
	}
	return params
}

// arguments returns those of a script that decides, with the forced time if there is one.
func arguments(params []int64, now int64) []any {
	if now != 0 {
		params = append(params, now)
	}
	return texts(params)
}

func texts(params []int64) []any {
	args := make([]any, len(params))
	for i, n := range params {
		args[i] = strconv.FormatInt(n, 10)
	}
	return args
}

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
