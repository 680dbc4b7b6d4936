package redisstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// The failure that has opened a breaker is reported, also if another flight, which was answered, is the first to see
// that it is open.
func TestTurnHasItsFailure(t *testing.T) {
	t.Parallel()
	silence := &core.StoreError{Class: core.ClassTimeout}
	var turns []error
	b := newBreaker(func(open bool, err error) {
		assert.True(t, open)
		turns = append(turns, err)
	})
	long := new(trouble)
	long.lastSuccess.Store(-int64(time.Hour))
	b.trouble.Store(long)
	answered, err := b.circuit.Allow()
	require.NoError(t, err)
	for range openAfter {
		failed, err := b.circuit.Allow()
		require.NoError(t, err)
		failed(silence) // and what its report would do next has not been done yet
	}
	b.report(answered, nil)
	assert.Equal(t, []error{silence}, turns)
}
