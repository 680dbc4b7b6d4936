package redissource

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/internal/logtest"
	"github.com/weir-go/weir/internal/redistest"
)

// userLine returns the line of docs/redis.md that makes a user, for Do.
func userLine(t testing.TB, name string) (args []any) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/redis.md")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "ACL SETUSER "+name+" ") {
			require.Empty(t, args, "two lines")
			for word := range strings.FieldsSeq(line) {
				args = append(args, word)
			}
		}
	}
	require.NotEmpty(t, args, "no line")
	return args
}

// as returns a client of a user.
func as(t testing.TB, name string, addrs ...string) redis.UniversalClient {
	t.Helper()
	o := redisstore.ClientOptions(addrs...)
	o.Username, o.Password = name, "secret"
	o.PoolTimeout, o.DialTimeout, o.ReadTimeout = patience, patience, patience // a busy machine is no failure
	rdb := redis.NewUniversalClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// setUser carries out the line of docs/redis.md that makes a user, and returns a client of it.
func setUser(t testing.TB, server *redistest.Server, name string) redis.UniversalClient {
	t.Helper()
	require.NoError(t, server.Client(t).Do(t.Context(), userLine(t, name)...).Err())
	return as(t, name, server.Addr())
}

// TestACLOnCluster: on a Cluster a service also needs what docs/redis.md says of one, and no more.
func TestACLOnCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	root := cluster.Client(t)
	for _, name := range []string{"pay", "weir-admin"} {
		line := append(userLine(t, name), "+cluster|slots", "+asking")
		require.NoError(t, root.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
			return node.Do(ctx, line...).Err()
		}))
	}
	admin, pay := as(t, "weir-admin", cluster.Addrs()...), as(t, "pay", cluster.Addrs()...)
	log := new(logtest.Log)
	publish(t, admin, document("pay", 1, 1, "1/1m"))
	s := followed(t, pay, "pay", Options{Log: log.Logger(), Usage: counted}, quick())
	awaitText(t, s, "1/1m")
	awaitSubscription(t, root, "pay")
	publish(t, admin, document("pay", 1, 2, "2/1m"))
	awaitText(t, s, "2/1m")
	awaitProcesses(t, admin, "pay", func(all []*policies.Process) bool { return len(all) == 1 && all[0].Version.Revision == 2 })
	assert.Equal(t, time.Minute, usages(t, admin, "pay")[s.id].For)
	assert.Empty(t, log.With("WARN"))
	store, err := redisstore.New(pay, redisstore.Options{Prefix: "pay", Deadline: patience})
	require.NoError(t, err)
	res, err := store.Take(t.Context(), core.Take{Policy: core.MustParse("login: 10/1h"), Key: "k", Cost: 1})
	require.NoError(t, err)
	assert.True(t, res.Allowed())
	require.ErrorContains(t, pay.HSet(t.Context(), Key("pay"), FieldRevision, 9).Err(), "NOPERM")
}

// TestACL: with exactly the rights that the docs give to a service, its Source and its store work, and it can change no
// document, neither its own nor that of another app, announce nothing, and see no counts of others.
func TestACL(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	admin := setUser(t, server, "weir-admin")
	pay := setUser(t, server, "pay")
	root := server.Client(t)
	for _, app := range []string{"pay", "payroll"} {
		publish(t, admin, document(app, 1, 1, "1/1m"))
		require.NoError(t, root.Set(t.Context(), app+":1:login:g1m:ip=1", "x", time.Hour).Err())
	}

	t.Run("it works", func(t *testing.T) {
		log := new(logtest.Log)
		s := followed(t, pay, "pay", Options{Log: log.Logger(), Usage: counted}, quick())
		awaitText(t, s, "1/1m")
		awaitSubscription(t, root, "pay")
		publish(t, admin, document("pay", 1, 2, "2/1m"))
		awaitText(t, s, "2/1m")
		all := awaitProcesses(t, admin, "pay", func(all []*policies.Process) bool { return len(all) == 1 && all[0].Version.Revision == 2 })
		assert.Equal(t, s.id, all[0].ID)
		assert.Equal(t, time.Minute, usages(t, admin, "pay")[s.id].For)
		assert.Empty(t, log.With("WARN"))

		store, err := redisstore.New(pay, redisstore.Options{Prefix: "pay", Deadline: patience})
		require.NoError(t, err)
		for _, text := range []string{"login: 10/1h, 100/1d", "login: 10/1h sliding-log", "mail: 5/1m; epoch 3"} {
			take := core.Take{Policy: core.MustParse(text), Key: "k", Cost: 2}
			res, err := store.Take(t.Context(), take)
			require.NoError(t, err, text)
			assert.True(t, res.Allowed(), text)
			require.NoError(t, store.Refund(t.Context(), []core.Refund{{Policy: take.Policy, Key: take.Key, Receipt: res, Units: 1}}), text)
			require.NoError(t, store.Reset(t.Context(), take.Policy, "k"), text)
		}
		permit := core.Permit{Policy: core.MustParse("jobs: 2 concurrent lease 1m"), Key: "k", ID: "a"}
		_, err = store.Acquire(t.Context(), permit)
		require.NoError(t, err)
		lost, err := store.Renew(t.Context(), []core.Permit{permit})
		require.NoError(t, err)
		assert.Empty(t, lost)
		require.NoError(t, store.Release(t.Context(), []core.Permit{permit}))
	})

	t.Run("it changes nothing", func(t *testing.T) {
		const missing = "-- this is no right of a service"
		for _, args := range [][]any{
			{"hset", "weir-policies:pay", "revision", "9"},
			{"hdel", "weir-policies:pay", "document"},
			{"hincrby", "weir-policies:pay", "revision", "1"},
			{"del", "weir-policies:pay"},
			{"unlink", "weir-policies:pay"},
			{"getdel", "weir-policies:pay"},
			{"set", "weir-policies:pay", "x"},
			{"expire", "weir-policies:pay", "1"},
			{"pexpire", "weir-policies:pay", "1"},
			{"rename", "weir-policies:pay", "pay:1:x"},
			{"rename", "pay:1:login:g1m:ip=1", "weir-policies:pay"},
			{"copy", "pay:1:login:g1m:ip=1", "weir-policies:pay", "replace"},
			{"zadd", "weir-policies:pay", "1", "x"},
			{"publish", "weir-policies:pay", ""},
			{"publish", "weir-policies:payroll", ""},
			{"spublish", "weir-policies:pay", ""},
			{"hmget", "weir-policies:payroll", "document"},
			{"hstrlen", "weir-policies:payroll", "document"},
			{"hset", "weir-policies:payroll", "revision", "9"},
			{"del", "weir-policies:payroll"},
			{"get", "weir-services:payroll:x"},
			{"set", "weir-services:payroll:x", "x"},
			{"get", "payroll:1:login:g1m:ip=1"},
			{"set", "payroll:1:login:g1m:ip=1", "x"},
			{"del", "payroll:1:login:g1m:ip=1"},
			{"mget", "pay:1:login:g1m:ip=1", "payroll:1:login:g1m:ip=1"},
			{"keys", "*"},
			{"scan", "0"},
			{"flushall"},
			{"flushdb"},
			{"swapdb", "0", "1"},
			{"config", "set", "maxmemory", "1"},
			{"acl", "setuser", "pay", "allkeys"},
			{"script", "flush"},
			{"function", "flush"},
			{"monitor"},
			{"shutdown"},
		} {
			err := pay.Do(t.Context(), args...).Err()
			require.Error(t, err, "%v %s", args, missing)
			assert.Contains(t, err.Error(), "NOPERM", "%v", args)

			// The same from a script, which names no key.
			quoted := make([]string, len(args))
			for i, arg := range args {
				quoted[i] = fmt.Sprintf("%q", arg)
			}
			err = pay.Do(t.Context(), "eval", "return redis.call("+strings.Join(quoted, ",")+")", 0).Err()
			require.Error(t, err, "%v in a script %s", args, missing)
			assert.Regexp(t, "NOPERM|ACL failure in script|user executing the script can't|not allowed from script", err.Error(), "%v in a script", args)
		}
		// A script that names the document, though it may be read.
		err := pay.Do(t.Context(), "eval", "return redis.call('hset', KEYS[1], 'revision', '9')", 1, "weir-policies:pay").Err()
		require.ErrorContains(t, err, "NOPERM")
		sub := pay.Subscribe(t.Context(), Channel("payroll"))
		defer sub.Close()
		_, err = sub.ReceiveTimeout(t.Context(), patience)
		require.ErrorContains(t, err, "NOPERM")

		for app, revision := range map[string]string{"pay": "2", "payroll": "1"} {
			got, err := root.HGet(t.Context(), Key(app), FieldRevision).Result()
			require.NoError(t, err)
			assert.Equal(t, revision, got)
			ttl, err := root.TTL(t.Context(), Key(app)).Result()
			require.NoError(t, err)
			assert.EqualValues(t, -1, ttl)
			assert.EqualValues(t, 1, root.Exists(t.Context(), app+":1:login:g1m:ip=1").Val())
		}
	})
}

// counted is the Usage of a process that has counted nothing for a minute.
func counted() stats.Usage { return stats.Usage{For: time.Minute} }
