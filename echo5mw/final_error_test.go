package echo5mw_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/echo5mw"
	"github.com/weir-go/weir/keyfunc"
)

// An error that only the program's error handler makes a status of counts by Final.Err.
func TestFinalError(t *testing.T) {
	bad := errors.New("wrong password")
	var statuses []int
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "login: 2/1h", Key: keyfunc.IP(), After: func(f guard.Final) int64 {
		if statuses = append(statuses, f.Status); errors.Is(f.Err, bad) {
			return 1
		}
		return 0
	}}})
	require.NoError(t, err)
	e := echo.New()
	e.HTTPErrorHandler = func(c *echo.Context, err error) {
		if errors.Is(err, bad) {
			_ = c.NoContent(http.StatusUnauthorized)
		}
	}
	e.POST("/login", func(*echo.Context) error { return bad }, echo5mw.Limit(g))
	e.POST("/fine", func(*echo.Context) error { return nil }, echo5mw.Limit(g))
	post := func(path string) int {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil))
		return w.Code
	}
	assert.Equal(t, []int{200, 401, 401, 429, 429}, []int{post("/fine"), post("/login"), post("/login"), post("/login"), post("/fine")})
	assert.Equal(t, []int{200, 500, 500}, statuses)
}
