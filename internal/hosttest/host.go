// Package hosttest lets programs use packages that are written for tests, such as redistest.
package hosttest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"
)

// host is a testing.TB whose failure is an error. Only what is overridden here may be called.
type host struct {
	testing.TB

	name     string
	ctx      context.Context //nolint:containedctx // a testing.TB has one
	cleanups []func()
	err      error
}

// Run calls f with a testing.TB of that name, and cleans up when it returns. The error is that for which f, or a
// cleanup, gave up.
func Run(ctx context.Context, name string, f func(tb testing.TB)) error {
	ctx, cancel := context.WithCancel(ctx)
	h := &host{name: name, ctx: ctx}
	do := func(f func()) {
		done := make(chan struct{})
		go func() { // Fatal ends its goroutine
			defer close(done)
			f()
		}()
		<-done
	}
	do(func() { f(h) })
	cancel()
	for len(h.cleanups) > 0 {
		last := len(h.cleanups) - 1
		next := h.cleanups[last]
		h.cleanups = h.cleanups[:last]
		do(next)
	}
	return h.err
}

func (h *host) Helper()                  {}
func (h *host) Name() string             { return h.name }
func (h *host) Context() context.Context { return h.ctx }
func (h *host) Cleanup(f func())         { h.cleanups = append(h.cleanups, f) }
func (h *host) Failed() bool             { return h.err != nil }

func (h *host) Errorf(format string, args ...any) {
	if h.err == nil {
		h.err = fmt.Errorf(format, args...)
	}
}

func (h *host) FailNow() {
	if h.err == nil {
		h.err = fmt.Errorf("failed")
	}
	runtime.Goexit()
}

func (h *host) Fatalf(format string, args ...any) {
	h.Errorf(format, args...)
	runtime.Goexit()
}

func (h *host) Fatal(args ...any) { h.Fatalf("%s", fmt.Sprint(args...)) }
func (h *host) Error(args ...any) { h.Errorf("%s", fmt.Sprint(args...)) }

// Skip is a failure: what needs Redis is nothing without it.
func (h *host) Skip(args ...any) { h.Fatal(args...) }

func (h *host) TempDir() string {
	dir, err := os.MkdirTemp("", h.name)
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
