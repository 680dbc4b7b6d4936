package fair

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// What a store of Redis has: of entries, of weight, and of a turn.
const (
	most     = 256
	heaviest = 1024
	turn     = 16
)

// waiter is an item of the tests: it merges with an equal one before it.
type waiter struct {
	Item[string, *waiter]

	policy, key string
	cost        int64
}

func newWaiter(policy, key string, cost int64) *waiter {
	w := &waiter{policy: policy, key: key, cost: cost}
	w.Value = w
	return w
}

func (w *waiter) alike(o *waiter) bool {
	return w.policy == o.policy && w.key == o.key && w.cost == o.cost
}

type queue struct{ Queue[string, *waiter] }

func (q *queue) add(w *waiter) {
	before := q.Last(w.policy)
	q.Add(&w.Item, w.policy, w.cost, before != nil && before.Value.alike(w))
}

// policiesOf returns that many keys.
func policiesOf(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint("p", i)
	}
	return all
}

// count counts those of a batch by policy.
func count(batch []*waiter) map[string]int {
	n := map[string]int{}
	for _, w := range batch {
		n[w.policy]++
	}
	return n
}

// A batch has room for all policies, whichever has come first: each has its part, and what one does not need of it is
// for the others.
func TestBatchesAreShared(t *testing.T) {
	t.Parallel()
	type crowd struct {
		n      int
		weight int64
		hot    bool // all ask for one key
	}
	for name, c := range map[string]struct {
		crowds []crowd
		want   map[string]int
	}{
		"one policy":         {[]crowd{{1000, 16, false}}, map[string]int{"p0": 64}},
		"a lone one":         {[]crowd{{1000, 16, false}, {1, 16, false}}, map[string]int{"p0": 63, "p1": 1}},
		"two crowds":         {[]crowd{{1000, 16, false}, {500, 16, false}}, map[string]int{"p0": 32, "p1": 32}},
		"what is left":       {[]crowd{{1000, 16, false}, {5, 16, false}, {1000, 16, false}}, map[string]int{"p0": 30, "p1": 5, "p2": 29}},
		"one key":            {[]crowd{{1000, 16, true}}, map[string]int{"p0": 256}},
		"one key, and many":  {[]crowd{{1000, 16, true}, {1000, 16, false}}, map[string]int{"p0": 193, "p1": 63}},
		"one key each":       {[]crowd{{1000, 16, true}, {1000, 16, true}}, map[string]int{"p0": 128, "p1": 128}},
		"heavy ones":         {[]crowd{{1000, 256, false}, {1000, 16, false}}, map[string]int{"p0": 2, "p1": 32}},
		"a heavy lone one":   {[]crowd{{1000, 16, false}, {1, 500, false}}, map[string]int{"p0": 32, "p1": 1}},
		"too heavy for all":  {[]crowd{{2, 2000, false}, {5, 16, false}}, map[string]int{"p0": 1}},
		"of one, light ones": {[]crowd{{1000, 2, false}}, map[string]int{"p0": 256}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var qs queue
			policies := policiesOf(len(c.crowds))
			for i, crowd := range c.crowds {
				for k := range crowd.n {
					if crowd.hot {
						k = 0
					}
					qs.add(newWaiter(policies[i], fmt.Sprint(k), crowd.weight))
				}
			}
			assert.Equal(t, c.want, count(qs.Fill(most, heaviest, turn)))
		})
	}
}

// Of more policies than a batch has room for, each has its turn before any has another one.
func TestPoliciesTakeTurns(t *testing.T) {
	t.Parallel()
	const many, each = 1000, 3
	var qs queue
	policies := policiesOf(many)
	for n := range each {
		for _, policy := range policies {
			qs.add(newWaiter(policy, fmt.Sprint(n), turn))
		}
	}
	require.Len(t, qs.byKey, many)
	got := map[string]int{}
	for served := 0; served < each*many; {
		batch := qs.Fill(most, heaviest, turn)
		require.NotEmpty(t, batch)
		for name, n := range count(batch) {
			got[name] += n
		}
		served += len(batch)
		for _, policy := range policies {
			require.GreaterOrEqual(t, got[policy], served/many)
			require.LessOrEqual(t, got[policy], served/many+1)
		}
	}
	assert.Empty(t, qs.byKey)
	assert.Nil(t, qs.turn)
}

// Where as many wait as may, the newest of the policy of which most wait has no place any more.
func TestTheLongestQueueMakesRoom(t *testing.T) {
	t.Parallel()
	var qs queue
	policies := policiesOf(4)
	last := make([]*waiter, 3)
	for i, n := range []int{100, 50, 2} {
		for k := range n {
			last[i] = newWaiter(policies[i], fmt.Sprint(k), turn)
			qs.add(last[i])
		}
	}
	assert.Nil(t, qs.Displace(policies[0]), "it would be the newest of the longest itself")
	for i := 1; i < len(policies); i++ {
		before := qs.Len()
		p := qs.Displace(policies[i])
		require.NotNil(t, p)
		assert.Equal(t, policies[0], p.Value.policy)
		if i == 1 {
			assert.Same(t, last[0], p.Value)
		}
		assert.Equal(t, before-1, qs.Len())
	}
	for {
		p := qs.Displace(policies[3])
		if p == nil {
			break
		}
		qs.add(newWaiter(policies[3], fmt.Sprint(qs.came), turn))
	}
	for i, n := range []int{49, 50, 2, 48} { // 97 and 48 newcomers of the last, in place of the longest at the time
		q := qs.byKey[policies[i]]
		require.NotNil(t, q)
		assert.InDelta(t, n, q.items.len, 2, "%v", policies[i])
	}
}

// The queues agree with lists that are searched from end to end.
func TestQueuesAgreeWithLists(t *testing.T) {
	t.Parallel()
	policies := policiesOf(5)
	rapid.Check(t, func(t *rapid.T) {
		var qs queue
		var all []*waiter // in the order in which they came
		of := func(policy string) (mine []*waiter) {
			for _, p := range all {
				if p.policy == policy {
					mine = append(mine, p)
				}
			}
			return mine
		}
		var marked *waiter // or the one that came after it
		drop := func(p *waiter) {
			if i := slices.Index(all, p); p == marked {
				if marked = nil; i+1 < len(all) {
					marked = all[i+1]
				}
			}
			all = slices.DeleteFunc(all, func(o *waiter) bool { return o == p })
		}
		policy := rapid.SampledFrom(policies)
		t.Repeat(map[string]func(*rapid.T){
			"come": func(t *rapid.T) {
				p := newWaiter(policy.Draw(t, "policy"), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"), rapid.SampledFrom([]int64{1, 16, 50}).Draw(t, "weight"))
				mark := rapid.Bool().Draw(t, "mark")
				for range rapid.IntRange(1, 20).Draw(t, "times") {
					p := newWaiter(p.policy, p.key, p.cost)
					qs.add(p)
					all = append(all, p)
					if mark && qs.Marked == nil {
						qs.Marked, marked = &p.Item, p
					}
				}
			},
			"leave": func(t *rapid.T) {
				if len(all) == 0 {
					return
				}
				p := rapid.SampledFrom(all).Draw(t, "passenger")
				qs.Remove(&p.Item)
				drop(p)
			},
			"make room": func(t *rapid.T) {
				if len(all) == 0 {
					return
				}
				newcomer := policy.Draw(t, "policy")
				p, longest := qs.Displace(newcomer), 0
				for _, policy := range policies {
					longest = max(longest, len(of(policy)))
				}
				if own := len(of(newcomer)); p == nil {
					require.LessOrEqual(t, longest, own+1)
					return
				}
				mine := of(p.Value.policy)
				require.Len(t, mine, longest)
				require.Same(t, mine[longest-1], p.Value)
				drop(p.Value)
			},
			"depart": func(t *rapid.T) {
				if len(all) == 0 {
					return
				}
				full, heavy := rapid.IntRange(1, 30).Draw(t, "full"), rapid.Int64Range(1, 300).Draw(t, "heavy")
				weight := map[string]int64{}
				batch := qs.Fill(full, heavy, turn)
				require.NotEmpty(t, batch)
				require.LessOrEqual(t, len(batch), full)
				sum := int64(0)
				for i, p := range batch {
					sum += p.weight
					weight[p.policy] += p.weight
					require.False(t, p.Queued())
					require.True(t, i == 0 || batch[i-1].number < p.number, "the order in which they came")
					require.Same(t, of(p.policy)[0], p, "the first of its policy")
					before := p.Merged()
					require.Equal(t, p.merges, before != nil)
					if before != nil {
						require.Contains(t, batch[:i], before.Value)
						require.True(t, before.Value.alike(p))
					}
					require.Nil(t, p.Merged(), "once")
					drop(p)
				}
				require.True(t, len(batch) == 1 || sum <= heavy)
				if len(batch) == full || sum+50 > heavy {
					return
				}
				require.Empty(t, all, "there was room")
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(all), qs.Len())
				i, sum := 0, int64(0)
				for p := qs.First(); p != nil; p = p.Next() {
					require.Same(t, all[i], p.Value)
					require.True(t, p.Queued())
					i++
					sum += p.weight
				}
				require.Len(t, all, i)
				require.Equal(t, sum, qs.Weight())
				if marked == nil {
					require.Nil(t, qs.Marked)
				} else {
					require.Same(t, marked, qs.Marked.Value)
				}
				queues := 0
				for _, policy := range policies {
					mine := of(policy)
					q := qs.byKey[policy]
					if len(mine) == 0 {
						require.Nil(t, q, "it was given back")
						continue
					}
					queues++
					require.Equal(t, len(mine), q.items.len)
					p := q.items.first
					for i := range mine {
						require.Same(t, mine[i], p.Value)
						require.True(t, i > 0 || !p.merges, "it has none before it")
						p = p.links[own].next
					}
					require.Nil(t, p)
					require.Same(t, mine[len(mine)-1], q.items.last.Value)
					require.Same(t, q.items.last, qs.Last(policy))
					require.True(t, qs.Has(policy))
				}
				require.Len(t, qs.byKey, queues)
				if q := qs.turn; q != nil {
					for range queues {
						q = q.next
					}
					require.Same(t, qs.turn, q)
				}
			},
		})
	})
}
