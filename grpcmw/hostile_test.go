package grpcmw_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/grpcmw"
	"github.com/weir-go/weir/keyfunc"
)

// Fields that HTTP/2 forbids, which clients take for a broken answer, stay out of the metadata.
func TestFieldsOfHTTP1(t *testing.T) {
	r := all("1/1h")
	r.OverLimit = guard.Reject(guard.RejectOptions{Header: map[string]string{
		"Connection": "close", "Keep-Alive": "timeout=5", "Proxy-Connection": "close", "Transfer-Encoding": "chunked", "Upgrade": "h2c", "content-length": "7",
		"X-Reason": "limit",
	}})
	client := new(server).unaryOf(t, r, nil)
	call(t, client).admitted(t, "1", "0")
	for range 2 { // the connection goes on
		a := call(t, client)
		require.Equal(t, codes.ResourceExhausted, status.Code(a.err), "%v", a.err)
		assert.Equal(t, []string{"limit"}, a.trailer.Get("x-reason"))
		for _, name := range []string{"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "content-length"} {
			assert.Empty(t, a.trailer.Get(name), name)
		}
	}
}

// Metadata of any kind makes keys, and what it says of limits has no effect.
func TestHostileMetadata(t *testing.T) {
	counted := make(map[string]int)
	g := newGuard(t, guard.Config{
		Rule:    guard.Rule{Policy: "1/1h", Key: keyfunc.Header("X-Tenant-Bin")},
		Observe: func(e guard.Event) { counted[string(e.AppendKey(nil))]++ },
	})
	client := (&server{guards: []*guard.Guard{g}}).serve(t)
	many := make([]string, 0, 20_000)
	for i := range 10_000 {
		many = append(many, fmt.Sprint("x-", i), "")
	}
	for name, pairs := range map[string][]string{
		"binary":      {"x-tenant-bin", "\x00\xff\r\n:"},
		"other bytes": {"x-tenant-bin", "\x00\xff\r\n;"},
		"large":       {"x-tenant-bin", strings.Repeat("\xff", 4000)},
		"many":        append([]string{"x-tenant-bin", "many"}, many...),
		"of limits": {
			"x-tenant-bin", "forger", "x-ratelimit-remaining", "99", "x-ratelimit-limit", "99", "grpc-retry-pushback-ms", "0",
			"retry-after", "0", "x-forwarded-for", "192.0.2.9", "grpc-status", "0", "grpc-message", "fine", "content-type", "text/html", "accept", "application/json",
		},
	} {
		t.Run(name, func(t *testing.T) {
			call(t, client, pairs...).admitted(t, "1", "0")
			a := call(t, client, pairs...)
			require.Equal(t, codes.ResourceExhausted, status.Code(a.err), "%v", a.err)
			assert.Empty(t, a.header)
			assert.Equal(t, []string{"0"}, a.trailer.Get("x-ratelimit-remaining"))
			assert.Equal(t, "too many requests", status.Convert(a.err).Message())
		})
	}
	assert.Len(t, counted, 5)
	for key, times := range counted {
		assert.Equal(t, 2, times, "%q", key)
	}
	call(t, client, "x-tenant-bin", "one", "x-tenant-bin", "two").refused(t, codes.PermissionDenied, "-1")
	call(t, client, "x-tenant-bin", strings.Repeat("x", 20_000)).refused(t, codes.PermissionDenied, "-1")
}

// Whatever a server says of limits, a client that obeys waits no longer than its MaxWait, and goes on.
func TestObeyHostileServers(t *testing.T) {
	delay := func(d *durationpb.Duration) error {
		st, err := status.New(codes.ResourceExhausted, "no").WithDetails(&errdetails.RetryInfo{RetryDelay: d})
		if err != nil {
			panic(err)
		}
		return st.Err()
	}
	many := metadata.MD{}
	for i := range 2000 {
		many.Append("x-ratelimit-remaining", fmt.Sprint(i))
		many.Append("ratelimit", fmt.Sprintf(`"p%d";r=0;t=%d`, i, i))
	}
	for name, c := range map[string]struct {
		md  metadata.MD
		err error
	}{
		"for ever":        {metadata.Pairs("retry-after", "99999999999999999999"), status.Error(codes.ResourceExhausted, "no")},
		"for years":       {nil, delay(durationpb.New(1 << 62))},
		"beyond seconds":  {nil, delay(&durationpb.Duration{Seconds: 1 << 62, Nanos: -5})},
		"before":          {metadata.Pairs("retry-after", "-5"), delay(durationpb.New(-time.Hour))},
		"no wait":         {metadata.Pairs("grpc-retry-pushback-ms", "x"), delay(nil)},
		"no numbers":      {metadata.Pairs("x-ratelimit-limit", "NaN", "x-ratelimit-remaining", "-1", "x-ratelimit-reset", "1e9"), nil},
		"never more":      {metadata.Pairs("x-ratelimit-limit", "0", "x-ratelimit-remaining", "0", "x-ratelimit-reset", "18446744073709551615"), nil},
		"fields":          {metadata.Pairs("ratelimit", `"a";r=0;t=999999999999999, "a";r=1`, "ratelimit-policy", `"a";q=0;w=0`), nil},
		"broken fields":   {metadata.Pairs("ratelimit", strings.Repeat(`"`, 4000), "ratelimit-policy", `"a";q=;w=`), nil},
		"many of them":    {many, nil},
		"many of refused": {many, status.Error(codes.ResourceExhausted, "no")},
		"draining":        {nil, status.Error(codes.Unavailable, "draining")},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				obeyer, err := grpcmw.Obey(grpcmw.ObeyOptions{MaxWait: 10 * time.Second})
				require.NoError(t, err)
				s := &server{buffer: true, dial: []grpc.DialOption{grpc.WithChainUnaryInterceptor(obeyer.Unary), grpc.WithChainStreamInterceptor(obeyer.Stream)}}
				s.service.unary = func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
					assert.NoError(t, grpc.SetTrailer(ctx, c.md))
					return new(testpb.SimpleResponse), c.err
				}
				s.service.duplex = func(ss serverStream) error {
					ss.SetTrailer(c.md)
					return c.err
				}
				client := s.serve(t)
				began := time.Now()
				const calls = 20
				for range calls / 2 {
					_, err := client.UnaryCall(t.Context(), new(testpb.SimpleRequest))
					checkObeyed(t, c.err, err)
					ss, err := client.FullDuplexCall(t.Context())
					if err == nil {
						_, err = ss.Recv()
					}
					if !errors.Is(err, io.EOF) {
						checkObeyed(t, c.err, err)
					}
				}
				assert.LessOrEqual(t, time.Since(began), calls*10*time.Second)
			})
		})
	}
}

// checkObeyed checks that a call has the server's answer, or was not sent.
func checkObeyed(t *testing.T, want, got error) {
	t.Helper()
	var late *grpcmw.WaitError
	if errors.As(got, &late) {
		assert.Greater(t, late.Wait, time.Duration(0))
		return
	}
	assert.Equal(t, status.Code(want), status.Code(got), "%v", got)
}
