package redisstore

import (
	"crypto/sha1" // the name by which Redis knows a script
	"encoding/hex"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore/internal/denials"
	"github.com/weir-go/weir/lua"
)

// script is a script's text and its name, boxed once for the client's arguments.
type script struct {
	text, hash any
	takes      *script // the one that decides the same for many keys and calls, or nil
}

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{text: text, hash: hex.EncodeToString(sum[:])}
}

// program is what a policy needs: what its keys' names begin with, the scripts of its kinds,
// and the arguments of one unit.
type program struct {
	*scripts
	before  string
	unit    []any // nil if they depend on the time, for windows of the calendar
	params  int   // how many arguments of the limits there are
	weight  int64 // of a decision
	denials *denials.Policy
}

type scripts struct {
	take, takes, upTo, refund *script
	log                       bool // one of the kinds keeps a log
}

// programs are those of the policies and kinds seen so far. There are few kinds;
// policies are kept up to maxPrograms, for a service that makes them as it runs.
type programs struct {
	denials  *denials.Cache
	byPolicy sync.Map // core.Policy -> *program
	policies atomic.Int64
	byKinds  sync.Map // string -> *scripts
	// composing is held by the one who composes scripts, which takes milliseconds: all requests of a program
	// that has just begun would do so at once.
	composing sync.Mutex
}

const maxPrograms = 4096

// of returns the program of a policy whose keys n names.
func (ps *programs) of(n names, p core.Policy) (*program, error) {
	if v, ok := ps.byPolicy.Load(p); ok {
		return v.(*program), nil //nolint:forcetypeassert // nothing else is stored
	}
	shared, err := ps.scripts(p.Spec().Kinds())
	if err != nil {
		return nil, err
	}
	v := &program{scripts: shared, before: n.before(p, p.Spec().Shape())}
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

// scripts returns those of some kinds, which one caller composes while the others wait.
func (ps *programs) scripts(kinds string) (*scripts, error) {
	if v, ok := ps.byKinds.Load(kinds); ok {
		return v.(*scripts), nil //nolint:forcetypeassert // nothing else is stored
	}
	ps.composing.Lock()
	defer ps.composing.Unlock()
	if v, ok := ps.byKinds.Load(kinds); ok {
		return v.(*scripts), nil //nolint:forcetypeassert // as above
	}
	s, err := newScripts(kinds)
	if err == nil {
		ps.byKinds.Store(kinds, s)
	}
	return s, err
}

func newScripts(kinds string) (*scripts, error) {
	s := &scripts{log: strings.Contains(kinds, "x")}
	for _, op := range []struct {
		into    **script
		compose func(string) (string, error)
	}{{&s.take, lua.Take}, {&s.takes, lua.Takes}, {&s.upTo, lua.UpTo}, {&s.refund, lua.Refund}} {
		text, err := op.compose(kinds)
		if err != nil {
			return nil, err
		}
		*op.into = newScript(text)
	}
	s.take.takes = s.takes
	return s, nil
}

// short is params without the zeros at their end, which the script take does without, unless the time is forced.
func short(params []int64) []int64 {
	for len(params) > 0 && params[len(params)-1] == 0 {
		params = params[:len(params)-1]
	}
	return params
}

// arguments are those of a script that decides, with the forced time if there is one.
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
