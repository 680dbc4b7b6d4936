package redisstore_test

import (
	"bufio"
	"io"
	"math/rand/v2"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/internal/redistest"
)

// Errors of the server have different classes, and none of them is tried again for long.
func TestServerErrors(t *testing.T) {
	t.Parallel()
	take := core.Take{Policy: core.MustParse("errors: 10/1h"), Key: "k", Cost: 1}
	tests := []struct {
		name    string
		prepare func(t *testing.T, admin *redis.Client)
		user    string
		class   string
	}{
		{
			name: "out of memory",
			prepare: func(t *testing.T, admin *redis.Client) {
				require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
			},
			class: core.ClassOOM,
		},
		{
			name: "no right to write",
			prepare: func(t *testing.T, admin *redis.Client) {
				require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "poor", "on", ">secret", "~*", "+eval", "+evalsha", "+time", "+get").Err())
			},
			user:  "poor",
			class: core.ClassDenied,
		},
		{
			name:    "unknown user",
			prepare: func(*testing.T, *redis.Client) {},
			user:    "nobody",
			class:   core.ClassDenied,
		},
		{
			name: "replica",
			prepare: func(t *testing.T, admin *redis.Client) {
				master := redistest.Single(t)
				host, port, _ := strings.Cut(master.Addr(), ":")
				require.NoError(t, admin.ReplicaOf(t.Context(), host, port).Err())
			},
			class: core.ClassDown,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Single(t)
			test.prepare(t, server.Client(t))
			o := unhurried(redisstore.ClientOptions(server.Addr()))
			if test.user != "" {
				o.Username, o.Password = test.user, "secret"
			}
			rdb := redis.NewUniversalClient(o)
			defer func() { assert.NoError(t, rdb.Close()) }()
			s := newStore(t, rdb, redisstore.Options{Deadline: patient})
			_, err := s.Take(t.Context(), take)
			var failed *core.StoreError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, test.class, failed.Class, "%v", err)
			assert.False(t, failed.MaybeExecuted, "%v", err)
			stats := server.CommandStats(t)
			assert.LessOrEqual(t, stats["evalsha"]+stats["eval"], int64(2), "not tried again")
			if test.class == core.ClassDown || test.user == "nobody" { // whom a breaker keeps away
				return
			}
			for start := time.Now(); time.Since(start) < 250*time.Millisecond; { // longer than a breaker waits
				_, err := s.Take(t.Context(), take)
				require.ErrorAs(t, err, &failed)
				require.Equal(t, test.class, failed.Class, "a server that answers is asked again")
			}
		})
	}
	t.Run("a cluster behind a plain client", func(t *testing.T) {
		t.Parallel()
		cluster := sharedCluster(t)
		owner := cluster.NodeFor(t, "weir:1:errors:g1h:k")
		for _, node := range cluster.Nodes {
			if node == owner {
				continue
			}
			s := newStore(t, node.Client(t), redisstore.Options{Deadline: patient})
			_, err := s.Take(t.Context(), take)
			require.ErrorContains(t, err, "give a redis.ClusterClient")
		}
	})
}

// What answers, and is no Redis, has another class than a server that fails.
func TestSenselessReply(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { assert.NoError(t, listener.Close()) }()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for {
					_, words, err := message(in)
					if err != nil {
						return
					}
					reply := "+OK\r\n"
					if strings.EqualFold(words[0], "hello") {
						reply = "-ERR unknown command 'HELLO'\r\n"
					}
					if _, err := io.WriteString(conn, reply); err != nil {
						return
					}
				}
			}()
		}
	}()
	rdb := redis.NewUniversalClient(unhurried(redisstore.ClientOptions(listener.Addr().String())))
	defer func() { assert.NoError(t, rdb.Close()) }()
	s := newStore(t, rdb, redisstore.Options{Deadline: patient})
	_, err = s.Take(t.Context(), core.Take{Policy: core.MustParse("senseless: 10/1h"), Key: "k", Cost: 1})
	var failed *core.StoreError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, core.ClassReply, failed.Class, "%v", err)
	assert.True(t, failed.MaybeExecuted, "nobody knows")
}

// The rights that the package documents suffice.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	require.NoError(t, server.Client(t).Do(t.Context(), "ACL", "SETUSER", "weir", "on", ">secret", "~weir:*",
		"+evalsha", "+eval", "+time", "+get", "+set", "+del").Err())
	o := unhurried(redisstore.ClientOptions(server.Addr()))
	o.Username, o.Password = "weir", "secret"
	rdb := redis.NewUniversalClient(o)
	defer func() { assert.NoError(t, rdb.Close()) }()
	s := newStore(t, rdb, redisstore.Options{Deadline: patient})
	take := core.Take{Policy: core.MustParse("rights: 10/1h, 100/1d"), Key: "k", Cost: 2}
	res, err := s.Take(t.Context(), take)
	require.NoError(t, err)
	assert.EqualValues(t, 8, res.Remaining)
	require.NoError(t, s.Refund(t.Context(), []core.Refund{{Policy: take.Policy, Key: take.Key, Receipt: res, Units: 1}}))
	assert.EqualValues(t, 1, used(t, s, take.Policy, "k"))
	_, err = s.State(t.Context(), take)
	require.NoError(t, err)
	require.NoError(t, s.Reset(t.Context(), take.Policy, "k"))
	assert.Zero(t, used(t, s, take.Policy, "k"))

	permits := core.MustParse("rights: 2 concurrent lease 1m")
	permit := func(id string) core.Permit { return core.Permit{Policy: permits, Key: "k", ID: id} }
	_, err = s.Acquire(t.Context(), permit("a"))
	var failed *core.StoreError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, core.ClassDenied, failed.Class)
	assert.True(t, failed.MaybeExecuted, "what a script did before it was denied is not known")
	require.NoError(t, server.Client(t).Do(t.Context(), "ACL", "SETUSER", "weir",
		"+zadd", "+zcard", "+zcount", "+zrange", "+zrangebyscore", "+zrem", "+zremrangebyscore", "+zscore", "+pexpire").Err())
	for _, id := range []string{"a", "b"} {
		res, err := s.Acquire(t.Context(), permit(id))
		require.NoError(t, err)
		assert.True(t, res.Allowed())
	}
	res, err = s.Acquire(t.Context(), permit("c"))
	require.NoError(t, err)
	assert.False(t, res.Allowed())
	state, err := s.State(t.Context(), core.Take{Policy: permits, Key: "k"})
	require.NoError(t, err)
	assert.Len(t, state.Leases, 2)
	lost, err := s.Renew(t.Context(), []core.Permit{permit("a"), permit("b")})
	require.NoError(t, err)
	assert.Empty(t, lost)
	require.NoError(t, s.Release(t.Context(), []core.Permit{permit("a")}))

	require.NoError(t, s.AddScores(t.Context(), []stats.Scores{{Board: "rights:1", Source: "p", Units: map[string]int64{"k": 1}}}))
	scores, _, err := s.Scores(t.Context(), []string{"rights:1"}, 1)
	require.NoError(t, err)
	assert.Equal(t, []stats.Score{{Key: "k", Low: 1, High: 1}}, scores)
}

// What somebody else has put under our key is discarded, and the discarded state is
// replaced at once. State that lies too far ahead is clamped, and healed
// by a refusal too.
func TestHealing(t *testing.T) { //nolint:paralleltest // it computes: what waits for a server beside it would wait for the processor
	server := redistest.Single(t)
	admin := server.Client(t)
	s := newStore(t, admin, redisstore.Options{Deadline: patient, DenyCache: -1})
	future := strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10)
	garbages := []string{
		"x", "", "-5", "1e15", "nan", "inf", "0x10", " 12 ", "12 ", "1.5", "+", "1+", "+1", "12+x", ";", ";;;", "\x00", "99999999999999999999999999",
		future, future + "+7", future + ";" + future, "f", "f1", "f1,", "f,1", "f12,0", "f1,2,3", "t", "t1,", "t1,-", "w", "w1,", "w1,1,", "d", "d1,1,2", "x1", "x1,1,",
	}
	for _, text := range []string{
		"10/10s", "10/10s, 100/1h", "10/10s leaky-bucket", "10/10s token-bucket", "10/10s fixed-window", "10/10s fixed-window aligned",
		"10/1m fixed-window calendar UTC", "10/10s sliding-window", "10/10s sliding-counter", "10/10s sliding-log",
		"10/10s, 10/10s token-bucket, 10/10s fixed-window, 10/10s sliding-log",
	} {
		p := core.MustParse("heal: " + text)
		take := core.Take{Policy: p, Key: "k", Cost: 10}
		ahead := take
		ahead.Now = time.Now().Add(2 * time.Hour).UnixMicro()
		_, own, _ := p.Spec().Step(nil, ahead)
		require.NotEmpty(t, own)
		key := "weir:1:heal:" + p.Spec().Shape() + ":k"
		for _, garbage := range append([]string{string(own)}, garbages...) {
			require.NoError(t, admin.Set(t.Context(), key, garbage, 0).Err())
			peek, err := s.Take(t.Context(), core.Take{Policy: p, Key: "k"})
			require.NoError(t, err, "%q", garbage)
			assert.GreaterOrEqual(t, peek.Remaining, int64(0), "%q", garbage)
			assert.LessOrEqual(t, peek.Remaining, peek.Limit, "%q", garbage)
			assert.LessOrEqual(t, peek.Each(0).ResetAfter, 2*p.Limits()[0].Period, "%q", garbage)
			ttl, err := admin.PTTL(t.Context(), key).Result()
			require.NoError(t, err)
			now := time.Now().UnixMicro()
			_, _, want := p.Spec().Step([]byte(garbage), core.Take{Policy: p, Key: "k", Now: now})
			readable := strings.Trim(garbage, ";") == "" && strings.Count(garbage, ";") == len(p.Limits())-1
			if len(p.Spec().Kinds()) == 1 && strings.Contains("gG", p.Spec().Kinds()) && garbage == "1+" {
				readable = true
			}
			assert.Equal(t, readable, ttl == -1, "%s: %q is healed by a peek if it is not the text of an unused state", text, garbage)
			assert.Equal(t, readable, want == 0, "%s: %q", text, garbage)
			res, err := s.Take(t.Context(), core.Take{Policy: p, Key: "k", Cost: 1})
			require.NoError(t, err, "%q", garbage)
			assert.LessOrEqual(t, res.Each(0).RetryAfter, 2*p.Limits()[0].Period, "%q", garbage)
			ttl, err = admin.PTTL(t.Context(), key).Result()
			require.NoError(t, err)
			assert.Positive(t, ttl, "%s: %q", text, garbage)
			require.NoError(t, admin.Del(t.Context(), key).Err())
		}
		// A foreign type is discarded too, by whatever comes first.
		key = "weir:1:heal:" + p.Spec().Shape() + ":list"
		take.Key, take.Cost = "list", 1
		for _, atMost := range []bool{false, true} {
			require.NoError(t, admin.Del(t.Context(), key).Err())
			require.NoError(t, admin.LPush(t.Context(), key, "a", "b").Err())
			take.AtMost = atMost
			res, err := s.Take(t.Context(), take)
			require.NoError(t, err)
			assert.EqualValues(t, 9, res.Remaining, text)
			kind, err := admin.Type(t.Context(), key).Result()
			require.NoError(t, err)
			assert.Equal(t, "string", kind)
		}
	}
}

// A full bucket whose server's clock steps back one hour admits again within one
// bucket's time, not within an hour.
func TestClockStepsBack(t *testing.T) {
	t.Parallel()
	s := newStore(t, sharedServer(t).Client(t), own())
	const start = 1_800_000_000_000_000
	hour := time.Hour.Microseconds()
	take := core.Take{Policy: core.MustParse("clock: 10/10s"), Key: "k", Cost: 1}
	at := func(now int64) core.Result {
		take.Now = now
		res, err := s.Take(t.Context(), take)
		require.NoError(t, err)
		return res
	}
	for range 10 {
		require.True(t, at(start).Allowed())
	}
	res := at(start - hour)
	assert.False(t, res.Allowed())
	assert.Equal(t, time.Second, res.RetryAfter)
	assert.False(t, at(start-hour+999_999).Allowed())
	assert.True(t, at(start-hour+1_000_000).Allowed(), "the refusal has healed the state")
}

// Names of keys are harmless whatever the input, short if it is long, and never
// the same for two inputs.
func TestKeyNames(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	admin := server.Client(t)
	readable := newStore(t, admin, redisstore.Options{Prefix: "plain", Deadline: patient})
	secret := newStore(t, admin, redisstore.Options{Deadline: patient, Prefix: "secret", HashKeys: []byte("0123456789abcdef")})
	p := core.MustParse("names: 5/1h")
	hostile := []string{
		"ip=203.0.113.7&route=/items/%7Bid%7D", "a b", "a\x00b", "a\r\nDEL x", "{a}b", "{a}c", "a}b{", "\xff\xfe", "~x",
		"", strings.Repeat("k", 200), strings.Repeat("k", 201), strings.Repeat("x", 10<<20), "a{", "a%7B", `"'\`,
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		b := make([]byte, 1+r.IntN(300))
		for i := range b {
			b[i] = byte(r.UintN(256))
		}
		hostile = append(hostile, string(b))
	}
	n := 0
	for _, s := range []core.Store{readable, secret} {
		for _, key := range hostile {
			res, err := s.Take(t.Context(), core.Take{Policy: p, Key: key, Cost: 1})
			if key == "" {
				require.Error(t, err, "an empty key would be everybody's")
				continue
			}
			require.NoError(t, err, "%.40q", key)
			assert.EqualValues(t, 4, res.Remaining, "%.40q is nobody else's", key)
			n++
		}
	}
	names, err := admin.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	assert.Len(t, names, n)
	form := regexp.MustCompile(`^(plain|secret):1:names:g1h:(~[A-Za-z0-9_-]{43}|[A-Za-z0-9_.:/=&%@-][A-Za-z0-9_.~:/=&%@-]{0,199})$`)
	for _, name := range names {
		assert.Regexp(t, form, name)
		if strings.HasPrefix(name, "secret:") {
			assert.Contains(t, name, ":~")
		}
	}
}

// Changed numbers keep the state and a changed shape starts afresh: two versions of
// a service can run side by side.
func TestChangedPolicies(t *testing.T) {
	t.Parallel()
	s := newStore(t, sharedServer(t).Client(t), own())
	take := func(policy string, cost int64) core.Result {
		res, err := s.Take(t.Context(), core.Take{Policy: core.MustParse(policy), Key: "k", Cost: cost})
		require.NoError(t, err)
		return res
	}
	assert.EqualValues(t, 5, take("changed: 10/1h", 5).Remaining)
	assert.EqualValues(t, 10, take("changed: 20/1h", 0).Remaining, "the half hour that is to drain is ten units now")
	assert.EqualValues(t, 7, take("changed: 2/1h burst 7", 0).Remaining, "a bucket that takes another time to fill")
	assert.EqualValues(t, 10, take("changed: 10/1h, 100/1d", 0).Remaining)
}

// A cluster client that reads from replicas still decides on masters.
func TestReadOnlyCluster(t *testing.T) {
	t.Parallel()
	cluster := sharedCluster(t)
	s := newStore(t, cluster.Client(t, func(o *redis.ClusterOptions) { o.ReadOnly, o.RouteRandomly = true, true }), own())
	p := core.MustParse("read-only: 10/1h")
	for i := range int64(5) {
		res, err := s.Take(t.Context(), core.Take{Policy: p, Key: "k", Cost: 1})
		require.NoError(t, err)
		assert.Equal(t, 9-i, res.Remaining)
	}
}

// What cannot work is refused at once.
func TestNew(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	defer func() { assert.NoError(t, rdb.Close()) }()
	pipeliner, err := rdb.AutoPipeline()
	require.NoError(t, err)
	defer func() { assert.NoError(t, pipeliner.Close()) }()
	for name, test := range map[string]struct {
		rdb  redis.UniversalClient
		o    redisstore.Options
		want []string
	}{
		"no client":          {nil, redisstore.Options{}, []string{"client is nil"}},
		"nil client":         {(*redis.Client)(nil), redisstore.Options{}, []string{"client is nil"}},
		"nil cluster client": {(*redis.ClusterClient)(nil), redisstore.Options{}, []string{"client is nil"}},
		"auto-pipeliner":     {pipeliner, redisstore.Options{}, []string{"AutoPipeliner"}},
		"everything": {
			nil,
			redisstore.Options{Deadline: -1, Prefix: "a{b}", HashKeys: []byte("short")},
			[]string{"client is nil", "Deadline is -1ns; give at least 1ms", `Prefix is "a{b}"`, "HashKeys has 5 bytes"},
		},
	} {
		_, err := redisstore.New(test.rdb, test.o)
		require.Error(t, err, name)
		for _, want := range test.want {
			assert.ErrorContains(t, err, want, name)
		}
	}
	_, err = redisstore.New(rdb, redisstore.Options{})
	assert.NoError(t, err)
}
