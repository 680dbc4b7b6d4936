package grpcmw_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/grpcmw"
	"github.com/weir-go/weir/internal/logtest"
	"github.com/weir-go/weir/keyfunc"
)

// patience is the time for which a test waits for something that must come.
const patience = 20 * time.Second

// all is a rule of one key, with that policy.
func all(policy string) guard.Rule { return guard.Rule{Policy: policy, Key: keyfunc.Const("all")} }

// unaryOf serves unary calls of a rule, by handlers that return the given error.
func (s *server) unaryOf(t *testing.T, r guard.Rule, answer error) testpb.TestServiceClient {
	t.Helper()
	s.guards = append(s.guards, newGuard(t, guard.Config{Rule: r}))
	s.service.unary = func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		return &testpb.SimpleResponse{Username: "ann"}, answer
	}
	return s.serve(t)
}

// recovering turns panics of what is within it into INTERNAL, and keeps the last of them.
func (s *server) recovering() (last func() any) {
	var value atomic.Value
	recovered := func(err *error) {
		if p := recover(); p != nil {
			value.Store(p)
			*err = status.Error(codes.Internal, "panic")
		}
	}
	s.outside = append(s.outside, func(ctx context.Context, m any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (_ any, err error) {
		defer recovered(&err)
		return h(ctx, m)
	})
	s.streams = append(s.streams, func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) (err error) {
		defer recovered(&err)
		return h(srv, ss)
	})
	return value.Load
}

// TestCases runs the cases that all adapters have in common, over sockets and in memory. Their names are those of
// internal/adaptertest where they mean the same.
func TestCases(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s *server)
	}{
		{"headers of an admission and a refusal", testHeaders},
		{"headers of a cost that never fits", testNeverFits},
		{"headers of an error", testHeadersOfError},
		{"headers that the handler sends itself", testOwnHeader},
		{"stacked guards show the tightest", testStacked},
		{"styles of headers", testStyles},
		{"one guard mounted twice", testTwice},
		{"strings outlive the request", testStrings},
		{"users in the store and in the context", testUser},
		{"all lines of a forwarded header", testForwarded},
		{"a native handler", testNative},
		{"a native handler that writes nothing", testNativeSilent},
		{"a native handler of another framework", testNativeMisplaced},
		{"a refusal with another status", testStatuses},
		{"a degraded answer", testDegrade},
		{"another handler that answers instead", testDegradeInstead},
		{"a circuit that breaks", testBreak},
		{"a zero Verdict", testZeroVerdict},
		{"a Verdict that passes", testPassingVerdict},
		{"requests without a key", testNoKey},
		{"skipped requests", testSkip},
		{"panics pass through", testPanic},
		{"the end of a request", testFinal},
		{"failures alone are counted", testFailuresCount},
		{"tokens that the handler reports", testTokens},
		{"costs from the message", testCosts},
		{"permits are held while the handler runs", testPermits},
		{"a permit that is lost ends the context", testPermitLost},
		{"a permit that is detached", testPermitDetached},
		{"a turn that is yet to come", testDelay},
		{"clients that leave a queue", testLeaveQueue},
		{"a hundred clients at once", testConcurrent},
		{"Close ends what a guard runs", testClose},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Run("socket", func(t *testing.T) { c.run(t, new(server)) })
			t.Run("memory", func(t *testing.T) { c.run(t, &server{buffer: true}) })
		})
	}
}

func testHeaders(t *testing.T, s *server) {
	client := s.unaryOf(t, all("2/1h"), nil)
	call(t, client).admitted(t, "2", "1")
	call(t, client).admitted(t, "2", "0")
	a := call(t, client)
	assert.Empty(t, a.header)
	assert.Nil(t, a.reply)
	assert.Equal(t, []string{"0"}, a.trailer.Get("x-ratelimit-remaining"))
	assert.Len(t, a.trailer.Get("x-ratelimit-reset"), 1)
	assert.Len(t, a.trailer.Get("retry-after"), 1)
}

func testNeverFits(t *testing.T, s *server) {
	r := all("3/1h")
	r.Cost = func(keyfunc.Request) int64 { return 4 }
	a := call(t, s.unaryOf(t, r, nil))
	a.refused(t, codes.ResourceExhausted, "-1")
	assert.Equal(t, "this request costs more than its rate limit ever admits at once", status.Convert(a.err).Message())
	assert.Equal(t, []string{"3"}, a.trailer.Get("x-ratelimit-remaining"))
}

// The metadata of a handler's error is in the trailer too, so that clients may repeat the call.
func testHeadersOfError(t *testing.T, s *server) {
	a := call(t, s.unaryOf(t, all("3/1h"), status.Error(codes.Unavailable, "busy")))
	a.refused(t, codes.Unavailable, "")
	assert.Equal(t, "busy", status.Convert(a.err).Message())
	assert.Equal(t, []string{"2"}, a.trailer.Get("x-ratelimit-remaining"))
}

// Where the handler has sent the header, the numbers are in the trailer.
func testOwnHeader(t *testing.T, s *server) {
	s.guards = []*guard.Guard{newGuard(t, guard.Config{Rule: all("3/1h")})}
	s.service.unary = func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		return new(testpb.SimpleResponse), grpc.SendHeader(ctx, metadata.Pairs("x-mine", "1"))
	}
	a := call(t, s.serve(t))
	require.NoError(t, a.err)
	assert.Equal(t, []string{"1"}, a.header.Get("x-mine"))
	assert.Equal(t, []string{"2"}, a.trailer.Get("x-ratelimit-remaining"))
}

func testStacked(t *testing.T, s *server) {
	s.guards = []*guard.Guard{newGuard(t, guard.Config{Rule: all("outer: 3/1h")})}
	client := s.unaryOf(t, all("inner: 2/1h"), nil)
	call(t, client).admitted(t, "2", "1")
	call(t, client).admitted(t, "2", "0")
	for _, limit := range []string{"2", "3"} { // the inner one refuses, then the outer one, which was charged
		a := call(t, client)
		require.Equal(t, codes.ResourceExhausted, status.Code(a.err))
		assert.Empty(t, a.header)
		for _, name := range []string{"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after", "grpc-retry-pushback-ms"} {
			assert.Len(t, a.trailer.Get(name), 1, name)
		}
		assert.Equal(t, []string{limit}, a.trailer.Get("x-ratelimit-limit"))
		assert.Positive(t, a.retryInfo())
	}
}

func testStyles(t *testing.T, s *server) {
	s.guards = []*guard.Guard{newGuard(t, guard.Config{
		Rule:    all("mine: 2/1h"),
		Headers: guard.Headers{XRateLimit: guard.NoXRateLimit, RateLimit: true, Expose: true},
	})}
	a := call(t, s.serve(t))
	require.NoError(t, a.err)
	assert.Equal(t, []string{`"mine";q=2;w=3600`}, a.header.Get("ratelimit-policy"))
	require.Len(t, a.header.Get("ratelimit"), 1)
	assert.Contains(t, a.header.Get("ratelimit")[0], `"mine";r=1`)
	for _, name := range []string{"x-ratelimit-limit", "access-control-expose-headers"} {
		assert.NotContains(t, a.header, name)
	}
}

func testTwice(t *testing.T, s *server) {
	said := new(logtest.Log)
	g := newGuard(t, guard.Config{Rule: all("4/1h"), Log: said.Logger()})
	s.guards = []*guard.Guard{g, g}
	client := s.serve(t)
	call(t, client).admitted(t, "4", "2")
	call(t, client).admitted(t, "4", "0")
	assert.Len(t, said.With("twice"), 1)
}

// What a key function returns is read after the call, when gRPC has used its memory again.
func testStrings(t *testing.T, s *server) {
	var mu sync.Mutex
	var kept []string
	client := s.unaryOf(t, guard.Rule{Policy: "1000/1h", Key: keyfunc.Custom("kept", func(r keyfunc.Request) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		kept = append(kept, r.Header("X-Api-Key")[0]+r.Path())
		return "all", nil
	})}, nil)
	for i := range 100 {
		require.NoError(t, call(t, client, "x-api-key", fmt.Sprint("key ", i)).err)
	}
	for i, text := range kept {
		assert.Equal(t, fmt.Sprint("key ", i, unaryCall), text)
	}
}

type userKey struct{}

func testUser(t *testing.T, s *server) {
	s.outside = append(s.outside, func(ctx context.Context, m any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		return h(context.WithValue(ctx, userKey{}, metadata.ValueFromIncomingContext(ctx, "x-user")[0]), m)
	})
	client := s.unaryOf(t, guard.Rule{Policy: "1/1h", Key: keyfunc.User(userKey{})}, nil)
	for _, user := range []string{"ann", "bob"} {
		call(t, client, "x-user", user).admitted(t, "1", "0")
		assert.Equal(t, codes.ResourceExhausted, status.Code(call(t, client, "x-user", user).err))
	}
}

// Behind a trusted proxy the client's address is in the metadata; in memory there is no proxy to trust.
func testForwarded(t *testing.T, s *server) {
	if s.buffer {
		client := s.unaryOf(t, guard.Rule{Policy: "1/1h", Key: keyfunc.IP()}, nil)
		call(t, client).refused(t, codes.PermissionDenied, "-1") // no socket, no address, no key
		return
	}
	client := s.unaryOf(t, guard.Rule{Policy: "1/1h", Key: keyfunc.ForwardedIP(netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8"))}, nil)
	const name = "x-forwarded-for"
	call(t, client, name, "203.0.113.7", name, "10.1.1.1").admitted(t, "1", "0")
	assert.Equal(t, codes.ResourceExhausted, status.Code(call(t, client, name, "198.51.100.1, 203.0.113.7", name, "10.2.2.2").err))
	call(t, client, name, "203.0.113.8").admitted(t, "1", "0")
}

// native makes an over-limit handler, and serves unary calls beyond their limit.
func (s *server) native(t *testing.T, f func(context.Context, *grpcmw.Call, *guard.Verdict) (any, error)) testpb.TestServiceClient {
	t.Helper()
	r := all("1/1h")
	r.OverLimit = grpcmw.Handle(f)
	client := s.unaryOf(t, r, nil)
	call(t, client).admitted(t, "1", "0")
	return client
}

func testNative(t *testing.T, s *server) {
	client := s.native(t, func(ctx context.Context, c *grpcmw.Call, v *guard.Verdict) (any, error) {
		if metadata.ValueFromIncomingContext(ctx, "x-fail") != nil {
			return nil, status.Errorf(codes.OutOfRange, "%s in %v", c.Method, v.RetryAfter().Round(time.Hour))
		}
		return &testpb.SimpleResponse{Username: "nobody"}, nil
	})
	a := call(t, client)
	require.NoError(t, a.err)
	assert.Equal(t, "nobody", a.reply.GetUsername())
	assert.Equal(t, []string{"0"}, a.header.Get("x-ratelimit-remaining"))
	a = call(t, client, "x-fail", "1")
	assert.Equal(t, codes.OutOfRange, status.Code(a.err))
	assert.Equal(t, unaryCall+" in 1h0m0s", status.Convert(a.err).Message())
	assert.Empty(t, a.header)
	assert.Equal(t, []string{"0"}, a.trailer.Get("x-ratelimit-remaining"))
}

func testNativeSilent(t *testing.T, s *server) {
	client := s.native(t, func(_ context.Context, _ *grpcmw.Call, v *guard.Verdict) (any, error) {
		v.Body = []byte("calm")
		return nil, nil //nolint:nilnil // neither, so that the plain refusal is sent
	})
	a := call(t, client)
	require.Equal(t, codes.ResourceExhausted, status.Code(a.err))
	assert.Equal(t, "calm", status.Convert(a.err).Message())
	assert.Positive(t, a.retryInfo())
	_, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.IP(), OverLimit: grpcmw.Handle(nil)}})
	assert.ErrorContains(t, err, "grpcmw.Handle")
}

func testNativeMisplaced(t *testing.T, s *server) {
	said := new(logtest.Log)
	r := all("1/1h")
	r.OverLimit = guard.HandleNative("elsewhere.Handle", func() { t.Error("it was called") })
	s.guards = []*guard.Guard{newGuard(t, guard.Config{Rule: r, Log: said.Logger()})}
	client := s.serve(t)
	require.NoError(t, call(t, client).err)
	a := call(t, client)
	assert.Equal(t, codes.ResourceExhausted, status.Code(a.err))
	assert.Equal(t, "too many requests", status.Convert(a.err).Message())
	if lines := said.With("another framework"); assert.Len(t, lines, 1) {
		assert.Contains(t, lines[0], "framework=grpcmw")
	}
}

func testStatuses(t *testing.T, s *server) {
	for httpStatus, code := range map[int]codes.Code{
		400: codes.InvalidArgument, 401: codes.Unauthenticated, 403: codes.PermissionDenied, 404: codes.NotFound,
		420: codes.ResourceExhausted, 429: codes.ResourceExhausted, 500: codes.Internal, 503: codes.Unavailable,
	} {
		own := *s
		r := all("1/1h")
		r.OverLimit = guard.Reject(guard.RejectOptions{Status: httpStatus, Body: "na\xffy\n", Header: map[string]string{"X-Reason": "é"}})
		client := own.unaryOf(t, r, nil)
		call(t, client).admitted(t, "1", "0")
		a := call(t, client)
		assert.Equal(t, code, status.Code(a.err), httpStatus)
		assert.Equal(t, "na?y", status.Convert(a.err).Message())
		assert.Equal(t, []string{"??"}, a.trailer.Get("x-reason"))
	}
}

func testDegrade(t *testing.T, s *server) {
	r := all("1/1h")
	r.OverLimit = guard.Degrade()
	s.guards = []*guard.Guard{newGuard(t, guard.Config{Rule: r})}
	s.service.unary = func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		return &testpb.SimpleResponse{Username: fmt.Sprint(guard.Degraded(ctx))}, nil
	}
	client := s.serve(t)
	for _, degraded := range []string{"false", "true", "true"} {
		a := call(t, client)
		require.NoError(t, a.err)
		assert.Equal(t, degraded, a.reply.GetUsername())
		assert.Equal(t, []string{"0"}, a.header.Get("x-ratelimit-remaining"))
		assert.NotContains(t, a.header, "cache-control")
	}
}

func testDegradeInstead(t *testing.T, s *server) {
	r := all("1/1h")
	r.OverLimit = guard.Degrade(grpcmw.Handle(func(context.Context, *grpcmw.Call, *guard.Verdict) (any, error) {
		return &testpb.SimpleResponse{Username: "less"}, nil
	}))
	client := s.unaryOf(t, r, nil)
	call(t, client).admitted(t, "1", "0")
	a := call(t, client)
	require.NoError(t, a.err)
	assert.Equal(t, "less", a.reply.GetUsername())
	assert.NotContains(t, a.header, "retry-after")
}

func testBreak(t *testing.T, s *server) {
	r := all("1/1s")
	r.OverLimit = guard.Break(guard.BreakOptions{Refusals: 2, Open: time.Hour})
	client := s.unaryOf(t, r, nil)
	require.NoError(t, call(t, client).err)
	for {
		a := call(t, client)
		if a.err == nil { // a slow machine: a second has passed
			continue
		}
		assert.Equal(t, codes.ResourceExhausted, status.Code(a.err))
		if a.retryInfo() > time.Minute {
			assert.InDelta(t, time.Hour, a.retryInfo(), float64(5*time.Minute))
			break
		}
	}
}

func testZeroVerdict(t *testing.T, s *server) {
	for _, verdict := range []guard.Verdict{{}, {Action: guard.Native}, {Status: 42}, {Action: 42}, {Status: 303, Body: []byte("see")}} {
		own := *s
		r := all("1/1h")
		r.OverLimit = guard.HandlerFunc("zero", func(*guard.Refusal) guard.Verdict { return verdict })
		client := own.unaryOf(t, r, nil)
		call(t, client).admitted(t, "1", "0")
		a := call(t, client)
		assert.Equal(t, codes.ResourceExhausted, status.Code(a.err))
		assert.Equal(t, string(verdict.Body), status.Convert(a.err).Message())
	}
}

func testPassingVerdict(t *testing.T, s *server) {
	r := all("1/1h")
	r.OverLimit = guard.HandlerFunc("pass", func(*guard.Refusal) guard.Verdict { return guard.Verdict{Action: guard.Pass} })
	client := s.unaryOf(t, r, nil)
	for range 3 {
		call(t, client).admitted(t, "1", "0")
	}
}

func testNoKey(t *testing.T, s *server) {
	for noKey, check := range map[guard.NoKey]func(testpb.TestServiceClient){
		guard.NoKeyRefuse: func(client testpb.TestServiceClient) { call(t, client).refused(t, codes.PermissionDenied, "-1") },
		guard.NoKeyShared: func(client testpb.TestServiceClient) {
			call(t, client).admitted(t, "1", "0")
			assert.Equal(t, codes.ResourceExhausted, status.Code(call(t, client).err))
		},
		guard.NoKeyPass: func(client testpb.TestServiceClient) {
			for range 3 {
				require.NoError(t, call(t, client).err)
			}
		},
	} {
		own := *s
		client := own.unaryOf(t, guard.Rule{Policy: "1/1h", Key: keyfunc.Header("X-Api-Key"), NoKey: noKey}, nil)
		check(client)
		call(t, client, "x-api-key", "k").admitted(t, "1", "0")
		check2 := call(t, client, "x-api-key", "two", "x-api-key", "lines")
		assert.Equal(t, noKey == guard.NoKeyPass, check2.err == nil, "a header that stands twice makes no key")
	}
}

func testSkip(t *testing.T, s *server) {
	r := all("1/1h")
	r.Skip = func(q keyfunc.Request) bool { return q.Path() == "/grpc.testing.TestService/EmptyCall" }
	client := s.unaryOf(t, r, nil)
	for range 3 {
		var header metadata.MD
		_, err := client.EmptyCall(t.Context(), new(testpb.Empty), grpc.Header(&header))
		require.NoError(t, err)
		assert.NotContains(t, header, "x-ratelimit-limit")
	}
	call(t, client).admitted(t, "1", "0")
}

func testPanic(t *testing.T, s *server) {
	recovered, value := s.recovering(), errors.New("a panic")
	g := newGuard(t, guard.Config{Rule: all("10/1h, 1 concurrent")})
	s.guards = []*guard.Guard{g}
	s.service.unary = func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) { panic(value) }
	client := s.serve(t)
	for range 5 {
		a := call(t, client)
		assert.Equal(t, codes.Internal, status.Code(a.err))
		assert.Same(t, value, recovered())
		assert.Empty(t, a.header)
		assert.Len(t, a.trailer.Get("x-ratelimit-remaining"), 1)
		assert.Zero(t, g.Stats().Limiter.Permits)
	}
}

// Settle and After get the status that stands for the code, and the error itself.
func testFinal(t *testing.T, s *server) {
	recovered := s.recovering()
	finals := make(chan guard.Final, 1)
	r := all("1000/1h")
	r.Settle = func(f guard.Final, taken int64) int64 {
		finals <- f
		return taken
	}
	var answer atomic.Value
	s.guards = []*guard.Guard{newGuard(t, guard.Config{Rule: r})}
	s.service.unary = func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		if err, _ := answer.Load().(error); err != nil {
			return nil, err
		}
		return new(testpb.SimpleResponse), nil
	}
	client := s.serve(t)
	require.NoError(t, call(t, client).err)
	assert.Equal(t, guard.Final{Status: 200, Bytes: -1, Reported: -1}, settled(<-finals))
	for _, c := range []struct {
		err  error
		want int
	}{
		{status.Error(codes.NotFound, "none"), 404},
		{fmt.Errorf("wrapped: %w", status.Error(codes.InvalidArgument, "bad")), 400},
		{status.Error(codes.Unauthenticated, "who?"), 401},
		{status.Error(codes.ResourceExhausted, "its own limit"), 429},
		{status.Error(99, "no code"), 500},
		{errors.New("broken"), 500},
		{context.DeadlineExceeded, 504},
	} {
		answer.Store(fmt.Errorf("%w", c.err))
		require.Error(t, call(t, client).err)
		f := <-finals
		assert.Equal(t, c.want, f.Status, "%v", c.err)
		assert.ErrorIs(t, f.Err, c.err)
		assert.False(t, f.Panicked)
	}
	assert.Nil(t, recovered())
}

// settled returns what tests compare of a Final.
func settled(f guard.Final) guard.Final {
	return guard.Final{Status: f.Status, Err: f.Err, Bytes: f.Bytes, Panicked: f.Panicked, Reported: f.Reported}
}

// Failed logins are counted when they have failed.
func testFailuresCount(t *testing.T, s *server) {
	r := all("3/1h")
	r.After = func(f guard.Final) int64 {
		if status.Code(f.Err) == codes.Unauthenticated {
			return 1
		}
		return 0
	}
	s.guards = []*guard.Guard{newGuard(t, guard.Config{Rule: r})}
	s.service.unary = func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		if metadata.ValueFromIncomingContext(ctx, "x-wrong") != nil {
			return nil, status.Error(codes.Unauthenticated, "wrong password")
		}
		return &testpb.SimpleResponse{Username: "ann"}, nil
	}
	client := s.serve(t)
	for range 3 {
		require.NoError(t, call(t, client).err)
		assert.Equal(t, codes.Unauthenticated, status.Code(call(t, client, "x-wrong", "1").err))
	}
	assert.Equal(t, codes.ResourceExhausted, status.Code(call(t, client).err))
}

func testTokens(t *testing.T, s *server) {
	r := all("100/1000h")
	r.Cost, r.Settle = func(keyfunc.Request) int64 { return 20 }, guard.Reported
	s.guards = []*guard.Guard{newGuard(t, guard.Config{Rule: r})}
	s.service.unary = func(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		guard.Report(ctx, int64(in.GetResponseSize()))
		return &testpb.SimpleResponse{Username: "ann"}, nil
	}
	client := s.serve(t)
	for _, remaining := range []string{"80", "75", "70"} {
		var header metadata.MD
		_, err := client.UnaryCall(t.Context(), &testpb.SimpleRequest{ResponseSize: 5}, grpc.Header(&header))
		require.NoError(t, err)
		assert.Equal(t, []string{remaining}, header.Get("x-ratelimit-remaining"))
	}
}

func testCosts(t *testing.T, s *server) {
	r := all("10/1h")
	r.Cost = func(q keyfunc.Request) int64 {
		message, _ := q.Native().(*grpcmw.Call).Message.(*testpb.SimpleRequest)
		return int64(message.GetResponseSize())
	}
	client := s.unaryOf(t, r, nil)
	for size, code := range map[int32]codes.Code{6: codes.OK} {
		_, err := client.UnaryCall(t.Context(), &testpb.SimpleRequest{ResponseSize: size})
		assert.Equal(t, code, status.Code(err))
	}
	_, err := client.UnaryCall(t.Context(), &testpb.SimpleRequest{ResponseSize: 5})
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	var header metadata.MD
	_, err = client.UnaryCall(t.Context(), &testpb.SimpleRequest{ResponseSize: 4}, grpc.Header(&header))
	require.NoError(t, err)
	assert.Equal(t, []string{"0"}, header.Get("x-ratelimit-remaining"))
}

func testPermits(t *testing.T, s *server) {
	g := newGuard(t, guard.Config{Rule: all("2 concurrent lease 1h")})
	s.guards = []*guard.Guard{g}
	in, out := make(chan struct{}), make(chan struct{})
	s.service.unary = func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		in <- struct{}{}
		<-out
		return &testpb.SimpleResponse{Username: "ann"}, nil
	}
	client := s.serve(t)
	var under sync.WaitGroup
	for range 2 {
		under.Go(func() { assert.NoError(t, call(t, client).err) })
		<-in
	}
	assert.Equal(t, codes.ResourceExhausted, status.Code(call(t, client).err))
	assert.Equal(t, 2, g.Stats().Limiter.Permits)
	close(out)
	under.Wait()
	assert.Eventually(t, func() bool { return g.Stats().Limiter.Permits == 0 }, patience, time.Millisecond)
}

// forgetful is a store that loses permits.
type forgetful struct{ *core.Memory }

func (forgetful) Renew(_ context.Context, permits []core.Permit) ([]core.Permit, error) {
	return permits, nil
}

func newForgetful(t *testing.T) core.Store {
	t.Helper()
	memory, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	return forgetful{memory}
}

func testPermitLost(t *testing.T, s *server) {
	s.guards = []*guard.Guard{newGuard(t, guard.Config{Rule: all("streams: 1 concurrent lease 100ms"), Store: newForgetful(t)})}
	s.service.unary = func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		<-ctx.Done()
		assert.ErrorIs(t, context.Cause(ctx), enforce.ErrPermitLost)
		return nil, ctx.Err()
	}
	assert.Equal(t, codes.Canceled, status.Code(call(t, s.serve(t)).err))
}

func testPermitDetached(t *testing.T, s *server) {
	s.guards = []*guard.Guard{newGuard(t, guard.Config{Rule: all("1 concurrent lease 1h")})}
	detached := make(chan *guard.Detached, 1)
	s.service.unary = func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		detached <- guard.Detach(ctx)
		return &testpb.SimpleResponse{Username: "ann"}, nil
	}
	client := s.serve(t)
	require.NoError(t, call(t, client).err)
	_, release := (<-detached).Claim(t.Context())
	assert.Equal(t, codes.ResourceExhausted, status.Code(call(t, client).err))
	release()
	assert.Eventually(t, func() bool { return call(t, client).err == nil }, patience, time.Millisecond)
	(<-detached).Claim(t.Context())
}

func testDelay(t *testing.T, s *server) {
	client := s.unaryOf(t, all("1/20ms; wait 1m"), nil)
	began := time.Now()
	for range 4 {
		require.NoError(t, call(t, client).err)
	}
	assert.GreaterOrEqual(t, time.Since(began), 59*time.Millisecond)
}

// A call that is cancelled, or has a deadline, leaves its place to others, and is not counted.
func testLeaveQueue(t *testing.T, s *server) {
	g := newGuard(t, guard.Config{Rule: all("1/1h; wait 2h")})
	s.guards = []*guard.Guard{g}
	client := s.serve(t)
	require.NoError(t, call(t, client).err)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := client.UnaryCall(ctx, new(testpb.SimpleRequest))
		left <- err
	}()
	waiting := func(n int) func() bool { return func() bool { return g.Stats().Limiter.Waiting == n } }
	require.Eventually(t, waiting(1), patience, time.Millisecond)
	leave()
	assert.Equal(t, codes.Canceled, status.Code(<-left))
	assert.Eventually(t, waiting(0), patience, time.Millisecond)

	short, cancel := context.WithTimeout(t.Context(), patience) // which is before its turn
	defer cancel()
	_, err := client.UnaryCall(short, new(testpb.SimpleRequest))
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
}

func testConcurrent(t *testing.T, s *server) {
	client := s.unaryOf(t, all("150/1h"), nil)
	var admitted, refused atomic.Int64
	var clients sync.WaitGroup
	for range 100 {
		clients.Go(func() {
			for range 3 {
				if a := call(t, client); a.err == nil {
					admitted.Add(1)
					assert.Equal(t, []string{"150"}, a.header.Get("x-ratelimit-limit"))
				} else {
					refused.Add(1)
					assert.Equal(t, codes.ResourceExhausted, status.Code(a.err))
				}
			}
		})
	}
	clients.Wait()
	assert.EqualValues(t, 150, admitted.Load())
	assert.EqualValues(t, 150, refused.Load())
}

func testClose(t *testing.T, s *server) {
	g, err := guard.New(guard.Config{Rule: all("1/1h; wait 2h")})
	require.NoError(t, err)
	s.guards = []*guard.Guard{g}
	client := s.serve(t)
	require.NoError(t, call(t, client).err)
	done := make(chan answer, 1)
	go func() { done <- call(t, client) }()
	require.Eventually(t, func() bool { return g.Stats().Limiter.Waiting == 1 }, patience, time.Millisecond)
	require.NoError(t, g.Close())
	a := <-done
	assert.Equal(t, codes.Unavailable, status.Code(a.err))
}
