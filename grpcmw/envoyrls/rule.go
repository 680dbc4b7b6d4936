package envoyrls

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
)

// A rule has the limit for those descriptors of requests that match one descriptor of the configuration, or none.
type rule struct {
	path      string      // "domain.key_value.key", for people and counters: two rules may share it
	policy    core.Policy // zero if the rule is unlimited, or has nothing to count
	unlimited bool
	nothing   bool             // requests_per_unit is 0: everything is over the limit
	limiter   *enforce.Limiter // of policy; the Server sets it before the tree is used

	period time.Duration          // of windows alone that begin with multiples of it; 0 if the policy has others
	beyond int64                  // that policy counts so many units more than the rule admits; see prepare
	series atomic.Pointer[series] // in which the rule is counted; nil if that is not known yet

	current    *rlspb.RateLimitResponse_RateLimit // as answers show it; nil if the rule is unlimited
	name       string                             // "" cannot be replaced
	replaces   []string
	shadow     bool // of one of both: shadow_mode, or the policy, which a Source may change
	shadowMode bool
	quota      bool
	metadata   map[string]any

	varying        int  // the number of its levels that have any value, or any that matches a wildcard
	valuesInMetric bool // the name of its counters has values of the request
	detailedMetric bool
}

// A unit is a unit of time that a limit may have.
type unit struct {
	name   string
	pb     rlspb.RateLimitResponse_RateLimit_Unit
	length time.Duration
}

const day = 24 * time.Hour

// units are those of envoyproxy/ratelimit, the longest first. A month has 30 days and a year 365.
var units = []unit{
	{"year", rlspb.RateLimitResponse_RateLimit_YEAR, 365 * day},
	{"month", rlspb.RateLimitResponse_RateLimit_MONTH, 30 * day},
	{"week", rlspb.RateLimitResponse_RateLimit_WEEK, 7 * day},
	{"day", rlspb.RateLimitResponse_RateLimit_DAY, day},
	{"hour", rlspb.RateLimitResponse_RateLimit_HOUR, time.Hour},
	{"minute", rlspb.RateLimitResponse_RateLimit_MINUTE, time.Minute},
	{"second", rlspb.RateLimitResponse_RateLimit_SECOND, time.Second},
}

const unitNames = "second, minute, hour, day, week, month or year"

// unitNamed returns the unit of that name, in letters of any case.
func unitNamed(name string) (u unit, ok bool) {
	if i := slices.IndexFunc(units, func(u unit) bool { return strings.EqualFold(u.name, name) }); i >= 0 {
		return units[i], true
	}
	return unit{}, false
}

// windowed returns the policy of so many requests in each so many units: a window that begins with multiples of its
// length since 1970, as in envoyproxy/ratelimit.
func windowed(name string, requests uint32, u unit, multiplier uint32) (core.Policy, error) {
	if uint64(max(multiplier, 1)) > uint64(core.MaxPeriod/u.length) {
		return core.Policy{}, fmt.Errorf("%d times a %s is too long; give at most %d", multiplier, u.name, core.MaxPeriod/u.length)
	}
	return core.NewPolicy(name, core.PolicyOptions{}, core.Limit{
		Algorithm: core.FixedWindow,
		Rate:      int64(requests),
		Period:    time.Duration(max(multiplier, 1)) * u.length,
		Align:     "epoch",
	})
}

// shown returns a limit as answers show it.
func shown(requests uint32, u unit, multiplier uint32, name string) *rlspb.RateLimitResponse_RateLimit {
	l := &rlspb.RateLimitResponse_RateLimit{RequestsPerUnit: requests, Unit: u.pb, Name: name}
	if multiplier > 1 {
		l.UnitMultiplier = wrapperspb.UInt32(multiplier)
	}
	return l
}

// shownLimit returns the limit of a policy as answers show it: in the longest unit that divides its period. The unit of
// a period with a fraction of a second is unknown.
func shownLimit(l core.Limit, name string) *rlspb.RateLimitResponse_RateLimit {
	requests := uint32(min(l.Rate, math.MaxUint32)) //nolint:gosec // 1 to 1 << 32
	if strings.HasPrefix(l.Align, "month ") {
		month, _ := unitNamed("month") // of the calendar, with 28 to 31 days
		return shown(requests, month, 1, name)
	}
	for _, u := range units {
		if l.Period%u.length == 0 {
			return shown(requests, u, uint32(l.Period/u.length), name) //nolint:gosec // at most the seconds of MaxPeriod
		}
	}
	return shown(requests, unit{}, 0, name)
}

// rule makes the rule of a descriptor of the configuration, which stands at the end of path.
func (a *assembler) rule(d *descriptorConfig, path []*node) *rule {
	l := d.limit
	r := &rule{
		path: pathText(path), unlimited: l.unlimited, name: l.name, replaces: l.replaces,
		shadow: d.shadow, shadowMode: d.shadow, quota: d.quota, metadata: d.metadata, detailedMetric: d.detailedMetric,
	}
	if a.paths += len(r.path); a.paths > maxPaths {
		a.wrong(l.line, "the limits up to here have more than %d bytes in their keys and values, with those above each; shorten them", maxPaths)
		return r
	}
	for _, n := range path[1:] {
		if n.varies() {
			r.varying++
			r.valuesInMetric = r.valuesInMetric || d.detailedMetric || n.valueMetric
		}
	}
	for _, name := range l.replaces {
		switch name {
		case "":
			a.wrong(l.line, "replaces has an item without a name; give the name of a limit")
		case l.name:
			a.wrong(l.line, "replaces has %.80q, which is the name of the same limit; leave it out", name)
		}
	}
	if !l.broken {
		a.quantity(r, l, path)
	}
	return r
}

// quantity reads how much a rule admits.
func (a *assembler) quantity(r *rule, l *limitConfig, path []*node) {
	u, known := unitNamed(l.unit)
	var err error
	switch {
	case l.unlimited && (l.policy != "" || l.unit != "" && !strings.EqualFold(l.unit, "unknown")): // what Envoy Gateway writes
		a.wrong(l.line, "an unlimited rate_limit has a unit or a policy; leave out one of them")
	case l.unlimited:
	case l.policy != "":
		a.policy(r, l, path)
	case l.unit == "":
		a.wrong(l.line, "rate_limit has no unit; give %s", unitNames)
	case !known:
		a.wrong(l.line, "the unit is %.80q; give %s", l.unit, unitNames)
	default:
		r.current, r.nothing = shown(l.requests, u, l.multiplier, l.name), l.requests == 0
		if r.policy, err = windowed(policyName(path), max(l.requests, 1), u, l.multiplier); err != nil {
			a.wrong(l.line, "unit_multiplier is %d: %v", l.multiplier, err)
		}
	}
}

// policy reads the text of a policy. What the service could not keep is a mistake.
func (a *assembler) policy(r *rule, l *limitConfig, path []*node) {
	p, err := core.Parse(l.policy)
	if err != nil {
		for problem := range strings.Lines(err.Error()) {
			a.wrong(l.line, "%s", strings.TrimSuffix(strings.TrimPrefix(problem, "core: "), "\n"))
		}
		return
	}
	for _, limit := range p.Limits() {
		if limit.Algorithm == core.Concurrent {
			a.wrong(l.line, "policy %.80q has permits, but the service never sees the end of a request; leave them out", l.policy)
		}
		if limit.Algorithm == core.LeakyBucket {
			a.wrong(l.line, "policy %.80q has a leaky bucket, but the service cannot delay a request; use gcra", l.policy)
		}
	}
	if p.Options().Wait > 0 {
		a.wrong(l.line, "policy %.80q has wait, but the service answers at once; leave it out", l.policy)
	}
	if p.Name() == "" {
		p = p.Named(policyName(path))
	} else {
		a.named[p.Name()] = &namedPolicy{place{a.source, l.line}, r}
	}
	r.policy, r.current = p, shownLimit(p.Limits()[0], l.name)
	r.shadow = r.shadow || p.Options().Shadow
}

// policyName returns the name of a rule's policy, under which it is counted: "domain.key--value.key". It follows from
// where the rule stands alone, so that it is the same whenever the configuration is loaded, whatever else there is. A
// name that other rules could have as well, is too long, or has characters that no name has, ends with a hash.
func policyName(path []*node) string {
	var name, identity strings.Builder
	plain := true
	add := func(kind, text string) {
		plain = plain && isPlain(text)
		name.WriteString(text)
		identity.WriteString(kind)
		identity.WriteString(strconv.Itoa(len(text)))
		identity.WriteByte(':')
		identity.WriteString(text)
	}
	add("domain", path[0].key)
	for _, n := range path[1:] {
		name.WriteByte('.')
		add("key", n.key)
		if n.value != "" {
			name.WriteString("--")
			add("value", n.value)
		}
	}
	text := name.String()
	if plain && len(text) <= maxName && !hasHash(text) {
		return text
	}
	sum := sha256.Sum256([]byte(identity.String()))
	return strings.Map(nameRune, text[:min(len(text), maxName-hashLength-1)]) + "-" + hashText.EncodeToString(sum[:])[:hashLength]
}

// The parts of a policy's name.
const (
	maxName    = 64
	hashLength = 13 // 65 bits
	hashDigits = "0123456789abcdefghijklmnopqrstuv"
)

var hashText = base32.NewEncoding(hashDigits).WithPadding(base32.NoPadding)

// hasHash reports whether a name looks as if it ended with a hash.
func hasHash(name string) bool {
	end := len(name) - hashLength
	return end > 0 && name[end-1] == '-' && strings.Trim(name[end:], hashDigits) == ""
}

// isPlain reports whether a text can be a part of a name as it is, and could not be taken for several.
func isPlain(text string) bool {
	return !strings.Contains(text, "--") && !strings.HasPrefix(text, "-") && !strings.HasSuffix(text, "-") &&
		!strings.ContainsFunc(text, func(c rune) bool { return c == '.' || nameRune(c) != c })
}

// nameRune returns a character that a name may have.
func nameRune(c rune) rune {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '.', c == '-':
		return c
	default:
		return '_'
	}
}
