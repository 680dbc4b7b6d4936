package fleettest

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/filesource"
	"github.com/weir-go/weir/core/policies/redissource"
	"github.com/weir-go/weir/keyfunc"
)

// TestFileBeforeRedis: with Redis and weir-admin gone, a file on the machine is the way out; when they are back, the
// fleet sees which process goes by a file.
func TestFileBeforeRedis(t *testing.T) {
	f := startFleet(t)
	path := filepath.Join(t.TempDir(), "pay.yaml")
	file, err := filesource.New(path, filesource.Options{Missing: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, file.Close()) })
	redisSource := f.source("pay", redissource.Options{})
	store, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	urls := map[string]string{}
	for _, name := range []string{"api", "mail"} {
		g, err := guard.New(guard.Config{
			Store: store, Source: policies.Layers(file, redisSource), Rule: guard.Rule{Policy: name + ": 1000/1h", Key: keyfunc.IP()},
		})
		require.NoError(t, err)
		urls[name] = frameworks["nethttp"](t, g)
	}
	limit := func(want string) func(int, http.Header) bool {
		return func(_ int, h http.Header) bool { return h.Get("X-RateLimit-Limit") == want }
	}
	f.put(t, "pay", "api", policies.Policy{Text: "2000/1h"})
	f.put(t, "pay", "mail", policies.Policy{Text: "3000/1h"})
	await(t, urls["api"], limit("2000"), "the fleet")
	await(t, urls["mail"], limit("3000"), "the fleet")

	f.killAdmins()
	f.redis.Kill()
	require.NoError(t, os.WriteFile(path, []byte("format: 1\npolicies:\n  api:\n    text: 50/1h\n"), 0o600))
	await(t, urls["api"], limit("50"), "the file")
	await(t, urls["mail"], limit("3000"), "the fleet, as it was")

	f.redis.Restart(t)
	f.setUser("weir-admin")
	f.startAdmin()
	f.put(t, "pay", "mail", policies.Policy{Text: "4000/1h"})
	await(t, urls["mail"], limit("4000"), "the fleet again")
	require.Eventually(t, func() bool {
		services, err := f.admin.Services(t.Context(), "pay")
		if err != nil || len(services.Processes) != 1 {
			return false
		}
		words, why := map[string]policies.Meaning{}, map[string]string{}
		for _, r := range services.Processes[0].Rules {
			words[r.Policy], why[r.Policy] = r.Meaning, r.Why
		}
		return words["mail"] == policies.Fleet && words["api"] == policies.Code && why["api"] != ""
	}, patience, 10*time.Millisecond)
	require.NoError(t, os.Remove(path))
	await(t, urls["api"], limit("50"), "a file that is gone changes nothing")
	require.NoError(t, os.WriteFile(path, []byte("format: 1\npolicies: {}\n"), 0o600))
	await(t, urls["api"], limit("2000"), "the fleet")
}
