package guard_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/core/guard"
)

// failing is an exchange whose adapter panics at a name.
type failing struct {
	*exchange
	at string
}

func (f failing) Set(name, value string) {
	if f.at == name {
		panic("an adapter")
	}
	f.exchange.Set(name, value)
}

func (f failing) Watch() {
	if f.at == "Watch" {
		panic("an adapter")
	}
}

// Final runs code of the program: the methods of the error that its handler has returned.
func (f failing) Final(err error, panicked bool) guard.Final {
	if f.at == "Final" {
		panic("an adapter")
	}
	return f.exchange.Final(err, panicked)
}

// An adapter that panics leaves no permit and no request under way behind, and what was taken is settled.
func TestPanicOfAnAdapter(t *testing.T) {
	for _, at := range []string{"X-Ratelimit-Limit", "Watch", "Final"} {
		var settled []bool
		g := newGuard(t, guard.Config{
			Rule: guard.Rule{
				Policy: "100/1h, 1 concurrent",
				Settle: func(f guard.Final, _ int64) int64 { settled = append(settled, f.Panicked); return 0 },
			},
			Rules: []guard.Rule{{Policy: "failed: 1/1h", After: failed}},
		})
		assert.PanicsWithValue(t, "an adapter", func() {
			_ = g.Serve(failing{&exchange{request: from(alice), header: header{}}, at})
		})
		assert.Equal(t, []bool{true}, settled, at)
		assert.True(t, passes(g, alice), "%s: the permit is back, and so is the place", at)
	}
}
