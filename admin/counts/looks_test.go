package counts_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// patience is the deadline of services in these tests, which may run on a machine that has much to do.
const patience = time.Minute

func limiter(t *testing.T, rdb redis.UniversalClient, text string, o redisstore.Options) *enforce.Limiter {
	t.Helper()
	o.Deadline = patience
	store, err := redisstore.New(rdb, o)
	require.NoError(t, err)
	l, err := enforce.New(store, core.MustParse(text), enforce.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	return l
}

func uses(t *testing.T, l *enforce.Limiter, key string, units int64) {
	t.Helper()
	res, err := l.AllowN(t.Context(), key, units)
	require.NoError(t, err)
	require.True(t, res.Allowed())
}

func open(t *testing.T, o counts.Options) *counts.Stores {
	t.Helper()
	s, err := counts.New(o)
	require.NoError(t, err)
	return s
}

// one looks at a key under one rule.
func one(t *testing.T, s *counts.Stores, r counts.Rule, d *policies.Document, key string) counts.Look {
	t.Helper()
	looks, err := s.Look(t.Context(), []counts.Rule{r}, d, key)
	require.NoError(t, err)
	require.Len(t, looks, 1)
	return looks[0]
}

// A look shows what a service has counted, by the numbers that hold for the key, and changes nothing.
func TestLook(t *testing.T) {
	t.Parallel()
	rdb := redistest.Single(t).Client(t)
	api := counts.Rule{
		Policy: "api", Code: "api: 10/1h; fail closed", Tiers: map[string]string{"pro": "100/1h", "free": "5/1h"},
		Where: counts.Where{Prefix: "shop"},
	}
	uses(t, limiter(t, rdb, api.Code, redisstore.Options{Prefix: "shop"}), "user=7", 4)
	s := open(t, counts.Options{Redis: rdb})

	look := one(t, s, api, nil, "user=7")
	require.Empty(t, look.Why)
	x := look.Explanation
	assert.Equal(t, "shop:1:api:g1h:user=7", x.Stored)
	assert.Equal(t, "code", x.Numbers)
	assert.Equal(t, "store", x.From)
	assert.Equal(t, int64(4), x.Limits[0].Used)
	assert.Equal(t, int64(6), x.Limits[0].Left)
	assert.False(t, look.Refuses())
	require.Len(t, look.Tiers, 2)
	assert.Equal(t, "free", look.Tiers[0].Tier)
	assert.Equal(t, int64(3), look.Tiers[0].Explanation.Limits[0].Left, "what is in use is a fraction")
	assert.Equal(t, int64(60), look.Tiers[1].Explanation.Limits[0].Left)

	d := &policies.Document{Version: policies.Version{Generation: 1, Revision: 9}, Policies: map[string]policies.Policy{"api": {
		Text: "20/1h", Tiers: map[string]string{"free": "unlimited", "mad": "7/1h sliding-log"},
		Keys: map[string]string{"user=8": "blocked", "user=9": "unlimited", "user=10": "3/1h", "user=11": "no text"},
	}}}
	look = one(t, s, api, d, "user=7")
	assert.Equal(t, "api: 20/1h; fail closed", look.Explanation.Policy)
	assert.Equal(t, `Policies["api"]`, look.Explanation.Numbers)
	assert.Equal(t, "1.9", look.Explanation.Revision)
	require.Len(t, look.Unused, 1)
	assert.Equal(t, `Tiers["api"]["mad"]`, look.Unused[0].Entry)
	assert.NotContains(t, look.Unused[0].Why, "enforce:")
	var tiers []string
	for _, tier := range look.Tiers {
		tiers = append(tiers, tier.Tier+" "+tier.Explanation.Policy+" "+tier.Explanation.Numbers)
	}
	assert.Equal(t, []string{`free unlimited Tiers["api"]["free"]`, `mad api: 20/1h; fail closed Policies["api"]`, `pro api: 100/1h; fail closed tier "pro" of the code`}, tiers)

	look = one(t, s, api, d, "user=8")
	assert.Equal(t, follow.Blocked, look.Explanation.Policy)
	assert.True(t, look.Refuses())
	assert.Empty(t, look.Tiers, "its numbers hold in all of them")
	look = one(t, s, api, d, "user=9")
	assert.Equal(t, follow.Unlimited, look.Explanation.Policy)
	assert.False(t, look.Refuses())
	look = one(t, s, api, d, "user=10")
	assert.Equal(t, "api: 3/1h; fail closed", look.Explanation.Policy)
	assert.Equal(t, `Keys["api"]["user=10"]`, look.Explanation.Numbers)
	look = one(t, s, api, d, "user=11")
	assert.Equal(t, "api: 20/1h; fail closed", look.Explanation.Policy)
	require.Len(t, look.Unused, 1)

	look = one(t, s, counts.Rule{Policy: "api", Where: api.Where}, d, "user=7")
	assert.Equal(t, int64(4*2), look.Explanation.Limits[0].Used, "without a process, the text of the fleet will do")
	look = one(t, s, counts.Rule{Policy: "api", Where: api.Where}, nil, "user=7")
	assert.Contains(t, look.Why, "no process says which these are")
	look = one(t, s, counts.Rule{Policy: "api", Code: "nonsense", Where: api.Where}, d, "user=7")
	assert.Contains(t, look.Why, "what its processes say of themselves is no policy")
}

// Permits are shown as well, and a policy of permits alone.
func TestLookAtPermits(t *testing.T) {
	t.Parallel()
	rdb := redistest.Single(t).Client(t)
	l := limiter(t, rdb, "export: 2 concurrent, 10/1h", redisstore.Options{})
	_, release, err := l.Acquire(t.Context(), "user=7")
	require.NoError(t, err)
	defer release()
	s := open(t, counts.Options{Redis: rdb})
	look := one(t, s, counts.Rule{Policy: "export", Code: "export: 2 concurrent, 10/1h"}, nil, "user=7")
	require.Empty(t, look.Why)
	assert.Equal(t, int64(1), look.Explanation.Permits.Held)
	assert.Equal(t, int64(9), look.Explanation.Limits[0].Left)
	look = one(t, s, counts.Rule{Policy: "export", Code: "export: 1 concurrent"}, nil, "user=7")
	require.Empty(t, look.Why)
	assert.True(t, look.Refuses())
	look = one(t, s, counts.Rule{Policy: "export", Code: "export: 1 concurrent; shadow"}, nil, "user=7")
	require.Empty(t, look.Why)
	assert.Equal(t, "refused", look.Explanation.Outcome)
	assert.False(t, look.Refuses(), "on trial")
}

// Rules that refuse come first, and those under which nobody can look last.
func TestLookOrder(t *testing.T) {
	t.Parallel()
	rdb := redistest.Single(t).Client(t)
	uses(t, limiter(t, rdb, "full: 1/1h", redisstore.Options{}), "user=7", 1)
	s := open(t, counts.Options{Redis: rdb})
	looks, err := s.Look(t.Context(), []counts.Rule{
		{Policy: "away", Code: "1/1h", Where: counts.Where{Process: true}},
		{Policy: "byip", Code: "1/1h", Keys: []string{"ip"}},
		{Policy: "free", Code: "1/1h", Keys: []string{"join(user, route)"}},
		{Policy: "full", Code: "1/1h"},
	}, nil, "user=7")
	require.NoError(t, err)
	var names []string
	for _, l := range looks {
		names = append(names, l.Policy)
	}
	assert.Equal(t, []string{"full", "free", "byip", "away"}, names)
	assert.Empty(t, looks[1].Apart)
	assert.Equal(t, "it counts by ip, and not by such a key", looks[2].Apart)
	assert.NotNil(t, looks[2].Explanation)
	assert.Contains(t, looks[3].Why, "count in their processes")
	for _, key := range []string{"", strings.Repeat("k", 1025)} {
		_, err := s.Look(t.Context(), nil, nil, key)
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "kkk")
	}
}

// Hashed keys are found with the secret of the service, and without it the look says what is missing.
func TestHashedKeys(t *testing.T) {
	t.Parallel()
	rdb := redistest.Single(t).Client(t)
	const secret = "a secret of enough bytes"
	uses(t, limiter(t, rdb, "api: 10/1h", redisstore.Options{Prefix: "bank", HashKeys: []byte(secret)}), "user=7", 4)
	file := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(file, []byte(secret+"\r\n"), 0o600))
	hashed := counts.Rule{Policy: "api", Code: "api: 10/1h", Where: counts.Where{Prefix: "bank", Hashed: true}}
	unknown := counts.Rule{Policy: "api", Code: "api: 10/1h"}

	look := one(t, open(t, counts.Options{Redis: rdb}), hashed, nil, "user=7")
	assert.Contains(t, look.Why, "start it with the file of the secret")
	assert.Nil(t, look.Explanation)
	s := open(t, counts.Options{Redis: rdb, Prefix: "bank", Places: map[string]counts.Place{"bank": {SecretFile: file}}})
	for _, rule := range []counts.Rule{hashed, unknown} {
		look = one(t, s, rule, nil, "user=7")
		require.Empty(t, look.Why)
		assert.Equal(t, int64(4), look.Explanation.Limits[0].Used)
		assert.NotContains(t, look.Explanation.Stored, "user")
	}
	// Keys that processes report are hashed, and need no secret.
	scores, err := redisstore.New(rdb, redisstore.Options{HashKeys: []byte(secret)})
	require.NoError(t, err)
	reported := scores.ScoreKey("user=7")
	look = one(t, open(t, counts.Options{Redis: rdb}), hashed, nil, reported)
	require.Empty(t, look.Why)
	assert.Equal(t, int64(4), look.Explanation.Limits[0].Used)

	readable := hashed
	readable.Hashed = false
	assert.Zero(t, one(t, s, readable, nil, "user=7").Explanation.Limits[0].Used, "its processes say that they do not hash")

	for text, place := range map[string]counts.Place{
		"no such file": {SecretFile: file + "x"},
		"16":           {SecretFile: short(t)},
	} {
		_, err := counts.New(counts.Options{Redis: rdb, Places: map[string]counts.Place{"bank": place}})
		require.ErrorContains(t, err, text)
		assert.NotContains(t, err.Error(), "tiny")
	}
	_, err = counts.New(counts.Options{Redis: rdb, Prefix: "no prefix"})
	require.Error(t, err)
}

func short(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "short")
	require.NoError(t, os.WriteFile(file, []byte("tiny"), 0o600))
	return file
}

// MONITOR shows that looking writes nothing, also where what is stored makes no sense or lies ahead of the clock, which a
// decision would correct.
func TestLookWritesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rdb := server.Client(t)
	var rules []counts.Rule
	for i, text := range []string{
		"10/1h", "10/1h token-bucket", "10/1h leaky-bucket", "10/1h fixed-window", "10/1d fixed-window calendar UTC", "10/1h sliding-window",
		"10/1h sliding-counter", "10/1h sliding-log", "2 concurrent", "2 concurrent, 10/1h, 5/1m fixed-window",
	} {
		rule := counts.Rule{Policy: fmt.Sprintf("p%d", i), Tiers: map[string]string{"less": strings.NewReplacer("10/", "7/", "2 ", "1 ").Replace(text)}}
		rule.Code = rule.Policy + ": " + text
		rules = append(rules, rule)
		l := limiter(t, rdb, rule.Code, redisstore.Options{})
		if p := l.Policy(); p.Spec().Shape() != "" {
			uses(t, l, "user=7", 3)
			store, ok := l.Store().(*redisstore.Store)
			require.True(t, ok)
			_, err := store.Take(t.Context(), core.Take{Policy: p, Key: "ahead", Cost: 3, Now: time.Now().Add(72 * time.Hour).UnixMicro()})
			require.NoError(t, err)
			state, err := store.State(t.Context(), core.Take{Policy: p, Key: "odd"})
			require.NoError(t, err)
			require.NoError(t, rdb.Set(t.Context(), state.Name, "no state", time.Hour).Err())
		}
		if _, _, permits := l.Policy().Concurrent(); permits {
			_, release, err := l.Acquire(t.Context(), "user=7")
			require.NoError(t, err)
			defer release()
		}
	}
	s := open(t, counts.Options{Redis: rdb})
	seen := server.Monitor(t, func() {
		for _, key := range []string{"user=7", "ahead", "odd", "nobody"} {
			looks, err := s.Look(t.Context(), rules, nil, key)
			require.NoError(t, err)
			for _, l := range looks {
				require.Empty(t, l.Why, "%s: %s", key, l.Policy)
				require.Len(t, l.Tiers, 1)
			}
		}
	})
	assert.Positive(t, seen["get"])
	assert.Positive(t, seen["zrange"])
	for command := range seen {
		assert.Contains(t, []string{"eval", "time", "get", "zrange", "hello", "client", "ping", "command", "cluster", "info"}, command)
	}
}
