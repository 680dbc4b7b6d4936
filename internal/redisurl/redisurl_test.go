package redisurl_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/redisurl"
)

func TestConnect(t *testing.T) {
	for location, want := range map[string]any{
		"redis://127.0.0.1:1":                                         &redis.Client{},
		"rediss://user:password@127.0.0.1:1/3":                        &redis.Client{},
		"unix:///tmp/redis.sock":                                      &redis.Client{},
		"redis://127.0.0.1:1?master_name=main&addr=127.0.0.1:2":       &redis.Client{},
		"redis://user:password@127.0.0.1:1?addr=127.0.0.1:2&addr=h:3": &redis.ClusterClient{},
	} {
		rdb, err := redisurl.Connect(location, true)
		require.NoError(t, err, location)
		assert.IsType(t, want, rdb, location)
		if single, ok := rdb.(*redis.Client); ok {
			assert.LessOrEqual(t, single.Options().MaxRetries, 0, "%s: a transaction must not be sent again", location)
			assert.True(t, single.Options().ContextTimeoutEnabled)
		}
		require.NoError(t, rdb.Close())
	}
	for _, location := range []string{"127.0.0.1:6379", "http://127.0.0.1", "redis://secret@%zz"} {
		_, err := redisurl.Connect(location, true)
		require.Error(t, err, location)
		assert.NotContains(t, err.Error(), "secret")
	}
}

// A URL with a password stands in a file, not among the flags.
func TestRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "redis")
	require.NoError(t, os.WriteFile(file, []byte("redis://weir:secret@127.0.0.1:1\n"), 0o600))
	rdb, err := redisurl.Connect("@"+file, true)
	require.NoError(t, err)
	assert.Equal(t, "secret", rdb.(*redis.Client).Options().Password)
	require.NoError(t, rdb.Close())
	for _, text := range []string{"", " \n", "redis://:secret@127.0.0.1:1\nredis://127.0.0.1:2\n"} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := redisurl.Connect("@"+file, true)
		require.ErrorContains(t, err, "-redis: "+file)
		assert.NotContains(t, err.Error(), "secret")
	}
	_, err = redisurl.Connect("@"+file+"/none", true)
	require.Error(t, err)
	text, inFile, err := redisurl.Read("-db", "weir.db")
	require.NoError(t, err)
	assert.False(t, inFile)
	assert.Equal(t, "weir.db", text)
}
