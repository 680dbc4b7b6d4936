package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	extpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/policies/redissource"
	"github.com/weir-go/weir/internal/hosttest"
	"github.com/weir-go/weir/internal/logtest"
	"github.com/weir-go/weir/internal/redistest"
)

// rlsProcess is a running weir rls.
type rlsProcess struct {
	*exec.Cmd

	said  *logtest.Log // its standard error
	addrs map[string]string
	conn  *grpc.ClientConn
}

// startRLS starts weir rls with an environment, on ports of loopback, and waits until it listens.
func startRLS(t *testing.T, env ...string) *rlsProcess {
	t.Helper()
	p := &rlsProcess{said: new(logtest.Log), addrs: map[string]string{}}
	p.Cmd = exec.Command(filepath.Join(programs, "weir"), "rls")
	p.Env = append(append(os.Environ(), "HOST=127.0.0.1", "PORT=0", "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0", "GRPC_HOST=127.0.0.1",
		"GRPC_PORT=0", "LOG_LEVEL=info", "WEIR_DEADLINE=10s", "WEIR_DRAIN=1m"), env...)
	p.Stderr = p.said
	hosttest.Tie(p.Cmd)
	out, err := p.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err, "%s", p.said.With(""))
	for part := range strings.SplitSeq(strings.TrimPrefix(strings.TrimSpace(line), "weir rls answers "), ", ") {
		name, addr, _ := strings.Cut(part, "on ")
		p.addrs[strings.TrimSpace(name)] = addr
	}
	target := "passthrough:///" + p.addrs[""]
	if strings.HasPrefix(p.addrs[""], "/") {
		target = "unix://" + p.addrs[""]
	}
	p.conn, err = grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.conn.Close() })
	return p
}

// ask asks about one descriptor, whose entries are "key" or "key=value".
func (p *rlsProcess) ask(t *testing.T, domain string, entries ...string) (*rlspb.RateLimitResponse, error) {
	t.Helper()
	d := new(extpb.RateLimitDescriptor)
	for _, entry := range entries {
		key, value, _ := strings.Cut(entry, "=")
		d.Entries = append(d.Entries, &extpb.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return rlspb.NewRateLimitServiceClient(p.conn).ShouldRateLimit(t.Context(),
		&rlspb.RateLimitRequest{Domain: domain, Descriptors: []*extpb.RateLimitDescriptor{d}}, grpc.WaitForReady(true))
}

// limit returns the limit of a descriptor, 0 for none.
func (p *rlsProcess) limit(t *testing.T, domain string, entries ...string) uint32 {
	t.Helper()
	answer, err := p.ask(t, domain, entries...)
	if err != nil {
		return 0
	}
	return answer.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit()
}

func (p *rlsProcess) healthy(t *testing.T) bool {
	t.Helper()
	res, err := healthpb.NewHealthClient(p.conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "ratelimit"}, grpc.WaitForReady(true))
	return err == nil && res.GetStatus() == healthpb.HealthCheckResponse_SERVING
}

// http asks over HTTP, with a body or without.
func (p *rlsProcess) http(t *testing.T, name, path, body string) (code int, answer string) {
	t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.addrs[name]+path, strings.NewReader(body))
	require.NoError(t, err)
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(text)
}

// configMap is a directory as Kubernetes mounts a ConfigMap.
type configMap struct {
	dir     string
	version int
}

func newConfigMap(t *testing.T, text string) *configMap {
	t.Helper()
	c := &configMap{dir: filepath.Join(t.TempDir(), "ratelimit", "config")}
	require.NoError(t, os.MkdirAll(c.dir, 0o700))
	require.NoError(t, os.Symlink("..data/limits.yaml", filepath.Join(c.dir, "limits.yaml")))
	c.write(t, text)
	return c
}

// write makes a new version, and swaps the link to the one before.
func (c *configMap) write(t *testing.T, text string) {
	t.Helper()
	c.version++
	name := fmt.Sprintf("..%d", c.version)
	require.NoError(t, os.Mkdir(filepath.Join(c.dir, name), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, name, "limits.yaml"), []byte(text), 0o600))
	require.NoError(t, os.Symlink(name, filepath.Join(c.dir, "..next")))
	require.NoError(t, os.Rename(filepath.Join(c.dir, "..next"), filepath.Join(c.dir, "..data")))
	require.NoError(t, os.RemoveAll(filepath.Join(c.dir, fmt.Sprintf("..%d", c.version-1))))
}

// env are the variables of a manifest with this ConfigMap.
func (c *configMap) env() []string {
	return []string{
		"RUNTIME_ROOT=" + filepath.Dir(filepath.Dir(c.dir)), "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
		"RUNTIME_IGNOREDOTFILES=true",
	}
}

func redisEnv(addr string) []string {
	return []string{"REDIS_SOCKET_TYPE=tcp", "REDIS_TYPE=SINGLE", "REDIS_URL=" + addr}
}

func limitsText(requests int) string {
	return fmt.Sprintf("domain: edge\ndescriptors:\n  - key: path\n    rate_limit: {unit: day, requests_per_unit: %d}\n", requests)
}

func TestRLS(t *testing.T) {
	t.Parallel()
	limits := newConfigMap(t, limitsText(2))
	env := append(redisEnv(redistest.Single(t).Addr()), limits.env()...)
	p := startRLS(t, append(env, "USE_STATSD=false", "REDIS_TIMEOUT=1s", "USE_PROMETHEUS=1",
		"PROMETHEUS_ADDR=127.0.0.1:0", "PROMETHEUS_PATH=/m")...)
	eventually(t, "a configuration is loaded", func() bool { return p.healthy(t) })
	eventually(t, "what has no use is listed", func() bool { return len(p.said.With("REDIS_TIMEOUT (")) == 1 })
	assert.Len(t, p.said.With("these variables are set and have no use"), 1)

	for _, want := range []rlspb.RateLimitResponse_Code{rlspb.RateLimitResponse_OK, rlspb.RateLimitResponse_OK, rlspb.RateLimitResponse_OVER_LIMIT} {
		answer, err := p.ask(t, "edge", "path=/a")
		require.NoError(t, err)
		assert.Equal(t, want, answer.GetOverallCode())
	}
	_, err := p.ask(t, "", "path=/a")
	require.Error(t, err)

	// The same over HTTP.
	code, body := p.http(t, "HTTP", "/json", `{"domain": "edge", "descriptors": [{"entries": [{"key": "path", "value": "/a"}]}]}`)
	assert.Equal(t, http.StatusTooManyRequests, code)
	assert.Contains(t, body, "OVER_LIMIT")
	code, _ = p.http(t, "HTTP", "/healthcheck", "")
	assert.Equal(t, http.StatusOK, code)
	code, _ = p.http(t, "HTTP", "/rlconfig", "")
	assert.Equal(t, http.StatusNotFound, code, "it is for the other port")
	code, body = p.http(t, "debug", "/rlconfig", "")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, body, "unit=DAY requests_per_unit=2")
	for _, at := range []string{"debug /metrics", "metrics /m"} {
		name, path, _ := strings.Cut(at, " ")
		code, body = p.http(t, name, path, "")
		assert.Equal(t, http.StatusOK, code, at)
		assert.Contains(t, body, "ratelimit_service_rate_limit_total_hits{", at)
	}

	// A bad file keeps the last good one, and its line is named, once.
	limits.write(t, limitsText(3)+"    rate_limits: 7\n")
	eventually(t, "the mistake is logged", func() bool { return len(p.said.With("limits.yaml:5")) > 0 })
	assert.True(t, p.healthy(t))
	assert.Equal(t, uint32(2), p.limit(t, "edge", "path=/b"))
	limits.write(t, limitsText(7))
	eventually(t, "the new limits hold", func() bool { return p.limit(t, "edge", "path=/b") == 7 })
	assert.Len(t, p.said.With("limits.yaml:5"), 1)

	// What is too large is refused, and the connection stays.
	for size, want := range map[int]codes.Code{5000: codes.InvalidArgument, 3 << 20: codes.InvalidArgument, 5 << 20: codes.ResourceExhausted} {
		_, err = p.ask(t, "edge", "path="+strings.Repeat("x", size))
		assert.Equal(t, want, grpcstatus.Code(err), "%d bytes", size)
	}
	for size, fails := range map[int]bool{60 << 10: false, 65 << 10: true, 1 << 20: true} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-large", strings.Repeat("x", size))
		_, err := healthpb.NewHealthClient(p.conn).Check(ctx, new(healthpb.HealthCheckRequest))
		assert.Equal(t, fails, err != nil, "%d bytes of metadata: %v", size, err)
	}
	assert.Equal(t, uint32(7), p.limit(t, "edge", "path=/b"))

	// A second process shares the counts.
	q := startRLS(t, env...)
	eventually(t, "it has the limits", func() bool { return q.healthy(t) })
	answer, err := q.ask(t, "edge", "path=/a")
	require.NoError(t, err)
	assert.Equal(t, uint32(4), answer.GetStatuses()[0].GetLimitRemaining(), "2 of 7 were taken by the other")

	// While it drains it answers, and a second signal ends it.
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	eventually(t, "it is unhealthy", func() bool { return !p.healthy(t) })
	assert.Equal(t, uint32(7), p.limit(t, "edge", "path=/b"))
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.Wait(), "%s", p.said.With(""))
}

// Without Redis, and with one that hangs, the process counts by itself, and soon.
func TestRLSWithoutRedis(t *testing.T) {
	t.Parallel()
	limits := newConfigMap(t, limitsText(2))
	proxy := redistest.NewProxy(t, redistest.Single(t).Addr())
	p := startRLS(t, append(append(redisEnv(proxy.Addr()), limits.env()...), "WEIR_DEADLINE=100ms", "REDIS_AUTH=secret-word")...)
	eventually(t, "a configuration is loaded", func() bool { return p.healthy(t) })
	proxy.Blackhole()
	answers := map[rlspb.RateLimitResponse_Code]int{}
	for range 10 {
		answer, err := p.ask(t, "edge", "path=/c")
		require.NoError(t, err)
		answers[answer.GetOverallCode()]++
	}
	assert.Equal(t, map[rlspb.RateLimitResponse_Code]int{rlspb.RateLimitResponse_OK: 2, rlspb.RateLimitResponse_OVER_LIMIT: 8}, answers)
	assert.Empty(t, p.said.With("secret-word"))

	// What fails closed leaves it to Envoy.
	limits.write(t, "domain: edge\ndescriptors:\n  - key: path\n    rate_limit: {policy: \"2/24h fixed-window; fail closed\"}\n")
	eventually(t, "it is unavailable", func() bool {
		_, err := p.ask(t, "edge", "path=/d")
		return grpcstatus.Code(err) == codes.Unavailable
	})
}

// Before there are limits it answers with an error, unless it may start without.
func TestRLSWithoutLimits(t *testing.T) {
	t.Parallel()
	limits := newConfigMap(t, "domain: ''\n")
	env := append(redisEnv("127.0.0.1:1"), limits.env()...)
	p := startRLS(t, env...)
	eventually(t, "the mistake is logged", func() bool { return len(p.said.With("limits.yaml")) > 0 })
	assert.False(t, p.healthy(t))
	_, err := p.ask(t, "edge", "path=/a")
	require.ErrorContains(t, err, "no rate limit configuration loaded")
	limits.write(t, limitsText(1))
	eventually(t, "a configuration is loaded", func() bool { return p.healthy(t) })
	require.NoError(t, p.Process.Kill())
}

// Policies of a fleet change those of the files that they name, and a reset forgets what was counted.
func TestRLSOfAFleet(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	text := `{"format": 1, "app": "edge", "generation": 1, "revision": 1, "policies": {"keys": {"text": "9/24h fixed-window"}}}`
	require.NoError(t, server.Client(t).HSet(t.Context(), redissource.Key("edge"), redissource.FieldGeneration, 1, redissource.FieldRevision, 1,
		redissource.FieldDigest, policies.Digest([]byte(text)), redissource.FieldDocument, text).Err())
	limits := newConfigMap(t, "domain: edge\ndescriptors:\n  - {key: path, rate_limit: {policy: \"keys: 2/24h fixed-window\"}}\n")
	env := append(redisEnv(server.Addr()), limits.env()...)
	p := startRLS(t, append(env, "WEIR_APP=edge", "WEIR_RESETS=true")...)
	eventually(t, "a configuration is loaded", func() bool { return p.healthy(t) })
	left := func() uint32 {
		answer, err := p.ask(t, "edge", "path=/a")
		require.NoError(t, err)
		return answer.GetStatuses()[0].GetLimitRemaining()
	}
	eventually(t, "the fleet's numbers hold", func() bool { return left() > 2 })
	for left() > 0 { //nolint:revive // it takes one each time
	}
	const path = `{"domain": "edge", "descriptors": [{"entries": [{"key": "path", "value": "/a"}]}]}`
	code, _ := p.http(t, "debug", "/reset", "")
	assert.Equal(t, http.StatusMethodNotAllowed, code)
	code, _ = p.http(t, "debug", "/reset", `{"domain": "edge", "descriptors": [{"entries": [{"key": "none"}]}]}`)
	assert.Equal(t, http.StatusBadRequest, code)
	code, body := p.http(t, "debug", "/reset", path)
	assert.Equal(t, http.StatusOK, code, body)
	assert.Equal(t, uint32(8), left())

	// Nobody can reset without having been asked for it.
	q := startRLS(t, env...)
	code, _ = q.http(t, "debug", "/reset", path)
	assert.Equal(t, http.StatusNotFound, code)
}

// The health may follow Redis, and limits by the second may have another one.
func TestRLSHealth(t *testing.T) {
	t.Parallel()
	limits := newConfigMap(t, "domain: edge\ndescriptors:\n  - {key: s, rate_limit: {unit: second, requests_per_unit: 5}}\n"+
		"  - {key: d, rate_limit: {unit: day, requests_per_unit: 5}}\n")
	main, second := redistest.Single(t), redistest.Single(t)
	env := append(append(redisEnv(main.Addr()), limits.env()...), "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true",
		"REDIS_PERSECOND=true", "REDIS_PERSECOND_SOCKET_TYPE=tcp", "REDIS_PERSECOND_URL="+second.Addr(), "CACHE_KEY_PREFIX=edge:")
	p := startRLS(t, env...)
	eventually(t, "a configuration is loaded", func() bool { return p.healthy(t) })
	for key, server := range map[string]*redistest.Server{"s": second, "d": main} {
		counted := server.Monitor(t, func() {
			_, err := p.ask(t, "edge", key)
			require.NoError(t, err)
		})
		assert.Positive(t, counted["EVALSHA"]+counted["evalsha"]+counted["EVAL"]+counted["eval"], "%s: %v", key, counted)
	}
	keys, err := main.Client(t).Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	assert.True(t, strings.HasPrefix(keys[0], "edge."), keys[0])

	second.Pause(t)
	eventually(t, "one of them is away", func() bool { return !p.healthy(t) })
	second.Resume(t)
	eventually(t, "it is back", func() bool { return p.healthy(t) })
}

// By the name of the other, without an argument.
func TestRLSNamedRatelimit(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "ratelimit")
	require.NoError(t, os.Symlink(filepath.Join(programs, "weir"), link))
	cmd := exec.CommandContext(t.Context(), link)
	cmd.Env = append(os.Environ(), "BACKEND_TYPE=memcache")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "BACKEND_TYPE is")
}

// It answers on a socket, and ends by itself when it has drained.
func TestRLSEnds(t *testing.T) {
	t.Parallel()
	limits := newConfigMap(t, limitsText(1))
	socket := filepath.Join(t.TempDir(), "rls.sock")
	env := append(append(redisEnv(redistest.Single(t).Addr()), limits.env()...), "GRPC_UDS="+socket, "WEIR_DRAIN=0s")
	for _, end := range []os.Signal{os.Kill, syscall.SIGTERM, syscall.SIGHUP, os.Interrupt} { // the socket of one that was killed is no obstacle
		p := startRLS(t, env...)
		eventually(t, "it answers", func() bool { return p.limit(t, "edge", "path=/a") == 1 })
		require.NoError(t, p.Process.Signal(end))
		if err := p.Wait(); end != os.Kill {
			require.NoError(t, err, "%s", p.said.With(""))
		}
	}
}

// Those who watch the health see it end, and hold nothing up.
func TestRLSEndsWatches(t *testing.T) {
	t.Parallel()
	limits := newConfigMap(t, limitsText(1))
	p := startRLS(t, append(append(redisEnv("127.0.0.1:1"), limits.env()...), "WEIR_DRAIN=0s")...)
	eventually(t, "a configuration is loaded", func() bool { return p.healthy(t) })
	watch, err := healthpb.NewHealthClient(p.conn).Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "ratelimit"})
	require.NoError(t, err)
	state, err := watch.Recv()
	require.NoError(t, err)
	assert.Equal(t, healthpb.HealthCheckResponse_SERVING, state.GetStatus())
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	for err == nil { // it may say first that it drains
		_, err = watch.Recv()
	}
	assert.Equal(t, codes.Canceled, grpcstatus.Code(err), "it is ended by its method, and not with the connection, which would be UNAVAILABLE: %v", err)
	require.NoError(t, p.Wait(), "%s", p.said.With(""))
}

// The log has the names that collectors know.
func TestRLSLog(t *testing.T) {
	t.Parallel()
	limits := newConfigMap(t, limitsText(1))
	p := startRLS(t, append(limits.env(), "LOG_FORMAT=json", "EXTRA_TAGS=a:b")...)
	eventually(t, "a configuration is loaded", func() bool { return p.healthy(t) })
	eventually(t, "what has no use is listed", func() bool { return len(p.said.With("no use")) > 0 })
	lines := p.said.With("no use")
	require.Len(t, lines, 1)
	var line map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &line))
	assert.Equal(t, "warn", line["level"])
	assert.Contains(t, line["variables"], "EXTRA_TAGS (")
	assert.Contains(t, line["@message"], "no use")
	_, err := time.Parse(time.RFC3339Nano, line["@timestamp"].(string))
	require.NoError(t, err)
	assert.Equal(t, uint32(1), p.limit(t, "edge", "path=/a"), "without Redis")
	for _, line := range p.said.With("") {
		assert.True(t, json.Valid([]byte(line)), line)
	}
	eventually(t, "its failure is logged", func() bool { return len(p.said.With("the store failed")) == 1 })
	assert.Empty(t, p.said.With("failed to dial"), "%s", p.said.With(""))
}

func TestRLSMistakes(t *testing.T) {
	t.Parallel()
	got := weir(t, []string{"BACKEND_TYPE=memcache", "PORT=http", "REDIS_AUTH=secret", "REDIS_URL=redis://:secret@%zz"}, "rls")
	assert.Equal(t, failed, got.code)
	for _, want := range []string{"BACKEND_TYPE is \"memcache\"", "PORT is \"http\"", "RUNTIME_SUBDIRECTORY: give", "REDIS_URL: give"} {
		assert.Contains(t, got.err, want)
	}
	assert.NotContains(t, got.err, "secret")

	limits := newConfigMap(t, limitsText(1))
	for text, env := range map[string][]string{
		"-deadline (WEIR_DEADLINE) is 0s; give a time above 0, such as 15ms": {"WEIR_DEADLINE=0"},
		"-deadline (WEIR_DEADLINE) is -1s; give a time above 0":              {"WEIR_DEADLINE=-1s"},
		"-drain (WEIR_DRAIN) is -1s; give a time, or 0":                      {"WEIR_DRAIN=-1s"},
		"WEIR_DEADLINE":             {"WEIR_DEADLINE=soon"},
		"WEIR_DRAIN":                {"WEIR_DRAIN="},
		"PROMETHEUS_PATH is \"//\"": {"USE_PROMETHEUS=true", "PROMETHEUS_PATH=//"},
	} {
		got = weir(t, append(limits.env(), env...), "rls", "-check")
		assert.NotZero(t, got.code, "%v", env)
		assert.Contains(t, got.err, text)
	}
	got = weir(t, limits.env(), "rls", "-check", "-deadline", "0")
	assert.Equal(t, failed, got.code)
	assert.Contains(t, got.err, "-deadline (WEIR_DEADLINE) is 0s")

	got = weir(t, limits.env(), "rls", "-check")
	assert.Equal(t, 0, got.code, got.err)
	assert.Contains(t, got.out, "1 files of "+limits.dir+" without mistakes")
	limits.write(t, "domain: a\ndescriptors: 7\n")
	got = weir(t, limits.env(), "rls", "-check")
	assert.Equal(t, failed, got.code)
	assert.Contains(t, got.err, "limits.yaml:2")

	// A directory that has no file is a mistake as well.
	const variables = "RUNTIME_ROOT, RUNTIME_SUBDIRECTORY and RUNTIME_APPDIRECTORY"
	empty := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(empty, "ratelimit", "config"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(empty, "ratelimit", "limits.yaml"), []byte(limitsText(1)), 0o600))
	for text, env := range map[string][]string{
		empty + `/ratelimit has no files in its directory config, nor any with a name that begins with "config."; put a file`: nil,
		"there are no files in " + empty + "/ratelimit/config; put a file with a domain there":                                {"RUNTIME_WATCH_ROOT=false"},
		"/ratelimit/config; those whose names begin with a dot are left out (RUNTIME_IGNOREDOTFILES); put a file":             {"RUNTIME_WATCH_ROOT=false", "RUNTIME_IGNOREDOTFILES=true"},
		empty + "/ratelimit/none: no such file or directory; give the directory":                                              {"RUNTIME_WATCH_ROOT=false", "RUNTIME_APPDIRECTORY=none"},
	} {
		got = weir(t, append([]string{"RUNTIME_ROOT=" + empty, "RUNTIME_SUBDIRECTORY=ratelimit"}, env...), "rls", "-check")
		assert.Equal(t, failed, got.code, got.out)
		assert.Contains(t, got.err, text)
		assert.Contains(t, got.err, variables)
	}

	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	got = weir(t, append(limits.env(), "GRPC_HOST=127.0.0.1", "GRPC_PORT="+port), "rls")
	assert.Equal(t, failed, got.code)
	assert.Contains(t, got.err, "address already in use")
}
