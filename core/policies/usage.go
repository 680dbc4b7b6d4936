package policies

import (
	"fmt"
	"strconv"
	"time"

	"github.com/weir-go/weir/core/stats"
)

// Bounds of a Usage that is announced.
const (
	UsageFormat  = 1        // a reader refuses a later one
	MaxUsageSize = 64 << 10 // bytes of a Usage as JSON
	MaxUsageKeys = 50       // of each list of keys of a policy

	maxUsageValues = 25_000  // lists, texts and numbers
	maxUsageCount  = 1 << 53 // beyond it, other readers of JSON are not exact
	maxUsageAge    = 1 << 32 // seconds: 136 years, which a Duration has
)

// EncodeUsage writes u as JSON of at most [MaxUsageSize] bytes, for [DecodeUsage]. The counts come first: if not all
// policies have room, the last ones are left out, and Omitted counts them. What room is left is for keys: the first key of
// each list, then the second of each, and so on. KeysOmitted counts those without room, and those after the first
// [MaxUsageKeys] of a list.
//
// A policy is a list of its name, its tiers and its keys: ["api",[["",90,10,0,0,0,0]],[600,"user=7",80,0],[]]. A tier has
// the counts in the order of [stats.UsageCounts], and keys begin with the seconds for which they were counted.
func EncodeUsage(u *stats.Usage) []byte {
	const ends = `],"omitted":9223372036854775807,"keysOmitted":9223372036854775807}`
	head := strconv.AppendInt([]byte(`{"format":1,"for":`), seconds(u.For), 10)
	head = append(head, `,"policies":[`...)
	left, values := MaxUsageSize-len(head)-len(ends), maxUsageValues-10
	rows := make([]usageRow, 0, len(u.Policies))
	omitted := u.Omitted
	for i := range u.Policies {
		r, cells := newUsageRow(&u.Policies[i])
		if omitted > u.Omitted || len(r.counts)+r.around > left || cells > values {
			omitted++
			continue
		}
		left, values = left-len(r.counts)-r.around, values-cells
		rows = append(rows, r)
	}
	keysOmitted, full := u.KeysOmitted, false
	for rank := range MaxUsageKeys {
		for i := range rows {
			for list, keys := range [...]*stats.TopKeys{&rows[i].of.Busiest, &rows[i].of.Refused} {
				if rank >= len(keys.Keys) {
					continue
				}
				key := usageKey(&keys.Keys[rank])
				if full = full || len(key) > left || values < 3; !full {
					rows[i].keys[list] = append(rows[i].keys[list], key...)
					left, values = left-len(key), values-3
				} else {
					keysOmitted++
				}
			}
		}
	}
	data := head
	for i := range rows {
		r := &rows[i]
		keysOmitted += max(len(r.of.Busiest.Keys)-MaxUsageKeys, 0) + max(len(r.of.Refused.Keys)-MaxUsageKeys, 0)
		if i > 0 {
			data = append(data, ',')
		}
		data = append(data, r.counts...)
		for list, keys := range [...]*stats.TopKeys{&r.of.Busiest, &r.of.Refused} {
			data = append(data, ',', '[')
			if len(r.keys[list]) > 0 {
				data = strconv.AppendInt(data, seconds(keys.For), 10)
				data = append(data, r.keys[list]...)
			}
			data = append(data, ']')
		}
		data = append(data, ']')
	}
	data = append(data, ']')
	if omitted > 0 {
		data = strconv.AppendInt(append(data, `,"omitted":`...), int64(omitted), 10)
	}
	if keysOmitted > 0 {
		data = strconv.AppendInt(append(data, `,"keysOmitted":`...), int64(keysOmitted), 10)
	}
	return append(data, '}')
}

// usageRow is a policy as EncodeUsage writes it.
type usageRow struct {
	of     *stats.PolicyUsage
	counts []byte    // its beginning
	keys   [2][]byte // of Busiest and of Refused
	around int       // bytes of the rest, without keys
}

// newUsageRow returns a policy without its keys, and the number of values that it has.
func newUsageRow(p *stats.PolicyUsage) (r usageRow, cells int) {
	r.of = p
	r.around = len(`,[,[9223372036854775807],[9223372036854775807]]`)
	b := append(appendString([]byte{'['}, plain(p.Policy)), ',', '[')
	for i := range p.Tiers {
		t := &p.Tiers[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, '['), plain(t.Tier))
		for _, n := range [...]uint64{t.Admitted, t.Refused, t.Trial, t.Failed, t.Local, t.Waited} {
			b = appendCount(append(b, ','), n)
		}
		b = append(b, ']')
	}
	r.counts = append(b, ']')
	return r, 7 + 8*len(p.Tiers)
}

// usageKey returns a key as it follows others.
func usageKey(k *stats.KeyCount) []byte {
	b := appendString([]byte{','}, plain(k.Key))
	b = appendCount(append(b, ','), k.Count)
	return appendCount(append(b, ','), min(k.Error, k.Count))
}

func appendCount(b []byte, n uint64) []byte { return strconv.AppendUint(b, min(n, maxUsageCount), 10) }

// seconds returns d in whole seconds, as far as a Usage can have them.
func seconds(d time.Duration) int64 { return min(int64(max(d, 0)/time.Second), maxUsageAge) }

// DecodeUsage reads what [EncodeUsage] writes, and nothing else: whoever may write an announcement can write any bytes.
// The error is [Mistakes], of which there is one.
func DecodeUsage(data []byte) (*stats.Usage, error) {
	root, err := readJSON(data, MaxUsageSize, maxUsageValues)
	if err != nil {
		return nil, err
	}
	b := builder{one: true}
	u := b.usage(root)
	if err := b.err(); err != nil {
		return nil, err
	}
	return u, nil
}

func (b *builder) usage(n *Node) *stats.Usage {
	u := &stats.Usage{}
	if b.isLater(n, UsageFormat) {
		return u
	}
	var omitted, keysOmitted uint64
	b.object(n, "", "a usage",
		field{"format", `"format": 1`, func(*Node, string) {}},
		field{"for", "", func(n *Node, path string) { u.For = b.seconds(n, path) }},
		field{"policies", `"policies": []`, func(n *Node, path string) {
			if !b.is(n, List, path, "a list of policies") {
				return
			}
			seen := make(map[string]bool, len(n.Items))
			for i, item := range n.Items {
				if b.enough() {
					return
				}
				at := path + "[" + strconv.Itoa(i) + "]"
				p := b.policyUsage(item, at)
				if seen[p.Policy] {
					b.at(item, at, "the policy %s stands here twice", quote(p.Policy))
				}
				seen[p.Policy] = true
				u.Policies = append(u.Policies, p)
			}
		}},
		field{"omitted", "", func(n *Node, path string) { omitted = b.count(n, path) }},
		field{"keysOmitted", "", func(n *Node, path string) { keysOmitted = b.count(n, path) }},
	)
	u.Omitted, u.KeysOmitted = int(omitted), int(keysOmitted) //nolint:gosec // they are at most 2^53
	return u
}

// items returns the items of a list of so many.
func (b *builder) items(n *Node, path, of string, least, most int) []*Node {
	if !b.is(n, List, path, of) {
		return nil
	}
	if len(n.Items) < least || len(n.Items) > most {
		b.at(n, path, "found a list of %d: give %s", len(n.Items), of)
		return nil
	}
	return n.Items
}

func (b *builder) policyUsage(n *Node, path string) (p stats.PolicyUsage) {
	items := b.items(n, path, "the name of a policy, its tiers, its busiest keys and those refused most", 4, 4)
	if items == nil {
		return p
	}
	b.word("", &p.Policy).read(items[0], path+"[0]")
	if !b.is(items[1], List, path+"[1]", "a list of tiers") {
		return p
	}
	for i, item := range items[1].Items {
		at := path + "[1][" + strconv.Itoa(i) + "]"
		cells := b.items(item, at, "the name of a tier and six counts", 7, 7)
		if cells == nil {
			return p
		}
		var t stats.TierUsage
		b.word("", &t.Tier).read(cells[0], at+"[0]")
		for j, to := range [...]*uint64{&t.Admitted, &t.Refused, &t.Trial, &t.Failed, &t.Local, &t.Waited} {
			*to = b.count(cells[j+1], at)
		}
		for _, other := range p.Tiers {
			if other.Tier == t.Tier {
				b.at(item, at, "the tier %s stands here twice", quote(t.Tier))
			}
		}
		if b.enough() {
			return p
		}
		p.Tiers = append(p.Tiers, t)
	}
	p.Busiest = b.topKeys(items[2], path+"[2]")
	p.Refused = b.topKeys(items[3], path+"[3]")
	return p
}

func (b *builder) topKeys(n *Node, path string) (top stats.TopKeys) {
	cells := b.items(n, path, fmt.Sprintf("seconds, and at most %d keys with a count and an error each", MaxUsageKeys), 0, 1+3*MaxUsageKeys)
	if len(cells) == 0 {
		return top
	}
	if len(cells)%3 != 1 {
		b.at(n, path, "found a list of %d: give seconds, and each key with a count and an error", len(cells))
		return top
	}
	top.For = b.seconds(cells[0], path)
	for cells = cells[1:]; len(cells) > 0 && !b.enough(); cells = cells[3:] {
		var k stats.KeyCount
		b.word("", &k.Key).read(cells[0], path)
		k.Count, k.Error = b.count(cells[1], path), b.count(cells[2], path)
		if k.Error > k.Count {
			b.at(cells[2], path, "the error %d is more than the count %d", k.Error, k.Count)
		}
		top.Keys = append(top.Keys, k)
	}
	return top
}

// count reads a number from 0 on.
func (b *builder) count(n *Node, path string) uint64 {
	const expected = "a number from 0 to 2^53, in plain digits"
	if !b.is(n, Number, path, expected) {
		return 0
	}
	v, err := strconv.ParseUint(n.Text, 10, 64)
	if !isDecimal(n.Text) || err != nil || v > maxUsageCount {
		b.at(n, path, "found %s: give %s", cut(n.Text, 40), expected)
		return 0
	}
	return v
}

// seconds reads a duration.
func (b *builder) seconds(n *Node, path string) time.Duration {
	v := b.count(n, path)
	if v > maxUsageAge {
		b.at(n, path, "found %d seconds: give at most %d", v, int64(maxUsageAge))
		return 0
	}
	return time.Duration(v) * time.Second //nolint:gosec // it is small
}
