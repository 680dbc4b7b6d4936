package fibertest

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// Whatever of the answer a native handler has set, the plain one does not replace it.
func (f Fiber[C]) testNativeAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		over   func(C, *guard.Verdict) error
		status int
		body   string
	}{
		"status": {func(c C, _ *guard.Verdict) error { c.Response().SetStatusCode(http.StatusTeapot); return nil }, http.StatusTeapot, ""},
		"body":   {func(c C, _ *guard.Verdict) error { return c.SendString("less") }, http.StatusTooManyRequests, "less"},
		"stream": {func(c C, _ *guard.Verdict) error {
			f.RequestCtx(c).SetBodyStreamWriter(func(w *bufio.Writer) { _, _ = w.WriteString("less") })
			return nil
		}, http.StatusTooManyRequests, "less"},
		"next":    {func(c C, _ *guard.Verdict) error { return c.Next() }, http.StatusTooManyRequests, "hello"},
		"changed": {func(_ C, v *guard.Verdict) error { v.Status, v.Body = 420, []byte("calm"); return nil }, 420, "calm"},
	} {
		t.Run(name, func(t *testing.T) {
			app := f.New(Config{})
			app.Use(f.Limit(f.handledBy(t, c.over)))
			app.Add(http.MethodGet, "/", hello[C])
			Get(t, app, "/")
			status, body := Get(t, app, "/")
			assert.Equal(t, c.status, status)
			assert.Equal(t, c.body, body)
		})
	}
}

// handledBy makes a guard that admits one request an hour, and whose over-limit handler is over.
func (f Fiber[C]) handledBy(t *testing.T, over func(C, *guard.Verdict) error) *guard.Guard {
	t.Helper()
	return NewGuard(t, keyfunc.Const("all"), guard.Config{Rule: guard.Rule{OverLimit: f.Handle(over)}})
}

// A stream of a native handler is sent as it comes: nobody waits for it before.
func (f Fiber[C]) testNativeStreamIsNotRead(t *testing.T) {
	app, streams := f.New(Config{}), false
	app.Use(func(c C) error {
		err := c.Next()
		streams = c.Response().IsBodyStream()
		return err
	}, f.Limit(f.handledBy(t, func(c C, _ *guard.Verdict) error {
		return c.SendStream(strings.NewReader("")) // that it is empty, only reading tells
	})))
	app.Add(http.MethodGet, "/", hello[C])
	Get(t, app, "/")
	assert.False(t, streams)
	status, body := Get(t, app, "/")
	assert.True(t, streams)
	assert.Equal(t, http.StatusTooManyRequests, status)
	assert.Empty(t, body)
}

// What earlier handlers have set is not the native handler's answer.
func (f Fiber[C]) testNativeSilentBehindOthers(t *testing.T) {
	app := f.New(Config{})
	app.Use(func(c C) error {
		c.Response().SetStatusCode(http.StatusAccepted)
		_ = c.SendString("draft")
		return c.Next()
	}, f.Limit(f.handledBy(t, func(C, *guard.Verdict) error { return nil })))
	app.Add(http.MethodGet, "/", hello[C])
	Get(t, app, "/")
	status, body := Get(t, app, "/")
	assert.Equal(t, http.StatusTooManyRequests, status)
	assert.Equal(t, "too many requests\n", body)
}

// Middleware outside that edits the body in place edits its own.
func (f Fiber[C]) testBodyIsCopied(t *testing.T) {
	app := f.New(Config{})
	app.Use(func(c C) error {
		err := c.Next()
		c.Response().Body()[0] ^= 0x20
		return err
	}, f.Limit(NewGuard(t, keyfunc.Const("all"), guard.Config{})))
	app.Add(http.MethodGet, "/", hello[C])
	Get(t, app, "/")
	for range 2 {
		_, body := Get(t, app, "/")
		assert.Equal(t, "Too many requests\n", body)
	}
}

// wrapped is an error whose Unwrap panics if it is nil.
type wrapped struct{ cause error }

func (*wrapped) Error() string   { return "wrapped" }
func (w *wrapped) Unwrap() error { return w.cause }

// A handler that returns a nil pointer as its error panics where the error is looked at, which gives back its permit.
func (f Fiber[C]) testFinalErrorPanics(t *testing.T) {
	var seen []guard.Final
	g, err := guard.New(guard.Config{Rule: guard.Rule{
		Policy: "100/1h, 1 concurrent", Key: keyfunc.Const("all"),
		Settle: func(f guard.Final, taken int64) int64 { seen = append(seen, f); return taken },
	}})
	require.NoError(t, err)
	app := f.New(Config{})
	app.Use(f.Recover, f.Limit(g))
	var none *wrapped
	app.Add(http.MethodGet, "/bad", func(C) error { return none })
	app.Add(http.MethodGet, "/ok", func(c C) error { return c.SendStatus(http.StatusOK) })
	var statuses []int
	for _, path := range []string{"/ok", "/bad", "/ok", "/bad", "/ok"} {
		status, _ := Get(t, app, path)
		statuses = append(statuses, status)
	}
	assert.Equal(t, []int{200, 500, 200, 500, 200}, statuses)
	if assert.Len(t, seen, 5) {
		assert.Equal(t, 500, seen[1].Status)
		assert.True(t, seen[1].Panicked)
		assert.True(t, seen[1].Err == error(none), "Err is the handler's") //nolint:errorlint // it panics in errors.Is
		assert.Equal(t, 200, seen[2].Status)
		assert.False(t, seen[2].Panicked)
	}
}
