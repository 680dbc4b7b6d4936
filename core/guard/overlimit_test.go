package guard_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

func TestGuardOverLimit(t *testing.T) {
	var refusal guard.Refusal
	var answer guard.Verdict
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{
			Policy: "1/1h",
			OverLimit: guard.HandlerFunc("mine", func(x *guard.Refusal) guard.Verdict {
				refusal = *x
				return answer
			}),
		},
	})
	require.True(t, passes(g, alice))
	r := from(alice)
	native := func() {}
	for _, c := range []struct {
		name   string
		answer guard.Verdict
		action guard.Action
		status int
	}{
		{"zero", guard.Verdict{}, guard.Reply, 429},
		{"status", guard.Verdict{Status: 503}, guard.Reply, 503},
		{"too low", guard.Verdict{Status: 199}, guard.Reply, 429},
		{"too high", guard.Verdict{Status: 1000}, guard.Reply, 429},
		{"negative", guard.Verdict{Status: -1}, guard.Reply, 429},
		{"a redirect", guard.Verdict{Status: 302}, guard.Reply, 302},
		{"pass", guard.Verdict{Action: guard.Pass}, guard.Pass, 429},
		{"native of nothing", guard.Verdict{Action: guard.Native}, guard.Reply, 429},
		{"native", guard.Verdict{Action: guard.Native, Native: &native}, guard.Native, 429},
		{"no action", guard.Verdict{Action: 9, Native: &native}, guard.Reply, 429},
	} {
		answer = c.answer
		v := g.Check(r)
		assert.Equal(t, c.action, v.Action, c.name)
		assert.Equal(t, c.status, v.Status, c.name)
		assert.Equal(t, "default", v.Policy, c.name)
		assert.Equal(t, core.Refused, v.Result.Outcome, c.name)
		assert.False(t, v.NeedsFinal(), c.name)
	}
	assert.Same(t, r, refusal.Request)
	assert.Equal(t, "1/1h", refusal.Rule.Policy)
	assert.Equal(t, core.Refused, refusal.Result.Outcome)
	assert.NoError(t, refusal.Err)
}

func TestHandleNative(t *testing.T) {
	type handler struct{ name string }
	h := &handler{"cached"}
	said := new(records)
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1h", OverLimit: guard.HandleNative("cached", h)}, Log: slog.New(said)})
	require.True(t, passes(g, alice))
	x := &exchange{request: from(alice), header: header{}, native: h}
	for range 3 {
		require.NoError(t, g.Serve(x))
		assert.Equal(t, "cached", x.said, "its handler answers")
	}
	x.silent = true
	require.NoError(t, g.Serve(x))
	assert.Equal(t, "420 slow", x.said, "it has said what to answer, and has left that to the guard")
	assert.Empty(t, said.all())
	foreign := &exchange{request: from(alice), header: header{}}
	for range 3 {
		require.NoError(t, g.Serve(foreign))
		assert.Equal(t, "429 too many requests\n", foreign.said)
	}
	assert.Equal(t, []string{"ERROR weir: an over-limit handler is of another framework; a plain answer is sent framework=guard_test policy=default handler=cached"}, said.all())

	for _, none := range []any{nil, (func())(nil)} {
		_, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.IP(), OverLimit: guard.HandleNative("nothing", none)}})
		assert.ErrorContains(t, err, `the function of "nothing" is nil`)
	}
}
