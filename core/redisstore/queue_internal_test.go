package redisstore

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core"
)

// policiesOf returns that many policies.
func policiesOf(n int) []core.Policy {
	all := make([]core.Policy, n)
	for i := range all {
		all[i] = core.MustParse(fmt.Sprintf("p%d: 10/1m", i))
	}
	return all
}

// waits is a passenger of a policy that asks for a key.
func waits(policy core.Policy, key string, weight int64) *passenger {
	return &passenger{entry: entry{
		key: policy.Name() + key, policy: policy, weight: weight, shares: true, program: &program{weight: weight},
	}, take: core.Take{Policy: policy}}
}

// aboard counts those of a flight by policy.
func aboard(riders []*passenger) map[string]int {
	n := map[string]int{}
	for _, p := range riders {
		n[p.policy.Name()]++
	}
	return n
}

// A flight has room for all policies, whichever has come first: each has its part, and what one does not need of it is
// for the others.
func TestFlightsAreShared(t *testing.T) {
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
			var qs queues
			policies := policiesOf(len(c.crowds))
			for i, crowd := range c.crowds {
				for k := range crowd.n {
					if crowd.hot {
						k = 0
					}
					qs.add(waits(policies[i], fmt.Sprint(k), crowd.weight))
				}
			}
			assert.Equal(t, c.want, aboard(qs.fill(maxFlight, decisionWeight)))
		})
	}
}

// Of more policies than a flight has room for, each has its turn before any has another one.
func TestPoliciesTakeTurns(t *testing.T) {
	t.Parallel()
	const many, each = 1000, 3
	var qs queues
	policies := policiesOf(many)
	for n := range each {
		for _, policy := range policies {
			qs.add(waits(policy, fmt.Sprint(n), takeWeight))
		}
	}
	require.Len(t, qs.byPolicy, many)
	got := map[string]int{}
	for served := 0; served < each*many; {
		riders := qs.fill(maxFlight, decisionWeight)
		require.NotEmpty(t, riders)
		for name, n := range aboard(riders) {
			got[name] += n
		}
		served += len(riders)
		for _, policy := range policies {
			require.GreaterOrEqual(t, got[policy.Name()], served/many)
			require.LessOrEqual(t, got[policy.Name()], served/many+1)
		}
	}
	assert.Empty(t, qs.byPolicy)
	assert.Nil(t, qs.turn)
}

// Where as many wait as may, the newest of the policy of which most wait has no place any more.
func TestTheLongestQueueMakesRoom(t *testing.T) {
	t.Parallel()
	var qs queues
	policies := policiesOf(4)
	last := make([]*passenger, 3)
	for i, n := range []int{100, 50, 2} {
		for k := range n {
			last[i] = waits(policies[i], fmt.Sprint(k), takeWeight)
			qs.add(last[i])
		}
	}
	assert.Nil(t, qs.displace(policies[0]), "it would be the newest of the longest itself")
	for i := 1; i < len(policies); i++ {
		before := qs.waiting
		p := qs.displace(policies[i])
		require.NotNil(t, p)
		assert.Equal(t, policies[0], p.policy)
		if i == 1 {
			assert.Same(t, last[0], p)
		}
		assert.Equal(t, before-1, qs.waiting)
	}
	for {
		p := qs.displace(policies[3])
		if p == nil {
			break
		}
		qs.add(waits(policies[3], fmt.Sprint(qs.came), takeWeight))
	}
	for i, n := range []int{49, 50, 2, 48} { // 97 and 48 newcomers of the last, in place of the longest at the time
		q := qs.byPolicy[policies[i]]
		require.NotNil(t, q)
		assert.InDelta(t, n, q.waiting, 2, "%v", policies[i])
	}
}

// The queues agree with lists that are searched from end to end.
func TestQueuesAgreeWithLists(t *testing.T) {
	t.Parallel()
	policies := policiesOf(5)
	rapid.Check(t, func(t *rapid.T) {
		var qs queues
		var all []*passenger // in the order in which they came
		of := func(policy core.Policy) (mine []*passenger) {
			for _, p := range all {
				if p.policy == policy {
					mine = append(mine, p)
				}
			}
			return mine
		}
		drop := func(p *passenger) { all = slices.DeleteFunc(all, func(o *passenger) bool { return o == p }) }
		policy := rapid.SampledFrom(policies)
		t.Repeat(map[string]func(*rapid.T){
			"come": func(t *rapid.T) {
				p := waits(policy.Draw(t, "policy"), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"), rapid.SampledFrom([]int64{1, 16, 50}).Draw(t, "weight"))
				for range rapid.IntRange(1, 20).Draw(t, "times") {
					p := waits(p.policy, p.key[len(p.policy.Name()):], p.weight)
					qs.add(p)
					all = append(all, p)
				}
			},
			"leave": func(t *rapid.T) {
				if len(all) == 0 {
					return
				}
				p := rapid.SampledFrom(all).Draw(t, "passenger")
				qs.remove(p)
				drop(p)
			},
			"make room": func(t *rapid.T) {
				if len(all) == 0 {
					return
				}
				newcomer := policy.Draw(t, "policy")
				p, longest := qs.displace(newcomer), 0
				for _, policy := range policies {
					longest = max(longest, len(of(policy)))
				}
				if own := len(of(newcomer)); p == nil {
					require.LessOrEqual(t, longest, own+1)
					return
				}
				mine := of(p.policy)
				require.Len(t, mine, longest)
				require.Same(t, mine[longest-1], p)
				drop(p)
			},
			"depart": func(t *rapid.T) {
				if len(all) == 0 {
					return
				}
				full, heavy := rapid.IntRange(1, 30).Draw(t, "full"), rapid.Int64Range(1, 300).Draw(t, "heavy")
				weight := map[core.Policy]int64{}
				riders := qs.fill(full, heavy)
				require.NotEmpty(t, riders)
				require.LessOrEqual(t, len(riders), full)
				sum := int64(0)
				for i, p := range riders {
					sum += p.weight
					weight[p.policy] += p.weight
					require.True(t, p.aboard)
					require.True(t, i == 0 || riders[i-1].number < p.number, "the order in which they came")
					require.Same(t, of(p.policy)[0], p, "the first of its policy")
					if p.merges {
						require.Contains(t, riders[:i], p.before)
						require.True(t, p.before.alike(p))
					}
					drop(p)
				}
				require.True(t, len(riders) == 1 || sum <= heavy)
				if len(riders) == full || sum+50 > heavy {
					return
				}
				require.Empty(t, all, "there was room")
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(all), qs.waiting)
				i, sum := 0, int64(0)
				for p := qs.first; p != nil; p = p.later {
					require.Same(t, all[i], p)
					i++
					sum += p.weight
				}
				require.Len(t, all, i)
				require.Equal(t, sum, qs.weight)
				queues := 0
				for _, policy := range policies {
					mine := of(policy)
					q := qs.byPolicy[policy]
					if len(mine) == 0 {
						require.Nil(t, q, "it was given back")
						continue
					}
					queues++
					require.Equal(t, len(mine), q.waiting)
					p := q.first
					for i := range mine {
						require.Same(t, mine[i], p)
						require.Equal(t, i > 0 && p.merges, p.merges)
						p = p.after
					}
					require.Nil(t, p)
					require.Same(t, mine[len(mine)-1], q.last)
				}
				require.Len(t, qs.byPolicy, queues)
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
