package guard_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/internal/remotetest"
	"github.com/weir-go/weir/keyfunc"
)

// The zero Verdict refuses.
func TestZeroVerdict(t *testing.T) {
	var v guard.Verdict
	assert.Equal(t, guard.Reply, v.Action)
	assert.False(t, v.Result.Allowed())
	h := header{}
	v.SetHeaders(h)
	assert.Equal(t, header{"Cache-Control": "no-store"}, h)
	v.Finish(guard.Final{})
	assert.False(t, v.NeedsFinal())
}

func TestSetField(t *testing.T) {
	shared := guard.Reject(guard.RejectOptions{})
	v, w := shared.Serve(&guard.Refusal{}), shared.Serve(&guard.Refusal{})
	v.SetField("Content-Type", "application/problem+json")
	v.SetField("location", "/slow")
	w.SetField("Location", "/wait")
	v.SetField("Location", "/down")
	for want, v := range map[string]guard.Verdict{"application/problem+json /down": v, "text/plain; charset=utf-8 /wait": w, "text/plain; charset=utf-8 ": shared.Serve(&guard.Refusal{})} {
		h := header{}
		v.SetHeaders(h)
		assert.Equal(t, want, h["Content-Type"]+" "+h["Location"])
	}

	// What comes from a request must not become a header of its own.
	h := header{}
	v.SetField("Location", "/down\r\nSet-Cookie: a=b")
	v.SetHeaders(h)
	assert.Equal(t, "/down  Set-Cookie: a=b", h["Location"])
}

// refuser is an exchange that wants the Verdict of a refusal.
type refuser struct {
	exchange
	verdicts []*guard.Verdict
}

func (x *refuser) Refuse(v *guard.Verdict) { x.verdicts = append(x.verdicts, v) }

// An exchange that wants it gets the Verdict of each refusal, with the exact wait and why nothing was decided, in place
// of a status and a body; and nothing else changes for it.
func TestRefuser(t *testing.T) {
	down := &core.StoreError{Class: core.ClassDown, Err: errors.New("down")}
	native := guard.HandleNative("native", "a handler")
	for name, c := range map[string]struct {
		rule   guard.Rule
		down   bool
		peer   string
		native any
		status int
		body   string
		after  time.Duration
		header string // Retry-After
		wants  error
	}{
		"over the limit": {guard.Rule{Policy: "1/10s"}, false, alice, nil, 429, "too many requests\n", 6750 * time.Millisecond, "7", nil},
		"never":          {guard.Rule{Policy: "1/10s", Cost: func(keyfunc.Request) int64 { return 2 }}, false, alice, nil, 429, "this request costs more than its rate limit ever admits at once\n", 0, "", nil},
		"no key":         {guard.Rule{Policy: "1/10s"}, false, "", nil, 403, "this request does not say who sent it, which its rate limit asks for\n", 0, "", keyfunc.ErrNoKey},
		"no store":       {guard.Rule{Policy: "1/10s; fail closed"}, true, alice, nil, 503, "the rate limiter cannot decide at the moment\n", time.Second, "1", down},
		"the handler's own": {guard.Rule{Policy: "1/10s", OverLimit: guard.HandlerFunc("own", func(*guard.Refusal) guard.Verdict {
			v := guard.Verdict{Status: 420, Body: []byte("slow")}
			v.SetField("Retry-After", "60")
			return v
		})}, false, alice, nil, 420, "slow", time.Minute, "60", nil},
		"a native handler that writes nothing": {guard.Rule{Policy: "1/10s", OverLimit: native}, false, alice, "a handler", 420, "slow", 6750 * time.Millisecond, "7", nil},
		"a foreign handler":                    {guard.Rule{Policy: "1/10s", OverLimit: native}, false, alice, "another", 429, "too many requests\n", 6750 * time.Millisecond, "7", nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := remotetest.New(newMemory(t))
			c.rule.Key = keyfunc.IP()
			g, err := guard.New(guard.Config{Rule: c.rule, Store: store})
			require.NoError(t, err)
			serve := func() *refuser {
				x := &refuser{exchange: exchange{request: from(c.peer), header: header{}, native: c.native, silent: true}}
				require.NoError(t, g.Serve(x))
				return x
			}
			if c.peer != "" && name != "never" {
				x := serve()
				assert.Equal(t, "passed", x.said, name)
				assert.Empty(t, x.verdicts, name)
			}
			pause(3250 * time.Millisecond)
			if c.down {
				store.Fail(down)
			}
			x := serve()
			require.Len(t, x.verdicts, 1, name)
			v := x.verdicts[0]
			assert.Empty(t, x.said, name)
			assert.Equal(t, c.status, v.Status, name)
			assert.Equal(t, c.body, string(v.Body), name)
			assert.Equal(t, c.after, v.RetryAfter(), name)
			assert.Equal(t, c.header, x.header["Retry-After"], name)
			assert.Equal(t, "no-store", x.header["Cache-Control"], name)
			require.ErrorIs(t, v.Err, c.wants, name)
		})
	}
	assert.Zero(t, (&guard.Verdict{Action: guard.Pass, Result: core.Result{RetryAfter: time.Second}}).RetryAfter())
}
