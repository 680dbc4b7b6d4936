package counts_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// Reset forgets the key under all numbers of the policy, and nothing else.
func TestReset(t *testing.T) {
	t.Parallel()
	rdb := redistest.Single(t).Client(t)
	rule := counts.Rule{
		Policy: "api", Code: "api: 10/1h", Tiers: map[string]string{"pro": "100/20d", "free": "7/1d", "any": "unlimited"}, Where: counts.Where{Prefix: "shop"},
	}
	d := &policies.Document{Policies: map[string]policies.Policy{"api": {
		Text: "20/1h burst 5", Tiers: map[string]string{"pro": "100/30d"}, Keys: map[string]string{"user=7": "3/40d", "user=8": "3/50d", "user=9": "blocked"},
	}}}
	var all []string
	for _, text := range []string{"10/1h", "100/20d", "7/1d", "20/1h burst 5", "100/30d", "3/40d"} {
		all = append(all, text)
		for _, key := range []string{"user=7", "user=70"} {
			uses(t, limiter(t, rdb, "api: "+text, redisstore.Options{Prefix: "shop"}), key, 1)
		}
	}
	uses(t, limiter(t, rdb, "login: 10/1h", redisstore.Options{Prefix: "shop"}), "user=7", 1)
	uses(t, limiter(t, rdb, "api: 10/1h", redisstore.Options{Prefix: "other"}), "user=7", 1)
	before := rdb.DBSize(t.Context()).Val()

	s := open(t, counts.Options{Redis: rdb})
	require.NoError(t, s.Reset(t.Context(), []counts.Rule{rule}, d, "user=7"))
	keys, err := rdb.Keys(t.Context(), "shop:1:api:*:user=7").Result()
	require.NoError(t, err)
	assert.Empty(t, keys)
	assert.Equal(t, before-int64(len(all)), rdb.DBSize(t.Context()).Val())
	require.NoError(t, s.Reset(t.Context(), []counts.Rule{rule}, d, "user=9"), "one that is blocked has counts of before")

	err = s.Reset(t.Context(), nil, d, "user=7")
	require.ErrorContains(t, err, "no process has the policy")
	require.Error(t, s.Reset(t.Context(), []counts.Rule{rule}, d, ""))
}

// No key leads out of its policy and prefix.
func TestResetHostileKeys(t *testing.T) {
	t.Parallel()
	rdb := redistest.Single(t).Client(t)
	uses(t, limiter(t, rdb, "api: 10/1h", redisstore.Options{Prefix: "shop"}), "user=7", 1)
	uses(t, limiter(t, rdb, "apis: 10/1h", redisstore.Options{Prefix: "shop"}), "user=7", 1)
	require.NoError(t, rdb.Set(t.Context(), "mine", "1", 0).Err())
	before := rdb.DBSize(t.Context()).Val()
	s := open(t, counts.Options{Redis: rdb})
	rule := counts.Rule{Policy: "api", Code: "api: 10/1h", Where: counts.Where{Prefix: "shop"}}
	for _, key := range []string{
		"*", "?", "user=*", "../../mine", "mine", "\nmine", "user=7\r\nDEL mine\r\n", "shop:1:apis:g1h:user=7", ":user=7", "{user=7}", "user=7 mine", "~", "\x00",
	} {
		require.NoError(t, s.Reset(t.Context(), []counts.Rule{rule}, nil, key), "%q", key)
		require.Equal(t, before, rdb.DBSize(t.Context()).Val(), "%q", key)
	}
	require.NoError(t, s.Reset(t.Context(), []counts.Rule{rule}, nil, "user=7"))
	assert.Equal(t, before-1, rdb.DBSize(t.Context()).Val())
}
