package redisstore_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/core/storetest"
	"github.com/weir-go/weir/internal/redistest"
)

func permitPolicy(t *testing.T, name string, n int64, lease time.Duration) core.Policy {
	t.Helper()
	p, err := core.NewPolicy(name, core.PolicyOptions{}, core.Limit{Algorithm: core.Concurrent, Burst: n, Lease: lease})
	require.NoError(t, err)
	return p
}

// acquire takes a permit for the key "k".
func acquire(t *testing.T, s core.PermitStore, p core.Policy, id string) core.Result {
	t.Helper()
	res, err := s.Acquire(t.Context(), core.Permit{Policy: p, Key: "k", ID: id})
	require.NoError(t, err)
	return res
}

// The contract of permits, on a single server and a cluster, and that no key is left
// without an expiry.
func TestPermitContract(t *testing.T) { //nolint:paralleltest // it computes: what waits for a server beside it would wait for the processor
	servers := append(sharedCluster(t).Nodes[:3:3], sharedServer(t))
	t.Run("contract", testPermitContract)
	for _, server := range servers {
		expires(t, server.Client(t))
	}
}

func testPermitContract(t *testing.T) {
	for name, client := range map[string]func(t *testing.T) redis.UniversalClient{
		"single":  patientClient,
		"cluster": patientClusterClient,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := client(t)
			storetest.ExercisePermits(t, func(t *testing.T) core.PermitStore {
				return newStore(t, rdb, redisstore.Options{Deadline: patient})
			})
		})
	}
}

// expires demands that no key of a server is kept for ever.
func expires(t *testing.T, rdb *redis.Client) {
	t.Helper()
	keys, err := rdb.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		ttl, err := rdb.PTTL(t.Context(), key).Result()
		require.NoError(t, err)
		assert.NotEqual(t, time.Duration(-1), ttl, "key %s has no TTL", key) // one that has just expired has -2
	}
}

// The scripts and the Go functions agree on every field.
func TestPermitScriptsAgreeWithGo(t *testing.T) { //nolint:paralleltest // it computes: what waits for a server beside it would wait for the processor
	rdb := redis.NewUniversalClient(unhurried(redisstore.ClientOptions(redistest.Single(t).Addr())))
	defer func() { assert.NoError(t, rdb.Close()) }()
	memory, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	storetest.ComparePermits(t, memory, newStore(t, rdb, redisstore.Options{Deadline: patient}), *seed, *operations)
}

// testLostPermit is about replies that are lost after a permit was granted.
func (top topology) testLostPermit(t *testing.T) {
	for _, tuned := range []bool{true, false} {
		for _, how := range []redistest.Loss{redistest.EOF, redistest.RST, redistest.Hang} {
			t.Run(fmt.Sprintf("lost-%v-%v", tuned, how), func(t *testing.T) {
				t.Parallel()
				proxy, deadline := redistest.NewProxy(t, ""), patient
				if how == redistest.Hang {
					deadline = 2 * brief
				}
				rdb := top.client(t, proxy, tuned)
				s := newStore(t, rdb, redisstore.Options{Deadline: deadline})
				p := permitPolicy(t, fmt.Sprintf("lost-%v-%v", tuned, how), 2, time.Hour)
				warm := newStore(t, rdb, redisstore.Options{Deadline: patient})
				acquire(t, warm, p, "warm")
				require.NoError(t, warm.Release(t.Context(), []core.Permit{{Policy: p, Key: "k", ID: "warm"}}))

				proxy.LoseNextReply("evalsha", how)
				start := time.Now()
				res, err := s.Acquire(t.Context(), core.Permit{Policy: p, Key: "k", ID: "a"})
				if how == redistest.Hang { // the time is up
					var failed *core.StoreError
					require.ErrorAs(t, err, &failed)
					assert.True(t, failed.MaybeExecuted)
				} else {
					require.NoError(t, err)
					assert.EqualValues(t, 1, res.Remaining, "acquired once")
				}
				assert.Less(t, time.Since(start), patient)
				assert.Equal(t, 1, proxy.Lost())
				fresh := newStore(t, top.client(t, redistest.NewProxy(t, ""), true), redisstore.Options{Deadline: patient})
				require.NoError(t, fresh.Release(t.Context(), []core.Permit{{Policy: p, Key: "k", ID: "a"}}))
				assert.EqualValues(t, 1, acquire(t, fresh, p, "b").Remaining, "nobody is left who holds one")
			})
		}
	}
}

func (top topology) testPermitNoScript(t *testing.T) {
	s := newStore(t, top.client(t, redistest.NewProxy(t, ""), true), redisstore.Options{Deadline: patient})
	p := permitPolicy(t, "no-script", 100, time.Hour)
	flush := func() {
		for _, server := range top.servers {
			require.NoError(t, server.Client(t).ScriptFlush(t.Context()).Err())
			server.ResetStats(t)
		}
	}
	acquire(t, s, p, "warm")
	flush()
	acquire(t, s, p, "a")
	acquire(t, s, p, "b")
	assert.EqualValues(t, 1, top.calls(t, "eval"))
	assert.EqualValues(t, 2, top.calls(t, "evalsha"))
	flush()
	for range 2 {
		lost, err := s.Renew(t.Context(), []core.Permit{{Policy: p, Key: "k", ID: "a"}, {Policy: p, Key: "k", ID: "b"}})
		require.NoError(t, err)
		assert.Empty(t, lost)
	}
	assert.EqualValues(t, 1, top.calls(t, "eval"))
	assert.EqualValues(t, 2, top.calls(t, "evalsha"))
	flush()
	for _, id := range []string{"warm", "a", "b"} {
		require.NoError(t, s.Release(t.Context(), []core.Permit{{Policy: p, Key: "k", ID: id}}))
	}
	assert.EqualValues(t, 1, top.calls(t, "eval"))
	assert.EqualValues(t, 99, acquire(t, s, p, "c").Remaining)
}

func (top topology) testPermitRefusal(t *testing.T) {
	s := newStore(t, top.client(t, redistest.NewProxy(t, ""), true), redisstore.Options{Deadline: patient})
	p := permitPolicy(t, "refusal", 1, time.Hour)
	acquire(t, s, p, "a")
	for _, server := range top.servers {
		server.ResetStats(t)
	}
	for i := range 4 {
		assert.Equal(t, core.Refused, acquire(t, s, p, fmt.Sprint(i)).Outcome)
	}
	for _, command := range []string{"zadd", "zrem", "zremrangebyscore", "pexpire", "del"} {
		assert.Zero(t, top.calls(t, command), command)
	}
	assert.EqualValues(t, 4, top.calls(t, "evalsha"))
}

func (top topology) testRenewMany(t *testing.T) {
	s := newStore(t, top.client(t, redistest.NewProxy(t, ""), true), redisstore.Options{Deadline: patient})
	p := permitPolicy(t, "many", 1000, time.Hour)
	var all []core.Permit
	for i := range 300 {
		all = append(all, core.Permit{Policy: p, Key: "one", ID: fmt.Sprint(i)})
	}
	for i := range 100 {
		all = append(all, core.Permit{Policy: p, Key: fmt.Sprint("key", i), ID: "x"})
	}
	for range 2 {
		for _, server := range top.servers {
			server.ResetStats(t)
		}
		lost, err := s.Renew(t.Context(), all)
		require.NoError(t, err)
		require.Empty(t, lost)
	}
	assert.EqualValues(t, 100+5, top.calls(t, "evalsha"))
	for _, x := range all {
		require.NoError(t, s.Release(t.Context(), []core.Permit{x}))
	}
}

// One master of a cluster that is gone fails the permits of its keys alone.
func TestRenewWithoutOneShard(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no")
	gone := cluster.NodeFor(t, "weir:1:shards-true:p:0")
	type client struct {
		store *redisstore.Store
		all   []core.Permit
	}
	var clients []client
	here := map[core.Permit]bool{}
	for _, tuned := range []bool{true, false} {
		o := unhurried(tune(tuned, cluster.Addrs()))
		if tuned { // it gives up a node before the deadline, as ClientOptions has it
			o.ReadTimeout = 2 * time.Second
		}
		rdb := redis.NewClusterClient(o.Cluster())
		defer func() { assert.NoError(t, rdb.Close()) }()
		c := client{store: newStore(t, rdb, redisstore.Options{Deadline: 5 * time.Second})}
		warm := newStore(t, rdb, redisstore.Options{Deadline: patient})
		name := fmt.Sprint("shards-", tuned)
		p := permitPolicy(t, name, 1, time.Hour)
		for i := range 30 {
			x := core.Permit{Policy: p, Key: fmt.Sprint(i), ID: "a"}
			_, err := warm.Acquire(t.Context(), x)
			require.NoError(t, err)
			c.all = append(c.all, x)
			here[x] = cluster.NodeFor(t, "weir:1:"+name+":p:"+x.Key) != gone
		}
		lost, err := warm.Renew(t.Context(), c.all)
		require.NoError(t, err, "which loads the script")
		require.Empty(t, lost)
		clients = append(clients, c)
	}
	gone.Pause(t)
	defer gone.Resume(t)
	for i, c := range clients {
		t.Run(fmt.Sprint("tuned ", i == 0), func(t *testing.T) {
			lost, err := c.store.Renew(t.Context(), c.all)
			assert.Empty(t, lost)
			var partly *core.BatchError
			require.ErrorAs(t, err, &partly)
			var failed *core.StoreError
			require.ErrorAs(t, err, &failed)
			require.Len(t, partly.Errs, len(c.all))
			assert.Less(t, len(partly.Unwrap()), len(c.all))
			for i, err := range partly.Errs {
				assert.False(t, err != nil && here[c.all[i]], "key %s: %v", c.all[i].Key, err)
			}
		})
	}
}

// Renewing and releasing fail as everything does while there is no server.
func TestPermitsWithoutAServer(t *testing.T) {
	t.Parallel()
	for _, tuned := range []bool{true, false} {
		t.Run(fmt.Sprint("tuned ", tuned), func(t *testing.T) { t.Parallel(); testPermitsWithoutAServer(t, tuned) })
	}
}

func testPermitsWithoutAServer(t *testing.T, tuned bool) {
	server := redistest.Single(t)
	rdb := redis.NewClient(unhurried(tune(tuned, []string{server.Addr()})).Simple())
	defer func() { assert.NoError(t, rdb.Close()) }()
	s := newStore(t, rdb, redisstore.Options{Deadline: time.Second})
	x := core.Permit{Policy: permitPolicy(t, "down", 1, time.Hour), Key: "k", ID: "a"}
	warm := newStore(t, rdb, redisstore.Options{Deadline: patient})
	_, err := warm.Acquire(t.Context(), x)
	require.NoError(t, err)
	server.Kill()
	var classes []string
	require.Eventually(t, func() bool {
		lost, err := s.Renew(t.Context(), []core.Permit{x})
		assert.Empty(t, lost)
		var partly *core.BatchError
		var failed *core.StoreError
		if assert.ErrorAs(t, err, &partly) && assert.ErrorAs(t, err, &failed) {
			assert.Len(t, partly.Errs, 1)
			classes = append(classes, failed.Class)
		}
		return len(classes) > 0 && classes[len(classes)-1] == core.ClassBreaker
	}, patient, 5*time.Millisecond, "the breaker opens: %v", classes)
	var failed *core.StoreError
	require.ErrorAs(t, s.Release(t.Context(), []core.Permit{x}), &failed)
	server.Restart(t)
	require.Eventually(t, func() bool {
		lost, err := s.Renew(t.Context(), []core.Permit{x})
		return err == nil && len(lost) == 0
	}, patient, 20*time.Millisecond, "what the server has forgotten is acquired again")
	other, err := warm.Acquire(t.Context(), core.Permit{Policy: x.Policy, Key: "k", ID: "b"})
	require.NoError(t, err)
	assert.Equal(t, core.Refused, other.Outcome)
}

// What is under our key and not ours is discarded, and what is ours in part survives.
func TestForeignPermits(t *testing.T) {
	t.Parallel()
	rdb := redistest.Single(t).Client(t)
	s := newStore(t, rdb, redisstore.Options{Deadline: patient})
	p := permitPolicy(t, "foreign", 2, time.Hour)
	const key = "weir:1:foreign:p:k"
	x := core.Permit{Policy: p, Key: "k", ID: "a"}

	require.NoError(t, rdb.Set(t.Context(), key, "text", 0).Err())
	require.NoError(t, s.Release(t.Context(), []core.Permit{x}))
	assert.EqualValues(t, 1, acquire(t, s, p, "a").Remaining)
	require.NoError(t, rdb.Del(t.Context(), key).Err())
	require.NoError(t, rdb.LPush(t.Context(), key, "list").Err())
	lost, err := s.Renew(t.Context(), []core.Permit{x})
	require.NoError(t, err)
	assert.Empty(t, lost)

	// Scores that no script writes, without an expiry.
	require.NoError(t, rdb.Del(t.Context(), key).Err())
	for member, score := range map[string]string{"a": "inf", "b": "-inf", "c#1": "1.5", "d#2": "1e300"} {
		require.NoError(t, rdb.Do(t.Context(), "zadd", key, score, member).Err())
	}
	res := acquire(t, s, p, "x")
	assert.Equal(t, core.Refused, res.Outcome)
	assert.Equal(t, time.Hour, res.RetryAfter, "what ends later than it can is cut")
	assert.Equal(t, time.Hour, res.ResetAfter)
	expires(t, rdb)
}

// holderLease is longer than a busy machine keeps a renewal waiting.
const holderLease = 5 * time.Second

// The place of a process that was killed comes back within its lease, and at no time are
// there more leases than permits.
func TestKilledHolder(t *testing.T) {
	t.Parallel()
	if addr := os.Getenv(holderEnv); addr != "" { // in the process that is killed
		holds(t, addr)
		return
	}
	const n = 3
	server := redistest.Single(t)
	rdb := server.Client(t)
	s := newStore(t, rdb, redisstore.Options{Deadline: patient})
	p := permitPolicy(t, "killed", n, holderLease)

	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledHolder$") //nolint:gosec // this program
	child.Env = append(os.Environ(), holderEnv+"="+server.Addr())
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	_, err = child.StdinPipe() // which closes when this process ends, and so ends the child
	require.NoError(t, err)
	require.NoError(t, child.Start())
	defer func() { _ = child.Process.Kill() }()
	lines := bufio.NewScanner(out)
	holding := false
	for !holding && lines.Scan() {
		holding = strings.Contains(lines.Text(), "holding")
	}
	require.True(t, holding, "%v", lines.Err())

	inUse := func() int64 {
		count, err := rdb.ZCount(t.Context(), "weir:1:killed:p:k", fmt.Sprintf("(%d", time.Now().UnixMicro()), "+inf").Result()
		require.NoError(t, err)
		assert.LessOrEqual(t, count, int64(n))
		return count
	}
	every := time.NewTicker(5 * time.Millisecond)
	defer every.Stop()
	// It goes on holding them for longer than a lease.
	for first := acquire(t, s, p, "other"); ; <-every.C {
		res := acquire(t, s, p, "other")
		require.Equal(t, core.Refused, res.Outcome)
		require.EqualValues(t, n, inUse())
		if res.At > first.At+holderLease.Microseconds() {
			break
		}
	}
	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait())
	early := acquire(t, s, p, "early")
	require.Equal(t, core.Refused, early.Outcome)
	require.LessOrEqual(t, early.ResetAfter, holderLease)
	free := early.At + early.ResetAfter.Microseconds() // when the last lease ends
	for got := 0; got < n; <-every.C {
		inUse()
		res := acquire(t, s, p, fmt.Sprint("heir", got))
		if res.Allowed() {
			got++
		} else {
			require.Less(t, res.At, free, "%d of %d are free when all leases have ended", got, n)
		}
	}
	assert.EqualValues(t, n, inUse())
	expires(t, rdb)
}

const holderEnv = "WEIR_TEST_HOLDER"

// holds takes the permits, and has them until its process is killed, or the one that started it has ended.
func holds(t *testing.T, addr string) {
	t.Helper()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	rdb := redis.NewUniversalClient(unhurried(redisstore.ClientOptions(addr)))
	defer func() { assert.NoError(t, rdb.Close()) }()
	l, err := enforce.New(newStore(t, rdb, redisstore.Options{Deadline: patient}), permitPolicy(t, "killed", 3, holderLease), enforce.Options{})
	require.NoError(t, err)
	for range 3 {
		held, release, err := l.Acquire(t.Context(), "k")
		require.NoError(t, err)
		defer release()
		defer func() { <-held.Done() }()
	}
	_, _, err = l.Acquire(t.Context(), "k")
	var over *enforce.OverLimitError
	require.True(t, errors.As(err, &over))
	fmt.Println("holding")
	<-t.Context().Done()
}
