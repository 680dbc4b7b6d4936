package rlsenv

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/grpcmw/envoyrls"
	"github.com/weir-go/weir/internal/redistest"
)

type env map[string]string

func (e env) lookup(name string) (string, bool) {
	value, set := e[name]
	return value, set
}

// with returns an environment with more variables.
func (e env) with(more env) env {
	e = maps.Clone(e)
	maps.Copy(e, more)
	return e
}

// base is an environment in which weir rls can run.
var base = env{"RUNTIME_SUBDIRECTORY": "ratelimit"}

// summary has what can be compared of Settings.
func summary(s *Settings) string {
	secure := func(c *tls.Config) string {
		if c == nil {
			return "plain"
		}
		return fmt.Sprint(len(c.Certificates), c.GetCertificate != nil, c.RootCAs != nil, c.ClientCAs != nil, c.ClientAuth,
			c.ServerName, c.InsecureSkipVerify, c.VerifyConnection != nil)
	}
	server := func(o *redis.UniversalOptions) string {
		if o == nil {
			return "none"
		}
		return fmt.Sprint(o.Addrs, o.MasterName, o.IsClusterMode, o.Username, o.Password, o.SentinelUsername, o.SentinelPassword,
			o.DB, o.PoolSize, secure(o.TLSConfig))
	}
	rest := *s
	rest.TLS, rest.Redis, rest.PerSecond, rest.XDS = nil, nil, nil, nil
	xds := "none"
	if s.XDS != nil {
		x := *s.XDS
		x.TLS = nil
		xds = fmt.Sprintf("%+v %s", x, secure(s.XDS.TLS))
	}
	return fmt.Sprintf("%+v\n%s\n%s\n%s\n%s", rest, secure(s.TLS), server(s.Redis), server(s.PerSecond), xds)
}

// Every variable of theirs changes what is done, or is listed as one without a use; and what it cannot be is a mistake that
// names it.
func TestVariables(t *testing.T) {
	t.Parallel()
	c := redistest.NewCertificate(t)
	serverTLS := env{"GRPC_SERVER_USE_TLS": "true", "GRPC_SERVER_TLS_CERT": c.CertFile, "GRPC_SERVER_TLS_KEY": c.KeyFile}
	mutual := serverTLS.with(env{"GRPC_CLIENT_TLS_CACERT": c.CertFile})
	redisTLS := env{"REDIS_TLS": "true"}
	redisCert := redisTLS.with(env{"REDIS_TLS_CLIENT_CERT": c.CertFile, "REDIS_TLS_CLIENT_KEY": c.KeyFile})
	xds := env{"CONFIG_TYPE": "GRPC_XDS_SOTW"}
	xdsTLS := xds.with(env{"CONFIG_GRPC_XDS_SERVER_USE_TLS": "true"})
	xdsCert := xdsTLS.with(env{"CONFIG_GRPC_XDS_CLIENT_TLS_CERT": c.CertFile, "CONFIG_GRPC_XDS_CLIENT_TLS_KEY": c.KeyFile})
	prometheus := env{"USE_PROMETHEUS": "true"}
	perSecond := env{"REDIS_PERSECOND": "true"}
	sentinel := env{"REDIS_TYPE": "sentinel", "REDIS_URL": "main,10.0.0.1:26379"}
	perSecondSentinel := perSecond.with(env{"REDIS_PERSECOND_TYPE": "sentinel", "REDIS_PERSECOND_URL": "main,10.0.0.1:26379"})

	type variable struct {
		good   string // a value that changes something
		with   env    // what it needs
		bad    string // a value that is a mistake, "" if there is none
		unused bool
	}
	unused := variable{good: "x", unused: true}
	cases := map[string]variable{
		"HOST":                               {good: "127.0.0.1"},
		"PORT":                               {good: "8180", bad: "65536"},
		"DEBUG_HOST":                         {good: "127.0.0.1"},
		"DEBUG_PORT":                         {good: "6170", bad: "http"},
		"GRPC_HOST":                          {good: "127.0.0.1"},
		"GRPC_PORT":                          {good: "0x1000", bad: "-1"},
		"GRPC_UDS":                           {good: "/run/rls.sock"},
		"GRPC_MAX_CONNECTION_AGE":            {good: "30s", bad: "30"},
		"GRPC_MAX_CONNECTION_AGE_GRACE":      {good: "30s", bad: "-1s"},
		"GRPC_SERVER_USE_TLS":                {good: "true", with: serverTLS.with(nil), bad: "on"},
		"GRPC_SERVER_TLS_CERT":               {good: c.CertFile, with: serverTLS, bad: c.KeyFile},
		"GRPC_SERVER_TLS_KEY":                {good: c.KeyFile, with: serverTLS, bad: "/nowhere"},
		"GRPC_CLIENT_TLS_CACERT":             {good: c.CertFile, with: serverTLS, bad: c.KeyFile},
		"GRPC_CLIENT_TLS_SAN":                {good: "envoy", with: mutual},
		"LOG_LEVEL":                          {good: "debug", bad: "verbose"},
		"LOG_FORMAT":                         {good: "JSON"},
		"CONFIG_TYPE":                        {good: "GRPC_XDS_SOTW", bad: "xds"},
		"FORCE_START_WITHOUT_INITIAL_CONFIG": {good: "true", bad: "yes"},
		"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED":       {good: "true", bad: "yes"},
		"CONFIG_GRPC_XDS_NODE_ID":                       {good: "n", with: xds},
		"CONFIG_GRPC_XDS_NODE_METADATA":                 {good: "a=b,c=d", with: xds, bad: "a:b"},
		"CONFIG_GRPC_XDS_SERVER_URL":                    {good: "config:18000", with: xds},
		"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL": {good: "5s", with: xds, bad: "0s"},
		"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS":     {good: "a:b,c:d", with: xds, bad: "secret=b"},
		"CONFIG_GRPC_XDS_SERVER_USE_TLS":                {good: "true", with: xds, bad: "2"},
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT":               {good: c.CertFile, with: xdsCert, bad: "/nowhere"},
		"CONFIG_GRPC_XDS_CLIENT_TLS_KEY":                {good: c.KeyFile, with: xdsCert, bad: "/nowhere"},
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT":             {good: c.CertFile, with: xdsTLS, bad: "/nowhere"},
		"CONFIG_GRPC_XDS_SERVER_TLS_SAN":                {good: "config", with: xdsTLS},
		"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL":           {good: "1s", with: xds, bad: "1"},
		"XDS_CLIENT_BACKOFF_MAX_INTERVAL":               {good: "100s", with: xds, bad: "x"},
		"XDS_CLIENT_BACKOFF_RANDOM_FACTOR":              {good: "0.1", with: xds, bad: "-1"},
		"XDS_CLIENT_BACKOFF_JITTER":                     {good: "false", with: xds, bad: "x"},
		"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES":              {good: "10000000", with: xds, bad: "-1"},
		"USE_PROMETHEUS":                                {good: "true", bad: "x"},
		"PROMETHEUS_ADDR":                               {good: ":9191", with: prometheus, bad: "9191"},
		"PROMETHEUS_PATH":                               {good: "/m", with: prometheus, bad: "m"},
		"DISABLE_STATS":                                 {good: "true", with: prometheus, bad: "x"},
		"RUNTIME_ROOT":                                  {good: "/data"},
		"RUNTIME_SUBDIRECTORY":                          {good: "limits"},
		"RUNTIME_APPDIRECTORY":                          {good: "domains"},
		"RUNTIME_IGNOREDOTFILES":                        {good: "true", bad: "x"},
		"RUNTIME_WATCH_ROOT":                            {good: "false", bad: "x"},
		"LOCAL_CACHE_SIZE_IN_BYTES":                     {good: "1000000", bad: "1M"},
		"NEAR_LIMIT_RATIO":                              {good: "0.9", bad: "1.1"},
		"CACHE_KEY_PREFIX":                              {good: "edge:"},
		"BACKEND_TYPE":                                  {good: "", bad: "memcache"},
		"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT":       {good: "false", bad: "x"},
		"LIMIT_RESPONSE_HEADERS_ENABLED":                {good: "true", bad: "x"},
		"LIMIT_LIMIT_HEADER":                            {good: "X-L", with: env{"LIMIT_RESPONSE_HEADERS_ENABLED": "true"}, bad: "X L"},
		"LIMIT_REMAINING_HEADER":                        {good: "X-R", with: env{"LIMIT_RESPONSE_HEADERS_ENABLED": "true"}, bad: "X\n"},
		"LIMIT_RESET_HEADER":                            {good: "X-S", with: env{"LIMIT_RESPONSE_HEADERS_ENABLED": "true"}, bad: ""},
		"SHADOW_MODE":                                   {good: "true", bad: "x"},
		"QUOTA_MODE":                                    {good: "true", bad: "x"},
		"RESPONSE_DYNAMIC_METADATA":                     {good: "true", bad: "x"},
		"MERGE_DOMAIN_CONFIG":                           {good: "true", bad: "x"},

		"REDIS_SOCKET_TYPE":                    {good: "tcp", with: env{"REDIS_URL": "redis:6379"}, bad: "udp"},
		"REDIS_TYPE":                           {good: "CLUSTER", with: env{"REDIS_URL": "redis:6379"}, bad: "ring"},
		"REDIS_URL":                            {good: "/tmp/s", bad: "redis:secret@6379"},
		"REDIS_POOL_SIZE":                      {good: "3", bad: "0"},
		"REDIS_AUTH":                           {good: "user:secret"},
		"REDIS_TLS":                            {good: "true", bad: "x"},
		"REDIS_TLS_CLIENT_CERT":                {good: c.CertFile, with: redisCert, bad: "/nowhere"},
		"REDIS_TLS_CLIENT_KEY":                 {good: c.KeyFile, with: redisCert, bad: "/nowhere"},
		"REDIS_TLS_CACERT":                     {good: c.CertFile, with: redisTLS, bad: "/nowhere"},
		"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION": {good: "true", with: redisTLS, bad: "x"},
		"REDIS_SENTINEL_AUTH":                  {good: "secret", with: sentinel},
		"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION": {good: "true", bad: "x"},
		"REDIS_PERSECOND":                      {good: "true", bad: "x"},
		"REDIS_PERSECOND_SOCKET_TYPE":          {good: "tcp", with: perSecond.with(env{"REDIS_PERSECOND_URL": "redis:6379"}), bad: "udp"},
		"REDIS_PERSECOND_TYPE":                 {good: "CLUSTER", with: perSecond.with(env{"REDIS_PERSECOND_URL": "redis:6379"}), bad: "ring"},
		"REDIS_PERSECOND_URL":                  {good: "/tmp/s", with: perSecond, bad: "redis:secret@6379"},
		"REDIS_PERSECOND_POOL_SIZE":            {good: "30", with: perSecond, bad: "many"},
		"REDIS_PERSECOND_AUTH":                 {good: "secret", with: perSecond},
		"REDIS_PERSECOND_TLS":                  {good: "true", with: perSecond, bad: "x"},
		"REDIS_PERSECOND_SENTINEL_AUTH":        {good: "secret", with: perSecondSentinel},
	}
	for name := range strings.FieldsSeq(`USE_STATSD USE_DOG_STATSD USE_DOG_STATSD_MOGRIFIERS STATSD_HOST STATSD_PORT STATSD_PROTOCOL
		STATS_FLUSH_INTERVAL GOSTATS_FLUSH_INTERVAL_SECONDS GOSTATS_LOGGING_SINK_DISABLED EXTRA_TAGS PROMETHEUS_MAPPER_YAML
		EXPIRATION_JITTER_MAX_SECONDS MEMCACHE_HOST_PORT MEMCACHE_MAX_IDLE_CONNS MEMCACHE_SRV MEMCACHE_SRV_REFRESH MEMCACHE_TLS
		MEMCACHE_TLS_CLIENT_CERT MEMCACHE_TLS_CLIENT_KEY MEMCACHE_TLS_CACERT MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION TRACING_ENABLED
		TRACING_SERVICE_NAME TRACING_SERVICE_NAMESPACE TRACING_SERVICE_INSTANCE_ID TRACING_EXPORTER_PROTOCOL TRACING_SAMPLING_RATE
		REDIS_TIMEOUT REDIS_PERSECOND_TIMEOUT REDIS_PIPELINE_WINDOW REDIS_PIPELINE_LIMIT REDIS_PERSECOND_PIPELINE_WINDOW
		REDIS_PERSECOND_PIPELINE_LIMIT REDIS_POOL_ON_EMPTY_BEHAVIOR REDIS_POOL_ON_EMPTY_WAIT_DURATION
		REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR REDIS_PERSECOND_POOL_ON_EMPTY_WAIT_DURATION OTEL_EXPORTER_OTLP_ENDPOINT
		GRPC_SERVER_TLS_CA_CERT PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS REDIS_CLUSTER_PIPELINE_PARALLELISM
		REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM REDIS_STARTUP_INITIAL_INTERVAL REDIS_STARTUP_MAX_INTERVAL
		REDIS_STARTUP_MAX_ELAPSED_TIME`) {
		cases[name] = unused
	}

	// All that theirs has, and no other.
	data, err := os.ReadFile("testdata/variables.txt")
	require.NoError(t, err)
	all := strings.Fields(string(data))
	r := &reader{lookup: base.lookup, asked: map[string]bool{}}
	r.read()
	assert.Equal(t, all, r.names(), "the variables that are read")
	assert.Equal(t, all, slices.Sorted(maps.Keys(cases)), "the variables that are tested")

	// And the documentation has a row for each.
	guide, err := os.ReadFile("../../../../docs/envoy.md")
	require.NoError(t, err)
	for name, v := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Contains(t, string(guide), "`"+name+"`", "docs/envoy.md")
			without := base.with(v.with)
			delete(without, name)
			with := base.with(v.with).with(env{name: v.good})
			after, err := Read(with.lookup)
			require.NoError(t, err)
			listed := slices.ContainsFunc(after.Unused, func(line string) bool { return strings.HasPrefix(line, name+" (") })
			assert.Equal(t, v.unused, listed, "%v", after.Unused)
			if before, err := Read(without.lookup); err == nil && !v.unused && name != "BACKEND_TYPE" { // some cannot be left out
				assert.NotEqual(t, summary(before), summary(after))
			}
			if v.bad == "" {
				return
			}
			_, err = Read(with.with(env{name: v.bad}).lookup)
			require.Error(t, err)
			named := strings.Contains(err.Error(), name+" is ") || strings.Contains(err.Error(), name+": ") ||
				strings.HasSuffix(name, "_KEY") && strings.Contains(err.Error(), name)
			assert.True(t, named, "%v", err)
			assert.Contains(t, err.Error(), "give ")
			assert.NotContains(t, err.Error(), "secret")
		})
	}
}

func read1(t *testing.T, e env) *Settings {
	t.Helper()
	s, err := Read(base.with(e).lookup)
	require.NoError(t, err)
	return s
}

// The defaults are theirs.
func TestDefaults(t *testing.T) {
	t.Parallel()
	s := read1(t, nil)
	assert.Equal(t, Address{"tcp", "0.0.0.0:8081"}, s.GRPC)
	assert.Equal(t, Address{"tcp", "0.0.0.0:8080"}, s.HTTP)
	assert.Equal(t, Address{"tcp", "0.0.0.0:6070"}, s.Debug)
	assert.Zero(t, s.Metrics)
	assert.Nil(t, s.TLS)
	assert.Equal(t, 24*time.Hour, s.ConnectionAge)
	assert.Equal(t, time.Hour, s.ConnectionGrace)
	assert.Equal(t, slog.LevelWarn, s.LogLevel)
	assert.Equal(t, envoyrls.Directory{Path: "/srv/runtime_data/current/ratelimit", Prefix: "config."}, s.Files)
	assert.Nil(t, s.XDS)
	assert.Equal(t, []string{"/var/run/nutcracker/ratelimit.sock"}, s.Redis.Addrs)
	assert.Equal(t, 10, s.Redis.PoolSize)
	assert.Nil(t, s.PerSecond)
	assert.Zero(t, s.Headers)
	assert.InDelta(t, .8, s.NearLimit, 0)
	assert.False(t, s.ChargeAll)
	assert.Zero(t, s.DenyCache)
	assert.Empty(t, s.Prefix)
	assert.Empty(t, s.Unused)
	x := read1(t, env{"CONFIG_TYPE": "GRPC_XDS_SOTW"}).XDS
	assert.Equal(t, envoyrls.XDS{
		Server: "localhost:18000", Node: "default", NodeMetadata: map[string]string{}, Headers: map[string]string{},
		Connect: 3 * time.Second, Wait: 10 * time.Second, MaxWait: time.Minute, Jitter: .5,
	}, *x)
}

// A path of the counters that is taken can be served, whatever it is.
func TestMetricsPath(t *testing.T) {
	t.Parallel()
	paths := []string{
		"", "/", "//", "/m", "/m/", "/a//b", "/a/../b", "/a/./b", "/.", "/..", "/a/..", "m", "GET /m", "/m m", "/{", "/{x}", "/{$}", "/{x...}", "/%zz", "/%2f",
		"/metrics?x=1", "/metrics#x", "/é",
	}
	for c := range 128 {
		paths = append(paths, "/a"+string(rune(c))+"b")
	}
	var taken []string
	for _, path := range paths {
		s, err := Read(base.with(env{"USE_PROMETHEUS": "true", "PROMETHEUS_PATH": path}).lookup)
		if err != nil {
			require.ErrorContains(t, err, "PROMETHEUS_PATH", path)
			require.ErrorContains(t, err, `such as "/metrics"`, path)
			continue
		}
		taken = append(taken, path)
		mux := http.NewServeMux()
		require.NotPanics(t, func() { mux.HandleFunc(s.MetricsPath, func(http.ResponseWriter, *http.Request) {}) }, path)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		assert.Equal(t, http.StatusOK, w.Code, path)
	}
	assert.Equal(t, []string{"/", "/m", "/m/"}, taken[:3])
	assert.Len(t, taken, 3+26+26+10+len("-._~!$&'()*+,;=:@/"))
}

func TestFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env  env
		want envoyrls.Directory
	}{
		{env{"RUNTIME_ROOT": "/data"}, envoyrls.Directory{Path: "/data/ratelimit", Prefix: "config."}},
		{env{"RUNTIME_ROOT": "/data", "RUNTIME_WATCH_ROOT": "false"}, envoyrls.Directory{Path: "/data/ratelimit/config"}},
		{env{"RUNTIME_ROOT": "/data", "RUNTIME_WATCH_ROOT": "0", "RUNTIME_SUBDIRECTORY": ""}, envoyrls.Directory{Path: "/data/config"}},
		{
			env{"RUNTIME_ROOT": "/data", "RUNTIME_APPDIRECTORY": "limits", "RUNTIME_IGNOREDOTFILES": "true"},
			envoyrls.Directory{Path: "/data/ratelimit", Prefix: "limits.", SkipDotFiles: true},
		},
	} {
		assert.Equal(t, c.want, read1(t, c.env).Files)
	}
	// Without a directory theirs runs without limits.
	for name, more := range map[string]env{
		"RUNTIME_SUBDIRECTORY": nil, "RUNTIME_ROOT": nil, "RUNTIME_APPDIRECTORY": {"RUNTIME_WATCH_ROOT": "false"},
	} {
		_, err := Read(base.with(more).with(env{name: ""}).lookup)
		require.ErrorContains(t, err, name+": give the name of a directory")
		_, err = Read(base.with(more).with(env{name: "", "CONFIG_TYPE": "GRPC_XDS_SOTW"}).lookup)
		require.NoError(t, err)
	}
}

// The environment that Envoy Gateway gives its rate limit service, with all options.
func TestEnvoyGateway(t *testing.T) {
	t.Parallel()
	c := redistest.NewCertificate(t)
	s, err := Read(env{
		"RUNTIME_ROOT": "/data", "RUNTIME_SUBDIRECTORY": "ratelimit", "RUNTIME_IGNOREDOTFILES": "true", "RUNTIME_WATCH_ROOT": "false",
		"LOG_LEVEL": "info", "USE_STATSD": "false", "CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL": "envoy-gateway:18001",
		"CONFIG_GRPC_XDS_NODE_ID": "envoy-ratelimit", "GRPC_SERVER_USE_TLS": "true", "GRPC_SERVER_TLS_CERT": c.CertFile,
		"GRPC_SERVER_TLS_KEY": c.KeyFile, "GRPC_SERVER_TLS_CA_CERT": c.CertFile, "CONFIG_GRPC_XDS_SERVER_USE_TLS": "true",
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT": c.CertFile, "CONFIG_GRPC_XDS_CLIENT_TLS_KEY": c.KeyFile,
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT": c.CertFile, "FORCE_START_WITHOUT_INITIAL_CONFIG": "true", "REDIS_SOCKET_TYPE": "tcp",
		"REDIS_URL": "redis.redis-system.svc.cluster.local:6379", "REDIS_TLS": "true", "REDIS_TLS_CLIENT_CERT": c.CertFile,
		"REDIS_TLS_CLIENT_KEY": c.KeyFile, "USE_PROMETHEUS": "true", "PROMETHEUS_ADDR": ":19001",
		"PROMETHEUS_MAPPER_YAML": "/etc/statsd-exporter/conf.yaml", "TRACING_ENABLED": "true", "TRACING_SERVICE_NAME": "envoy-ratelimit",
		"TRACING_SERVICE_NAMESPACE": "envoy-gateway-system", "TRACING_SERVICE_INSTANCE_ID": "pod", "TRACING_SAMPLING_RATE": "1.0",
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://trace-collector:4318",
	}.lookup)
	require.NoError(t, err)
	assert.Equal(t, "envoy-gateway:18001", s.XDS.Server)
	assert.Equal(t, "envoy-ratelimit", s.XDS.Node)
	assert.Len(t, s.XDS.TLS.Certificates, 1)
	assert.NotNil(t, s.XDS.TLS.RootCAs)
	assert.True(t, s.StartEmpty, "its probes ask for the health before there is a configuration")
	assert.Equal(t, tls.NoClientCert, s.TLS.ClientAuth)
	assert.Equal(t, Address{"tcp", ":19001"}, s.Metrics)
	var names []string
	for _, line := range s.Unused {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, name)
	}
	assert.Equal(t, []string{
		"GRPC_SERVER_TLS_CA_CERT", "OTEL_EXPORTER_OTLP_ENDPOINT", "PROMETHEUS_MAPPER_YAML", "TRACING_ENABLED",
		"TRACING_SAMPLING_RATE", "TRACING_SERVICE_INSTANCE_ID", "TRACING_SERVICE_NAME", "TRACING_SERVICE_NAMESPACE", "USE_STATSD",
	}, names)
}

func TestRedis(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env  env
		want redis.UniversalOptions
	}{
		{env{"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": "redis:6379"}, redis.UniversalOptions{Addrs: []string{"redis:6379"}}},
		{
			env{"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": "redis:6379", "REDIS_AUTH": "pass"},
			redis.UniversalOptions{Addrs: []string{"redis:6379"}, Password: "pass"},
		},
		{
			env{"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": "redis://u:p@redis:6379/3", "REDIS_AUTH": "user:pa:ss"},
			redis.UniversalOptions{Addrs: []string{"redis:6379"}, Username: "user", Password: "pa:ss", DB: 3},
		},
		{
			env{"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": "redis://redis:6379?username=u&password=p&db=4"},
			redis.UniversalOptions{Addrs: []string{"redis:6379"}, Username: "u", Password: "p", DB: 4},
		},
		{
			env{"REDIS_TYPE": "CLUSTER", "REDIS_URL": "a:1, b:2,c:3"},
			redis.UniversalOptions{Addrs: []string{"a:1", "b:2", "c:3"}, IsClusterMode: true},
		},
		{
			env{"REDIS_TYPE": "Sentinel", "REDIS_URL": "main,a:1,b:2", "REDIS_AUTH": "u:p", "REDIS_SENTINEL_AUTH": "q"},
			redis.UniversalOptions{
				Addrs: []string{"a:1", "b:2"}, MasterName: "main", Username: "u", Password: "p", SentinelPassword: "q",
			},
		},
		{env{"REDIS_URL": "/tmp/redis.sock"}, redis.UniversalOptions{Addrs: []string{"/tmp/redis.sock"}}},
	} {
		for _, tls := range []bool{false, true} {
			e := c.env.with(env{"REDIS_TLS": fmt.Sprint(tls), "REDIS_POOL_SIZE": "20"})
			got := read1(t, e).Redis
			assert.Equal(t, tls, got.TLSConfig != nil)
			plain := redis.UniversalOptions{
				Addrs: got.Addrs, MasterName: got.MasterName, IsClusterMode: got.IsClusterMode, Username: got.Username,
				Password: got.Password, SentinelUsername: got.SentinelUsername, SentinelPassword: got.SentinelPassword, DB: got.DB,
			}
			assert.Equal(t, c.want, plain)
			assert.Equal(t, 20, got.PoolSize)
			got.MinIdleConns = 0 // nothing is dialled
			client := redis.NewUniversalClient(got)
			_, err := redisstore.New(client, redisstore.Options{})
			require.NoError(t, err, "a store takes it")
			require.NoError(t, client.Close())
		}
	}
	for url, e := range map[string]env{
		"redis:6379":              nil, // of a socket
		"":                        nil,
		"@abstract":               nil,
		"redis":                   {"REDIS_SOCKET_TYPE": "tcp"},
		"a:1,b:2":                 {"REDIS_SOCKET_TYPE": "tcp"},
		"redis://:secret@redis":   {"REDIS_SOCKET_TYPE": "tcp"},
		"redis://:secret@r:1/x":   {"REDIS_SOCKET_TYPE": "tcp"},
		"redis://:secret@%zz:1":   {"REDIS_SOCKET_TYPE": "tcp"},
		"secret":                  {"REDIS_TYPE": "sentinel"},
		"10.0.0.1:1,10.0.0.2:1":   {"REDIS_TYPE": "sentinel"},
		"10.0.0.1:1,secret":       {"REDIS_TYPE": "cluster"},
		"rediss://:secret@host:1": {"REDIS_SOCKET_TYPE": "tcp"},
	} {
		_, err := Read(base.with(e).with(env{"REDIS_URL": url}).lookup)
		require.ErrorContains(t, err, "REDIS_URL: give ", url)
		assert.NotContains(t, err.Error(), "secret")
	}
	// TLS has a variable.
	for _, prefix := range []string{"REDIS_", "REDIS_PERSECOND_"} {
		for _, more := range []env{nil, {prefix + "SOCKET_TYPE": "tcp"}, {prefix + "TYPE": "CLUSTER"}} {
			_, err := Read(base.with(more).with(env{"REDIS_PERSECOND": "true", prefix + "URL": "rediss://:secret@host:1"}).lookup)
			require.ErrorContains(t, err, prefix+"URL: give redis:// in the place of rediss://, with "+prefix+"TLS=true")
			assert.NotContains(t, err.Error(), "secret")
		}
	}
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, given := range []string{"", "edge", "edge:", "edge::", ":edge", "édge", strings.Repeat("e", 64), strings.Repeat("e", 65), ":", "."} {
		got := prefix(given)
		assert.Empty(t, seen[got], given)
		seen[got] = "taken by " + given
		if given != "" {
			assert.Regexp(t, plainPrefix, got)
		}
	}
	assert.Equal(t, "edge", prefix("edge"))
}

func TestAllMistakes(t *testing.T) {
	t.Parallel()
	_, err := Read(base.with(env{
		"PORT": "", "LOG_LEVEL": "loud", "BACKEND_TYPE": "memcache", "REDIS_TYPE": "ring", "GRPC_SERVER_USE_TLS": "true",
		"REDIS_TLS": "true", "REDIS_TLS_CLIENT_CERT": "/nowhere", "GRPC_MAX_CONNECTION_AGE": "day",
	}).lookup)
	require.Error(t, err)
	for _, want := range []string{
		"PORT: give a number from 0 to 65535, or leave it out: it is empty",
		`LOG_LEVEL is "loud"; give panic, fatal, error, warn, info, debug or trace`,
		`BACKEND_TYPE is "memcache"; give redis: weir counts in no memcached`,
		`REDIS_TYPE is "ring"; give SINGLE, SENTINEL or CLUSTER`,
		"GRPC_SERVER_TLS_CERT: give the files of a certificate",
		`REDIS_TLS_CLIENT_CERT is "/nowhere"; give both`,
		`GRPC_MAX_CONNECTION_AGE is "day"; give a time`,
	} {
		assert.ErrorContains(t, err, want)
	}
	_, err = Read(base.with(env{
		"GRPC_CLIENT_TLS_SAN": "envoy", "GRPC_SERVER_USE_TLS": "true", "GRPC_SERVER_TLS_CERT": "x", "GRPC_SERVER_TLS_KEY": "y",
	}).lookup)
	require.ErrorContains(t, err, "GRPC_CLIENT_TLS_CACERT as well")
}

// What they mean by charging is asked for by those who have written it.
func TestChargeAll(t *testing.T) {
	t.Parallel()
	const name = "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT"
	assert.False(t, read1(t, nil).ChargeAll)
	assert.False(t, read1(t, env{name: "true"}).ChargeAll)
	assert.True(t, read1(t, env{name: "false"}).ChargeAll)
}

// A certificate is read again when its files change, and one that is half written leaves the last.
func TestCertificate(t *testing.T) {
	t.Parallel()
	one, two := redistest.NewCertificate(t), redistest.NewCertificate(t)
	dir := t.TempDir()
	c := &certificate{cert: filepath.Join(dir, "cert"), key: filepath.Join(dir, "key")}
	put := func(to, from string) {
		data, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to, data, 0o600))
	}
	leaf := func() *x509.Certificate {
		c.mu.Lock()
		c.looked = time.Time{} // more than a second ago
		c.mu.Unlock()
		pair, err := c.get(nil)
		require.NoError(t, err)
		return pair.Leaf
	}
	_, err := c.get(nil)
	require.Error(t, err)
	put(c.cert, one.CertFile)
	put(c.key, one.KeyFile)
	first := leaf()
	assert.Same(t, first, leaf())
	put(c.cert, two.CertFile)
	assert.Same(t, first, leaf(), "the key is still the old one")
	require.NoError(t, os.Remove(c.key))
	assert.Same(t, first, leaf())
	put(c.key, two.KeyFile)
	second := leaf()
	assert.False(t, first.Equal(second))
}

// With REDIS_TLS_SKIP_HOSTNAME_VERIFICATION the chain is still looked at.
func TestChainOnly(t *testing.T) {
	t.Parallel()
	own, other := redistest.NewCertificate(t), redistest.NewCertificate(t)
	pair, err := tls.LoadX509KeyPair(own.CertFile, own.KeyFile)
	require.NoError(t, err)
	for authority, good := range map[string]bool{own.CertFile: true, other.CertFile: false} {
		s := read1(t, env{"REDIS_TLS": "true", "REDIS_TLS_CACERT": authority, "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION": "true"})
		err := s.Redis.TLSConfig.VerifyConnection(tls.ConnectionState{ServerName: "elsewhere", PeerCertificates: []*x509.Certificate{pair.Leaf}})
		assert.Equal(t, good, err == nil, "%v", err)
	}
}
