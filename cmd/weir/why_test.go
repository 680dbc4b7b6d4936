package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/explain"
	"github.com/weir-go/weir/core/policies/redissource"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// used is a Redis where a service has used up what a key may have: five units an hour.
func used(t *testing.T, server *redistest.Server, o redisstore.Options, text string) *enforce.Limiter {
	t.Helper()
	rdb := redis.NewUniversalClient(redisstore.ClientOptions(server.Addr()))
	t.Cleanup(func() { _ = rdb.Close() })
	o.Deadline = patience
	store, err := redisstore.New(rdb, o)
	require.NoError(t, err)
	l, err := enforce.New(store, core.MustParse(text), enforce.Options{})
	require.NoError(t, err)
	res, err := l.AllowN(t.Context(), "user=7", 5)
	require.NoError(t, err)
	require.Equal(t, core.AtLimit, res.Outcome)
	return l
}

// weir why says of a key what the service's Limiter says and does, and writes nothing.
func TestWhy(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	const text = "api: 5/1h fixed-window, 2 concurrent lease 1h"
	l := used(t, server, redisstore.Options{}, text)
	_, release, err := l.Acquire(t.Context(), "user=8")
	require.NoError(t, err)
	t.Cleanup(release)
	env := []string{"WEIR_REDIS=redis://" + server.Addr()}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	kept := func() map[string]string {
		all := map[string]string{}
		for _, key := range rdb.Keys(t.Context(), "*").Val() {
			all[key] = rdb.Dump(t.Context(), key).Val()
		}
		return all
	}
	before := kept()
	require.Len(t, before, 3)

	r := weir(t, env, "why", text, "user=7")
	require.Equal(t, 0, r.code, r.err)
	assert.Contains(t, r.out, "policy    "+text+"\n")
	assert.Contains(t, r.out, "stored    weir:1:api:f:user=7\n")
	assert.Contains(t, r.out, "answer    refused, 0 of 5 left")
	assert.Contains(t, r.out, "limit     5/1h fixed-window: 5 used, 0 left, refuses, admits in ")
	assert.Contains(t, r.out, "limit     2 concurrent lease 1h: 0 used, 2 left\n")

	var x, own explain.Explanation
	r = weir(t, env, "why", "-json", text, "user=7")
	require.Equal(t, 0, r.code, r.err)
	require.NoError(t, json.Unmarshal([]byte(r.out), &x))
	own, err = l.Explain(t.Context(), "user=7", 1)
	require.NoError(t, err)
	require.Len(t, x.Next, 5)
	for i := range x.Next {
		assert.Equal(t, own.Next[i].At.UTC(), x.Next[i].At.UTC())
	}
	assert.True(t, x.Next[0].At.After(x.At.Add(50*time.Minute)))

	r = weir(t, env, "why", text, "user=8")
	assert.Contains(t, r.out, "permits   1 of 2 held, 0 by this process; leases end ")
	r = weir(t, env, "why", "-cost", "6", text, "user=9")
	assert.Contains(t, r.out, "answer    never")
	r = weir(t, env, "why", "-as", "7/1h fixed-window, 2 concurrent lease 1h", text, "user=7")
	assert.Contains(t, r.out, "numbers   given\n")
	assert.Contains(t, r.out, "7/1h fixed-window: 5 used, 2 left")
	r = weir(t, env, "why", "-as", "100/1h", text, "user=7")
	assert.Contains(t, r.out, "note      these numbers count apart from those of now")
	r = weir(t, env, "why", text, "a\x1b[31m\u202e")
	assert.Contains(t, r.out, `key       "a\x1b[31m\u202e"`)
	assert.Equal(t, before, kept(), "nothing was written")

	for _, wrong := range [][]string{
		{"why", "api", "user=7"},
		{"why", "api: 5/1x", "user=7"},
		{"why", text, ""},
		{"why", "-cost", "-1", text, "user=7"},
		{"why", "-redis", "127.0.0.1", text, "user=7"},
		{"why", "-prefix", "a b", text, "user=7"},
		{"why", "-hash-keys", "gone", text, "user=7"},
		{"why", "-as", "5/1x", text, "user=7"},
		{"why", "-tier", "pro", text, "user=7"},
	} {
		r = weir(t, env, wrong...)
		assert.Equal(t, failed, r.code, wrong)
		assert.NotEmpty(t, r.err, wrong)
		assert.Empty(t, r.out, wrong)
	}
	server.Kill()
	r = weir(t, env, "why", text, "user=7")
	assert.Equal(t, failed, r.code)
	assert.Contains(t, r.err, "store failed at "+server.Addr())
	assert.Contains(t, r.err, `meanwhile each process of the service decides by "fail local"`)
}

// Keys that are hashed are found by whoever has the secret.
func TestWhyHashed(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	const secret = "0123456789abcdef"
	used(t, server, redisstore.Options{Prefix: "pay", HashKeys: []byte(secret)}, "api: 5/1h")
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte(secret+"\n"), 0o600))
	r := weir(t, []string{"WEIR_REDIS=redis://" + server.Addr(), "WEIR_HASH_KEYS=" + path}, "why", "-prefix", "pay", "api: 5/1h", "user=7")
	require.Equal(t, 0, r.code, r.err)
	assert.Contains(t, r.out, "5/1h: 5 used, 0 left, refuses")
	assert.Contains(t, r.out, "stored    pay:1:api:g1h:~")
}

// The numbers of a file hold over those of the code, for tiers and single keys too.
func TestWhyFile(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	used(t, server, redisstore.Options{}, "api: 5/1h fixed-window")
	path := file(t, `format: 1
app: pay
policies:
  api:
    text: 6/1h fixed-window
    tiers:
      pro: 9/1h fixed-window
      free: unlimited
    keys:
      user=8: blocked
  login: {}
`)
	env := []string{"WEIR_REDIS=redis://" + server.Addr()}
	r := weir(t, env, "why", "-file", path, "api", "user=7")
	assert.Contains(t, r.out, "6/1h fixed-window: 5 used, 1 left", r.err)
	r = weir(t, env, "why", "-file", path, "api: 5/1h fixed-window; fail open", "user=7")
	assert.Contains(t, r.out, "policy    api: 6/1h fixed-window; fail open\nnumbers   Policies[\"api\"]\n", r.err)
	r = weir(t, env, "why", "-file", path, "-tier", "pro", "api", "user=7")
	assert.Contains(t, r.out, "numbers   Tiers[\"api\"][\"pro\"]\n", r.err)
	assert.Contains(t, r.out, "9/1h fixed-window: 5 used, 4 left")
	assert.Contains(t, weir(t, env, "why", "-file", path, "-tier", "free", "api", "user=7").out, "unlimited")
	r = weir(t, env, "why", "-file", path, "api", "user=8")
	assert.Contains(t, r.out, "policy    blocked\nnumbers   Keys[\"api\"][\"user=8\"]\n", r.err)
	assert.Contains(t, r.out, "answer    refused, retry in 1m0s (process)")
	r = weir(t, env, "why", "-file", path, "login", "user=7")
	assert.Contains(t, r.err, "the numbers of \"login\" are those of the code")
}

// The record has the numbers, and the processes have said what their code has.
func TestWhyApp(t *testing.T) {
	t.Parallel()
	a := startAdmin(t)
	used(t, a.redis, redisstore.Options{}, "login: 5/1h fixed-window")
	a.weir(t, 0, "apply", file(t, "format: 1\napp: pay\npolicies:\n  login:\n    keys:\n      user=7: 8/1h fixed-window\n"))
	env := append([]string{"WEIR_REDIS=redis://" + a.redis.Addr()}, a.env...)
	r := weir(t, env, "why", "-app", "pay", "login", "user=7")
	assert.Contains(t, r.err, "the numbers of \"login\" are those of the code")

	rdb := redis.NewUniversalClient(redisstore.ClientOptions(a.redis.Addr()))
	t.Cleanup(func() { _ = rdb.Close() })
	source, err := redissource.New(rdb, "pay", redissource.Options{Every: 100 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { _ = source.Close() })
	l, err := enforce.New(nil, core.MustParse("login: 5/1h fixed-window"), enforce.Options{Source: source})
	require.NoError(t, err)
	defer runtime.KeepAlive(l) // its Source does not
	runtime.GC()
	until(t, func() bool {
		r = weir(t, env, "why", "-app", "pay", "login", "user=7")
		return r.code == 0
	})
	assert.Contains(t, r.out, "numbers   Keys[\"login\"][\"user=7\"], revision 1.2\n")
	assert.Contains(t, r.out, "8/1h fixed-window: 5 used, 3 left")
}
