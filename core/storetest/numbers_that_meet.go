package storetest

import (
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/core"
)

// NumbersThatMeet lets two sets of numbers of one policy count on one key, as they do while a service is rolled out, and
// for a caller that alternates between two tiers: so many requests within one second, alternately under the one and the
// other, with peeks in between, for each algorithm and all pairs. Together they must not admit more than the larger
// numbers alone; and where their states are apart, which [core.Spec.Shape] says, not more than both alone.
//
// [Exercise] does the same with few requests.
func NumbersThatMeet(t *testing.T, store core.Store, requests int) {
	t.Helper()
	meet(&subject{T: t, store: store, prefix: newPrefix()}, requests)
}

func numbersThatMeet(s *subject) { meet(s, 500) }

// meeting are numbers that meet, each pair under every algorithm that can have them.
var meeting = [][2]string{
	{"1000/1m", "10/1m"},
	{"1000/1h", "1000/1m"},
	{"1000/1h", "100/1h"},
	{"1000/1h", "10/1m"},
	{"1000/1m", "999/1m"},
	{"1000/1m", "1/1m"},
	{"1000/1d", "7/1s"},
	{"300/1s", "3/1s"},
	{"1000/1m", "500/30s"},
	{"100/1m", "1000/10m"},
	{"60/1m", "2/2s"},
	{"10/1m; epoch 1", "10/1m"},
	{"1000/1m; epoch 1", "10/1m; epoch 2"},
	{"1000/366d", "1000/1h"},
	// What not every algorithm has.
	{"10/1m burst 1000", "10/1m burst 10"},
	{"1000/1m burst 10", "10/1m burst 1000"},
	{"10/1m burst 20 debt 100", "10/1m burst 20"},
	{"10/1m burst 20 debt 100", "10/1m burst 120"},
	{"10/1m burst 20; wait 10m", "10/1m burst 20"},
	{"10/1m burst 20; wait 10m", "20/1m burst 40; wait 5m"},
}

func meet(s *subject, requests int) {
	kinds := []string{"fixed-window aligned", "fixed-window calendar UTC", "sliding-window buckets 1", "sliding-window buckets 60"}
	for _, a := range Algorithms() {
		kinds = append(kinds, a.String())
	}
	pairs := map[string]int{}
	var all sync.WaitGroup
	turns := make(chan bool, 64) // for a store that is far away
	for _, kind := range kinds {
		for _, pair := range meeting {
			large, err := core.Parse("meet: " + withKind(pair[0], kind))
			small, other := core.Parse("meet: " + withKind(pair[1], kind))
			if err != nil || other != nil {
				continue
			}
			pairs[kind]++
			turns <- true
			all.Go(func() {
				defer func() { <-turns }()
				s.meet(large, small, requests)
			})
		}
	}
	all.Wait()
	for kind, n := range pairs {
		assert.True(s, n >= 12 || strings.Contains(kind, "calendar") && n > 2, "%s: %d pairs", kind, n)
	}
}

// withKind writes the algorithm before the options.
func withKind(numbers, kind string) string {
	limit, options, found := strings.Cut(numbers, ";")
	if found {
		return limit + " " + kind + ";" + options
	}
	return limit + " " + kind
}

// meet asks alternately, and compares with what the numbers admit alone.
func (s *subject) meet(large, small core.Policy, requests int) {
	key := fmt.Sprintf("%v beside %v", large, small)
	admit := func(store core.Store, key string, policies ...core.Policy) (units int64) {
		for i := range requests {
			t := s.of(policies[i%len(policies)], key, int64(i)*second/int64(requests), 1)
			t.Wait = t.Policy.Options().Wait
			if i%10 == 9 {
				t.Cost = 0
			}
			res, err := store.Take(s.Context(), t)
			if !assert.NoError(s, err, key) {
				return -1
			}
			units += res.Taken
		}
		return units
	}
	alone := [2]int64{admit(Reference(), key, large), admit(Reference(), key, small)}
	bound, least := max(alone[0], alone[1]), min(alone[0], alone[1])
	if large.Spec().Shape() != small.Spec().Shape() {
		bound = alone[0] + alone[1]
	}
	together := admit(s.store, key, large, small)
	assert.LessOrEqual(s, together, bound, "%s; alone they admit %v", key, alone)
	assert.GreaterOrEqual(s, together, min(least, int64(requests)/2), key)
	// What was used up stays so, whatever is asked of smaller numbers.
	if large.Spec().Shape() == small.Spec().Shape() {
		s.usedUp(large, small, key+", used up")
	}
}

// usedUp looks at what the larger numbers have used up, and asks for more, by the smaller ones.
func (s *subject) usedUp(large, small core.Policy, key string) {
	ask := func(p core.Policy, cost int64) core.Result {
		t := s.of(p, key, 0, cost)
		t.Wait = p.Options().Wait
		res, err := s.store.Take(s.Context(), t)
		assert.NoError(s, err, key)
		return res
	}
	var most core.Policy
	for _, p := range []core.Policy{large, small} { // neither is larger in all that there is
		if most.IsZero() || p.Limits()[0].Burst > most.Limits()[0].Burst {
			most = p
		}
	}
	less := small
	if most == small {
		less = large
	}
	assert.True(s, ask(most, most.Limits()[0].Burst).Allowed(), key)
	for range 3 {
		assert.Zero(s, ask(less, 0).Remaining, key)
		assert.False(s, ask(less, less.Limits()[0].Burst+1).Allowed(), key)
		assert.Zero(s, ask(most, 0).Remaining, key)
	}
}

// newPrefix begins the keys of one run.
func newPrefix() string { return rand.Text() + " " }
