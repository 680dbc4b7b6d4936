package echo5mw_test

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/echo5mw"
	"github.com/weir-go/weir/internal/echotest"
	"github.com/weir-go/weir/keyfunc"
)

// Echo uses a Context again for another request: nothing of it is kept by what may outlive a request, which is the
// handler's context, a permit that is detached, and the Events. The race detector would see it, too.
func TestContextIsUsedAgain(t *testing.T) {
	type user struct{}
	var events []guard.Event
	var used []int64
	g := echotest.NewGuard(t, "all: 1000/1h, 100 concurrent", keyfunc.Join(keyfunc.User("uid"), keyfunc.Route()), guard.Config{
		Rule:    guard.Rule{Settle: func(f guard.Final, _ int64) int64 { used = append(used, f.Reported); return f.Reported }},
		Results: true,
		Observe: func(e guard.Event) { events = append(events, e) },
	})
	e := echo.New()
	e.Use(inEcho(echo5.Login), func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.Set("uid", c.Param("name"))
			c.SetRequest(c.Request().WithContext(context.WithValue(c.Request().Context(), user{}, c.Param("name"))))
			return next(c)
		}
	}, echo5mw.Limit(g))
	var first, now *echo.Context
	var left context.Context
	var permit *guard.Detached
	e.GET("/first/:name", func(c *echo.Context) error {
		first, left, permit = c, c.Request().Context(), guard.Detach(c.Request().Context())
		return nil
	})
	e.GET("/second/:name", func(c *echo.Context) error { now = c; return c.NoContent(http.StatusNoContent) })

	for again := false; !again; again = first == now { // a pool may give another one
		echotest.Do(e, http.MethodGet, "/first/ada")
		held, release := permit.Claim(left)
		stop := make(chan struct{})
		var reading sync.WaitGroup
		reading.Go(func() {
			for {
				assert.Equal(t, "ada", held.Value(user{}))
				assert.Equal(t, "ada", left.Value(user{}))
				assert.Nil(t, left.Value("uid"), "the store is not part of the request's context")
				_, ok := guard.FromContext(left)
				assert.True(t, ok)
				select {
				case <-stop:
					return
				default:
				}
			}
		})
		echotest.Do(e, http.MethodGet, "/second/bob")
		close(stop)
		reading.Wait()
		guard.Report(left, 7)
		release()
	}
	require.GreaterOrEqual(t, len(used), 2)
	assert.Equal(t, int64(7), used[len(used)-1], "what was reported after the second request counts for the first")
	for _, event := range events {
		assert.NotContains(t, event.Route(), "bob")
	}
}
