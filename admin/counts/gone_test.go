package counts_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/internal/redistest"
)

func fifty() []counts.Rule {
	rules := make([]counts.Rule, 50)
	for i := range rules {
		name := fmt.Sprintf("p%d", i)
		rules[i] = counts.Rule{
			Policy: name, Code: name + ": 20/1s, 1000/1h sliding-counter", Tiers: map[string]string{"pro": "40/1s burst 100, 9000/1h sliding-counter"},
		}
	}
	return rules
}

// A Redis that is gone costs a person a second and a half at most, for all policies of an app together, and the look says
// what does not answer. Nothing that it says has the key.
func TestRedisIsGone(t *testing.T) {
	t.Parallel()
	const key = "user=secret.person"
	for name, breaks := range map[string]func(*testing.T, *redistest.Server){
		"killed":  func(_ *testing.T, s *redistest.Server) { s.Kill() },
		"stopped": func(t *testing.T, s *redistest.Server) { s.Pause(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Single(t)
			s := open(t, counts.Options{Redis: server.Client(t)})
			breaks(t, server)
			for range 2 {
				began := time.Now()
				looks, err := s.Look(t.Context(), fifty(), nil, key)
				took := time.Since(began)
				require.NoError(t, err)
				t.Logf("%v", took)
				assert.Less(t, took, 10*time.Second, "1.5 s on a machine with nothing else to do")
				require.Len(t, looks, 50)
				for _, l := range looks {
					assert.Contains(t, l.Why, "the store in which the services count")
					assert.NotContains(t, l.Why, "secret.person")
					assert.Nil(t, l.Explanation)
				}
			}
			err := s.Reset(t.Context(), fifty()[:1], nil, key)
			require.Error(t, err)
			assert.NotContains(t, err.Error(), "secret.person")
		})
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		look := one(t, open(t, counts.Options{}), fifty()[0], nil, key)
		assert.Contains(t, look.Why, "without the Redis in which the services count")
	})
	t.Run("not allowed", func(t *testing.T) {
		t.Parallel()
		server := redistest.Single(t)
		require.NoError(t, server.Client(t).ACLSetUser(t.Context(), "poor", "on", ">pass", "+@all", "~other:*").Err())
		rdb := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "poor", "pass" })
		look := one(t, open(t, counts.Options{Redis: rdb}), fifty()[0], nil, key)
		assert.Contains(t, look.Why, "NOPERM")
		assert.NotContains(t, look.Why, "secret.person")
	})
	t.Run("left", func(t *testing.T) {
		t.Parallel()
		ctx, leave := context.WithCancel(t.Context())
		leave()
		looks, err := open(t, counts.Options{Redis: redistest.Single(t).Client(t)}).Look(ctx, fifty()[:1], nil, key)
		require.NoError(t, err)
		assert.NotEmpty(t, looks[0].Why)
	})
}

// Fifty policies of an app, each with a tier that counts apart, are looked at for one key within 200 ms; see the log of
// the test for how long it takes.
func TestFiftyPolicies(t *testing.T) {
	t.Parallel()
	s := open(t, counts.Options{Redis: redistest.Single(t).Client(t)})
	best := time.Hour
	for range 10 {
		began := time.Now()
		looks, err := s.Look(t.Context(), fifty(), nil, "user=7")
		best = min(best, time.Since(began))
		require.NoError(t, err)
		for _, l := range looks {
			require.Empty(t, l.Why)
			require.Len(t, l.Tiers, 1)
		}
	}
	t.Logf("50 policies: %v", best)
	assert.Less(t, best, 5*time.Second)
}

// Counts in processes can be looked at by a program that is the process itself.
func TestProcess(t *testing.T) {
	t.Parallel()
	memory, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	l, err := enforce.New(memory, core.MustParse("api: 10/1h"), enforce.Options{})
	require.NoError(t, err)
	uses(t, l, "user=7", 4)
	s := open(t, counts.Options{Process: memory})
	rule := counts.Rule{Policy: "api", Code: "api: 10/1h", Where: counts.Where{Process: true}}
	look := one(t, s, rule, nil, "user=7")
	require.Empty(t, look.Why)
	assert.Equal(t, int64(4), look.Explanation.Limits[0].Used)
	assert.Equal(t, "process", look.Explanation.From)
	require.NoError(t, s.Reset(t.Context(), []counts.Rule{rule}, nil, "user=7"))
	assert.Zero(t, one(t, s, rule, nil, "user=7").Explanation.Limits[0].Used)
}

// Any process can announce any prefix: the stores that are kept are bounded, and one that is not one is said to be.
func TestManyPrefixes(t *testing.T) {
	t.Parallel()
	s := open(t, counts.Options{Redis: redistest.Single(t).Client(t)})
	for i := range 300 {
		look := one(t, s, counts.Rule{Policy: "api", Code: "1/1h", Where: counts.Where{Prefix: fmt.Sprintf("app%d", i)}}, nil, "user=7")
		require.Empty(t, look.Why)
	}
	assert.LessOrEqual(t, counts.Opened(s), 100)
	for _, prefix := range []string{"a b", "weir:1:other", "{tag}", "*"} {
		look := one(t, s, counts.Rule{Policy: "api", Code: "1/1h", Where: counts.Where{Prefix: prefix}}, nil, "user=7")
		assert.Contains(t, look.Why, "Prefix is")
	}
}
