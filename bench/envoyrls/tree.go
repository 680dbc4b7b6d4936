package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	extpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A domain is a configuration of the services, with their names.
type domain struct {
	Domain      string       `yaml:"domain"`
	Descriptors []descriptor `yaml:"descriptors"`
}

type descriptor struct {
	Key            string       `yaml:"key"`
	Value          string       `yaml:"value,omitempty"`
	RateLimit      *limit       `yaml:"rate_limit,omitempty"`
	ShadowMode     bool         `yaml:"shadow_mode,omitempty"`
	QuotaMode      bool         `yaml:"quota_mode,omitempty"`
	ShareThreshold bool         `yaml:"share_threshold,omitempty"`
	DetailedMetric bool         `yaml:"detailed_metric,omitempty"`
	ValueToMetric  bool         `yaml:"value_to_metric,omitempty"`
	Descriptors    []descriptor `yaml:"descriptors,omitempty"`
}

type limit struct {
	Unit      string  `yaml:"unit,omitempty"`
	Requests  *uint32 `yaml:"requests_per_unit,omitempty"` // nil if it is unlimited
	Unlimited bool    `yaml:"unlimited,omitempty"`
	Name      string  `yaml:"name,omitempty"`
	Replaces  []name  `yaml:"replaces,omitempty"`
}

type name struct {
	Name string `yaml:"name"`
}

var (
	keys   = []string{"ip", "user", "path"}
	values = []string{"a", "ab", "abc", "b"}
	// The other service knows a wildcard only at the end.
	wildcards = []string{"*", "a*", "ab*", "b*"}
	names     = []string{"first", "second", "third"}
	// Most windows outlast a tree's requests. The months of both are of 30 days and the years of 365.
	units = []string{"second", "minute", "minute", "hour", "Day", "week", "month", "YEAR"}
)

func chance(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

// randomTree returns the descriptors of a domain, or those below one. None is there twice.
func randomTree(r *rand.Rand, depth int) []descriptor {
	var tree []descriptor
	seen := map[string]bool{}
	for range 1 + r.IntN(8-2*depth) {
		d := descriptor{Key: pick(r, keys)}
		switch {
		case chance(r, 40):
			d.Value = pick(r, values)
		case chance(r, 50):
			d.Value = pick(r, wildcards)
			d.ShareThreshold = chance(r, 40)
		}
		if d.DetailedMetric, d.ValueToMetric = chance(r, 10), chance(r, 10); seen[d.Key+" "+d.Value] {
			continue
		}
		seen[d.Key+" "+d.Value] = true
		if chance(r, 80) {
			d.RateLimit = randomLimit(r)
			d.ShadowMode, d.QuotaMode = chance(r, 10), chance(r, 10)
		}
		if depth < 2 && chance(r, 40) {
			d.Descriptors = randomTree(r, depth+1)
		}
		tree = append(tree, d)
	}
	return tree
}

func randomLimit(r *rand.Rand) *limit {
	l := new(limit)
	if chance(r, 40) {
		l.Name = pick(r, names)
	}
	if chance(r, 20) {
		if replaced := pick(r, names); replaced != l.Name {
			l.Replaces = []name{{replaced}}
		}
	}
	if chance(r, 10) {
		l.Unlimited = true
		return l
	}
	l.Unit = pick(r, units)
	requests := r.Uint32N(60)
	switch {
	case chance(r, 5):
		requests = 0
	case chance(r, 2):
		requests = math.MaxUint32 - r.Uint32N(2)
	}
	l.Requests = &requests
	return l
}

// randomRequest returns a request of a domain, most of whose descriptors have a limit.
func randomRequest(r *rand.Rand, d domain) *rlspb.RateLimitRequest {
	req := &rlspb.RateLimitRequest{Domain: d.Domain}
	if chance(r, 60) {
		req.HitsAddend = r.Uint32N(30)
	}
	if chance(r, 2) {
		req.Domain = pick(r, []string{"", "unknown"})
	}
	if chance(r, 1) {
		return req // which is a mistake
	}
	for range 1 + r.IntN(4) {
		asked := &extpb.RateLimitDescriptor{Entries: randomEntries(r, d.Descriptors)}
		if chance(r, 10) && len(req.Descriptors) > 0 {
			asked.Entries = slices.Clone(req.Descriptors[0].GetEntries()) // once more
		}
		if chance(r, 20) {
			asked.HitsAddend = wrapperspb.UInt64(r.Uint64N(30))
		}
		if chance(r, 10) {
			// Always the same limit for the same key. With several, weir charges what is refused as far as each goes, so that
			// a higher one finds less in use; and the other service counts those of two units as one while their windows
			// begin at the same instant.
			n := r.IntN(7)
			asked.Entries[len(asked.Entries)-1] = &extpb.RateLimitDescriptor_Entry{Key: "override", Value: strconv.Itoa(n)}
			asked.Limit = &extpb.RateLimitDescriptor_RateLimitOverride{
				RequestsPerUnit: uint32(10 * n), //nolint:gosec // 0 to 60
				Unit:            typepb.RateLimitUnit(1 + n),
			}
		}
		req.Descriptors = append(req.Descriptors, asked)
	}
	return req
}

// randomEntries walks the tree, and seldom leaves it.
func randomEntries(r *rand.Rand, tree []descriptor) []*extpb.RateLimitDescriptor_Entry {
	d := pick(r, tree)
	e := &extpb.RateLimitDescriptor_Entry{Key: d.Key, Value: d.Value}
	switch {
	case chance(r, 5):
		e.Key = pick(r, keys)
	case d.Value == "":
		e.Value = pick(r, append([]string{"", "c"}, values...))
	case chance(r, 90): // seldom a wildcard itself
		e.Value = strings.ReplaceAll(d.Value, "*", pick(r, []string{"", "b", "c", "cd"}))
	}
	path := []*extpb.RateLimitDescriptor_Entry{e}
	if len(d.Descriptors) > 0 && (d.RateLimit == nil || chance(r, 60)) || chance(r, 3) {
		below := d.Descriptors
		if below == nil {
			below = tree // deeper than the configuration
		}
		path = append(path, randomEntries(r, below)...)
	}
	return path
}

// text returns descriptors as lines, for people.
func text(tree []descriptor, indent string) string {
	var b strings.Builder
	for _, d := range tree {
		b.WriteString(indent + d.Key)
		if d.Value != "" {
			b.WriteString("=" + d.Value)
		}
		if l := d.RateLimit; l != nil {
			if l.Unlimited {
				b.WriteString("  unlimited")
			} else {
				fmt.Fprintf(&b, "  %d a %s", *l.Requests, l.Unit)
			}
			if l.Name != "" {
				fmt.Fprintf(&b, ", name %s", l.Name)
			}
			for _, other := range l.Replaces {
				fmt.Fprintf(&b, ", replaces %s", other.Name)
			}
		}
		for i, set := range []bool{d.ShadowMode, d.QuotaMode, d.ShareThreshold} {
			if set {
				b.WriteString(", " + []string{"shadow_mode", "quota_mode", "share_threshold"}[i])
			}
		}
		b.WriteString("\n" + text(d.Descriptors, indent+"  "))
	}
	return b.String()
}

// asked returns a request with a line for each descriptor, for people.
func asked(req *rlspb.RateLimitRequest) string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain %q, hits_addend %d", req.GetDomain(), req.GetHitsAddend())
	for _, d := range req.GetDescriptors() {
		b.WriteString("\n  ")
		for i, e := range d.GetEntries() {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%s=%q", e.GetKey(), e.GetValue())
		}
		if h := d.GetHitsAddend(); h != nil {
			fmt.Fprintf(&b, "  hits_addend %d", h.GetValue())
		}
		if l := d.GetLimit(); l != nil {
			fmt.Fprintf(&b, "  limit %d a %s", l.GetRequestsPerUnit(), l.GetUnit())
		}
	}
	return b.String()
}
