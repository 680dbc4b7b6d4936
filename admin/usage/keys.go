package usage

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/stats"
)

// Key is a key of a policy, and the bounds of what all processes have counted of it.
type Key struct {
	Key         string
	Least, Most uint64
}

// top are the keys that were counted most, as the last reading has found them.
type top struct {
	counted time.Duration
	keys    []Key
}

// merge sums up the lists of the processes.
type merge struct {
	counted time.Duration
	keys    map[string]bounds
	floors  int64 // the sum of what a key that is in none of the lists can have been counted
	absent  int64 // the most that a key can have been counted which is not among keys
}

// bounds are those of a key: most less the floors.
type bounds struct{ least, most int64 }

// maxMerged bounds the keys of a merge.
const maxMerged = 4 * policies.MaxUsageKeys

// add adds the list of a process. cut reports that it may have been longer.
func (m *merge) add(list stats.TopKeys, cut bool) {
	floor := int64(0)
	if n := len(list.Keys); n > 0 && (cut || n >= policies.MaxUsageKeys) {
		floor = int64(list.Keys[n-1].Count) //nolint:gosec // at most 2^53
	}
	m.counted = max(m.counted, list.For)
	for _, k := range list.Keys {
		b, there := m.keys[k.Key]
		if !there {
			b.most = m.absent - m.floors
		}
		b.least += int64(k.Count - k.Error) //nolint:gosec // at most 2^53
		b.most += int64(k.Count) - floor    //nolint:gosec // at most 2^53
		m.keys[strings.Clone(k.Key)] = b
	}
	m.floors += floor
	m.absent += floor
	if len(m.keys) <= maxMerged {
		return
	}
	for i, k := range m.sorted() {
		if i >= maxMerged/2 {
			m.absent = max(m.absent, int64(k.Most)) //nolint:gosec // it was an int64
			delete(m.keys, k.Key)
		}
	}
}

// sorted returns the keys, first the one that surely was counted most.
func (m *merge) sorted() []Key {
	all := make([]Key, 0, len(m.keys))
	for key, b := range m.keys {
		all = append(all, Key{key, uint64(b.least), uint64(b.most + m.floors)}) //nolint:gosec // they are positive
	}
	slices.SortFunc(all, func(a, b Key) int {
		return cmp.Or(cmp.Compare(b.Least, a.Least), cmp.Compare(b.Most, a.Most), cmp.Compare(a.Key, b.Key))
	})
	return all
}

// keys takes up the keys of a policy of a process.
func (r *reading) keys(p *policy, u *stats.PolicyUsage, cut bool) {
	for _, list := range []struct {
		of  map[*policy]*merge
		top stats.TopKeys
	}{{r.busiest, u.Busiest}, {r.refused, u.Refused}} {
		if len(list.top.Keys) == 0 {
			continue
		}
		m := list.of[p]
		if m == nil {
			m = &merge{keys: map[string]bounds{}}
			list.of[p] = m
		}
		m.add(list.top, cut)
	}
}

// showKeys shows the keys, of each list as many as a quarter of the budget has room for.
func (r *reading) showKeys() {
	type list struct {
		keys []Key
		to   *top
	}
	var lists []list
	for _, p := range r.policies {
		p.busiest, p.refused = top{}, top{}
		for to, m := range map[*top]*merge{&p.busiest: r.busiest[p], &p.refused: r.refused[p]} {
			if m != nil {
				to.counted = m.counted
				all := m.sorted()
				lists = append(lists, list{all[:min(len(all), policies.MaxUsageKeys)], to})
			}
		}
	}
	left, shown := r.budget/4, 0
	for ; shown < policies.MaxUsageKeys; shown++ {
		for _, l := range lists {
			if shown < len(l.keys) {
				left -= keySize + len(l.keys[shown].Key)
			}
		}
		if left < 0 {
			break
		}
	}
	for _, l := range lists {
		l.to.keys = slices.Clone(l.keys[:min(len(l.keys), shown)])
	}
}
