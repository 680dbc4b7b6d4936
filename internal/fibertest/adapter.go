package fibertest

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/adaptertest"
)

// Adapter returns the adapter as adaptertest.Run takes it.
func (f Fiber[C]) Adapter() adaptertest.Adapter {
	return adaptertest.Adapter{
		Name:        f.Name,
		Serve:       f.serve,
		Handle:      f.handle,
		HandleNil:   func() guard.OverLimit { return f.Handle(nil) },
		Pattern:     pattern,
		IsNative:    func(r any) bool { _, ok := r.(C); return ok },
		NeverLeaves: true,
		HTTP1Only:   true,

		UploadsInMemory: true,
	}
}

var wildcard, rest = regexp.MustCompile(`\{(\w+)\}`), regexp.MustCompile(`\{(\w+)\.\.\.\}`)

func pattern(p string) string {
	return rest.ReplaceAllString(wildcard.ReplaceAllString(p, ":$1"), "*")
}

func (f Fiber[C]) serve(t testing.TB, app adaptertest.App) string {
	t.Helper()
	of := f.New(Config{StreamRequestBody: app.Unread})
	of.Use(f.recovering(app.Recovered), f.leaving(app.Left), f.login)
	for _, g := range app.Guards {
		of.Use(f.Limit(g))
	}
	for _, r := range app.Routes {
		var handlers []func(C) error
		for _, g := range r.Guards {
			handlers = append(handlers, f.Limit(g))
		}
		of.Add(r.Method, pattern(r.Pattern), append(handlers, f.handler(r.Handler))...)
	}
	return "http://" + Listen(t, of, "tcp", "127.0.0.1:0")
}

func (f Fiber[C]) recovering(recovered func(any)) func(C) error {
	return func(c C) (err error) {
		defer func() {
			if value := recover(); value != nil {
				if recovered != nil {
					recovered(value)
				}
				err = f.Error(http.StatusInternalServerError)
			}
		}()
		return c.Next()
	}
}

func (f Fiber[C]) leaving(left func(context.Context)) func(C) error {
	return func(c C) error {
		if left != nil {
			defer func() { left(f.Context(c)) }()
		}
		return c.Next()
	}
}

func (f Fiber[C]) login(c C) error {
	if user := c.Get(adaptertest.UserInStore); user != "" {
		c.Locals(adaptertest.StoreKey, string([]byte(user)))
	}
	if user := c.Get(adaptertest.UserInContext); user != "" {
		f.SetContext(c, context.WithValue(f.Context(c), adaptertest.ContextKey{}, string([]byte(user))))
	}
	if peer := c.Get(adaptertest.RewrittenPeer); peer != "" {
		f.RequestCtx(c).SetRemoteAddr(&net.TCPAddr{IP: net.ParseIP(peer)})
	}
	return c.Next()
}

func (f Fiber[C]) handler(h adaptertest.Handler) func(C) error {
	return func(c C) error {
		h.Called(f.Context(c), f.Native(c))
		if h.Upload != nil {
			h.Upload(c.MultipartForm())
		}
		h.Header.Each(c.Set)
		switch {
		case h.Panic != nil:
			panic(h.Panic)
		case h.Hijack != nil:
			permit := guard.Detach(f.Context(c))
			f.RequestCtx(c).Hijack(func(conn net.Conn) {
				held, release := permit.Claim(context.Background())
				defer release()
				h.Hijack(held, conn)
			})
			return nil
		case h.Stream != nil:
			var permit *guard.Detached
			if h.Detached {
				permit = guard.Detach(f.Context(c))
			}
			f.RequestCtx(c).SetBodyStreamWriter(func(w *bufio.Writer) {
				_, release := permit.Claim(context.Background())
				defer release()
				_, _ = w.WriteString("first")
				_ = w.Flush()
				<-h.Stream
				_, _ = w.WriteString("last")
			})
			return nil
		case h.Fail && h.Status == 0:
			return errors.New("failed")
		case h.Fail:
			return f.Error(h.Status)
		default:
			c.Response().SetStatusCode(h.Code())
			return c.SendString("ok")
		}
	}
}

func (f Fiber[C]) handle(n adaptertest.Native) guard.OverLimit {
	return f.Handle(func(c C, v *guard.Verdict) error {
		c.Set("X-Native", v.Policy)
		n.Header.Each(c.Set)
		n.Edit(v)
		switch {
		case n.Panic != nil:
			panic(n.Panic)
		case n.Fail:
			return f.Error(n.Status)
		case n.Body != "":
			return c.SendString(n.Body)
		case n.Status != 0:
			c.Response().SetStatusCode(n.Status)
			return c.SendString("native")
		}
		return nil
	})
}

// Loop is the adaptertest.Loop of f.
func (f Fiber[C]) Loop(tb testing.TB, g *guard.Guard, loop func(func(adaptertest.Client) int)) {
	tb.Helper()
	app := f.New(Config{})
	if g != nil {
		app.Use(f.Limit(g))
	}
	app.Add(http.MethodGet, "/items/:id", func(c C) error { return c.SendStatus(http.StatusNoContent) })
	handle := app.Handler()
	// Only another app can make a request of fasthttp.
	outer := f.New(Config{})
	outer.Add(http.MethodGet, "/items/1", func(c C) error {
		ctx := f.RequestCtx(c)
		loop(func(client adaptertest.Client) int {
			ctx.SetRemoteAddr(client.Addr)
			ctx.Response.Reset()
			handle(ctx)
			return ctx.Response.StatusCode()
		})
		return nil
	})
	res, err := outer.Test(httptest.NewRequest(http.MethodGet, "/items/1", nil))
	require.NoError(tb, err)
	require.NoError(tb, res.Body.Close())
}
