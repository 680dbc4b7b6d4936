package enforce

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// All Limiters on a store share its health, which goes with the store.
func TestHealthOfAStore(t *testing.T) {
	fallback := permitMemory(t)
	key := weak.Make(fallback)
	h := healthOf(fallback)
	assert.Same(t, h, healthOf(fallback))
	assert.NotSame(t, h, healthOf(permitMemory(t)))
	_, kept := healths.Load(key)
	require.True(t, kept)
	runtime.KeepAlive(fallback)
	for end := time.Now().Add(time.Minute); kept; _, kept = healths.Load(key) {
		require.True(t, time.Now().Before(end), "the health of a store that is gone is kept")
		runtime.GC()
	}
}
