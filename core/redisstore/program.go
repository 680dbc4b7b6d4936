package redisstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore/internal/denials"
)

// program is what a policy needs: what its keys' names begin with, the scripts of its kinds,
// and the arguments of one unit.
type program struct {
	*scripts
	names   names
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

// of returns the program of a policy whose keys n names.
func (ps *programs) of(n names, p core.Policy) (*program, error) {
	if v, ok := ps.byPolicy.Load(p); ok {
		return v.(*program), nil //nolint:forcetypeassert // nothing else is stored
	}
	shared, err := scriptsOf(p.Spec().Kinds())
	if err != nil {
		return nil, err
	}
	v := &program{scripts: shared, names: n, before: n.before(p, p.Spec().Shape()), cache: ps.denials}
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
func (p *program) name(key string) string { return p.names.of(p.before, key) }

// names makes the names of keys: prefix:1:policy:shape:key, where 1 is the version
// of the stored format. The key is readable where it is short and harmless, else a
// hash that begins with "~", which no readable key does.
type names struct {
	prefix string
	secret []byte
}

// format is the version of what is stored. Another one would leave these keys
// alone, so that two versions can serve side by side.
const format = ":1:"

// hashed begins what stands for a key that is not to be read, and no other.
const hashed = '~'

// maxReadable is the longest key that is kept readable.
const maxReadable = 200

func newNames(prefix string, secret []byte) names {
	return names{prefix + format, append([]byte(nil), secret...)}
}

// before is what the names of all keys of a policy begin with, of which it keeps a state of
// that shape.
func (n names) before(p core.Policy, shape string) string {
	return n.prefix + p.Name() + ":" + shape + ":"
}

// permitShape is the shape of permits, which are kept apart.
const permitShape = "p"

// of is the name of a key. The key may stand in it as it is if not a byte of it can break a
// log line or place a cluster's hash tag.
func (n names) of(before, key string) string {
	readable := len(n.secret) == 0 && len(key) <= maxReadable && key[0] != hashed
	for i := 0; readable && i < len(key); i++ {
		readable = safe[key[i]]
	}
	if readable {
		return before + key
	}
	return before + n.hash(key)
}

// hash is what stands for a key that is not to be read.
func (n names) hash(key string) string {
	h := sha256.New()
	if len(n.secret) > 0 {
		h = hmac.New(sha256.New, n.secret)
	}
	h.Write([]byte(key))
	return string(hashed) + base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

var safe = func() (out [256]bool) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.~:/=&%@-") {
		out[c] = true
	}
	return out
}()

func validPrefix(s string) bool {
	return len(s) >= 1 && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == ""
}
