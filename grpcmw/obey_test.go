package grpcmw_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

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
