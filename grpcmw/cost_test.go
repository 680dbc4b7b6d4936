package grpcmw_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/keyfunc"
)

// A limit adds at most 16 allocations to a call over a socket, of the client and the server together.
func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	least := func(guards ...*guard.Guard) float64 { // what others do at the same time is not counted
		n := allocations(t, guards...)
		for range 2 {
			n = min(n, allocations(t, guards...))
		}
		return n
	}
	bare := least()
	limited := least(newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1000000/1h", Key: keyfunc.IP()}}))
	t.Logf("a bare call makes %v allocations, a limited one %v", bare, limited)
	assert.LessOrEqual(t, limited, bare+16)
}

// allocations returns how many a call makes.
func allocations(t *testing.T, guards ...*guard.Guard) float64 {
	t.Helper()
	client, message := (&server{guards: guards}).serve(t), new(testpb.SimpleRequest)
	one := func() {
		_, err := client.UnaryCall(t.Context(), message)
		require.NoError(t, err)
	}
	for range 100 {
		one()
	}
	return testing.AllocsPerRun(1000, one)
}

// BenchmarkUnary measures the time of a call over a socket, without a limit and with one.
func BenchmarkUnary(b *testing.B) {
	run := func(b *testing.B, guards ...*guard.Guard) {
		b.Helper()
		client, message := (&server{guards: guards}).serve(b), new(testpb.SimpleRequest)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := client.UnaryCall(b.Context(), message); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("bare", func(b *testing.B) { run(b) })
	b.Run("limited", func(b *testing.B) {
		run(b, newGuard(b, guard.Config{Rule: guard.Rule{Policy: "1000000/1s", Key: keyfunc.IP()}}))
	})
}
