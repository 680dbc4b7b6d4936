package adaptertest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/guard"
)

// parked is a handler that stays until it is let go, and signals when it has begun.
func parked(t *testing.T) (h Handler, begun <-chan context.Context, letGo func()) {
	t.Helper()
	in, out := make(chan context.Context, 100), make(chan struct{})
	letGo = sync.OnceFunc(func() { close(out) })
	t.Cleanup(letGo)
	return Handler{Do: func(ctx context.Context) {
		in <- ctx
		<-out
	}}, in, letGo
}

// As many requests as there are permits are under way; one more is refused, and admitted
// once another has ended.
func testPermits(t *testing.T, a Adapter) {
	h, begun, letGo := parked(t)
	s := serve(t, a, hello(h, newGuard(t, "2 concurrent lease 1h", guard.Config{})))
	var under sync.WaitGroup
	defer under.Wait()
	defer letGo() // before the wait, also if the test fails
	for range 2 {
		under.Go(func() { assert.Equal(t, http.StatusOK, s.get("/hello").StatusCode) })
		receive(t, begun, "a permit is free, and the request is not admitted")
	}
	res := s.get("/hello")
	assert.Equal(t, http.StatusTooManyRequests, res.StatusCode)
	assert.Equal(t, "2", res.Header.Get(limitHeader))
	assert.Equal(t, "0", res.Header.Get(remainingHeader))
	letGo()
	under.Wait()
	require.Eventually(t, func() bool { return s.get("/hello").StatusCode == http.StatusOK }, patience, time.Millisecond)
}

// A panic gives its permit back.
func testPermitsPanic(t *testing.T, a Adapter) {
	s := serve(t, a, hello(Handler{Panic: errors.New("again")}, newGuard(t, "3 concurrent lease 1h", guard.Config{})))
	for range 1000 {
		assert.Equal(t, http.StatusInternalServerError, s.get("/hello").StatusCode)
	}
}

// Beside rates the permit comes last: a request that they refuse takes none.
func testPermitsGivenBack(t *testing.T, a Adapter) {
	g := newGuard(t, "1 concurrent lease 1h, 3/1h", guard.Config{})
	s := serve(t, a, hello(Handler{}, g))
	for range 3 {
		assert.Equal(t, http.StatusOK, s.get("/hello").StatusCode)
	}
	for range 3 {
		res := s.get("/hello")
		assert.Equal(t, http.StatusTooManyRequests, res.StatusCode)
		assert.Equal(t, "3", res.Header.Get(limitHeader), "it is the rate that refuses, not the permit")
	}
}

// forgetful is a store whose permits can be lost.
type forgetful struct {
	*core.Memory
	lost atomic.Bool
}

func (f *forgetful) Renew(ctx context.Context, permits []core.Permit) ([]core.Permit, error) {
	if f.lost.Load() {
		return permits, nil
	}
	return f.Memory.Renew(ctx, permits)
}

func testPermitLost(t *testing.T, a Adapter) {
	memory, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	store := &forgetful{Memory: memory}
	store.lost.Store(true)
	causes := make(chan error, 1)
	h := Handler{Do: func(ctx context.Context) {
		select {
		case <-ctx.Done():
			causes <- context.Cause(ctx)
		case <-time.After(patience):
			causes <- nil
		}
	}}
	s := serve(t, a, hello(h, newGuard(t, "1 concurrent lease 100ms", guard.Config{Store: store})))
	s.get("/hello")
	require.ErrorIs(t, receive(t, causes, "the handler did not run"), enforce.ErrPermitLost)
}

// The context that ends with the permit is the handler's alone: middleware outside goes on with its own.
func testPermitInside(t *testing.T, a Adapter) {
	left := make(chan error, 1)
	inside := make(chan context.Context, 1)
	h := Handler{Do: func(ctx context.Context) { inside <- ctx }}
	panics := h
	panics.Panic = "a panic"
	g := newGuard(t, "5 concurrent lease 1h", guard.Config{})
	s := serve(t, a, App{
		Guards: []*guard.Guard{g},
		Routes: []Route{
			{Method: http.MethodGet, Pattern: "/hello", Handler: h},
			{Method: http.MethodGet, Pattern: "/panic", Handler: panics, Guards: []*guard.Guard{g.With("more", "3 concurrent lease 1h")}},
		},
		Left: func(ctx context.Context) { left <- ctx.Err() },
	})
	for _, path := range []string{"/hello", "/panic"} {
		s.get(path)
		require.NoError(t, receive(t, left, "it is still under way"), "the context outside of %s", path)
		require.Error(t, receive(t, inside, "the handler did not run").Err(), "that of the handler of %s", path)
	}
}

// What outlives the handler keeps its permit until it says so.
func testPermitDetached(t *testing.T, a Adapter) {
	releases := make(chan func(), 1)
	h := Handler{Do: func(ctx context.Context) {
		_, release := guard.Detach(ctx).Claim(context.WithoutCancel(ctx))
		releases <- release
	}}
	s := serve(t, a, hello(h, newGuard(t, "1 concurrent lease 1h", guard.Config{})))
	assert.Equal(t, http.StatusOK, s.get("/hello").StatusCode)
	release := receive(t, releases, "the handler did not run")
	assert.Equal(t, http.StatusTooManyRequests, s.get("/hello").StatusCode)
	release()
	release()
	require.Eventually(t, func() bool { return s.get("/hello").StatusCode == http.StatusOK }, patience, time.Millisecond)
	receive(t, releases, "the handler did not run")()
}

// A leaky bucket lets a request wait for its turn, and sends it away on Close.
func testDelay(t *testing.T, a Adapter) {
	s := serve(t, a, hello(Handler{}, newGuard(t, "50/1s leaky-bucket burst 5", guard.Config{})))
	begin := time.Now()
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() { assert.Equal(t, http.StatusOK, s.get("/hello").StatusCode) })
	}
	all.Wait()
	assert.GreaterOrEqual(t, time.Since(begin), 80*time.Millisecond, "the fifth leaves 80 ms after the first")

	g := newGuard(t, "1/1h leaky-bucket burst 5", guard.Config{})
	s = serve(t, a, hello(Handler{}, g))
	assert.Equal(t, http.StatusOK, s.get("/hello").StatusCode)
	status := make(chan int, 1)
	go func() { status <- s.get("/hello").StatusCode }()
	go func() { // as soon as it waits, or before it comes: both are sent away
		assert.NoError(t, g.Close())
	}()
	assert.Equal(t, http.StatusServiceUnavailable, receive(t, status, "Close leaves a request waiting"))
}

// With permits, a handler gets a request with a context of its own. The server removes the
// files of its form all the same.
func testUpload(t *testing.T, a Adapter) {
	names := make(chan string, 1)
	upload := func(form *multipart.Form, err error) {
		name := ""
		if assert.NoError(t, err) {
			f, err := form.File["file"][0].Open()
			if assert.NoError(t, err) {
				assert.NoError(t, f.Close())
			}
			if file, ok := f.(*os.File); ok {
				name = file.Name()
			}
		}
		names <- name
	}
	permits := newGuard(t, "2 concurrent", guard.Config{})
	s := serve(t, a, App{Guards: []*guard.Guard{permits}, Routes: []Route{
		{Method: http.MethodPost, Pattern: "/upload", Guards: []*guard.Guard{permits}, Handler: Handler{Upload: upload}},
	}})
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", "name")
	require.NoError(t, err)
	_, err = io.WriteString(part, "on the disk")
	require.NoError(t, err)
	require.NoError(t, form.Close())
	res, err := s.try(t.Context(), http.MethodPost, "/upload", &body, "Content-Type", form.FormDataContentType())
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, res.StatusCode)
	name := receive(t, names, "the handler was not called")
	if a.UploadsInMemory {
		return
	}
	require.NotEmpty(t, name, "the file is not on the disk")
	require.Eventually(t, func() bool {
		_, err := os.Stat(name)
		return errors.Is(err, fs.ErrNotExist)
	}, patience, time.Millisecond, "the file stays")
}
