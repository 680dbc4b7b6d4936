package echotest

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"testing"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/adaptertest"
)

// Adapter returns the adapter as adaptertest.Run takes it, with middleware outside of the guards.
func (e Echo[C]) Adapter(outside ...Middleware[C]) adaptertest.Adapter {
	return adaptertest.Adapter{
		Name:      e.Name,
		Serve:     func(t testing.TB, app adaptertest.App) string { return e.serve(t, app, outside) },
		Handle:    e.handle,
		HandleNil: func() guard.OverLimit { return e.Handle(nil) },
		Pattern:   pattern,
		IsNative:  func(r any) bool { _, ok := r.(C); return ok },
	}
}

var wildcard, rest = regexp.MustCompile(`\{(\w+)\}`), regexp.MustCompile(`\{(\w+)\.\.\.\}`)

func pattern(p string) string {
	return rest.ReplaceAllString(wildcard.ReplaceAllString(p, ":$1"), "*")
}

func (e Echo[C]) serve(t testing.TB, app adaptertest.App, outside []Middleware[C]) string {
	t.Helper()
	of := e.New()
	of.Use(e.Recovering(app.Recovered), e.leaving(app.Left), e.Login)
	of.Use(outside...)
	of.Use(e.limited(app.Guards)...)
	for _, r := range app.Routes {
		methods := []string{r.Method}
		if r.Method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
		of.Match(methods, pattern(r.Pattern), e.handler(r.Handler), e.limited(r.Guards)...)
	}
	return adaptertest.ServeHTTP(t, of)
}

func (e Echo[C]) limited(guards []*guard.Guard) (out []Middleware[C]) {
	for _, g := range guards {
		out = append(out, e.Limit(g))
	}
	return out
}

// Recovering is middleware that recovers from panics, calls recovered unless that is nil, and answers 500.
func (e Echo[C]) Recovering(recovered func(any)) Middleware[C] {
	return func(next func(C) error) func(C) error {
		return func(c C) (err error) {
			defer func() {
				if value := recover(); value != nil {
					if recovered != nil {
						recovered(value)
					}
					err = e.Error(http.StatusInternalServerError)
				}
			}()
			return next(c)
		}
	}
}

func (e Echo[C]) leaving(left func(context.Context)) Middleware[C] {
	return func(next func(C) error) func(C) error {
		return func(c C) error {
			if left != nil {
				defer func() { left(c.Request().Context()) }()
			}
			return next(c)
		}
	}
}

// Login is middleware that stores what adaptertest's headers say.
func (e Echo[C]) Login(next func(C) error) func(C) error {
	return func(c C) error {
		r := c.Request()
		if user := r.Header.Get(adaptertest.UserInStore); user != "" {
			c.Set(adaptertest.StoreKey, user)
		}
		if user := r.Header.Get(adaptertest.UserInContext); user != "" {
			c.SetRequest(r.WithContext(context.WithValue(r.Context(), adaptertest.ContextKey{}, user)))
		}
		if peer := r.Header.Get(adaptertest.RewrittenPeer); peer != "" {
			c.Request().RemoteAddr = peer
		}
		return next(c)
	}
}

func (e Echo[C]) handler(h adaptertest.Handler) func(C) error {
	return func(c C) error {
		h.Called(c.Request().Context(), c.Request().Context())
		if h.Upload != nil {
			err := c.Request().ParseMultipartForm(0)
			h.Upload(c.Request().MultipartForm, err)
		}
		w := e.Response(c)
		h.Header.Each(w.Header().Set)
		switch {
		case h.Panic != nil:
			panic(h.Panic)
		case h.Hijack != nil:
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return err
			}
			defer conn.Close()
			h.Hijack(c.Request().Context(), conn)
			return nil
		case h.Stream != nil:
			_, _ = w.Write([]byte("first"))
			_ = http.NewResponseController(w).Flush()
			<-h.Stream
			_, _ = w.Write([]byte("last"))
			return nil
		case h.Fail && h.Status == 0:
			return errors.New("failed")
		case h.Fail:
			return e.Error(h.Status)
		default:
			return c.String(h.Code(), "ok")
		}
	}
}

func (e Echo[C]) handle(n adaptertest.Native) guard.OverLimit {
	return e.Handle(func(c C, v *guard.Verdict) error {
		w := e.Response(c)
		w.Header().Set("X-Native", v.Policy)
		n.Header.Each(w.Header().Set)
		n.Edit(v)
		switch {
		case n.Panic != nil:
			panic(n.Panic)
		case n.Fail:
			return e.Error(n.Status)
		case n.Body != "":
			_, err := w.Write([]byte(n.Body))
			return err
		case n.Status != 0:
			return c.String(n.Status, "native")
		}
		return nil
	})
}
