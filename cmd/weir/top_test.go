package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/internal/adminapi"
	"github.com/weir-go/weir/internal/redistest"
)

// What two processes of a service have counted is shown together, also where keys are hashed: there a key is found by
// who has it.
func TestTop(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rdb := redis.NewUniversalClient(redisstore.ClientOptions(server.Addr()))
	t.Cleanup(func() { _ = rdb.Close() })
	const secret = "0123456789abcdef0123"
	file := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	share := func(o redisstore.Options) {
		store, err := redisstore.New(rdb, o)
		require.NoError(t, err)
		board := fmt.Sprintf("api:%d", time.Now().Unix()/60)
		require.NoError(t, store.AddScores(t.Context(), []stats.Scores{
			{Board: board, Source: "one", Units: map[string]int64{"user=7": 5, "user=8": 3}, Missed: 1},
			{Board: board, Source: "two", Units: map[string]int64{"user=7": 4}, Missed: 2},
		}))
	}
	share(redisstore.Options{})
	share(redisstore.Options{Prefix: "pay", HashKeys: []byte(secret)})
	env := []string{"WEIR_REDIS=redis://" + server.Addr()}

	r := weir(t, env, "top", "api")
	require.Equal(t, 0, r.code, r.err)
	lines := strings.Split(r.out, "\n")
	assert.Contains(t, lines[0], "api since ")
	assert.Equal(t, []string{"user=7", "9", "12"}, strings.Fields(lines[2]), r.out)
	assert.Equal(t, []string{"user=8", "3", "6"}, strings.Fields(lines[3]), r.out)
	assert.Equal(t, "any other key: at most 3", lines[4])

	r = weir(t, env, "-json", "top", "-limit", "1", "api")
	require.Equal(t, 0, r.code, r.err)
	var top adminapi.Top
	require.NoError(t, json.Unmarshal([]byte(r.out), &top))
	assert.Equal(t, []adminapi.Caller{{Key: "user=7", Least: 9, Most: 12}}, top.Callers)
	assert.Equal(t, uint64(6), top.Rest, "user=8 may have it")

	r = weir(t, env, "top", "-prefix", "pay", "-hash-keys", file, "-find", "user=8", "api")
	require.Equal(t, 0, r.code, r.err)
	assert.NotContains(t, r.out, "user=7")
	assert.Contains(t, strings.Split(r.out, "\n")[3], "<- user=8")

	r = weir(t, env, "top", "login")
	require.Equal(t, 0, r.code, r.err)
	assert.Contains(t, r.out, "nobody was refused by login")
	for _, args := range [][]string{{"-minutes", "120"}, {"-minutes=-1"}, {"-limit", "0"}, {"-limit", "1001"}} {
		r = weir(t, env, append([]string{"top", "api"}, args...)...)
		assert.Equal(t, 1, r.code, args)
		assert.Contains(t, r.err, "give 0 to 119 minutes, and 1 to 1000 keys")
	}
	r = weir(t, []string{"WEIR_REDIS="}, "top", "api")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.err, "or give -redis")
}
