package redistest

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// eventually polls ok within the package's patience.
func eventually(t *testing.T, ok func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := patient(t)
	defer cancel()
	require.NoError(t, poll(ctx, 2*time.Millisecond, func() error { return ok(ctx) }))
}

// lost is after how long what does not come is taken for lost: long enough for what does
// come, on a busy machine.
const lost = time.Second

// once makes go-redis try each command once and give up soon.
func once(o *redis.Options) {
	o.MaxRetries, o.DialerRetries = -1, 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = patience, lost, patience
}

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestSingleServesAndEnds(t *testing.T) {
	t.Parallel()
	program(t) // skips this test and not only the one within
	var s *Server
	t.Run("serves", func(t *testing.T) {
		s = Single(t, "--maxmemory", "64mb")
		c := s.Client(t)
		require.NoError(t, c.Set(t.Context(), "k", 1, 0).Err())
		conf, err := c.ConfigGet(t.Context(), "maxmemory").Result()
		require.NoError(t, err)
		assert.Equal(t, "67108864", conf["maxmemory"])
	})
	assert.False(t, s.Running())
	_, err := net.Dial("tcp", s.Addr())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

func TestSingleRestart(t *testing.T) {
	t.Parallel()
	s := Single(t)
	addr := s.Addr()
	c := s.Client(t, once)
	require.NoError(t, c.Set(t.Context(), "k", 1, 0).Err())
	s.Kill()
	assert.False(t, s.Running())
	require.Error(t, c.Ping(t.Context()).Err())
	s.Restart(t)
	assert.Equal(t, addr, s.Addr())
	require.ErrorIs(t, c.Get(t.Context(), "k").Err(), redis.Nil, "nothing is persistent")
	s.Restart(t)
	require.NoError(t, c.Ping(t.Context()).Err(), "Restart also replaces a running server")
}

// A server that finds its port taken exits, and is started again at once: with other ports
// the first time, on its own when it restarts, for as long as somebody may have taken it
// by chance.
func TestTakenPort(t *testing.T) {
	t.Parallel()
	s := Single(t)
	s.Kill()
	squatter, err := net.Listen("tcp", s.Addr())
	require.NoError(t, err)
	defer squatter.Close()
	go func() {
		for conn, err := squatter.Accept(); err == nil; conn, err = squatter.Accept() {
			_ = conn.Close()
		}
	}()
	launches, argv := 0, s.argv
	s.argv = func(p ports) ([]string, error) { launches++; return argv(p) }
	require.ErrorIs(t, s.start(t), errExited)
	assert.Equal(t, 5, launches)

	taken := s.ports
	launches = 0
	s.argv = func(p ports) ([]string, error) {
		if launches++; launches == 1 {
			p = taken
		}
		return argv(p)
	}
	s.ports = ports{}
	require.NoError(t, s.start(t))
	assert.NotEqual(t, taken, s.ports)
	require.NoError(t, s.Client(t).Ping(t.Context()).Err())
}

func TestSinglePause(t *testing.T) {
	t.Parallel()
	s := Single(t)
	c := s.Client(t, once)
	require.NoError(t, c.Ping(t.Context()).Err())
	s.Pause(t)
	assert.True(t, s.Running())
	var netErr net.Error
	require.ErrorAs(t, c.Incr(t.Context(), "n").Err(), &netErr)
	assert.True(t, netErr.Timeout())
	s.Resume(t)
	eventually(t, func(ctx context.Context) error {
		if n, err := c.Get(ctx, "n").Int(); err != nil || n != 1 {
			return fmt.Errorf("the late INCR: %d, %w", n, err)
		}
		return nil
	})
}

func TestSingleCommandStats(t *testing.T) {
	t.Parallel()
	s := Single(t)
	c := s.Client(t)
	script := redis.NewScript("return redis.call('INCR', KEYS[1])")
	for range 3 {
		require.NoError(t, script.Run(t.Context(), c, []string{"k"}).Err())
	}
	stats := s.CommandStats(t)
	assert.EqualValues(t, 3, stats["evalsha"], "the one answered by NOSCRIPT included")
	assert.EqualValues(t, 1, stats["eval"])
	assert.EqualValues(t, 3, stats["incr"])
	s.ResetStats(t)
	stats = s.CommandStats(t)
	assert.Zero(t, stats["evalsha"])
}

// stubTB records how a missing redis-server ends a test.
type stubTB struct {
	testing.TB
	skipped, failed string
}

func (s *stubTB) Helper() {}

func (s *stubTB) Skip(args ...any) {
	s.skipped = fmt.Sprint(args...)
	runtime.Goexit()
}

func (s *stubTB) Fatalf(format string, args ...any) {
	s.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// Tests that share a server find it alive when the one that started it has ended.
func TestShare(t *testing.T) {
	t.Parallel()
	program(t)
	starts := 0
	single := Share(func(t testing.TB) *Server { starts++; return Single(t) })
	var first, second *Server
	t.Run("first", func(t *testing.T) { first = single(t) })
	t.Run("second", func(t *testing.T) {
		second = single(t)
		require.NoError(t, second.Client(t).Ping(t.Context()).Err())
	})
	assert.Same(t, first, second)
	assert.Equal(t, 1, starts)
}

// A start that fails ends every test that shares it, each for the same reason.
func TestShareWithoutServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv(requireEnv, "")
	single := Share(func(t testing.TB) *Server { return Single(t) })
	for range 2 {
		stub := &stubTB{TB: t}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			single(stub)
		}()
		<-ended
		assert.Contains(t, stub.skipped, "redistest: redis-server is not on PATH")
	}
}

func TestMissingServerSkipsUnlessRequired(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	missing := func() *stubTB {
		stub := &stubTB{TB: t}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			Single(stub)
		}()
		<-ended
		return stub
	}
	t.Setenv(requireEnv, "")
	stub := missing()
	assert.Contains(t, stub.skipped, "redistest: redis-server is not on PATH")
	assert.Empty(t, stub.failed)
	t.Setenv(requireEnv, "1")
	stub = missing()
	assert.Contains(t, stub.failed, "redistest: redis-server is not on PATH")
	assert.Empty(t, stub.skipped)
}

func TestCluster(t *testing.T) {
	t.Parallel()
	started := time.Now()
	cluster := StartCluster(t)
	t.Logf("started in %v", time.Since(started))
	c := cluster.Client(t)

	t.Run("every node serves its keys", func(t *testing.T) {
		served := make(map[*Server]int)
		for i := range 50 {
			key := fmt.Sprint("key", i)
			require.NoError(t, c.Set(t.Context(), key, i, 0).Err())
			node := cluster.NodeFor(t, key)
			served[node]++
			n, err := node.Client(t).Get(t.Context(), key).Int()
			require.NoError(t, err, "the owner answers without redirection")
			assert.Equal(t, i, n)
		}
		assert.Len(t, served, 3)
	})

	t.Run("a slot migrates", func(t *testing.T) {
		const present, absent = "{m}present", "{m}absent"
		require.NoError(t, c.Set(t.Context(), present, 1, 0).Err())
		from := cluster.NodeFor(t, present)
		finish := cluster.Migrating(t, present)
		assert.Same(t, from, cluster.NodeFor(t, present))
		require.ErrorContains(t, from.Client(t).Get(t.Context(), absent).Err(), "ASK ")
		require.ErrorContains(t, from.Client(t).MGet(t.Context(), present, absent).Err(), "TRYAGAIN")
		require.NoError(t, c.Incr(t.Context(), present).Err())
		require.NoError(t, c.Incr(t.Context(), absent).Err())
		finish()
		assert.NotSame(t, from, cluster.NodeFor(t, present))
		n, err := c.Get(t.Context(), present).Int()
		require.NoError(t, err)
		assert.Equal(t, 2, n)
		n, err = c.Get(t.Context(), absent).Int()
		require.NoError(t, err)
		assert.Equal(t, 1, n)
	})

	t.Run("a proxy stands before all nodes", func(t *testing.T) {
		p := NewProxy(t, cluster.Nodes[0].Addr())
		c := cluster.Client(t, func(o *redis.ClusterOptions) { o.Dialer = p.Dial })
		for i := range 20 {
			p.LoseNextReply("incr", EOF)
			key := fmt.Sprint("proxied", i)
			require.NoError(t, c.Incr(t.Context(), key).Err())
			n, err := c.Get(t.Context(), key).Int()
			require.NoError(t, err)
			assert.Equal(t, 2, n, "the client repeated what it could not know was done")
		}
		assert.Equal(t, 20, p.Lost())
	})

	t.Run("a node is lost and comes back", func(t *testing.T) {
		node := cluster.NodeFor(t, "key0")
		node.Kill()
		require.Error(t, cluster.Client(t, func(o *redis.ClusterOptions) {
			o.MaxRedirects, o.MaxRetries, o.DialerRetries = -1, -1, 1
		}).Set(t.Context(), "key0", 1, 0).Err())
		node.Restart(t)
		eventually(t, func(ctx context.Context) error { return c.Set(ctx, "key0", 1, 0).Err() })
	})
}

func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	started := time.Now()
	s := StartSentinel(t)
	t.Logf("started in %v", time.Since(started))
	c := s.Client(t)
	p := NewProxy(t, s.Master().Addr())
	proxied := s.Client(t, func(o *redis.FailoverOptions) { o.Dialer = p.Dial })
	require.NoError(t, c.Set(t.Context(), "before", 1, 0).Err())
	p.LoseNextReply("incr", EOF)
	require.NoError(t, proxied.Incr(t.Context(), "n").Err())
	assert.Equal(t, 1, p.Lost())
	require.NoError(t, c.Wait(t.Context(), 1, time.Second).Err())

	old, heir := s.Master(), s.Replica()
	started = time.Now()
	s.Failover(t)
	t.Logf("failed over in %v", time.Since(started))
	assert.Same(t, heir, s.Master())
	assert.Same(t, old, s.Replica())
	assert.False(t, old.Running())

	for _, client := range []*redis.Client{c, proxied} {
		eventually(t, func(ctx context.Context) error { return client.Set(ctx, "after", 1, 0).Err() })
	}
	n, err := heir.Client(t).Exists(t.Context(), "before", "n", "after").Result()
	require.NoError(t, err)
	assert.EqualValues(t, 3, n, "the heir has what was replicated and what is new")

	started = time.Now()
	s.Rejoin(t)
	t.Logf("old master a replica in %v", time.Since(started))
	s.Failover(t)
	assert.Same(t, old, s.Master())
	eventually(t, func(ctx context.Context) error { return c.Set(ctx, "again", 1, 0).Err() })
}

func TestProxyLosesTheReplyOnly(t *testing.T) {
	t.Parallel()
	s := Single(t)
	direct := s.Client(t)
	for _, test := range []struct {
		name string
		how  Loss
		mod  func(*redis.Options)
		want int // executions of one INCR whose first reply is lost
	}{
		// By default go-redis repeats a command whose fate it does not know, so one INCR counts
		// twice. A limiter must therefore send its scripts with a client, or as a command, that
		// does not retry.
		{"EOF, default client", EOF, nil, 2},
		{"RST, default client", RST, nil, 2},
		{"timeout, default client", Hang, func(o *redis.Options) { o.ReadTimeout = lost }, 2},
		{"EOF, no retries", EOF, once, 1},
		{"RST, no retries", RST, once, 1},
		{"timeout, no retries", Hang, once, 1},
	} {
		for _, way := range []string{"Addr", "Dial"} {
			t.Run(test.name+" by "+way, func(t *testing.T) {
				t.Parallel()
				key := t.Name()
				p := NewProxy(t, s.Addr())
				c := s.Client(t, func(o *redis.Options) {
					if o.Addr = p.Addr(); way == "Dial" {
						o.Addr, o.Dialer = s.Addr(), p.Dial
					}
					if test.mod != nil {
						test.mod(o)
					}
				})
				p.LoseNextReply("InCr", test.how)
				err := c.Incr(t.Context(), key).Err()
				assert.Equal(t, test.want == 1, err != nil, "error: %v", err)
				n, err := direct.Get(t.Context(), key).Int()
				require.NoError(t, err)
				assert.Equal(t, test.want, n)
				assert.Equal(t, 1, p.Lost())
				require.NoError(t, c.Incr(t.Context(), key).Err(), "the loss is used up")
			})
		}
	}

	t.Run("all attempts of the default client", func(t *testing.T) {
		t.Parallel()
		p := NewProxy(t, s.Addr())
		c := s.Client(t, func(o *redis.Options) { o.Addr = p.Addr() })
		for range 10 {
			p.LoseNextReply("incr", EOF)
		}
		require.ErrorIs(t, c.Incr(t.Context(), "all").Err(), io.EOF)
		n, err := direct.Get(t.Context(), "all").Int()
		require.NoError(t, err)
		assert.Equal(t, 4, n, "MaxRetries is 3")
	})
}

// errorOf checks the error of a raw client during a fault.
type errorOf func(t *testing.T, err error)

func isEOF(t *testing.T, err error)     { t.Helper(); require.ErrorIs(t, err, io.EOF) }
func isReset(t *testing.T, err error)   { t.Helper(); require.ErrorIs(t, err, syscall.ECONNRESET) }
func isTimeout(t *testing.T, err error) { t.Helper(); require.ErrorIs(t, err, os.ErrDeadlineExceeded) }

func TestProxyFaults(t *testing.T) {
	t.Parallel()
	s := Single(t)
	direct := s.Client(t)
	value := func(t *testing.T, key string) int {
		t.Helper()
		n, err := direct.Get(t.Context(), key).Int()
		if err != nil {
			require.ErrorIs(t, err, redis.Nil)
		}
		return n
	}

	// Each fault hits a connection that is open already and one that is made under it.
	for _, test := range []struct {
		name  string
		fault func(p *Proxy)
		want  errorOf
		runs  bool
	}{
		{"blackhole", (*Proxy).Blackhole, isTimeout, false},
		{"reset", (*Proxy).Reset, isReset, false},
		{"lose by EOF", func(p *Proxy) { p.LoseReplies(EOF) }, isEOF, true},
		{"lose by RST", func(p *Proxy) { p.LoseReplies(RST) }, isReset, true},
		{"lose by hanging", func(p *Proxy) { p.LoseReplies(Hang) }, isTimeout, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := NewProxy(t, s.Addr())
			key := t.Name()
			open, idle := dial(t, p), dial(t, p)
			require.NoError(t, open.incr(key))
			require.NoError(t, idle.incr(key))
			test.fault(p)
			test.want(t, open.incr(key))
			test.want(t, meet(t, p, func(r raw) error { return r.incr(key) }))
			ran := 0
			if test.runs {
				ran = 2
			}
			assert.Equal(t, 2+ran, value(t, key))
			p.Pass()
			require.NoError(t, dial(t, p).incr(key))
			require.Error(t, open.incr(key), "what was lost does not come back")
			if test.name != "reset" {
				require.NoError(t, idle.incr(key), "a connection that met no fault survives")
			}
			assert.Equal(t, 4, p.Accepted())
		})
	}

	t.Run("refuse", func(t *testing.T) {
		t.Parallel()
		p := NewProxy(t, s.Addr())
		open := dial(t, p)
		require.NoError(t, open.incr("refuse"))
		for range 3 {
			p.Refuse()
			_, err := net.Dial("tcp", p.Addr())
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
			_, err = p.Dial(t.Context(), "tcp", s.Addr())
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
			require.NoError(t, open.incr("refuse"), "open connections go on")
			p.Pass()
			require.NoError(t, dial(t, p).incr("refuse"))
		}
	})

	t.Run("latency", func(t *testing.T) {
		t.Parallel()
		p := NewProxy(t, s.Addr())
		c := dial(t, p)
		p.Latency(60 * time.Millisecond)
		started := time.Now()
		require.NoError(t, c.incr("latency"))
		assert.GreaterOrEqual(t, time.Since(started), 120*time.Millisecond)
		p.Pass()
		require.NoError(t, c.incr("latency"))
	})

	t.Run("bandwidth", func(t *testing.T) {
		t.Parallel()
		p := NewProxy(t, s.Addr())
		c := dial(t, p)
		p.Bandwidth(100)
		started := time.Now()
		require.NoError(t, c.incr("bandwidth"))
		assert.GreaterOrEqual(t, time.Since(started), time.Duration(len("incr bandwidth\r\n:1\r\n"))*10*time.Millisecond)
		p.Bandwidth(0)
		require.NoError(t, c.incr("bandwidth"))
	})

	t.Run("disconnect", func(t *testing.T) {
		t.Parallel()
		for how, want := range map[Loss]errorOf{EOF: isEOF, RST: isReset, Hang: isTimeout} {
			p := NewProxy(t, s.Addr())
			c := dial(t, p)
			require.NoError(t, c.incr("disconnect"))
			p.Disconnect(how)
			want(t, c.read())
			require.NoError(t, dial(t, p).incr("disconnect"))
		}
	})

	t.Run("disconnect while a connection is made", func(t *testing.T) {
		t.Parallel()
		for how, want := range map[Loss]errorOf{EOF: isEOF, RST: isReset, Hang: isTimeout} {
			p := NewProxy(t, s.Addr())
			server, since, err := p.reach(t.Context(), "tcp", s.Addr())
			require.NoError(t, err)
			near, far, err := p.pair(t.Context())
			require.NoError(t, err)
			t.Cleanup(func() { _ = near.Close() })
			p.Disconnect(how)
			p.join(far, server, since)
			want(t, raw{near}.read())
			require.NoError(t, dial(t, p).incr("disconnect"))
		}
	})

	t.Run("a dead server", func(t *testing.T) {
		t.Parallel()
		dead := Single(t)
		dead.Kill()
		p := NewProxy(t, dead.Addr())
		_, err := p.Dial(t.Context(), "tcp", dead.Addr())
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		isReset(t, meet(t, p, raw.read))
	})

	t.Run("a command cut in two is matched", func(t *testing.T) {
		p := NewProxy(t, s.Addr())
		c := dial(t, p)
		p.LoseNextReply("incr", EOF)
		_, err := io.WriteString(c, "IN")
		require.NoError(t, err)
		eventually(t, func(ctx context.Context) error {
			clients, err := direct.ClientList(ctx).Result()
			if err == nil && !strings.Contains(clients, " qbuf=2 ") {
				err = fmt.Errorf("the first half is under way: %s", clients)
			}
			return err
		})
		isEOF(t, c.send("CR cut\r\n"))
		assert.Equal(t, 1, value(t, "cut"))
	})

	t.Run("a command sent before is not matched", func(t *testing.T) {
		t.Parallel()
		p := NewProxy(t, s.Addr())
		c := dial(t, p)
		require.NoError(t, c.incr("x"))
		p.LoseNextReply("incr", EOF)
		require.NoError(t, c.send("GET x\r\n"))
		isEOF(t, c.incr("x"))
	})
}

func TestProxyPipelineLosesAllReplies(t *testing.T) {
	t.Parallel()
	s := Single(t)
	p := NewProxy(t, s.Addr())
	c := s.Client(t, once, func(o *redis.Options) { o.Addr = p.Addr() })
	p.LoseNextReply("evalsha", EOF)
	cmds, err := c.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		pipe.Incr(t.Context(), "a")
		pipe.EvalSha(t.Context(), "unknown", []string{"k"})
		return nil
	})
	require.ErrorIs(t, err, io.EOF)
	for _, cmd := range cmds {
		require.ErrorIs(t, cmd.Err(), io.EOF)
	}
	n, err := s.Client(t).Get(t.Context(), "a").Int()
	require.NoError(t, err)
	assert.Equal(t, 1, n)
}

// TestProxyUnderChange changes the faults while clients run, for the race detector.
func TestProxyUnderChange(t *testing.T) {
	t.Parallel()
	s := Single(t)
	p := NewProxy(t, s.Addr())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	for i := range 4 {
		go func() {
			defer func() { ended <- struct{}{} }()
			c := redis.NewClient(&redis.Options{Addr: s.Addr(), Dialer: p.Dial, ReadTimeout: 5 * time.Millisecond})
			defer c.Close()
			for ctx.Err() == nil {
				_ = c.Incr(ctx, fmt.Sprint("k", i)).Err()
			}
		}()
	}
	for range 10 {
		for _, change := range []func(){
			p.Blackhole, p.Pass, p.Refuse, p.Reset, func() { p.LoseReplies(EOF) },
			func() { p.Latency(time.Millisecond) }, func() { p.LoseNextReply("incr", RST) },
			func() { p.Disconnect(Hang) }, func() { p.Bandwidth(1 << 20) }, p.Pass,
		} {
			change()
			_ = s.Client(t).Ping(ctx).Err() // takes a moment
		}
	}
	cancel()
	for range 4 {
		<-ended
	}
	p.Pass()
	require.NoError(t, s.Client(t, func(o *redis.Options) { o.Addr = p.Addr() }).Ping(t.Context()).Err())
}

// raw is a connection that shows errors as they are, without go-redis in between.
type raw struct{ net.Conn }

func dial(t *testing.T, p *Proxy) raw {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return raw{conn}
}

// meet makes a connection under a fault and does something with it. It may meet the fault as early
// as in connect: a reset that arrives before connect returns is connect's own error.
func meet(t *testing.T, p *Proxy, do func(raw) error) error {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = conn.Close() })
	return do(raw{conn})
}

func (r raw) incr(key string) error { return r.send("INCR " + key + "\r\n") }

func (r raw) send(line string) error {
	if _, err := io.WriteString(r, line); err != nil {
		return err
	}
	return r.read()
}

func (r raw) read() error {
	if err := r.SetReadDeadline(time.Now().Add(lost)); err != nil {
		return err
	}
	reply := make([]byte, 512)
	n, err := r.Read(reply)
	if err == nil && reply[0] == '-' {
		err = fmt.Errorf("%s", reply[:n])
	}
	return err
}
