// Package rlsenv reads the environment of envoyproxy/ratelimit for weir rls.
package rlsenv

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"log/slog"
	"math"
	"net"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/grpcmw/envoyrls"
)

// Settings hold the wishes of an environment that weir rls can carry out. Read returns them; the zero Settings are of no
// use.
type Settings struct {
	// GRPC is the address that Envoy asks, HTTP has /json and /healthcheck, Debug has /rlconfig and /metrics, and Metrics has what
	// Prometheus reads, at MetricsPath; its Address is "" if nobody asked for it.
	GRPC, HTTP, Debug, Metrics Address
	MetricsPath                string
	// TLS is that of GRPC, nil for none. It reads the certificate again when its files change.
	TLS *tls.Config
	// ConnectionAge is the time after which a connection of GRPC is to be closed, and ConnectionGrace that after which it
	// is closed although calls are under way.
	ConnectionAge, ConnectionGrace time.Duration

	// LogLevel is the least level that is logged, and LogJSON asks for JSON.
	LogLevel slog.Level
	LogJSON  bool

	// Files has the configuration, or XDS if it is not nil.
	Files envoyrls.Directory
	XDS   *envoyrls.XDS
	// StartEmpty makes the service healthy before it has a configuration, and EmptyIsSick makes it unhealthy for as long
	// as that has no domain.
	StartEmpty, EmptyIsSick bool

	// Redis is the server, and PerSecond another one for limits by the second, or nil.
	Redis, PerSecond *redis.UniversalOptions
	// RedisIsHealth makes the service unhealthy while Redis does not answer.
	RedisIsHealth bool
	// Prefix begins every key, and DenyCache is the number of refusals that are remembered, both of redisstore.Options.
	Prefix    string
	DenyCache int

	// What follows is of envoyrls.Config.
	MergeDomains, Shadow, Quota, ChargeAll, Metadata bool
	NearLimit                                        float64
	// Headers are the names of those that answers add.
	Headers envoyrls.Headers

	// Unused has the names of the variables that are set and that weir rls has no use for, each with the reason.
	Unused []string
}

// Address is one to listen on. Network is "tcp" or "unix".
type Address struct{ Network, Address string }

// Read reads an environment by a function such as os.LookupEnv. The error joins all mistakes. It has no value of a
// variable that may hold a password.
func Read(lookup func(name string) (value string, set bool)) (*Settings, error) {
	r := &reader{lookup: lookup, asked: map[string]bool{}}
	s := r.read()
	if len(r.mistakes) > 0 {
		return nil, errors.Join(r.mistakes...)
	}
	s.Unused = r.unused
	return s, nil
}

func (r *reader) read() *Settings {
	s := new(Settings)
	r.servers(s)
	r.configuration(s)
	r.store(s)

	s.MergeDomains = r.flag("MERGE_DOMAIN_CONFIG", false)
	s.Shadow = r.flag("SHADOW_MODE", false)
	s.Quota = r.flag("QUOTA_MODE", false)
	s.Metadata = r.flag("RESPONSE_DYNAMIC_METADATA", false)
	// Unset, a refusal of one descriptor charges no other. "false" is written for what it means there.
	s.ChargeAll = r.set("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT") && !r.flag("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", true)
	s.NearLimit = r.fraction("NEAR_LIMIT_RATIO", .8, 1)

	headers := envoyrls.Headers{
		Limit:     r.header("LIMIT_LIMIT_HEADER", "RateLimit-Limit"),
		Remaining: r.header("LIMIT_REMAINING_HEADER", "RateLimit-Remaining"),
		Reset:     r.header("LIMIT_RESET_HEADER", "RateLimit-Reset"),
	}
	if r.flag("LIMIT_RESPONSE_HEADERS_ENABLED", false) {
		s.Headers = headers
	}
	r.useless()
	return s
}

// servers reads where to listen, and how to log.
func (r *reader) servers(s *Settings) {
	s.HTTP = r.address("HOST", "PORT", 8080)
	s.Debug = r.address("DEBUG_HOST", "DEBUG_PORT", 6070)
	s.GRPC = r.address("GRPC_HOST", "GRPC_PORT", 8081)
	if path := r.text("GRPC_UDS", ""); path != "" {
		s.GRPC = Address{"unix", path}
	}
	s.ConnectionAge = r.duration("GRPC_MAX_CONNECTION_AGE", 24*time.Hour, 0)
	s.ConnectionGrace = r.duration("GRPC_MAX_CONNECTION_AGE_GRACE", time.Hour, 0)
	s.TLS = r.serverTLS()

	address, metrics := r.text("PROMETHEUS_ADDR", ":9090"), r.text("PROMETHEUS_PATH", "/metrics")
	disabled := r.flag("DISABLE_STATS", false)
	if r.flag("USE_PROMETHEUS", false) && !disabled {
		if _, _, err := net.SplitHostPort(address); err != nil {
			r.wrong("PROMETHEUS_ADDR", address, `a host and a port, or a port, such as ":9090"`)
		}
		if !servable(metrics) {
			r.wrong("PROMETHEUS_PATH", metrics, `a path that begins with "/", such as "/metrics", without "//", "..", braces, spaces and "%"`)
		}
		s.Metrics, s.MetricsPath = Address{"tcp", address}, metrics
	}

	switch level := r.text("LOG_LEVEL", "WARN"); strings.ToLower(level) {
	case "panic", "fatal", "error":
		s.LogLevel = slog.LevelError
	case "warn", "warning":
		s.LogLevel = slog.LevelWarn
	case "info":
		s.LogLevel = slog.LevelInfo
	case "debug", "trace":
		s.LogLevel = slog.LevelDebug
	default:
		r.wrong("LOG_LEVEL", level, "panic, fatal, error, warn, info, debug or trace")
	}
	s.LogJSON = strings.EqualFold(r.text("LOG_FORMAT", "text"), "json")
}

var plainPath = regexp.MustCompile(`^/[A-Za-z0-9._~!$&'()*+,;=:@/-]*$`)

// servable reports whether a ServeMux can have a path as a pattern that requests match.
func servable(p string) bool {
	clean := path.Clean(p)
	return plainPath.MatchString(p) && (p == clean || p == clean+"/" && clean != "/")
}

// configuration reads where the configuration comes from.
func (r *reader) configuration(s *Settings) {
	s.StartEmpty = r.flag("FORCE_START_WITHOUT_INITIAL_CONFIG", false)
	s.EmptyIsSick = r.flag("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", false)

	root, sub := r.text("RUNTIME_ROOT", "/srv/runtime_data/current"), r.text("RUNTIME_SUBDIRECTORY", "")
	app, whole := r.text("RUNTIME_APPDIRECTORY", "config"), r.flag("RUNTIME_WATCH_ROOT", true)
	files := envoyrls.Directory{SkipDotFiles: r.flag("RUNTIME_IGNOREDOTFILES", false)}
	if whole {
		files.Path, files.Prefix = filepath.Join(root, sub), app+"."
	} else {
		files.Path = filepath.Join(root, sub, app)
	}
	xds := r.xds()

	switch source := r.text("CONFIG_TYPE", "FILE"); source {
	case "FILE":
		const nothing = "the name of a directory: without one, no file would be read"
		switch {
		case root == "":
			r.wrong("RUNTIME_ROOT", root, nothing)
		case whole && sub == "":
			r.wrong("RUNTIME_SUBDIRECTORY", sub, nothing+", unless RUNTIME_WATCH_ROOT is false")
		case app == "":
			r.wrong("RUNTIME_APPDIRECTORY", app, nothing)
		}
		s.Files = files
	case "GRPC_XDS_SOTW":
		s.XDS = xds
	default:
		r.wrong("CONFIG_TYPE", source, "FILE or GRPC_XDS_SOTW")
	}
}

// xds reads the server of the configuration.
func (r *reader) xds() *envoyrls.XDS {
	x := &envoyrls.XDS{
		Server:       r.text("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000"),
		Node:         r.text("CONFIG_GRPC_XDS_NODE_ID", "default"),
		NodeMetadata: r.pairs("CONFIG_GRPC_XDS_NODE_METADATA", "="),
		Headers:      r.pairs("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", ":"),
		Connect:      r.duration("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", 3*time.Second, time.Millisecond),
		Wait:         r.duration("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", 10*time.Second, time.Millisecond),
		MaxWait:      r.duration("XDS_CLIENT_BACKOFF_MAX_INTERVAL", time.Minute, time.Millisecond),
		MaxMessage:   r.number("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", 0, 0, 1<<30),
	}
	if x.Server == "" {
		r.wrong("CONFIG_GRPC_XDS_SERVER_URL", "", `a host and a port, such as "localhost:18000"`)
	}
	x.MaxWait = max(x.MaxWait, x.Wait)
	x.Jitter = min(r.fraction("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", .5, 1e6), 1)
	if !r.flag("XDS_CLIENT_BACKOFF_JITTER", true) {
		x.Jitter = 0
	}
	x.TLS = r.clientTLS("CONFIG_GRPC_XDS_SERVER_USE_TLS",
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "CONFIG_GRPC_XDS_SERVER_TLS_CACERT")
	if name := r.text("CONFIG_GRPC_XDS_SERVER_TLS_SAN", ""); x.TLS != nil && name != "" {
		x.TLS.ServerName = name
	}
	return x
}

// store reads what is of Redis.
func (r *reader) store(s *Settings) {
	switch backend := r.text("BACKEND_TYPE", "redis"); backend {
	case "redis", "":
	case "memcache":
		r.wrong("BACKEND_TYPE", backend, "redis: weir counts in no memcached")
	default:
		r.wrong("BACKEND_TYPE", backend, "redis")
	}
	main, perSecond := r.redis("REDIS_"), r.redis("REDIS_PERSECOND_")
	skip := r.flag("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", false)
	anyTLS := main.tls || perSecond.tls && r.flag("REDIS_PERSECOND", false)
	config := r.tlsOf(anyTLS, "REDIS_TLS_CLIENT_CERT", "REDIS_TLS_CLIENT_KEY", "REDIS_TLS_CACERT")
	if config != nil && skip {
		chainOnly(config)
	}
	s.Redis = r.options(main, config)
	if r.flag("REDIS_PERSECOND", false) {
		s.PerSecond = r.options(perSecond, config)
	}
	s.RedisIsHealth = r.flag("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", false)
	s.Prefix = prefix(r.text("CACHE_KEY_PREFIX", ""))
	if size := r.number("LOCAL_CACHE_SIZE_IN_BYTES", 0, 0, math.MaxInt); size > 0 {
		s.DenyCache = min(max(size/denialSize, minDenials), maxDenials)
	}
}

const (
	denialSize             = 256 // bytes of a refusal that is remembered, and its key
	minDenials, maxDenials = 1024, 1 << 20
)

var plainPrefix = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// prefix returns the prefix of keys for CACHE_KEY_PREFIX: that one, if a store can have it, or else one that no other
// value has.
func prefix(given string) string {
	if given == "" || plainPrefix.MatchString(given) {
		return given
	}
	sum := sha256.Sum256([]byte(given))
	plain := regexp.MustCompile(`[^A-Za-z0-9_.-]+`).ReplaceAllString(given, "")
	return strings.TrimLeft(plain[:min(len(plain), 40)]+"."+hex.EncodeToString(sum[:8]), ".")
}

// useless asks for the variables that change nothing about limits, so that those which are set can be listed.
func (r *reader) useless() {
	for reason, names := range map[string]string{
		"weir sends no statsd, and has the same counters for Prometheus (USE_PROMETHEUS)": "USE_STATSD USE_DOG_STATSD USE_DOG_STATSD_MOGRIFIERS " +
			"STATSD_HOST STATSD_PORT STATSD_PROTOCOL STATS_FLUSH_INTERVAL GOSTATS_FLUSH_INTERVAL_SECONDS GOSTATS_LOGGING_SINK_DISABLED",
		"counters have no labels but their own": "EXTRA_TAGS PROMETHEUS_MAPPER_YAML",
		"weir has no memcached":                 "MEMCACHE_HOST_PORT MEMCACHE_MAX_IDLE_CONNS MEMCACHE_SRV MEMCACHE_SRV_REFRESH MEMCACHE_TLS MEMCACHE_TLS_CLIENT_CERT MEMCACHE_TLS_CLIENT_KEY MEMCACHE_TLS_CACERT MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION",
		"weir records no traces":                "TRACING_ENABLED TRACING_SERVICE_NAME TRACING_SERVICE_NAMESPACE TRACING_SERVICE_INSTANCE_ID TRACING_EXPORTER_PROTOCOL TRACING_SAMPLING_RATE OTEL_EXPORTER_OTLP_ENDPOINT",
		"envoyproxy/ratelimit does not read it either; GRPC_CLIENT_TLS_CACERT has the authorities of clients": "GRPC_SERVER_TLS_CA_CERT",
		"keys end with what they count":            "EXPIRATION_JITTER_MAX_SECONDS",
		"an answer takes no longer than -deadline": "REDIS_TIMEOUT REDIS_PERSECOND_TIMEOUT",
		"calls travel together by themselves": "REDIS_PIPELINE_WINDOW REDIS_PIPELINE_LIMIT REDIS_CLUSTER_PIPELINE_PARALLELISM " +
			"REDIS_PERSECOND_PIPELINE_WINDOW REDIS_PERSECOND_PIPELINE_LIMIT REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM",
		"weir starts without Redis, and uses it as soon as it answers": "REDIS_STARTUP_INITIAL_INTERVAL REDIS_STARTUP_MAX_INTERVAL REDIS_STARTUP_MAX_ELAPSED_TIME",
		"the counters have no response times":                          "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS",
		"a call waits for a connection, for half of -deadline": "REDIS_POOL_ON_EMPTY_BEHAVIOR REDIS_POOL_ON_EMPTY_WAIT_DURATION " +
			"REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR REDIS_PERSECOND_POOL_ON_EMPTY_WAIT_DURATION",
	} {
		for name := range strings.FieldsSeq(names) {
			if r.set(name) {
				r.unused = append(r.unused, name+" ("+reason+")")
			}
		}
	}
	slices.Sort(r.unused)
}
