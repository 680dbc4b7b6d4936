package guard_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// lockouts are a rule for each user, before one for the whole tenant.
var lockouts = [][2]string{
	{"user: 5/1s", "tenant: 100/1s"},
	{"user: 2 concurrent", "tenant: 100/1s"},
	{"user: 5/1s; wait 200ms", "tenant: 100/1s"},
	{"user: 2 concurrent", "tenant: 100/1s leaky-bucket"},
	{"user: 5/1s, 2 concurrent", "tenant: 100/1s; wait 200ms"},
}

// lockOut returns how many of the tenant's other users, who come 67 times a second, are refused by the rule that they
// share with one who does not stop.
func lockOut(t *testing.T, store core.Store, policies [2]string, others int) (refused int) {
	g := newGuard(t, guard.Config{
		Rule:  guard.Rule{Policy: policies[0], Key: byHeader("uid", "User")},
		Rules: []guard.Rule{{Policy: policies[1], Key: byHeader("tenant", "Tenant")}},
		Store: store,
	})
	serve := func(user string) guard.Verdict {
		v := g.Check(sent("User", user, "Tenant", "acme"))
		if v.Action == guard.Pass {
			<-time.After(100 * ms) // the handler
		}
		v.Finish(guard.Final{})
		return v
	}
	var attack, rest sync.WaitGroup
	var over atomic.Bool
	var shared atomic.Int64
	for range 50 {
		attack.Go(func() {
			for !over.Load() {
				if v := serve("attacker"); v.Action != guard.Pass {
					<-time.After(2 * ms)
				}
			}
		})
	}
	for i := range others {
		rest.Go(func() {
			v := serve(fmt.Sprint("user ", i))
			if v.Action != guard.Pass && v.Policy == "tenant" {
				shared.Add(1)
			}
		})
		<-time.After(15 * ms)
	}
	rest.Wait()
	over.Store(true)
	attack.Wait()
	return int(shared.Load())
}

// A user who does not stop costs others of the tenant nothing but what the rule before the tenant's lets through.
func TestLockOut(t *testing.T) {
	for _, policies := range lockouts {
		synctest.Test(t, func(t *testing.T) {
			assert.LessOrEqual(t, lockOut(t, newMemory(t), policies, 200), 2, "%v", policies)
		})
	}
}

// That is so with Redis as well, from where what is given back comes later.
func TestLockOutOverRedis(t *testing.T) {
	server := redistest.Single(t)
	distances, others := []time.Duration{0, ms, 5 * ms}, 200
	if testing.Short() {
		distances, others = distances[1:2], 60
	}
	for i, away := range distances {
		t.Run(fmt.Sprint(away, " away"), func(t *testing.T) {
			proxy := redistest.NewProxy(t, server.Addr())
			proxy.Latency(away)
			var rows sync.WaitGroup
			refused := make([]int, len(lockouts))
			for row, policies := range lockouts {
				store := newRedis(t, proxy, fmt.Sprint("lockout-", i, "-", row))
				rows.Go(func() { refused[row] = lockOut(t, store, policies, others) })
			}
			rows.Wait()
			for row, n := range refused {
				assert.LessOrEqual(t, n, 2, "%v", lockouts[row])
			}
			t.Logf("refused of %d: %v", others, refused)
		})
	}
}

// newRedis returns a store behind a proxy, which waits for its answers also on a busy machine.
func newRedis(t *testing.T, proxy *redistest.Proxy, prefix string) *redisstore.Store {
	t.Helper()
	o := redisstore.ClientOptions(proxy.Addr())
	o.ReadTimeout, o.WriteTimeout, o.DialTimeout = time.Minute, time.Minute, time.Minute
	rdb := redis.NewUniversalClient(o)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	store, err := redisstore.New(rdb, redisstore.Options{Prefix: prefix, Deadline: 20 * time.Second})
	require.NoError(t, err)
	return store
}
