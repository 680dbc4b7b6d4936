package redisstore_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// mistaken is a hook that replaces each reply of a script by one that no script gives.
type mistaken struct{}

func (mistaken) DialHook(next redis.DialHook) redis.DialHook { return next }

func (mistaken) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return replace(next(ctx, cmd), cmd) }
}

func (mistaken) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return replace(next(ctx, cmds), cmds...) }
}

func replace(err error, cmds ...redis.Cmder) error {
	for _, cmd := range cmds {
		if c, ok := cmd.(interface{ SetVal(val []int64) }); ok && cmd.Err() == nil {
			c.SetVal([]int64{1, 2, 3, 4, 5, 6, 7})
		}
	}
	return err
}

// Each failure of a server has its name, whatever it was asked for.
func TestFailuresAreNamed(t *testing.T) {
	t.Parallel()
	policy := core.MustParse("p: 5 concurrent")
	t.Run("a reply of another script", func(t *testing.T) {
		t.Parallel()
		server := redistest.Single(t)
		rdb := closing(t, redis.NewUniversalClient(unhurried(redisstore.ClientOptions(server.Addr()))))
		rdb.AddHook(mistaken{})
		testNamed(t, newStore(t, rdb, redisstore.Options{Deadline: patient}), policy, server.Addr(), core.ClassReply)
	})
	t.Run("no server", func(t *testing.T) {
		t.Parallel()
		rdb := closing(t, redis.NewUniversalClient(unhurried(redisstore.ClientOptions("127.0.0.1:1"))))
		s := newStore(t, rdb, redisstore.Options{Deadline: patient})
		testNamed(t, s, policy, "127.0.0.1:1", core.ClassDown)
		q := core.MustParse("q: 5/1h")
		err := s.Refund(t.Context(), []core.Refund{{Policy: q, Key: "k", Receipt: core.Result{At: 1, Taken: 1}, Units: 1}})
		assertNamed(t, err, "127.0.0.1:1", core.ClassDown)
	})
}

func testNamed(t *testing.T, s *redisstore.Store, policy core.Policy, server, class string) {
	t.Helper()
	permits := []core.Permit{{Policy: policy, Key: "k", ID: "a"}}
	_, err := s.Acquire(t.Context(), permits[0])
	assertNamed(t, err, server, class)
	_, err = s.Renew(t.Context(), permits)
	assertNamed(t, err, server, class)
	if class == core.ClassDown { // the reply to a release is not read
		assertNamed(t, s.Release(t.Context(), permits), server, class)
	}
}

func assertNamed(t *testing.T, err error, server, class string) {
	t.Helper()
	var failed *core.StoreError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, server, failed.Server)
	assert.Equal(t, class, failed.Class)
}
