package recipes

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

// A server of gRPC behind net/http, as its ServeHTTP allows, needs no interceptor; for one with a listener of its own
// there is package grpcmw. A call of gRPC over HTTP/2 that is refused is RESOURCE_EXHAUSTED for the real client, which does not repeat it, and
// not an UNAVAILABLE; and the reply says when to come again.
func TestGRPCClientUnderstandsRefusals(t *testing.T) {
	g, err := guard.New(guard.Config{
		Rule:   guard.Rule{Policy: "2/1h", Key: keyfunc.IP()},
		Routes: map[string]guard.Rule{"/grpc.health.v1.Health/*": {Policy: "calls: 2/1h", Instead: true}},
	})
	require.NoError(t, err)
	calls := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(calls, health.NewServer())
	mux := http.NewServeMux()
	mux.Handle("/grpc.health.v1.Health/", calls)

	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: nethttp.Limit(g)(mux), Protocols: protocols}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		assert.NoError(t, server.Close())
		assert.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	conn, err := grpc.NewClient("passthrough:///"+listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	client := grpc_health_v1.NewHealthClient(conn)

	for range 2 {
		var header metadata.MD
		res, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}, grpc.Header(&header))
		require.NoError(t, err)
		assert.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, res.GetStatus())
		assert.Equal(t, []string{"2"}, header.Get("x-ratelimit-limit"))
	}
	for range 3 {
		var header, trailer metadata.MD
		_, err = client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
		assert.Equal(t, codes.ResourceExhausted, status.Code(err))
		assert.Equal(t, "too many requests", status.Convert(err).Message())
		assert.NotEmpty(t, strings.Join(append(header.Get("retry-after"), trailer.Get("retry-after")...), ""))
	}
}
