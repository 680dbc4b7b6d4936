package grpcmw_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
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

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/grpcmw"
	"github.com/weir-go/weir/keyfunc"
)

// obedient starts a server of a rule, and returns a client that obeys it.
func obedient(t *testing.T, r guard.Rule, o grpcmw.ObeyOptions) testpb.TestServiceClient {
	t.Helper()
	obeyer, err := grpcmw.Obey(o)
	require.NoError(t, err)
	s := &server{buffer: true, guards: []*guard.Guard{newGuard(t, guard.Config{Rule: r})}, dial: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(obeyer.Unary), grpc.WithChainStreamInterceptor(obeyer.Stream),
	}}
	return s.serve(t)
}

// Callers that obey get 10 calls a second through, and hardly any is refused: at most those that were under way before
// the first answer.
func TestObey(t *testing.T) {
	for name, call := range map[string]func(t *testing.T, client testpb.TestServiceClient) error{
		"unary": func(t *testing.T, client testpb.TestServiceClient) error {
			_, err := client.UnaryCall(t.Context(), new(testpb.SimpleRequest))
			return err
		},
		"streams": func(t *testing.T, client testpb.TestServiceClient) error {
			ss, err := client.FullDuplexCall(t.Context())
			if err != nil {
				return err
			}
			_, err = ss.Recv()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				client := obedient(t, all("10/1s"), grpcmw.ObeyOptions{})
				var admitted, refused atomic.Int64
				var callers sync.WaitGroup
				for range 5 {
					callers.Go(func() {
						for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
							if call(t, client) == nil {
								admitted.Add(1)
							} else {
								refused.Add(1)
							}
						}
					})
				}
				callers.Wait()
				t.Logf("%d admitted, %d refused", admitted.Load(), refused.Load())
				assert.GreaterOrEqual(t, admitted.Load(), int64(150))
				assert.LessOrEqual(t, refused.Load(), int64(5))
			})
		})
	}
}

// A call whose turn would come too late is not sent, and another credential does not wait for it.
func TestObeyWaitsNoLonger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		client := obedient(t, guard.Rule{Policy: "1/1h", Key: keyfunc.Header("Authorization")}, grpcmw.ObeyOptions{MaxWait: time.Second})
		as := func(name string) error {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", name)
			_, err := client.UnaryCall(ctx, new(testpb.SimpleRequest))
			return err
		}
		require.NoError(t, as("ann"))
		require.Error(t, as("ann"))
		var late *grpcmw.WaitError
		require.ErrorAs(t, as("ann"), &late)
		assert.Greater(t, late.Wait, 50*time.Minute)
		require.NoError(t, as("bob"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := client.UnaryCall(ctx, new(testpb.SimpleRequest))
		require.Error(t, err)
		assert.False(t, errors.As(err, &late))
	})
	_, err := grpcmw.Obey(grpcmw.ObeyOptions{Waiting: -1})
	assert.ErrorContains(t, err, "Waiting is -1")
}

// What is not sent has a code, as all errors of calls have.
func TestObeyCodes(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, client testpb.TestServiceClient) error{
		"unary": func(ctx context.Context, client testpb.TestServiceClient) error {
			_, err := client.UnaryCall(ctx, new(testpb.SimpleRequest))
			return err
		},
		"streams": func(ctx context.Context, client testpb.TestServiceClient) error {
			_, err := client.FullDuplexCall(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				client := obedient(t, all("1/1h"), grpcmw.ObeyOptions{MaxWait: 2 * time.Hour, Waiting: 1})
				// Of two that are under way at a time, one is refused, and says for how long.
				first, end := context.WithCancel(t.Context())
				defer end()
				ss, err := client.FullDuplexCall(first)
				require.NoError(t, err)
				_, refused := client.UnaryCall(first, new(testpb.SimpleRequest))
				_, err = ss.Recv()
				require.NotEqual(t, err == nil, refused == nil, "%v, %v", err, refused)
				var late *grpcmw.WaitError
				short, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err = call(short, client)
				assert.Equal(t, codes.DeadlineExceeded, status.Code(err), "the turn comes after the deadline: %v", err)
				require.ErrorAs(t, err, &late)
				require.ErrorIs(t, err, context.DeadlineExceeded)

				waits, leave := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- call(waits, client) }()
				synctest.Wait()
				err = call(t.Context(), client)
				assert.Equal(t, codes.ResourceExhausted, status.Code(err), "another one waits: %v", err)
				require.ErrorAs(t, err, &late)
				st, ok := status.FromError(err)
				require.True(t, ok)
				assert.Equal(t, late.Error(), st.Message())
				require.Len(t, st.Details(), 1)
				assert.Equal(t, late.Wait, st.Details()[0].(*errdetails.RetryInfo).GetRetryDelay().AsDuration())
				leave()
				err = <-ended
				assert.Equal(t, codes.Canceled, status.Code(err), "%v", err)
				require.ErrorIs(t, err, context.Canceled)
				err = call(waits, client)
				assert.Equal(t, codes.Canceled, status.Code(err), "%v", err)
			})
		})
	}
}
