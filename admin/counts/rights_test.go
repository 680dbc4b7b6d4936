package counts_test

import (
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// The rights in docs/redis.md are enough to look and to reset, and let nobody write a count.
func TestRights(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/redis.md")
	require.NoError(t, err)
	_, line, found := strings.Cut(string(text), "ACL SETUSER weir-counts ")
	require.True(t, found)
	line, _, _ = strings.Cut(line, "\n")
	args := []any{"ACL", "SETUSER", "weir-counts"}
	for word := range strings.FieldsSeq(line) {
		args = append(args, word)
	}
	server := redistest.Single(t)
	root := server.Client(t)
	require.NoError(t, root.Do(t.Context(), args...).Err())
	rdb := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "weir-counts", "secret" })
	s := open(t, counts.Options{Redis: rdb})
	for _, text := range []string{"api: 10/1h", "log: 10/1h sliding-log", "jobs: 10/1h, 2 concurrent"} {
		l := limiter(t, root, text, redisstore.Options{Prefix: "pay"})
		uses(t, l, "user=7", 3)
		rule := counts.Rule{Policy: l.Policy().Name(), Code: text, Where: counts.Where{Prefix: "pay"}}
		look := one(t, s, rule, nil, "user=7")
		require.Empty(t, look.Why, text)
		require.NotNil(t, look.Explanation, text)
		require.NoError(t, s.Reset(t.Context(), []counts.Rule{rule}, nil, "user=7"), text)
		left, err := root.Keys(t.Context(), "pay:1:"+l.Policy().Name()+":*").Result()
		require.NoError(t, err)
		assert.Empty(t, left, text)
	}
	other := counts.Rule{Policy: "api", Code: "api: 10/1h", Where: counts.Where{Prefix: "payroll"}}
	assert.Contains(t, one(t, s, other, nil, "user=7").Why, "NOPERM")
	require.ErrorContains(t, rdb.Set(t.Context(), "pay:1:api:g1h:user=7", "x", 0).Err(), "NOPERM")
}
