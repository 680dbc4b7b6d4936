package envoyrls_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	extpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A plan is a configuration, and the requests that are made of it.
type plan struct {
	chargeAll, shadow, quota, headers bool
	timeless                          bool // the clock is not that of the test
	domains                           []*domainPlan
	steps                             []step
}

type domainPlan struct {
	name  string
	nodes []*nodePlan
}

type nodePlan struct {
	key, value           string
	limit                *limitPlan
	shadow, quota, share bool
	children             []*nodePlan
}

type limitPlan struct {
	requests  uint32
	unit      rlspb.RateLimitResponse_RateLimit_Unit
	multiple  uint32
	policy    bool // is written as the text of a policy
	unlimited bool
	name      string
	replaces  []string
}

// step is a request, some time after the one before.
type step struct {
	after   time.Duration
	request *rlspb.RateLimitRequest
}

// What plans are made of: few keys and values, so that most requests meet a limit, and such as read alike when they are
// joined by underscores or dots.
var (
	planDomains = []string{"shop", "shop_a", "mail"}
	planKeys    = []string{"a", "b", "a_b", "path"}
	planValues  = []string{"", "", "x", "b", "x_y", "files/1", "*", "f*", "*s", "f*/*", "*x*", "b_*"}
	asKeys      = append([]string{"c", "a_", "a.b"}, planKeys...)
	asValues    = []string{"x", "b", "x_y", "files/1", "files/2", "files", "b_x", "f/s", "", "*", "y"}
	planNames   = []string{"first", "second", "third"}
)

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

// one reports true once in n times.
func one(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

// newPlan makes a random plan with n requests.
func newPlan(r *rand.Rand, n int) *plan {
	p := &plan{chargeAll: one(r, 3), shadow: one(r, 10), quota: one(r, 10), headers: one(r, 2)}
	for _, name := range planDomains[:1+r.IntN(len(planDomains))] {
		p.domains = append(p.domains, &domainPlan{name: name, nodes: newNodes(r, 5)})
	}
	seen := []*extpb.RateLimitDescriptor{}
	for range n {
		p.steps = append(p.steps, newStep(r, p, &seen))
	}
	return p
}

func newNodes(r *rand.Rand, depth int) (all []*nodePlan) {
	for range 1 + r.IntN(5) {
		n := &nodePlan{key: pick(r, planKeys), value: pick(r, planValues)}
		if slices.ContainsFunc(all, func(x *nodePlan) bool { return x.key == n.key && x.value == n.value }) {
			continue
		}
		n.share = strings.HasSuffix(n.value, "*") && one(r, 3)
		if depth > 1 && one(r, 2) {
			n.children = newNodes(r, depth-1)
		}
		if !one(r, 4) {
			n.limit = newLimit(r)
			n.shadow, n.quota = one(r, 8), one(r, 8)
		}
		all = append(all, n)
	}
	return all
}

func newLimit(r *rand.Rand) *limitPlan {
	l := &limitPlan{}
	if one(r, 3) {
		l.name = pick(r, planNames)
	}
	for one(r, 5) {
		if name := pick(r, planNames); name != l.name {
			l.replaces = append(l.replaces, name)
		}
	}
	if l.unlimited = one(r, 10); l.unlimited {
		return l
	}
	l.requests, l.unit, l.multiple = newNumbers(r)
	if l.policy = l.requests > 0 && one(r, 6); l.policy { // which shows the longest unit that it can
		l.unit, l.multiple = longest(l.unit, l.multiple)
	}
	return l
}

// longest returns the longest unit in which a period can be said.
func longest(unit rlspb.RateLimitResponse_RateLimit_Unit, multiple uint32) (rlspb.RateLimitResponse_RateLimit_Unit, uint32) {
	period := seconds[unit] * int64(max(1, multiple))
	for u, length := range seconds {
		if period%length == 0 && length > seconds[unit] {
			unit = u
		}
	}
	return unit, uint32(period / seconds[unit])
}

func newNumbers(r *rand.Rand) (requests uint32, unit rlspb.RateLimitResponse_RateLimit_Unit, multiple uint32) {
	unit = rlspb.RateLimitResponse_RateLimit_Unit(1 + r.IntN(7))
	if one(r, 4) && unit != rlspb.RateLimitResponse_RateLimit_YEAR {
		multiple = uint32(1 + r.IntN(10))
	}
	switch r.IntN(8) {
	case 0:
		requests = 0
	case 1:
		requests = 100 + r.Uint32N(1_000_000)
	default:
		requests = 1 + r.Uint32N(40)
	}
	return requests, unit, multiple
}

func newStep(r *rand.Rand, p *plan, seen *[]*extpb.RateLimitDescriptor) step {
	s := step{request: &rlspb.RateLimitRequest{Domain: pick(r, p.domains).name}}
	if one(r, 30) {
		s.request.Domain = "nowhere"
	}
	switch r.IntN(10) {
	case 0:
		s.after = time.Duration(r.Int64N(int64(time.Second)))
	case 1:
		s.after = time.Duration(r.Int64N(int64(time.Minute)))
	case 2:
		if s.after = time.Duration(r.Int64N(int64(time.Hour))); one(r, 10) {
			s.after *= 24
		}
	}
	s.after = s.after.Truncate(time.Microsecond) // as fine as the stores' clocks
	if one(r, 3) {
		s.request.HitsAddend = r.Uint32N(30)
	}
	for range 1 + r.IntN(6) {
		var d *extpb.RateLimitDescriptor
		if len(*seen) > 0 && !one(r, 3) {
			d = proto.CloneOf(pick(r, *seen))
		} else {
			d = newDescriptor(r, p, s.request.GetDomain())
			if len(*seen) < 25 {
				*seen = append(*seen, proto.CloneOf(d))
			}
		}
		if one(r, 4) {
			d.HitsAddend = wrapperspb.UInt64(r.Uint64N(30))
		}
		d.IsNegativeHits = one(r, 20)
		s.request.Descriptors = append(s.request.Descriptors, d)
	}
	return s
}

// newDescriptor makes a descriptor that mostly walks down the configuration.
func newDescriptor(r *rand.Rand, p *plan, domain string) *extpb.RateLimitDescriptor {
	d := &extpb.RateLimitDescriptor{}
	var level []*nodePlan
	for _, x := range p.domains {
		if x.name == domain {
			level = x.nodes
		}
	}
	for len(d.GetEntries()) == 0 || !one(r, 3) && len(d.GetEntries()) < 6 {
		e := &extpb.RateLimitDescriptor_Entry{Key: pick(r, asKeys), Value: pick(r, asValues)}
		if len(level) > 0 && !one(r, 10) {
			n := pick(r, level)
			e.Key = n.key
			if n.value != "" && !one(r, 4) {
				e.Value = strings.ReplaceAll(n.value, "*", pick(r, []string{"", "x", "s", "files"}))
			}
		}
		if n := choose(level, e); n != nil {
			level = n.children
		} else {
			level = nil
		}
		d.Entries = append(d.Entries, e)
		if len(level) == 0 && !one(r, 8) {
			break
		}
	}
	if one(r, 12) {
		requests, unit, multiple := newNumbers(r)
		d.Limit = &extpb.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: requests, Unit: typepb.RateLimitUnit(unit)}
		if multiple > 0 {
			d.Limit.UnitMultiplier = wrapperspb.UInt32(multiple)
		}
	}
	return d
}

// documents returns the configuration as it is written.
func (p *plan) documents() (all []string) {
	for _, d := range p.domains {
		b := &strings.Builder{}
		fmt.Fprintf(b, "domain: %q\n", d.name)
		writeNodes(b, "", d.nodes)
		all = append(all, b.String())
	}
	return all
}

func writeNodes(b *strings.Builder, indent string, nodes []*nodePlan) {
	if len(nodes) == 0 {
		return
	}
	fmt.Fprintf(b, "%sdescriptors:\n", indent)
	for _, n := range nodes {
		fmt.Fprintf(b, "%s- key: %q\n", indent, n.key)
		in := indent + "  "
		if n.value != "" {
			fmt.Fprintf(b, "%svalue: %q\n", in, n.value)
		}
		for _, flag := range []struct {
			name string
			set  bool
		}{{"shadow_mode", n.shadow}, {"quota_mode", n.quota}, {"share_threshold", n.share}} {
			if flag.set {
				fmt.Fprintf(b, "%s%s: true\n", in, flag.name)
			}
		}
		n.limit.write(b, in)
		writeNodes(b, in, n.children)
	}
}

func (l *limitPlan) write(b *strings.Builder, indent string) {
	if l == nil {
		return
	}
	fmt.Fprintf(b, "%srate_limit:\n", indent)
	in := indent + "  "
	switch {
	case l.unlimited:
		fmt.Fprintf(b, "%sunlimited: true\n", in)
	case l.policy:
		of := limit{unit: l.unit, multiple: l.multiple}
		fmt.Fprintf(b, "%spolicy: \"%d/%ds fixed-window aligned\"\n", in, l.requests, int64(of.period().Seconds()))
	default:
		fmt.Fprintf(b, "%sunit: %s\n%srequests_per_unit: %d\n", in, strings.ToLower(l.unit.String()), in, l.requests)
		if l.multiple > 0 {
			fmt.Fprintf(b, "%sunit_multiplier: %d\n", in, l.multiple)
		}
	}
	if l.name != "" {
		fmt.Fprintf(b, "%sname: %s\n", in, l.name)
	}
	if len(l.replaces) > 0 {
		fmt.Fprintf(b, "%sreplaces:\n", in)
		for _, name := range l.replaces {
			fmt.Fprintf(b, "%s- name: %s\n", in, name)
		}
	}
}

// String returns all that is needed to make the same requests again.
func (p *plan) String() string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "chargeAll %v, shadow %v, quota %v, headers %v\n", p.chargeAll, p.shadow, p.quota, p.headers)
	for _, text := range p.documents() {
		fmt.Fprintf(b, "%s---\n", text)
	}
	for i, s := range p.steps {
		fmt.Fprintf(b, "%d, after %v: %s\n", i, s.after, prototext.MarshalOptions{}.Format(s.request))
	}
	return b.String()
}

// forRedis leaves out what depends on more than the clock and the order of the requests: limits of 0, for which the store
// and so its clock is not asked, and descriptors of a request that are counted as one, which are asked for at once.
func (p *plan) forRedis() {
	for _, d := range p.domains {
		atLeastOne(d.nodes)
	}
	m := &model{plan: p}
	for _, s := range p.steps {
		seen := map[string]bool{}
		s.request.Descriptors = slices.DeleteFunc(s.request.GetDescriptors(), func(d *extpb.RateLimitDescriptor) bool {
			if o := d.GetLimit(); o != nil {
				o.RequestsPerUnit = max(1, o.GetRequestsPerUnit())
			}
			l := m.find(s.request.GetDomain(), d)
			if l == nil {
				return false
			}
			twin := seen[l.key]
			seen[l.key] = true
			return twin
		})
	}
}

// yearly makes the windows of all limits so long that none is likely to end.
func (p *plan) yearly() {
	p.timeless = true
	var walk func([]*nodePlan)
	walk = func(nodes []*nodePlan) {
		for _, n := range nodes {
			if n.limit != nil {
				n.limit.unit, n.limit.multiple = rlspb.RateLimitResponse_RateLimit_YEAR, 0
			}
			walk(n.children)
		}
	}
	for _, d := range p.domains {
		walk(d.nodes)
	}
	for i := range p.steps {
		p.steps[i].after = 0
		for _, d := range p.steps[i].request.GetDescriptors() {
			if o := d.GetLimit(); o != nil {
				o.Unit, o.UnitMultiplier = typepb.RateLimitUnit_YEAR, nil
			}
		}
	}
}

func atLeastOne(nodes []*nodePlan) {
	for _, n := range nodes {
		if n.limit != nil && !n.limit.unlimited {
			n.limit.requests = max(1, n.limit.requests)
		}
		atLeastOne(n.children)
	}
}

// clone returns a plan that may be changed.
func (p *plan) clone() *plan {
	c := *p
	c.domains, c.steps = nil, slices.Clone(p.steps)
	for _, d := range p.domains {
		c.domains = append(c.domains, &domainPlan{name: d.name, nodes: cloneNodes(d.nodes)})
	}
	for i := range c.steps {
		c.steps[i].request = proto.CloneOf(c.steps[i].request)
	}
	return &c
}

func cloneNodes(nodes []*nodePlan) (all []*nodePlan) {
	for _, n := range nodes {
		c := *n
		c.children = cloneNodes(n.children)
		if n.limit != nil {
			l := *n.limit
			c.limit = &l
		}
		all = append(all, &c)
	}
	return all
}

// fewer returns the ways to leave requests out of p, those first that leave out most.
func (p *plan) fewer() (all []func()) {
	add := func(edit func()) { all = append(all, edit) }
	for size := len(p.steps) / 2; size > 0; size /= 2 {
		for at := len(p.steps) - size; at >= 0; at -= size {
			add(func() {
				if at+size < len(p.steps) {
					for _, s := range p.steps[at : at+size] {
						p.steps[at+size].after += s.after
					}
				}
				p.steps = slices.Delete(p.steps, at, at+size)
			})
		}
	}
	return all
}

// simpler returns the ways to leave something else out of p.
func (p *plan) simpler() (all []func()) {
	add := func(edit func()) { all = append(all, edit) }
	for i := range p.domains {
		add(func() { p.domains = slices.Delete(p.domains, i, i+1) })
		all = append(all, nodeEdits(&p.domains[i].nodes)...)
	}
	for _, flag := range []*bool{&p.shadow, &p.quota, &p.headers, &p.chargeAll} {
		if *flag {
			add(func() { *flag = false })
		}
	}
	for i := range p.steps {
		s := &p.steps[i]
		for k, d := range s.request.GetDescriptors() {
			if len(s.request.GetDescriptors()) > 1 {
				add(func() { s.request.Descriptors = slices.Delete(s.request.GetDescriptors(), k, k+1) })
			}
			if d.GetHitsAddend() != nil || d.GetIsNegativeHits() {
				add(func() { d.HitsAddend, d.IsNegativeHits = nil, false })
			}
			if n := d.GetHitsAddend().GetValue(); n > 0 {
				add(func() { d.HitsAddend.Value = n / 2 })
				add(func() { d.HitsAddend.Value = n - 1 })
			}
			if d.GetLimit() != nil {
				add(func() { d.Limit = nil })
			}
		}
		if s.request.GetHitsAddend() > 0 {
			add(func() { s.request.HitsAddend /= 2 })
		}
		if s.after > 0 {
			add(func() { s.after = 0 })
		}
	}
	return all
}

func nodeEdits(nodes *[]*nodePlan) (all []func()) {
	for i, n := range *nodes {
		all = append(all, func() { *nodes = slices.Delete(*nodes, i, i+1) })
		if n.limit != nil {
			all = append(all, func() { n.limit = nil })
			if n.limit.name != "" || len(n.limit.replaces) > 0 || n.limit.policy {
				all = append(all, func() { n.limit.name, n.limit.replaces, n.limit.policy = "", nil, false })
			}
			if n.limit.requests > 1 {
				all = append(all, func() { n.limit.requests /= 2 })
			}
			if n.limit.requests > 0 && n.limit.requests < 50 {
				all = append(all, func() { n.limit.requests-- })
			}
		}
		if n.shadow || n.quota || n.share {
			all = append(all, func() { n.shadow, n.quota, n.share = false, false, false })
		}
		all = append(all, nodeEdits(&n.children)...)
	}
	return all
}

// smallest leaves out of p what it can so that fails remains true.
func smallest(p *plan, fails func(*plan) bool) *plan {
	budget, until := 10_000, time.Now().Add(20*time.Second)
	for before := (*plan)(nil); p != before; {
		before = p
		for _, edits := range []func(*plan) []func(){(*plan).fewer, (*plan).simpler} {
			for i := 0; i < len(edits(p)) && budget > 0 && time.Now().Before(until); budget-- {
				c := p.clone()
				if edits(c)[i](); fails(c) {
					p = c
				} else {
					i++
				}
			}
		}
	}
	return p
}
