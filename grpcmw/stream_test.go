package grpcmw_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/grpcmw"
)

type (
	serverStream = testpb.TestService_FullDuplexCallServer
	clientStream = testpb.TestService_FullDuplexCallClient
)

var (
	message = new(testpb.StreamingOutputCallRequest)
	reply   = new(testpb.StreamingOutputCallResponse)
)

// open begins a stream.
func open(t testing.TB, client testpb.TestServiceClient, ctx context.Context) clientStream { //nolint:revive // as in t.Run
	t.Helper()
	ss, err := client.FullDuplexCall(ctx)
	require.NoError(t, err)
	return ss
}

// end reads a stream to its end, and returns all that it said.
func end(t testing.TB, ss clientStream) (messages int, a answer) {
	t.Helper()
	for ; a.err == nil; messages++ {
		_, a.err = ss.Recv()
	}
	a.header, _ = ss.Header()
	a.trailer = ss.Trailer()
	return messages - 1, a
}

// A stream has the numbers in its header once it has sent a message, and otherwise in its trailer.
func TestStreamHeaders(t *testing.T) {
	for name, c := range map[string]struct {
		duplex   func(serverStream) error
		messages int
		code     codes.Code
		header   bool
	}{
		"a message":      {func(ss serverStream) error { return ss.Send(reply) }, 1, codes.OK, true},
		"three messages": {func(ss serverStream) error { return errors.Join(ss.Send(reply), ss.Send(reply), ss.Send(reply)) }, 3, codes.OK, true},
		"no message":     {func(serverStream) error { return nil }, 0, codes.OK, false},
		"a header":       {func(ss serverStream) error { return ss.SendHeader(metadata.Pairs("x-mine", "1")) }, 0, codes.OK, true},
		"an error":       {func(serverStream) error { return status.Error(codes.Unavailable, "busy") }, 0, codes.Unavailable, false},
		"an error after a message": {func(ss serverStream) error {
			return errors.Join(status.Error(codes.Unavailable, "busy"), ss.Send(reply))
		}, 1, codes.Unavailable, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{guards: []*guard.Guard{
				newGuard(t, guard.Config{Rule: all("outer: 10/1h")}), newGuard(t, guard.Config{Rule: all("2/1h")}),
			}}
			s.service.duplex = c.duplex
			messages, a := end(t, open(t, s.serve(t), t.Context()))
			assert.Equal(t, c.messages, messages)
			if c.code == codes.OK {
				require.ErrorIs(t, a.err, io.EOF)
			} else {
				assert.Equal(t, c.code, status.Code(a.err))
			}
			with, without := a.header, a.trailer
			if !c.header {
				with, without = without, with
			}
			assert.Equal(t, []string{"2"}, with.Get("x-ratelimit-limit"))
			assert.Equal(t, []string{"1"}, with.Get("x-ratelimit-remaining"))
			assert.NotContains(t, without, "x-ratelimit-limit")
		})
	}
}

// A guard within another one refuses a stream with everything in the trailer, so that gRPC repeats it.
func TestStreamRetries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{buffer: true, dial: []grpc.DialOption{grpc.WithDefaultServiceConfig(retries)}, guards: []*guard.Guard{
			newGuard(t, guard.Config{Rule: all("outer: 1000/1h")}), newGuard(t, guard.Config{Rule: all("1/1s")}),
		}}
		client, began := s.serve(t), time.Now()
		for i := range 4 {
			_, a := end(t, open(t, client, t.Context()))
			require.ErrorIs(t, a.err, io.EOF)
			assert.Equal(t, time.Duration(i)*time.Second, time.Since(began))
		}
	})
}

// A native handler answers a stream with one message, or with an error.
func TestStreamNative(t *testing.T) {
	r := all("1/1h")
	r.OverLimit = grpcmw.Handle(func(ctx context.Context, c *grpcmw.Call, _ *guard.Verdict) (any, error) {
		assert.Nil(t, c.Message)
		if metadata.ValueFromIncomingContext(c.Stream.Context(), "x-fail") != nil {
			return nil, status.Error(codes.Aborted, "no")
		}
		return reply, nil
	})
	client := (&server{guards: []*guard.Guard{newGuard(t, guard.Config{Rule: r})}}).serve(t)
	_, a := end(t, open(t, client, t.Context()))
	require.ErrorIs(t, a.err, io.EOF)
	messages, a := end(t, open(t, client, t.Context()))
	require.ErrorIs(t, a.err, io.EOF)
	assert.Equal(t, 1, messages)
	assert.Equal(t, []string{"0"}, a.header.Get("x-ratelimit-remaining"))
	_, a = end(t, open(t, client, metadata.AppendToOutgoingContext(t.Context(), "x-fail", "1")))
	assert.Equal(t, codes.Aborted, status.Code(a.err))
}

// A stream holds its permit while its handler runs, and is settled by its end.
func TestStreamHoldsItsPermit(t *testing.T) {
	r := all("1 concurrent lease 1h, 100/1h")
	finals := make(chan guard.Final, 10)
	r.Settle = func(f guard.Final, taken int64) int64 {
		finals <- settled(f)
		return taken
	}
	g := newGuard(t, guard.Config{Rule: r})
	s := &server{guards: []*guard.Guard{g}}
	contexts := make(chan context.Context, 1)
	s.service.duplex = func(ss serverStream) error {
		contexts <- ss.Context()
		for {
			if _, err := ss.Recv(); err != nil {
				return status.Error(codes.DataLoss, "done")
			}
			if err := ss.Send(reply); err != nil {
				return err
			}
		}
	}
	client := s.serve(t)
	first := open(t, client, t.Context())
	for range 3 {
		require.NoError(t, first.Send(message))
		_, err := first.Recv()
		require.NoError(t, err)
		_, a := end(t, open(t, client, t.Context()))
		assert.Equal(t, codes.ResourceExhausted, status.Code(a.err))
	}
	held := <-contexts
	require.NoError(t, held.Err())
	assert.Equal(t, 1, g.Stats().Limiter.Permits)
	require.NoError(t, first.CloseSend())
	_, a := end(t, first)
	assert.Equal(t, codes.DataLoss, status.Code(a.err))
	f := <-finals
	assert.Equal(t, 500, f.Status)
	assert.Equal(t, codes.DataLoss, status.Code(f.Err))
	<-held.Done()
	assert.Eventually(t, func() bool { return g.Stats().Limiter.Permits == 0 }, patience, time.Millisecond)
}

// A stream that has lost its permit neither sends nor receives, whether or not its handler looks at its context.
func TestStreamThatLosesItsPermit(t *testing.T) {
	g := newGuard(t, guard.Config{Rule: all("streams: 1 concurrent lease 100ms"), Store: newForgetful(t)})
	s := &server{guards: []*guard.Guard{g}}
	s.service.duplex = func(ss serverStream) error {
		<-ss.Context().Done()
		assert.ErrorIs(t, context.Cause(ss.Context()), enforce.ErrPermitLost)
		_, err := ss.Recv()
		assert.Equal(t, codes.Unavailable, status.Code(err))
		return ss.Send(reply)
	}
	messages, a := end(t, open(t, s.serve(t), t.Context()))
	assert.Zero(t, messages)
	assert.Equal(t, codes.Unavailable, status.Code(a.err))
	assert.Equal(t, "the stream has lost its permit", status.Convert(a.err).Message())
	assert.Len(t, a.trailer.Get("x-ratelimit-limit"), 1)
}

// Of a thousand streams of each kind nothing is left, whatever becomes of them: no permit, and no goroutine.
func TestNothingLeftOfStreams(t *testing.T) {
	before := runtime.NumGoroutine()
	for name, c := range map[string]struct {
		duplex func(ss serverStream) error
		client func(t *testing.T, client testpb.TestServiceClient)
		lease  string
		lost   bool
	}{
		"panics": {
			duplex: func(serverStream) error { panic("again") },
			client: func(t *testing.T, client testpb.TestServiceClient) {
				_, a := end(t, open(t, client, t.Context()))
				assert.Equal(t, codes.Internal, status.Code(a.err))
			},
		},
		"cancelled": {
			duplex: func(ss serverStream) error {
				if err := ss.Send(reply); err != nil {
					return err
				}
				_, err := ss.Recv()
				return err
			},
			client: func(t *testing.T, client testpb.TestServiceClient) {
				ctx, cancel := context.WithCancel(t.Context())
				ss := open(t, client, ctx)
				_, err := ss.Recv()
				assert.NoError(t, err)
				cancel()
				_, a := end(t, ss)
				assert.Equal(t, codes.Canceled, status.Code(a.err))
			},
		},
		"cancelled at once": {
			duplex: func(ss serverStream) error {
				<-ss.Context().Done()
				return ss.Context().Err()
			},
			client: func(t *testing.T, client testpb.TestServiceClient) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				open(t, client, ctx)
			},
		},
		"never read": {
			duplex: func(ss serverStream) error {
				for {
					if err := ss.Send(&testpb.StreamingOutputCallResponse{Payload: &testpb.Payload{Body: make([]byte, 1<<16)}}); err != nil {
						return err
					}
				}
			},
			client: func(t *testing.T, client testpb.TestServiceClient) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				_, err := open(t, client, ctx).Header() // the handler runs, until there is no more room
				assert.NoError(t, err)
			},
		},
		"lost": {
			duplex: func(ss serverStream) error {
				<-ss.Context().Done()
				return ss.Send(reply)
			},
			client: func(t *testing.T, client testpb.TestServiceClient) {
				_, a := end(t, open(t, client, t.Context()))
				assert.Equal(t, codes.Unavailable, status.Code(a.err))
			},
			lease: " lease 100ms", lost: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := guard.Config{Rule: all("streams: 1000 concurrent" + c.lease)}
			if c.lost {
				config.Store = newForgetful(t)
			}
			g := newGuard(t, config)
			s := &server{guards: []*guard.Guard{g}}
			s.recovering()
			s.service.duplex = c.duplex
			client := s.serve(t)
			var clients sync.WaitGroup
			for range 50 {
				clients.Go(func() {
					for range 20 {
						c.client(t, client)
					}
				})
			}
			clients.Wait()
			assert.Eventually(t, func() bool { return g.Stats().Limiter.Permits == 0 }, patience, time.Millisecond)
			if !c.lost { // the store forgets nothing of its own
				_, a := end(t, open(t, client, canceledSoon(t)))
				assert.NotEqual(t, codes.ResourceExhausted, status.Code(a.err))
			}
		})
	}
	// Eventually asks in a goroutine.
	if !assert.Eventually(t, func() bool { return runtime.NumGoroutine()-1 <= before }, patience, 10*time.Millisecond) {
		stacks := make([]byte, 1<<20)
		t.Logf("%d goroutines before:\n%s", before, stacks[:runtime.Stack(stacks, true)])
	}
}

// canceledSoon returns a context for a stream that may not end by itself.
func canceledSoon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}
