package redisstore_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/internal/redistest"
)

// However many processes add to boards that have too few places, the true count of each key lies within its bounds, and
// that of a key that is not listed is no more than the rest. Of what a process has counted it may add any part, also none,
// if it says the most that it leaves out.
func TestScoresAreBounded(t *testing.T) {
	t.Parallel()
	s := newStore(t, closing(t, redis.NewUniversalClient(redisstore.ClientOptions(sharedServer(t).Addr()))), own())
	round, ctx := 0, t.Context()
	rapid.Check(t, func(t *rapid.T) {
		round++
		size := rapid.Int64Range(1, 6).Draw(t, "size")
		boards := make([]string, rapid.IntRange(1, 3).Draw(t, "boards"))
		for i := range boards {
			boards[i] = fmt.Sprintf("bounded:%d:%d", round, i)
		}
		type process struct{ left map[string]int64 } // that it has counted and not added
		processes := map[string]*process{}
		truth := map[string]int64{}
		for range rapid.IntRange(1, 25).Draw(t, "additions") {
			board := rapid.SampledFrom(boards).Draw(t, "board")
			source := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "process")
			p := processes[board+source]
			if p == nil {
				p = &process{map[string]int64{}}
				processes[board+source] = p
			}
			add := stats.Scores{Board: board, Source: source, Units: map[string]int64{}}
			for range rapid.IntRange(0, 8).Draw(t, "keys") {
				key := fmt.Sprint("k", rapid.IntRange(0, 12).Draw(t, "key"))
				counted := rapid.Int64Range(0, 9).Draw(t, "counted")
				truth[key] += counted
				p.left[key] += counted
				part := rapid.Int64Range(0, p.left[key]).Draw(t, "part")
				add.Units[key] += part
				p.left[key] -= part
			}
			for _, left := range p.left {
				add.Missed = max(add.Missed, left)
			}
			require.NoError(t, s.AddScoresTo(ctx, size, add))
		}
		n := rapid.IntRange(1, 14).Draw(t, "n")
		scores, rest, err := s.Scores(ctx, boards, n)
		require.NoError(t, err)
		require.LessOrEqual(t, len(scores), n)
		unlisted := maps.Clone(truth)
		for _, score := range scores {
			require.LessOrEqual(t, score.Low, truth[score.Key], "%+v", score)
			require.GreaterOrEqual(t, score.High, truth[score.Key], "%+v", score)
			delete(unlisted, score.Key)
		}
		for key, counted := range unlisted {
			require.LessOrEqual(t, counted, rest, key)
		}
	})
}

// A board keeps the keys that count most, in order, and its counts are exact while there is room.
func TestScores(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rdb := server.Client(t)
	s := newStore(t, closing(t, redis.NewUniversalClient(redisstore.ClientOptions(server.Addr()))), redisstore.Options{Deadline: patient, Prefix: "pay"})
	long := strings.Repeat("x", 300)
	add := []stats.Scores{
		{Board: "login:1", Source: "p1", Units: map[string]int64{"ann": 5, "ben": 2, "none": 0}},
		{Board: "login:1", Source: "p2", Units: map[string]int64{"ann": 1, long: 4}, Missed: 3},
		{Board: "login:2", Source: "p1", Units: map[string]int64{"ben": 9, "a key with\nspaces": 1}},
	}
	require.NoError(t, s.AddScores(t.Context(), add))
	scores, rest, err := s.Scores(t.Context(), []string{"login:1", "login:2", "login:3"}, 3)
	require.NoError(t, err)
	assert.Equal(t, []stats.Score{
		{Key: "ben", Low: 11, High: 14}, {Key: "ann", Low: 6, High: 9}, {Key: s.ScoreKey(long), Low: 4, High: 7},
	}, scores)
	assert.EqualValues(t, 4, rest, "the fourth, or one that was missed")
	assert.True(t, strings.HasPrefix(s.ScoreKey(long), "~"))

	names, err := rdb.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"pay:1::top:login:1", "pay:1::top:login:2"}, names)
	for _, name := range names {
		ttl, err := rdb.TTL(t.Context(), name).Result()
		require.NoError(t, err)
		assert.InDelta(t, 2*time.Hour, ttl, float64(time.Minute))
	}

	// What a process says of what it missed replaces what it has said before.
	require.NoError(t, s.AddScores(t.Context(), []stats.Scores{{Board: "login:1", Source: "p2", Missed: 1}}))
	scores, rest, err = s.Scores(t.Context(), []string{"login:1"}, 1)
	require.NoError(t, err)
	assert.Equal(t, []stats.Score{{Key: "ann", Low: 6, High: 7}}, scores)
	assert.EqualValues(t, 5, rest)

	// A thousand keys have places, and those that count most keep them.
	for first := 0; first < 1200; first += 200 {
		units := map[string]int64{}
		for i := first; i < first+200; i++ {
			units[fmt.Sprint("k", i)] = int64(i + 1)
		}
		require.NoError(t, s.AddScores(t.Context(), []stats.Scores{{Board: "many:1", Source: "p1", Units: units}}))
	}
	n, err := rdb.ZCount(t.Context(), "pay:1::top:many:1", "(0", "+inf").Result()
	require.NoError(t, err)
	assert.EqualValues(t, 1000, n)
	scores, rest, err = s.Scores(t.Context(), []string{"many:1"}, 1000)
	require.NoError(t, err)
	assert.Equal(t, "k1199", scores[0].Key)
	assert.EqualValues(t, 200, rest, "the best of those that lost their places")

	// Of a board only the first keys are read: another one has no more there than the first that was not read.
	units := map[string]int64{}
	for i := range 150 {
		units[fmt.Sprint("k", i)] = int64(i + 1)
	}
	require.NoError(t, s.AddScores(t.Context(), []stats.Scores{
		{Board: "deep:1", Source: "p1", Units: units}, {Board: "deep:2", Source: "p1", Units: map[string]int64{"k49": 200}},
	}))
	scores, _, err = s.Scores(t.Context(), []string{"deep:1", "deep:2"}, 1)
	require.NoError(t, err)
	assert.Equal(t, []stats.Score{{Key: "k49", Low: 200, High: 250}}, scores)

	// Something else under the name is discarded.
	require.NoError(t, rdb.Set(t.Context(), "pay:1::top:foreign:1", "text", 0).Err())
	require.NoError(t, s.AddScores(t.Context(), []stats.Scores{{Board: "foreign:1", Source: "p1", Units: map[string]int64{"ann": 1}}}))
	scores, _, err = s.Scores(t.Context(), []string{"foreign:1"}, 1)
	require.NoError(t, err)
	assert.Equal(t, []stats.Score{{Key: "ann", Low: 1, High: 1}}, scores)
}

// Under HashKeys, a server learns nobody's name, and who has the key finds it.
func TestScoresOfHashedKeys(t *testing.T) {
	t.Parallel()
	o := own()
	o.HashKeys = []byte("a secret of 16 bytes, or more")
	s := newStore(t, closing(t, redis.NewUniversalClient(redisstore.ClientOptions(sharedServer(t).Addr()))), o)
	require.NoError(t, s.AddScores(t.Context(), []stats.Scores{{Board: "hashed:1", Source: "p1", Units: map[string]int64{"ann": 5}}}))
	scores, _, err := s.Scores(t.Context(), []string{"hashed:1"}, 5)
	require.NoError(t, err)
	assert.Equal(t, []stats.Score{{Key: s.ScoreKey("ann"), Low: 5, High: 5}}, scores)
	assert.NotContains(t, s.ScoreKey("ann"), "ann")
}

// Without the secret, the counts of a key are found by what stands for it on boards, and by nothing else.
func TestScoreKeys(t *testing.T) {
	t.Parallel()
	o := own()
	rdb := closing(t, redis.NewUniversalClient(redisstore.ClientOptions(sharedServer(t).Addr())))
	tools := o
	tools.ScoreKeys = true
	s := newStore(t, rdb, tools)
	policy := core.MustParse("api: 10/1h, 3 concurrent lease 1h")
	used := func(key string) (units int64, places int) {
		state, err := s.State(t.Context(), core.Take{Policy: policy, Key: key})
		require.NoError(t, err)
		return policy.Spec().InUse(state.Text, state.At)[0], len(state.Leases)
	}
	o.HashKeys = []byte("a secret of 16 bytes, or more")
	long := "user=" + strings.Repeat("x", 300)
	for _, service := range []*redisstore.Store{newStore(t, rdb, o), newStore(t, rdb, redisstore.Options{Prefix: o.Prefix, Deadline: o.Deadline})} {
		for _, key := range []string{"ann", "two words", long, "~", "~" + strings.Repeat("a", 43)} {
			require.NoError(t, service.Reset(t.Context(), policy, key))
			_, err := service.Take(t.Context(), core.Take{Policy: policy, Key: key, Cost: 4})
			require.NoError(t, err)
			_, err = service.Acquire(t.Context(), core.Permit{Policy: policy, Key: key, ID: "a"})
			require.NoError(t, err)
			units, places := used(service.ScoreKey(key))
			assert.EqualValues(t, 4, units, "%.20q", key)
			assert.Equal(t, 1, places, "%.20q", key)
			require.NoError(t, s.Reset(t.Context(), policy, service.ScoreKey(key)))
			units, _ = used(service.ScoreKey(key))
			assert.Zero(t, units, "%.20q", key)
		}
	}
	// What only looks like a hash is a key like others.
	for _, key := range []string{"~" + strings.Repeat("a", 42), "~" + strings.Repeat("a", 44), "~" + strings.Repeat("{", 43), "~x:" + strings.Repeat("*", 41)} {
		state, err := s.State(t.Context(), core.Take{Policy: policy, Key: key})
		require.NoError(t, err)
		assert.NotContains(t, state.Name, key)
	}
	tools.HashKeys = o.HashKeys
	_, err := redisstore.New(rdb, tools)
	require.ErrorContains(t, err, "HashKeys and ScoreKeys at once")
}

// Whatever somebody else has written under the name of a board, other boards are read, and no number is beyond all sense.
func TestForeignBoards(t *testing.T) {
	t.Parallel()
	o := own()
	rdb := closing(t, redis.NewUniversalClient(redisstore.ClientOptions(sharedServer(t).Addr())))
	s, ctx := newStore(t, rdb, o), t.Context()
	boards := []string{"foreign:1", "foreign:2"}
	for _, board := range boards {
		require.NoError(t, s.AddScores(ctx, []stats.Scores{{Board: board, Source: "p1", Units: map[string]int64{"ann": 5}, Missed: 1}}))
	}
	names, err := rdb.Keys(ctx, o.Prefix+"*foreign:2").Result()
	require.NoError(t, err)
	require.Len(t, names, 1)
	for _, score := range []string{"inf", "-inf", "1e300", "-1e300", "0.5", "9e18"} {
		for _, member := range []string{"!", "!p1", "!p2", "bob", "\x1b[31m"} {
			require.NoError(t, rdb.ZAdd(ctx, names[0], redis.Z{Member: "ann", Score: 5}).Err())
			require.NoError(t, rdb.Do(ctx, "zadd", names[0], score, member).Err())
			scores, rest, err := s.Scores(ctx, boards, 5)
			require.NoError(t, err)
			assert.GreaterOrEqual(t, rest, int64(0), "%s of %q", score, member)
			for _, sc := range scores {
				assert.True(t, 0 <= sc.Low && sc.Low <= sc.High, "%s of %q: %v", score, member, sc)
				assert.NotContains(t, sc.Key, "!")
			}
			require.NoError(t, rdb.Del(ctx, names[0]).Err())
		}
	}
	require.NoError(t, rdb.Set(ctx, names[0], "foreign", 0).Err())
	scores, rest, err := s.Scores(ctx, boards, 5)
	require.NoError(t, err)
	assert.Equal(t, []stats.Score{{Key: "ann", Low: 5, High: 6}}, scores, "of the other board")
	assert.EqualValues(t, 1, rest)
}

// The boards of a Cluster and of a Ring are on different servers.
func TestScoresOnManyServers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"cluster", "ring"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := topologies[name](t)
			s := newStore(t, top.client(t, redistest.NewProxy(t, top.servers[0].Addr()), true), redisstore.Options{Deadline: patient})
			var add []stats.Scores
			var boards []string
			for i := range 20 {
				boards = append(boards, fmt.Sprint("spread:", i))
				add = append(add, stats.Scores{Board: boards[i], Source: "p1", Units: map[string]int64{"ann": 1}, Missed: 1})
			}
			require.NoError(t, s.AddScores(t.Context(), add))
			scores, rest, err := s.Scores(t.Context(), boards, 1)
			require.NoError(t, err)
			assert.Equal(t, []stats.Score{{Key: "ann", Low: 20, High: 40}}, scores)
			assert.EqualValues(t, 20, rest)
			for _, server := range top.servers {
				assert.Positive(t, server.CommandStats(t)["zadd"], "each server has some of them")
			}
		})
	}
}

func TestScoresErrors(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, sharedServer(t).Addr())
	s := newStore(t, closing(t, redis.NewUniversalClient(redisstore.ClientOptions(proxy.Addr()))), own())
	units := map[string]int64{}
	for i := range 201 {
		units[fmt.Sprint(i)] = 1
	}
	for want, add := range map[string]stats.Scores{
		"board":                   {Board: "a board", Source: "p"},
		"source":                  {Board: "b"},
		"give at most 200":        {Board: "b", Source: "p", Units: units},
		"Missed is -1":            {Board: "b", Source: "p", Missed: -1},
		"-2 units of a key":       {Board: "b", Source: "p", Units: map[string]int64{"k": -2}},
		"give a key, and 0 to 2^": {Board: "b", Source: "p", Units: map[string]int64{"": 2}},
	} {
		require.ErrorContains(t, s.AddScores(t.Context(), []stats.Scores{add}), want)
	}
	_, _, err := s.Scores(t.Context(), []string{"a board"}, 1)
	require.ErrorContains(t, err, "board")
	_, _, err = s.Scores(t.Context(), []string{"b"}, 0)
	require.ErrorContains(t, err, "the first 0 keys")
	_, _, err = s.Scores(t.Context(), make([]string, 201), 1)
	require.ErrorContains(t, err, "201 boards")
	_, _, err = new(redisstore.Store).Scores(t.Context(), []string{"b"}, 1)
	require.Error(t, err)

	// A reply that was lost may have been of an addition that was made: it is not sent again.
	require.NoError(t, s.AddScores(t.Context(), []stats.Scores{{Board: "lost:1", Source: "p"}}))
	proxy.LoseNextReply("evalsha", redistest.RST)
	err = s.AddScores(t.Context(), []stats.Scores{{Board: "lost:1", Source: "p", Units: map[string]int64{"ann": 1}}})
	var failed *core.StoreError
	require.ErrorAs(t, err, &failed)
	assert.True(t, failed.MaybeExecuted)
	scores, _, err := s.Scores(t.Context(), []string{"lost:1"}, 1)
	require.NoError(t, err)
	assert.Equal(t, []stats.Score{{Key: "ann", Low: 1, High: 1}}, scores)
	proxy.Reset()
	_, _, err = s.Scores(t.Context(), []string{"lost:1"}, 1)
	require.ErrorAs(t, err, &failed)
	var batch *core.BatchError
	err = s.AddScores(t.Context(), []stats.Scores{{Board: "lost:1", Source: "p"}, {Board: "lost:2", Source: "p"}})
	require.True(t, errors.As(err, &batch))
	assert.Len(t, batch.Errs, 2)
}
