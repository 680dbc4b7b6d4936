package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// What a decision costs the server, and that a script never runs twice for one,
// holds on every topology.
func TestOnEveryTopology(t *testing.T) {
	t.Parallel()
	for name, start := range topologies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := start(t)
			t.Run("one EVALSHA for a decision", top.testOneCall)
			t.Run("an unknown script is sent once", top.testNoScript)
			t.Run("a refusal writes nothing", top.testRefusal)
			t.Run("an unknown script of permits is sent once", top.testPermitNoScript)
			t.Run("a refusal of a permit writes nothing", top.testPermitRefusal)
			t.Run("many permits are renewed at once", top.testRenewMany)
			t.Run("a lost reply is charged once", top.testLostReply)
			t.Run("a lost reply leaves no ghost of a permit", top.testLostPermit)
		})
	}
}

func (top topology) testOneCall(t *testing.T) {
	s := newStore(t, top.client(t, redistest.NewProxy(t, ""), true), redisstore.Options{Deadline: patient})
	p := core.MustParse("one-call: 100/1h")
	_, err := s.Take(t.Context(), core.Take{Policy: p, Key: "k"})
	require.NoError(t, err, "which loads the script")
	for _, server := range top.servers {
		server.ResetStats(t)
	}
	for range 100 {
		res, err := s.Take(t.Context(), core.Take{Policy: p, Key: "k", Cost: 1})
		require.NoError(t, err)
		require.True(t, res.Allowed())
	}
	assert.EqualValues(t, 100, top.calls(t, "evalsha"))
	assert.Zero(t, top.calls(t, "eval"))
	assert.EqualValues(t, 100, top.calls(t, "get"))
	assert.EqualValues(t, 100, top.calls(t, "set"))
	assert.EqualValues(t, 100, top.calls(t, "time"))
}

func (top topology) testLostReply(t *testing.T) {
	for _, tuned := range []bool{true, false} {
		for how, class := range map[redistest.Loss]string{
			redistest.EOF:  core.ClassLost,
			redistest.RST:  core.ClassLost,
			redistest.Hang: core.ClassTimeout,
		} {
			name := fmt.Sprintf("lost-%v-%v", tuned, how)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				proxy, deadline := redistest.NewProxy(t, ""), patient
				if how == redistest.Hang {
					deadline = 2 * brief
				}
				rdb := top.client(t, proxy, tuned)
				s := newStore(t, rdb, redisstore.Options{Deadline: deadline})
				p := core.MustParse(name + ": 100/1h")
				warm := newStore(t, rdb, redisstore.Options{Deadline: patient})
				require.Zero(t, used(t, warm, p, "k"), "which loads the script")

				proxy.LoseNextReply("evalsha", how)
				start := time.Now()
				_, err := s.Take(t.Context(), core.Take{Policy: p, Key: "k", Cost: 1})
				var failed *core.StoreError
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, class, failed.Class, "%v", err)
				assert.True(t, failed.MaybeExecuted)
				assert.Less(t, time.Since(start), patient)
				assert.Equal(t, 1, proxy.Lost())

				fresh := newStore(t, top.client(t, redistest.NewProxy(t, ""), true), redisstore.Options{Deadline: patient})
				assert.EqualValues(t, 1, used(t, fresh, p, "k"), "executed exactly once")
			})
		}
	}
}

func (top topology) testNoScript(t *testing.T) {
	rdb := top.client(t, redistest.NewProxy(t, ""), true)
	s := newStore(t, rdb, redisstore.Options{Deadline: patient})
	p := core.MustParse("no-script: 100/1h")
	require.Zero(t, used(t, s, p, "k"))
	for _, server := range top.servers {
		require.NoError(t, server.Client(t).ScriptFlush(t.Context()).Err())
		server.ResetStats(t)
	}
	for i := range int64(3) {
		res, err := s.Take(t.Context(), core.Take{Policy: p, Key: "k", Cost: 1})
		require.NoError(t, err)
		assert.Equal(t, 99-i, res.Remaining)
	}
	assert.EqualValues(t, 1, top.calls(t, "eval"))
	assert.EqualValues(t, 3, top.calls(t, "evalsha"))
}

func (top topology) testRefusal(t *testing.T) {
	rdb := top.client(t, redistest.NewProxy(t, ""), true)
	s := newStore(t, rdb, redisstore.Options{Deadline: patient, DenyCache: -1})
	for _, text := range []string{"refusal: 2/1h", "refusal-two: 2/1h, 100/1d"} {
		p := core.MustParse(text)
		for range 2 {
			res, err := s.Take(t.Context(), core.Take{Policy: p, Key: "k", Cost: 1})
			require.NoError(t, err)
			require.True(t, res.Allowed())
		}
		for _, server := range top.servers {
			server.ResetStats(t)
		}
		for _, cost := range []int64{1, 2, 3, 0} {
			_, err := s.Take(t.Context(), core.Take{Policy: p, Key: "k", Cost: cost})
			require.NoError(t, err)
		}
		assert.Zero(t, top.calls(t, "set"), text)
		assert.EqualValues(t, 4, top.calls(t, "get"), text)
	}
	for _, server := range top.servers {
		expires(t, server.Client(t))
	}
}

// A script that a new master does not know, and a master that has become a
// replica, cost no error.
func TestFailover(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	o := unhurried(redisstore.ClientOptions(sentinel.Addr()))
	o.MasterName = redistest.MasterName
	rdb := closing(t, redis.NewUniversalClient(o))
	warm, s := newStore(t, rdb, redisstore.Options{Deadline: patient}), newStore(t, rdb, redisstore.Options{Deadline: 2 * brief})
	p := core.MustParse("failover: 100/1h")
	for range 10 {
		_, err := warm.Take(t.Context(), core.Take{Policy: p, Key: "k", Cost: 1})
		require.NoError(t, err)
	}
	sentinel.Failover(t)
	var res core.Result
	require.Eventually(t, func() bool {
		var err error
		res, err = s.Take(t.Context(), core.Take{Policy: p, Key: "k", Cost: 1})
		return err == nil
	}, patient, 10*time.Millisecond)
	assert.LessOrEqual(t, res.Remaining, int64(99))
	assert.GreaterOrEqual(t, res.Remaining, int64(80), "no more was charged than asked")
}

// While the slot of a key moves to another node, no decision fails.
func TestSlotMigration(t *testing.T) {
	t.Parallel()
	cluster := sharedCluster(t)
	rdb := cluster.Client(t)
	options := own()
	s := newStore(t, rdb, options)
	p := core.MustParse("slot: 1000/1h fixed-window") // of which nothing comes back meanwhile
	take := func(n int) {
		for range n {
			res, err := s.Take(t.Context(), core.Take{Policy: p, Key: "k", Cost: 1})
			require.NoError(t, err)
			require.True(t, res.Allowed())
		}
	}
	take(10)
	finish := cluster.Migrating(t, options.Prefix+":1:slot:f:k")
	take(10)
	finish()
	take(10)
	assert.EqualValues(t, 30, used(t, s, p, "k"))

	finish = cluster.Migrating(t, options.Prefix+":1:slot:f:new")
	res, err := s.Take(t.Context(), core.Take{Policy: p, Key: "new", Cost: 1})
	require.NoError(t, err, "a new key of a slot that moves")
	assert.EqualValues(t, 999, res.Remaining)
	finish()
	assert.EqualValues(t, 1, used(t, s, p, "new"))
}
