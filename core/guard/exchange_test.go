package guard_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/core/guard"
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
