package envoyrls_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	extpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/grpcmw/envoyrls"
)

// newServer returns a Server with a configuration that counts in the process.
func newServer(t testing.TB, c envoyrls.Config, files ...string) *envoyrls.Server {
	t.Helper()
	memory, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	return newServerOn(t, memory, c, files...)
}

func newServerOn(t testing.TB, store core.Store, c envoyrls.Config, files ...string) *envoyrls.Server {
	t.Helper()
	s, err := envoyrls.New(store, c)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() }) // after a fault, or on a busy machine, not all has been given back
	require.NoError(t, s.Load(filesOf(files...)...))
	return s
}

func filesOf(texts ...string) []envoyrls.File {
	files := make([]envoyrls.File, len(texts))
	for i, text := range texts {
		files[i] = envoyrls.File{Name: string(rune('a'+i)) + ".yaml", Data: []byte(text)}
	}
	return files
}

// request makes a request of the domain "edge". Each descriptor is written as "key=value,key=value".
func request(descriptors ...*extpb.RateLimitDescriptor) *rlspb.RateLimitRequest {
	return &rlspb.RateLimitRequest{Domain: "edge", Descriptors: descriptors}
}

func of(entries string, with ...func(*extpb.RateLimitDescriptor)) *extpb.RateLimitDescriptor {
	d := &extpb.RateLimitDescriptor{}
	for e := range strings.SplitSeq(entries, ",") {
		key, value, _ := strings.Cut(e, "=")
		d.Entries = append(d.Entries, &extpb.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	for _, w := range with {
		w(d)
	}
	return d
}

func hits(n uint64) func(*extpb.RateLimitDescriptor) {
	return func(d *extpb.RateLimitDescriptor) { d.HitsAddend = wrapperspb.UInt64(n) }
}

func negative(d *extpb.RateLimitDescriptor) { d.IsNegativeHits = true }

const basic = `
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 3}
  - key: tenant
    rate_limit: {unit: year, requests_per_unit: 5}
  - key: free
    rate_limit: {unlimited: true}
  - key: closed
    rate_limit: {unit: year, requests_per_unit: 0}
`

func TestServiceOverASocket(t *testing.T) {
	s, err := envoyrls.New(memory(t), envoyrls.Config{})
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := grpc.NewServer()
	s.Register(g)
	done := make(chan error)
	go func() { done <- g.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	client, health := rlspb.NewRateLimitServiceClient(conn), healthpb.NewHealthClient(conn)
	ctx := t.Context()
	serving := func(service string) string {
		res, err := health.Check(ctx, &healthpb.HealthCheckRequest{Service: service})
		require.NoError(t, err)
		return res.GetStatus().String()
	}

	_, err = client.ShouldRateLimit(ctx, request(of("user=7")))
	require.Equal(t, status.New(codes.Unknown, "no rate limit configuration loaded").String(), status.Convert(err).String())
	require.Equal(t, "NOT_SERVING", serving("ratelimit"))

	require.NoError(t, s.Load(filesOf(basic)...))
	require.Equal(t, "SERVING", serving("ratelimit"))
	require.Equal(t, "SERVING", serving(""))
	for i := range 4 {
		res, err := client.ShouldRateLimit(ctx, request(of("user=7")))
		require.NoError(t, err)
		want := rlspb.RateLimitResponse_OK
		if i == 3 {
			want = rlspb.RateLimitResponse_OVER_LIMIT
		}
		require.Equal(t, want, res.GetOverallCode(), "request %d", i+1)
		require.Len(t, res.GetStatuses(), 1)
		require.Equal(t, uint32(max(0, 2-i)), res.GetStatuses()[0].GetLimitRemaining())
	}

	s.Drain()
	require.Equal(t, "NOT_SERVING", serving("ratelimit"))
	_, err = client.ShouldRateLimit(ctx, request(of("user=8")))
	require.NoError(t, err)

	require.NoError(t, conn.Close())
	g.GracefulStop()
	require.NoError(t, <-done)
	require.NoError(t, s.Close())
}

func memory(t testing.TB) *core.Memory {
	t.Helper()
	m, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	return m
}

// ask returns the answer of s as a line, such as "OVER_LIMIT: OVER_LIMIT 0/3, OK 5/5". What has no limit is "OK 0".
func ask(t testing.TB, s *envoyrls.Server, r *rlspb.RateLimitRequest) string {
	t.Helper()
	res, err := s.ShouldRateLimit(context.Background(), r)
	require.NoError(t, err)
	return line(res)
}

func line(res *rlspb.RateLimitResponse) string {
	var b strings.Builder
	b.WriteString(res.GetOverallCode().String())
	b.WriteByte(':')
	for i, st := range res.GetStatuses() {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " %v %d", st.GetCode(), st.GetLimitRemaining())
		if l := st.GetCurrentLimit(); l != nil {
			fmt.Fprintf(&b, "/%d", l.GetRequestsPerUnit())
		}
	}
	return b.String()
}
