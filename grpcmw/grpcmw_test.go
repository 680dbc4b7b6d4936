package grpcmw_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/grpcmw"
	"github.com/weir-go/weir/keyfunc"
)

// answer is all that a client gets.
type answer struct {
	err             error
	reply           *testpb.SimpleResponse
	header, trailer metadata.MD
}

func call(t testing.TB, client testpb.TestServiceClient, pairs ...string) (a answer) {
	t.Helper()
	ctx := metadata.NewOutgoingContext(t.Context(), metadata.Pairs(pairs...))
	a.reply, a.err = client.UnaryCall(ctx, new(testpb.SimpleRequest), grpc.Header(&a.header), grpc.Trailer(&a.trailer))
	return a
}

// retryInfo returns the wait in the details of a status, or -1.
func (a answer) retryInfo() time.Duration {
	for _, d := range status.Convert(a.err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return -1
}

// admitted checks an answer that came, and where the client stands.
func (a answer) admitted(t testing.TB, limit, remaining string) {
	t.Helper()
	require.NoError(t, a.err)
	assert.Equal(t, "ann", a.reply.GetUsername())
	assert.Equal(t, []string{limit}, a.header.Get("x-ratelimit-limit"))
	assert.Equal(t, []string{remaining}, a.header.Get("x-ratelimit-remaining"))
	assert.Len(t, a.header.Get("x-ratelimit-reset"), 1)
	for _, name := range []string{"retry-after", "grpc-retry-pushback-ms", "cache-control", "vary"} {
		assert.Empty(t, a.header.Get(name), name)
	}
	assert.Empty(t, a.trailer)
}

// refused checks that a call was refused, with everything in the trailer.
func (a answer) refused(t testing.TB, code codes.Code, pushback string) {
	t.Helper()
	require.Equal(t, code, status.Code(a.err), "%v", a.err)
	assert.Empty(t, a.header, "a client takes a call with a header for one that has begun")
	if pushback == "" {
		assert.Empty(t, a.trailer.Get("grpc-retry-pushback-ms"))
	} else {
		assert.Equal(t, []string{pushback}, a.trailer.Get("grpc-retry-pushback-ms"))
	}
	assert.NotContains(t, a.trailer, "cache-control")
	assert.NotContains(t, a.trailer, "vary")
}

// A call over its limit is RESOURCE_EXHAUSTED, with the exact wait in RetryInfo and in what gRPC's own retries obey.
func TestUnary(t *testing.T) {
	for _, buffer := range []bool{false, true} {
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "2/1h", Key: keyfunc.Const("all")}})
		client := (&server{guards: []*guard.Guard{g}, buffer: buffer}).serve(t)
		call(t, client).admitted(t, "2", "1")
		call(t, client).admitted(t, "2", "0")
		for range 3 {
			a := call(t, client)
			require.Equal(t, codes.ResourceExhausted, status.Code(a.err))
			assert.Equal(t, "too many requests", status.Convert(a.err).Message())
			assert.Empty(t, a.header, "a client takes a call with a header for one that has begun")
			assert.Equal(t, []string{"0"}, a.trailer.Get("x-ratelimit-remaining"))
			assert.Equal(t, []string{"2"}, a.trailer.Get("x-ratelimit-limit"))
			assert.Len(t, a.trailer.Get("retry-after"), 1)
			assert.Len(t, a.trailer.Get("grpc-retry-pushback-ms"), 1)
			assert.InDelta(t, 30*time.Minute, a.retryInfo(), float64(5*time.Minute))
		}
	}
}

// bubble is a client and a server in a synctest bubble, where times are exact.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// The wait of a refusal is exact, not rounded to seconds, and in milliseconds it is rounded up.
func TestExactWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "3/10s", Key: keyfunc.Const("all")}})
		client := (&server{guards: []*guard.Guard{g}, buffer: true}).serve(t)
		for range 3 {
			require.NoError(t, call(t, client).err)
		}
		a := call(t, client)
		assert.InDelta(t, 3333333*time.Microsecond, a.retryInfo(), float64(2*time.Microsecond))
		a.refused(t, codes.ResourceExhausted, "3334")
		assert.Equal(t, []string{"4"}, a.trailer.Get("retry-after"))
	})
}

// retries is a configuration by which gRPC's own client repeats calls. Its back-off would be an hour, so that it
// waits for the server's pushback alone.
const retries = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "3600s",
	"maxBackoff": "3600s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE", "PERMISSION_DENIED"]}}]}`

// gRPC's own retries wait for as long as a refusal says: calls one after the other at 1/1s succeed a second apart. Only
// a refusal without a header is repeated, also by a guard within another one.
func TestRetries(t *testing.T) {
	for name, outer := range map[string]bool{"one guard": false, "within another": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				guards := []*guard.Guard{newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1s", Key: keyfunc.Const("all")}})}
				if outer {
					wide := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "wide: 1000/1h", Key: keyfunc.Const("all")}})
					guards = append([]*guard.Guard{wide}, guards...)
				}
				client := (&server{guards: guards, buffer: true, dial: []grpc.DialOption{grpc.WithDefaultServiceConfig(retries)}}).serve(t)
				began := time.Now()
				for i := range 4 {
					call(t, client).admitted(t, "1", "0")
					assert.Equal(t, time.Duration(i)*time.Second, time.Since(began))
				}
			})
		})
	}
}

// What can never pass is not repeated.
func TestNeverRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		rule guard.Rule
		code codes.Code
	}{
		"a cost that never fits": {guard.Rule{Policy: "1/1h", Key: keyfunc.Const("all"), Cost: func(keyfunc.Request) int64 { return 2 }}, codes.ResourceExhausted},
		"no key":                 {guard.Rule{Policy: "1/1h", Key: keyfunc.Header("X-Api-Key")}, codes.PermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			attempts := 0
			count := func(ctx context.Context, m any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
				attempts++
				return h(ctx, m)
			}
			s := &server{
				guards: []*guard.Guard{newGuard(t, guard.Config{Rule: c.rule})}, outside: []grpc.UnaryServerInterceptor{count},
				dial: []grpc.DialOption{grpc.WithDefaultServiceConfig(retries)},
			}
			a := call(t, s.serve(t))
			a.refused(t, c.code, "-1")
			assert.Equal(t, time.Duration(-1), a.retryInfo())
			assert.Equal(t, 1, attempts)
		})
	}
}

// down is a store that has failed.
type down struct{ *core.Memory }

func (down) Take(context.Context, core.Take) (core.Result, error) {
	return core.Result{}, &core.StoreError{Err: errors.New("down")}
}

// What a failed store leads to is the policy's own word.
func TestStoreFails(t *testing.T) {
	for policy, check := range map[string]func(*testing.T, answer){
		"2/1h; fail closed": func(t *testing.T, a answer) {
			a.refused(t, codes.Unavailable, "1000")
			assert.Equal(t, time.Second, a.retryInfo())
			assert.Equal(t, "the rate limiter cannot decide at the moment", status.Convert(a.err).Message())
		},
		"2/1h; fail open": func(t *testing.T, a answer) {
			require.NoError(t, a.err)
			assert.Empty(t, a.header.Get("x-ratelimit-limit"))
		},
		"2/1h; fail local": func(t *testing.T, a answer) { a.admitted(t, "2", "1") },
	} {
		t.Run(policy, func(t *testing.T) {
			g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: policy, Key: keyfunc.Const("all")}, Store: down{}})
			check(t, call(t, (&server{guards: []*guard.Guard{g}}).serve(t)))
		})
	}
}

// A stream over its limit is refused before its handler is called, and one that is admitted has the numbers in its
// header.
func TestStream(t *testing.T) {
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.IP()}})
	client := (&server{guards: []*guard.Guard{g}}).serve(t)
	stream, err := client.FullDuplexCall(t.Context())
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	header, err := stream.Header()
	require.NoError(t, err)
	assert.Equal(t, []string{"0"}, header.Get("x-ratelimit-remaining"))
	_, err = stream.Recv()
	require.ErrorIs(t, err, io.EOF)

	stream, err = client.FullDuplexCall(t.Context())
	require.NoError(t, err)
	_, err = stream.Recv()
	a := answer{err: err, trailer: stream.Trailer()}
	require.Equal(t, codes.ResourceExhausted, status.Code(a.err))
	assert.Len(t, a.trailer.Get("grpc-retry-pushback-ms"), 1)
	assert.InDelta(t, time.Hour, a.retryInfo(), float64(5*time.Minute))
}

// Key functions see the call: the names of its method, its metadata, and the socket's other end.
func TestRequest(t *testing.T) {
	var seen []string
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "10/1h", Key: keyfunc.Custom("all", func(r keyfunc.Request) (string, error) {
		assert.Equal(t, unaryCall, r.Path())
		assert.Equal(t, unaryCall, r.Route())
		assert.Equal(t, "POST", r.Method())
		assert.Equal(t, 2, r.ProtoMajor())
		assert.EqualValues(t, -1, r.ContentLength())
		assert.Contains(t, r.Host(), "127.0.0.1:")
		assert.Equal(t, "127.0.0.1", r.Peer().Addr().String())
		assert.NotZero(t, r.Peer().Port())
		assert.Nil(t, r.Value("nothing"))
		assert.Empty(t, r.Header("Content-Type"))
		assert.Empty(t, r.Header("X-Absent"))
		c, ok := r.Native().(*grpcmw.Call)
		require.True(t, ok)
		assert.Equal(t, unaryCall, c.Method)
		assert.IsType(t, new(testpb.SimpleRequest), c.Message)
		assert.Nil(t, c.Stream)
		seen = r.Header("X-Api-Key")
		return "key", nil
	})}})
	client := (&server{guards: []*guard.Guard{g}}).serve(t)
	call(t, client, "X-Api-Key", "a", "x-api-key", "b").admitted(t, "10", "9")
	assert.Equal(t, []string{"a", "b"}, seen)
}

// An entry of Config.Routes is for a method, or for all methods of a service.
func TestRoutes(t *testing.T) {
	for route, limited := range map[string]bool{
		unaryCall: true, "POST " + unaryCall: true, "/grpc.testing.TestService/*": true, "/*": true,
		"/grpc.testing.TestService/EmptyCall": false, "/grpc.testing.Other/*": false,
	} {
		t.Run(route, func(t *testing.T) {
			g := newGuard(t, guard.Config{
				Rule:   guard.Rule{Policy: "100/1h", Key: keyfunc.IP()},
				Routes: map[string]guard.Rule{route: {Policy: "few: 1/1h"}},
			})
			client := (&server{guards: []*guard.Guard{g}}).serve(t)
			require.NoError(t, call(t, client).err)
			if a := call(t, client); limited {
				assert.Equal(t, codes.ResourceExhausted, status.Code(a.err))
			} else {
				a.admitted(t, "100", "98")
			}
		})
	}
}

func TestNilGuard(t *testing.T) {
	assert.PanicsWithValue(t, "grpcmw: Unary(nil): give it the Guard that guard.New returned", func() { grpcmw.Unary(nil) })
	assert.PanicsWithValue(t, "grpcmw: Stream(nil): give it the Guard that guard.New returned", func() { grpcmw.Stream(nil) })
}
