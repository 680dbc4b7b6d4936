package envoyrls

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// The counters of a series, as envoyproxy/ratelimit has them.
const (
	totalHits = iota
	overLimit
	nearLimit
	withinLimit
	shadowMode
	countersOfSeries
)

var counterNames = [countersOfSeries]string{
	totalHits: "total_hits", overLimit: "over_limit", nearLimit: "near_limit", withinLimit: "within_limit", shadowMode: "shadow_mode",
}

// maxSeries bounds the series of counters: a request chooses the values in the names of some.
const maxSeries = 10_000 / countersOfSeries

// maxLabel bounds the bytes of a label, for the same reason. What begins alike is counted together.
const maxLabel = 256

// labels are those of a series: the domain, and the first two levels of its descriptors.
type labels struct{ domain, key1, key2 string }

// series are the counters of all that has the same labels.
type series struct {
	labels
	counts [countersOfSeries]atomic.Uint64
	used   atomic.Bool // since the configuration was loaded
}

// counters has the numbers of hits that a Server has counted. When there is no room for another series, hits are
// counted as "other".
type counters struct {
	mu       sync.RWMutex
	byLabels map[labels]*series
	other    *series

	requests, unknownDomain, shadow, storeErrors, serviceErrors, loads, failedLoads atomic.Uint64
}

func newCounters() *counters {
	other := &series{labels: labels{domain: "other", key1: "other"}}
	return &counters{byLabels: map[labels]*series{other.labels: other}, other: other}
}

// of returns the series of a name such as "domain.key_value.key".
func (c *counters) of(name string) *series {
	l := labelsOf(name)
	c.mu.RLock()
	s := c.byLabels[l]
	c.mu.RUnlock()
	if s == nil {
		s = c.add(l)
	}
	return s
}

func (c *counters) add(l labels) *series {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byLabels[l]; s != nil {
		return s
	}
	if len(c.byLabels) >= maxSeries {
		return c.other
	}
	l = labels{strings.Clone(l.domain), strings.Clone(l.key1), strings.Clone(l.key2)} // they may be parts of a request
	s := &series{labels: l}
	c.byLabels[l] = s
	return s
}

// tidy makes room when the configuration was loaded again, if there is little: series that have not counted since the
// last time go.
func (c *counters) tidy() {
	c.mu.Lock()
	defer c.mu.Unlock()
	little := len(c.byLabels) > maxSeries/2
	for l, s := range c.byLabels {
		if used := s.used.Swap(false); !used && little && s != c.other {
			delete(c.byLabels, l)
		}
	}
}

// labelsOf returns the labels that the dashboards of envoyproxy/ratelimit expect for a name. It divides names at dots,
// also at those in values, but for the dots of IPv4 addresses.
func labelsOf(name string) (l labels) {
	name = sanitized(name)
	var rest string
	l.domain, rest, _ = strings.Cut(name, ".")
	l.key1, rest, _ = strings.Cut(rest, ".")
	l.key2, _, _ = strings.Cut(rest, ".")
	return labels{short(l.domain, maxLabel), short(l.key1, maxLabel), short(l.key2, maxLabel)}
}

// short returns a text, or the beginning of one that has more bytes.
func short(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes], "")
}

// sanitized returns a name as it is in statsd: without ":" and "|", and with "_" in IPv4 addresses.
func sanitized(name string) string {
	if !utf8.ValidString(name) {
		name = strings.ToValidUTF8(name, "\uFFFD")
	}
	if strings.ContainsAny(name, ":|") {
		name = strings.NewReplacer(":", "_", "|", "_").Replace(name)
	}
	if strings.Count(name, ".") < 3 {
		return name
	}
	var b []byte
	for i := 0; i < len(name); {
		n := lengthOfIPv4(name[i:])
		if n == 0 {
			i++
			continue
		}
		if b == nil {
			b = []byte(name)
		}
		for j := i; j < i+n; j++ {
			if b[j] == '.' {
				b[j] = '_'
			}
		}
		i += n
	}
	if b == nil {
		return name
	}
	return string(b)
}

// lengthOfIPv4 returns the length of what looks like an IPv4 address at the beginning of a text, or 0.
func lengthOfIPv4(text string) int {
	at := 0
	for part := range 4 {
		if part > 0 {
			if at == len(text) || text[at] != '.' {
				return 0
			}
			at++
		}
		digits := 0
		for digits < 3 && at < len(text) && '0' <= text[at] && text[at] <= '9' {
			digits, at = digits+1, at+1
		}
		if digits == 0 {
			return 0
		}
	}
	return at
}

// count counts a request that was decided.
func (s *Server) count(all []demand) {
	for i := range all {
		if x := &all[i]; x.cost > 0 && x.form != credit && !x.unlimited {
			s.seriesOf(x).count(x, s.config.NearLimit)
		}
	}
}

// seriesOf returns the series in which x is counted.
func (s *Server) seriesOf(x *demand) *series {
	if x.metric != "" {
		return s.counters.of(x.metric)
	}
	if known := x.rule.series.Load(); known != nil {
		return known
	}
	found := s.counters.of(x.rule.path)
	if found != s.counters.other { // else there may be room for it later
		x.rule.series.Store(found)
	}
	return found
}

// count counts the hits of x, as if they had been charged one after the other: those beyond the limit are over it, and
// those beyond a part of it, which is near, are near it.
func (s *series) count(x *demand, near float64) {
	if !s.used.Load() {
		s.used.Store(true)
	}
	add := func(counter int, n int64) {
		if n > 0 {
			s.counts[counter].Add(uint64(n)) //nolint:gosec // it is positive
		}
	}
	add(totalHits, x.cost)
	if !x.over && x.at == 0 { // no store has counted it
		add(withinLimit, x.cost)
		return
	}
	threshold := int64(math.Floor(float64(float32(x.limit) * float32(near))))
	used := max(0, x.limit-x.before)
	after := used + x.cost
	if !x.over {
		add(nearLimit, after-max(threshold, used))
		add(withinLimit, x.cost)
		return
	}
	beyond := min(x.cost, after-x.limit)
	add(overLimit, beyond)
	if x.shadow {
		add(shadowMode, beyond)
	}
	if used < x.limit {
		add(nearLimit, x.limit-max(threshold, used))
	}
}
