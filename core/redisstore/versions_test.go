package redisstore_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/core/storetest"
)

// former is the command that an earlier version of this package sent for a policy: a script, its key, and the arguments with which
// it took one unit at some times. The files in testdata were recorded from those versions.
type former struct {
	Policy string
	Key    string
	Script []string
	Calls  []struct {
		Now  int64
		Args []string
	}
}

// versions are the earlier ones, by the names of their files.
func versions(t *testing.T) map[string][]former {
	t.Helper()
	files, err := filepath.Glob("testdata/*-algorithm*.json")
	require.NoError(t, err)
	require.Len(t, files, 2)
	all := make(map[string][]former)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var of []former
		require.NoError(t, json.Unmarshal(text, &of))
		all[strings.TrimSuffix(filepath.Base(file), ".json")] = of
	}
	return all
}

// ask does what the earlier version does, and reports whether it admits. id stands for that of a permit.
func (f former) ask(ctx context.Context, rdb *redis.Client, prefix, key string, at int, id string) (admitted bool, reply []int64, err error) {
	args := make([]any, len(f.Calls[at].Args))
	for i, arg := range f.Calls[at].Args {
		if args[i] = arg; arg == "the-id" {
			args[i] = id
		}
	}
	reply, err = rdb.Eval(ctx, strings.Join(f.Script, "\n"), []string{f.name(prefix, key)}, args...).Int64Slice()
	for _, n := range reply {
		if n < 0 {
			return false, reply, err
		}
	}
	return err == nil, reply, err
}

func (f former) name(prefix, key string) string {
	return prefix + strings.TrimSuffix(strings.TrimPrefix(f.Key, "weir"), "k") + key
}

// While a service is upgraded, processes of two versions share their counts, decision by decision as if they were one;
// where a version stores something else, it has keys of its own, and each version keeps to the limit.
func TestVersionsSideBySide(t *testing.T) {
	t.Parallel()
	shared := 0
	for version, policies := range versions(t) {
		for _, f := range policies {
			if strings.Contains(f.Policy, "concurrent") {
				continue
			}
			o := own()
			o.DenyCache = -1
			rdb := sharedServer(t).Client(t)
			v := sides{former: f, policy: core.MustParse("side: " + f.Policy), rdb: rdb, prefix: o.Prefix, store: newStore(t, rdb, o)}
			if v.share() {
				shared++
			}
			t.Run(version+", "+f.Policy, func(t *testing.T) {
				t.Parallel()
				v.inTurn(t)
				v.together(t)
				v.reset(t)
			})
		}
	}
	assert.GreaterOrEqual(t, shared, 6, "policies of which both versions use the same keys: those of windows alone")
}

// sides are two versions of a service with a policy.
type sides struct {
	former
	policy core.Policy
	rdb    *redis.Client
	prefix string
	store  *redisstore.Store
}

// share reports whether both use the same keys.
func (v sides) share() bool {
	return v.name(v.prefix, "k") == v.prefix+":1:side:"+v.policy.Spec().Shape()+":k"
}

func (v sides) take(key string, at int) core.Take {
	return core.Take{Policy: v.policy, Key: key, Cost: 1, Now: v.Calls[at].Now}
}

// inTurn lets them decide in any order, and compares each with what the algorithm says.
func (v sides) inTurn(t *testing.T) {
	t.Helper()
	rng := rand.New(rand.NewPCG(*seed, 0)) //nolint:gosec // the same order for the same seed
	before, now := storetest.Reference(), storetest.Reference()
	if v.share() {
		before = now
	}
	for at := range v.Calls {
		admitted, refused := 0, 0
		for range 60 {
			take, reference := v.take("turn", at), now
			var got bool
			var err error
			if rng.IntN(2) == 0 {
				reference = before
				got, _, err = v.ask(t.Context(), v.rdb, v.prefix, take.Key, at, "")
			} else {
				var res core.Result
				res, err = v.store.Take(t.Context(), take)
				got = res.Allowed()
			}
			require.NoError(t, err)
			want, err := reference.Take(t.Context(), take)
			require.NoError(t, err)
			require.Equal(t, want.Allowed(), got, "call %d at time %d, seed %d", admitted+refused, at, *seed)
			if got {
				admitted++
			} else {
				refused++
			}
		}
		assert.Positive(t, refused)
		assert.True(t, admitted > 0 || at > 0)
	}
}

// together lets many of both ask at the same time.
func (v sides) together(t *testing.T) {
	t.Helper()
	var before, now atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 10 {
				admitted, _, err := v.ask(t.Context(), v.rdb, v.prefix, "together", 0, "")
				if assert.NoError(t, err); admitted {
					before.Add(1)
				}
			}
		})
		all.Go(func() {
			for range 10 {
				res, err := v.store.Take(t.Context(), v.take("together", 0))
				if assert.NoError(t, err); res.Allowed() {
					now.Add(1)
				}
			}
		})
	}
	all.Wait()
	most, reference := int64(0), storetest.Reference()
	for {
		res, err := reference.Take(t.Context(), v.take("together", 0))
		require.NoError(t, err)
		if !res.Allowed() {
			break
		}
		most++
	}
	if v.share() {
		assert.Equal(t, most, before.Load()+now.Load())
		return
	}
	assert.Equal(t, most, before.Load())
	assert.Equal(t, most, now.Load())
}

// reset takes back what the other version has counted, if they share it.
func (v sides) reset(t *testing.T) {
	t.Helper()
	require.NoError(t, v.store.Reset(t.Context(), v.policy, "together"))
	admitted, _, err := v.ask(t.Context(), v.rdb, v.prefix, "together", 0, "")
	require.NoError(t, err)
	assert.Equal(t, v.share(), admitted)
}

// Permits that an earlier version holds are seen, renewed and given back by this one, and the other way round.
func TestPermitsOfTwoVersions(t *testing.T) {
	t.Parallel()
	ops := make(map[string]former)
	for _, f := range versions(t)["seven-algorithms"] {
		if policy, op, ok := strings.Cut(f.Policy, " lease 1h "); ok {
			require.Equal(t, "4 concurrent", policy)
			ops[op] = f
		}
	}
	require.Len(t, ops, 3)
	o := own()
	rdb := sharedServer(t).Client(t)
	s := newStore(t, rdb, o)
	permit := func(id string) core.Permit {
		return core.Permit{Policy: core.MustParse("side: 4 concurrent lease 1h"), Key: "k", ID: id, Now: ops["acquire"].Calls[0].Now}
	}
	before := func(op, id string) (bool, []int64) {
		admitted, reply, err := ops[op].ask(t.Context(), rdb, o.Prefix, "k", 0, id)
		require.NoError(t, err)
		return admitted, reply
	}
	now := func(id string) bool {
		res, err := s.Acquire(t.Context(), permit(id))
		require.NoError(t, err)
		return res.Allowed()
	}
	first, _ := before("acquire", "before-1")
	third, _ := before("acquire", "before-2")
	assert.True(t, first && third)
	assert.True(t, now("now-1") && now("now-2"))
	fifth, _ := before("acquire", "before-3")
	assert.False(t, fifth)
	assert.False(t, now("now-3"))

	lost, err := s.Renew(t.Context(), []core.Permit{permit("before-1"), permit("before-2"), permit("now-1"), permit("gone")})
	require.NoError(t, err)
	assert.Equal(t, []core.Permit{permit("gone")}, lost)
	_, held := before("renew", "now-1")
	_, gone := before("renew", "gone")
	assert.NotEqual(t, held, gone)

	require.NoError(t, s.Release(t.Context(), []core.Permit{permit("before-1")}))
	sixth, _ := before("acquire", "before-3")
	assert.True(t, sixth)
	before("release", "now-1")
	assert.True(t, now("now-3"))
	assert.False(t, now("now-4"))
	members, err := rdb.ZRange(t.Context(), ops["acquire"].name(o.Prefix, "k"), 0, -1).Result()
	require.NoError(t, err)
	slices.Sort(members)
	assert.Equal(t, []string{"before-2#1", "before-3#1", "now-2#1", "now-3#1"}, members)
}
