package redisstore_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/core/storetest"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/lua"
)

// The script for many keys agrees with the Go functions on every field of every result, and
// on every stored text, as the script for one does: for each algorithm alone, and for mixes.
func TestManyKeysAgreeWithGo(t *testing.T) {
	t.Parallel()
	compare := func(name string, algorithms ...core.Algorithm) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redis.NewClient(unhurried(redisstore.ClientOptions(redistest.Single(t).Addr())).Simple())
			defer func() { assert.NoError(t, rdb.Close()) }()
			s := &manyKeys{scripts: map[string]*redis.Script{}, texts: &texts{
				Store: newStore(t, rdb, redisstore.Options{DenyCache: -1, Deadline: patient}), t: t, rdb: rdb, reference: storetest.Reference(),
			}}
			storetest.Compare(t, storetest.Reference(), s, *seed, *operations, algorithms...)
			assert.Greater(t, s.calls, 20, "calls of the script")
			assert.Greater(t, s.merged, 50, "merged calls")
			assert.Greater(t, s.asked, *operations/100)
		})
	}
	for _, a := range storetest.Algorithms() {
		compare(a.String(), a)
	}
	compare("mixes")
}

// manyKeys is texts with the script takes.
type manyKeys struct {
	*texts
	scripts              map[string]*redis.Script // by kinds
	calls, merged, asked int
}

func (s *manyKeys) TakeInOrder(ctx context.Context, takes []core.Take) (results []core.Result, err error) {
	for len(takes) > 0 {
		if takes[0].AtMost {
			res, err := s.Take(ctx, takes[0])
			if err != nil {
				return nil, err
			}
			results, takes = append(results, res), takes[1:]
			continue
		}
		n, seen := 1, map[string]bool{takes[0].Key: true}
		for n < len(takes) && equal(takes[0], takes[n]) && (takes[n].Key == takes[n-1].Key || !seen[takes[n].Key]) {
			seen[takes[n].Key] = true
			n++
		}
		part, err := s.together(ctx, takes[:n])
		if err != nil {
			return nil, err
		}
		results, takes = append(results, part...), takes[n:]
	}
	return results, nil
}

// equal reports whether two takes differ by nothing but the key.
func equal(a, b core.Take) bool {
	a.Key = b.Key
	return a == b
}

func (s *manyKeys) together(ctx context.Context, takes []core.Take) (results []core.Result, err error) {
	t := takes[0]
	spec := t.Policy.Spec()
	if s.scripts[spec.Kinds()] == nil {
		text, err := lua.Takes(spec.Kinds())
		require.NoError(s.t, err)
		s.scripts[spec.Kinds()] = redis.NewScript(text)
	}
	var keys []string
	var counts []int
	for i, x := range takes {
		if i == 0 || x.Key != takes[i-1].Key {
			keys, counts = append(keys, "weir:1:"+x.Policy.Name()+":"+spec.Shape()+":"+x.Key), append(counts, 0)
		} else {
			s.merged++
		}
		counts[len(counts)-1]++
	}
	s.calls++
	var args []any
	for _, n := range spec.TakeArgs(t, t.Now) {
		args = append(args, strconv.FormatInt(n, 10))
	}
	args = append(args, t.Now)
	for _, n := range counts {
		args = append(args, n)
	}
	reply, err := s.scripts[spec.Kinds()].Run(ctx, s.rdb, keys, args...).Int64Slice()
	if err != nil {
		return nil, err
	}
	again, err := spec.ExplainEach(t, reply, counts, func(key, call int, res *core.Result, _ []int64) {
		require.NotNil(s.t, res)
		require.Less(s.t, call, counts[key])
		results = append(results, *res)
	})
	assert.Zero(s.t, again)
	if err != nil {
		return nil, err
	}
	for i, x := range takes { // what is stored is the same in the end
		if want, err := s.reference.Take(ctx, x); err != nil || !results[i].Equal(want) {
			s.t.Errorf("the script and Step differ at %d of %d:\n script: %+v\n Step:   %+v %v", i, len(takes), results[i], want, err)
		}
	}
	for _, x := range takes {
		s.asked++
		s.compare(ctx, x)
	}
	return results, nil
}

// A key that the server refuses to read or to write answers for itself: the others are
// decided all the same, and a key of another type is healed.
func TestManyKeysAndErrors(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	admin := server.Client(t)
	for user, rights := range map[string]string{
		"writer": "~weir:* +evalsha +eval +time +get +set +mget",
		"slower": "~weir:* +evalsha +eval +time +get +set",
		"reader": "~weir:* +evalsha +eval +time +get",
		"narrow": "~weir:1:p:g1h:good* +evalsha +eval +time +get +set",
	} {
		require.NoError(t, admin.Do(t.Context(), append([]any{"ACL", "SETUSER", user, "on", ">secret"}, anys(rights)...)...).Err())
	}
	p := core.MustParse("p: 3/1h")
	text, err := lua.Takes(p.Spec().Kinds())
	require.NoError(t, err)
	script := redis.NewScript(text)
	call := func(t *testing.T, user string, cost int64, counts []int, names ...string) (remaining []int64, err error) {
		t.Helper()
		o := unhurried(redisstore.ClientOptions(server.Addr()))
		o.Username, o.Password = user, "secret"
		rdb := redis.NewUniversalClient(o)
		defer func() { assert.NoError(t, rdb.Close()) }()
		for i := range names {
			names[i] = "weir:1:p:g1h:" + names[i]
		}
		take := core.Take{Policy: p, Key: "k", Cost: cost}
		var args []any
		for _, n := range p.Spec().TakeArgs(take, 0) {
			args = append(args, n)
		}
		args = append(args, 0)
		for _, n := range counts {
			args = append(args, n)
		}
		reply, err := script.Eval(t.Context(), rdb, names, args...).Int64Slice()
		if err != nil {
			return nil, err
		}
		_, err = p.Spec().ExplainEach(take, reply, counts, func(_, _ int, res *core.Result, _ []int64) {
			switch {
			case res == nil:
				remaining = append(remaining, -1)
			case !res.Allowed():
				remaining = append(remaining, -2)
			default:
				remaining = append(remaining, res.Remaining)
			}
		})
		require.NoError(t, err)
		return remaining, nil
	}

	for _, user := range []string{"slower", "writer"} {
		require.NoError(t, admin.Del(t.Context(), "weir:1:p:g1h:a", "weir:1:p:g1h:b", "weir:1:p:g1h:hash").Err())
		require.NoError(t, admin.HSet(t.Context(), "weir:1:p:g1h:hash", "field", "value").Err())
		got, err := call(t, user, 1, []int{2, 2, 5}, "a", "hash", "b")
		require.NoError(t, err)
		assert.Equal(t, []int64{2, 1, 2, 1, 2, 1, 0, -2, -2}, got, "%s: a foreign type is healed", user)
	}

	got, err := call(t, "reader", 0, []int{1, 2}, "a", "b")
	require.NoError(t, err)
	assert.Equal(t, []int64{1, 0, 0}, got, "a peek writes nothing")
	got, err = call(t, "reader", 1, []int{2, 1}, "b", "a")
	require.NoError(t, err)
	assert.Equal(t, []int64{-2, -2, -1}, got, "nor does a refusal")
	_, err = call(t, "reader", 1, []int{1, 3}, "a", "hash")
	require.ErrorContains(t, err, "can't run this command", "if it is so for all keys")

	_, err = call(t, "narrow", 1, []int{1, 2, 1}, "good", "bad", "good2")
	require.ErrorContains(t, err, "NOPERM", "a server looks at the names of all keys before it runs a script")
	got, err = call(t, "narrow", 0, []int{1}, "good")
	require.NoError(t, err)
	assert.Equal(t, []int64{3}, got)

	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err = call(t, "writer", 1, []int{1, 1}, "a", "c")
	require.ErrorContains(t, err, "OOM")
	got, err = call(t, "writer", 1, []int{1, 1}, "b", "c")
	require.NoError(t, err)
	assert.Equal(t, []int64{-2, -1}, got)
	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
	got, err = call(t, "writer", 0, []int{1, 1}, "a", "c")
	require.NoError(t, err)
	assert.Equal(t, []int64{1, 3}, got, "nothing was charged to whom nothing was decided for")
}

func anys(words string) (out []any) {
	for word := range strings.FieldsSeq(words) {
		out = append(out, word)
	}
	return out
}
