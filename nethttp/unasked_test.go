package nethttp_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/logtest"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

// Degrade without a handler that asks Degraded limits nothing, and the log says so. One that asks is enough, also for the
// guards around.
func TestDegradedUnasked(t *testing.T) {
	for name, c := range map[string]struct {
		asks bool
		want int
	}{"nobody asks": {false, 2}, "somebody asks": {true, 0}} {
		said := new(logtest.Log)
		outer, err := guard.New(guard.Config{
			Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.IP(), OverLimit: guard.Degrade()}, Log: said.Logger(),
		})
		require.NoError(t, err)
		inner := outer.With("inner", "1/1h")
		h := nethttp.Limit(outer)(nethttp.Limit(inner)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if c.asks {
				guard.Degraded(r.Context())
			}
		})))
		for range 300 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		}
		assert.Len(t, said.With("code=degraded-unasked"), c.want, name)
	}
}
