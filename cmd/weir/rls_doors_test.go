package main

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	configpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weir-go/weir/internal/redistest"
)

// closedText has a limit without an answer when Redis has none.
const closedText = "domain: edge\ndescriptors:\n  - {key: path, rate_limit: {policy: \"7/24h fixed-window; fail closed\"}}\n"

// Redis is found wherever their variables say it is.
func TestRLSRedis(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "redis.sock")
	onSocket := redistest.Single(t, "--unixsocket", socket)
	user := redistest.Single(t, "--user", "envoy", "on", ">secret:word", "~*", "&*", "+@all")
	secure := redistest.TLS(t)
	own := redistest.NewCertificate(t)
	mutual := redistest.Single(t, append(own.Args(), "--tls-auth-clients", "yes")...)
	cluster, sentinel := redistest.StartCluster(t), redistest.StartSentinel(t)

	for name, c := range map[string]struct {
		env  []string
		rdb  func() redis.UniversalClient // to see what was counted, nil if nothing can be
		code codes.Code
	}{
		"socket": {
			env: []string{"REDIS_URL=" + socket}, rdb: func() redis.UniversalClient { return onSocket.Client(t) },
		},
		"user": {
			env: append(redisEnv(user.Addr()), "REDIS_AUTH=envoy:secret:word"), rdb: func() redis.UniversalClient { return user.Client(t) },
		},
		"user in the URL": {
			env: redisEnv("redis://envoy:secret%3Aword@" + user.Addr() + "/2"),
			rdb: func() redis.UniversalClient { return user.Client(t, func(o *redis.Options) { o.DB = 2 }) },
		},
		"another password": {env: append(redisEnv(user.Addr()), "REDIS_AUTH=envoy:other"), code: codes.Unavailable},
		"TLS": {
			env: append(redisEnv(secure.TLSAddr), "REDIS_TLS=true", "REDIS_TLS_CACERT="+secure.CertFile),
			rdb: func() redis.UniversalClient { return secure.Client(t) },
		},
		"TLS by a socket type": {
			env: append(redisEnv(secure.TLSAddr), "REDIS_SOCKET_TYPE=tls", "REDIS_TLS_CACERT="+secure.CertFile),
			rdb: func() redis.UniversalClient { return secure.Client(t) },
		},
		"TLS of an unknown authority": {env: append(redisEnv(secure.TLSAddr), "REDIS_TLS=true"), code: codes.Unavailable},
		"TLS without a certificate": {
			env: append(redisEnv(mutual.TLSAddr()), "REDIS_TLS=true", "REDIS_TLS_CACERT="+own.CertFile), code: codes.Unavailable,
		},
		"TLS with a certificate": {
			env: append(redisEnv(mutual.TLSAddr()), "REDIS_TLS=true", "REDIS_TLS_CACERT="+own.CertFile,
				"REDIS_TLS_CLIENT_CERT="+own.CertFile, "REDIS_TLS_CLIENT_KEY="+own.KeyFile),
			rdb: func() redis.UniversalClient { return mutual.Client(t) },
		},
		"Cluster": {
			env: []string{"REDIS_TYPE=CLUSTER", "REDIS_URL=" + strings.Join(cluster.Addrs(), ",")},
			rdb: func() redis.UniversalClient { return cluster.Client(t) },
		},
		"Sentinel": {
			env: []string{"REDIS_TYPE=SENTINEL", "REDIS_URL=" + redistest.MasterName + "," + sentinel.Addr()},
			rdb: func() redis.UniversalClient { return sentinel.Client(t) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prefix := "t" + strings.ReplaceAll(strings.ToLower(name), " ", "-")
			p := startRLS(t, append(append(c.env, newConfigMap(t, closedText).env()...), "CACHE_KEY_PREFIX="+prefix)...)
			eventually(t, "a configuration is loaded", func() bool { return p.healthy(t) })
			if c.code != codes.OK {
				_, err := p.ask(t, "edge", "path=/a")
				assert.Equal(t, c.code, grpcstatus.Code(err), "%v", err)
				return
			}
			eventually(t, "Redis counts", func() bool { // a client has to find it first
				answer, err := p.ask(t, "edge", "path=/a")
				return err == nil && answer.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit() == 7
			})
			assert.Empty(t, p.said.With("secret"))
			rdb := c.rdb()
			var keys []string
			find := func(ctx context.Context, one *redis.Client) error {
				found, err := one.Keys(ctx, prefix+":*").Result()
				keys = append(keys, found...)
				return err
			}
			if _, ok := rdb.(*redis.ClusterClient); ok {
				for _, addr := range cluster.Addrs() {
					one := redis.NewClient(&redis.Options{Addr: addr})
					require.NoError(t, find(t.Context(), one))
					require.NoError(t, one.Close())
				}
			} else {
				require.NoError(t, find(t.Context(), rdb.(*redis.Client)))
			}
			assert.Len(t, keys, 1)
		})
	}
}

// Over TLS only clients with a certificate for the name are answered, and a new certificate of the server is shown soon.
func TestRLSTLS(t *testing.T) {
	t.Parallel()
	server, next, client := redistest.NewCertificate(t), redistest.NewCertificate(t), redistest.NewCertificate(t)
	dir := t.TempDir()
	install := func(c redistest.Certificate) {
		for to, from := range map[string]string{"cert": c.CertFile, "key": c.KeyFile} {
			data, err := os.ReadFile(from)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, to+".next"), data, 0o600))
			require.NoError(t, os.Rename(filepath.Join(dir, to+".next"), filepath.Join(dir, to)))
		}
	}
	install(server)
	start := func(san string) *rlsProcess {
		return startRLS(t, append(append(redisEnv("127.0.0.1:1"), newConfigMap(t, limitsText(1)).env()...),
			"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+filepath.Join(dir, "cert"), "GRPC_SERVER_TLS_KEY="+filepath.Join(dir, "key"),
			"GRPC_CLIENT_TLS_CACERT="+client.CertFile, "GRPC_CLIENT_TLS_SAN="+san)...)
	}
	check := func(p *rlsProcess, trusted redistest.Certificate, mine ...redistest.Certificate) error {
		config, err := redistest.Trust(trusted.CertFile)
		require.NoError(t, err)
		for _, c := range mine {
			pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
			require.NoError(t, err)
			config.Certificates = append(config.Certificates, pair)
		}
		conn, err := grpc.NewClient("passthrough:///"+p.addrs[""], grpc.WithTransportCredentials(credentials.NewTLS(config)))
		require.NoError(t, err)
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
		return err
	}
	p := start("localhost")
	require.NoError(t, check(p, server, client))
	require.Error(t, check(p, server), "no certificate")
	require.Error(t, check(p, server, server), "one of another authority")
	require.Error(t, check(p, next, client), "another server")
	install(next)
	eventually(t, "the new certificate", func() bool { return check(p, next, client) == nil })
	require.Error(t, check(start("other.example"), next, client), "another name")
}

// configServer sends one configuration for each stream.
type configServer struct {
	discoverypb.UnimplementedAggregatedDiscoveryServiceServer

	domains, acks chan string
	nodes         chan string
}

func (s *configServer) StreamAggregatedResources(stream discoverypb.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	for {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		if request.GetVersionInfo() == "" && request.GetErrorDetail() == nil {
			s.nodes <- request.GetNode().GetId()
		} else {
			s.acks <- request.GetVersionInfo() + " " + request.GetErrorDetail().GetMessage()
		}
		var domain string
		select {
		case domain = <-s.domains:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
		resource, err := anypb.New(&configpb.RateLimitConfig{Name: "limits", Domain: domain, Descriptors: []*configpb.RateLimitDescriptor{
			{Key: "path", RateLimit: &configpb.RateLimitPolicy{Unit: configpb.RateLimitUnit_MONTH, RequestsPerUnit: 5}},
		}})
		if err != nil {
			return err
		}
		if err := stream.Send(&discoverypb.DiscoveryResponse{
			VersionInfo: "of " + domain, Nonce: domain, Resources: []*anypb.Any{resource},
			TypeUrl: "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig",
		}); err != nil {
			return err
		}
	}
}

// The configuration may come from a server, as Envoy Gateway has one.
func TestRLSXDS(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &configServer{domains: make(chan string, 1), acks: make(chan string, 10), nodes: make(chan string, 10)}
	server := grpc.NewServer()
	discoverypb.RegisterAggregatedDiscoveryServiceServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-served)
	})
	next := func(from chan string) string {
		select {
		case text := <-from:
			return text
		case <-time.After(time.Minute):
			require.Fail(t, "the client has said nothing")
			return ""
		}
	}
	p := startRLS(t, append(redisEnv(redistest.Single(t).Addr()), "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_NODE_ID=edge-7",
		"CONFIG_GRPC_XDS_SERVER_URL="+listener.Addr().String())...)
	assert.Equal(t, "edge-7", next(s.nodes))
	assert.False(t, p.healthy(t), "there is no configuration yet")
	s.domains <- "edge"
	assert.Equal(t, "of edge ", next(s.acks))
	assert.True(t, p.healthy(t))
	assert.Equal(t, uint32(5), p.limit(t, "edge", "path=/a"))
	s.domains <- "" // which is none
	assert.Contains(t, next(s.acks), "of edge limits: ")
	assert.Equal(t, uint32(5), p.limit(t, "edge", "path=/a"))
}
