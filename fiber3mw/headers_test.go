package fiber3mw_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/fiber3mw"
	"github.com/weir-go/weir/keyfunc"
)

// What other middleware has said in several lines is kept, in one.
func TestSeveralLines(t *testing.T) {
	const name = "Access-Control-Expose-Headers"
	app := fiber.New()
	app.Use(func(c fiber.Ctx) error {
		c.Response().Header.Add(name, "ETag")
		c.Response().Header.Add(name, "Link")
		return c.Next()
	})
	app.Use(fiber3mw.Limit(newGuard(t, keyfunc.Const("all"), guard.Config{Headers: guard.Headers{XRateLimit: guard.NoXRateLimit, Expose: true}})))
	res, err := app.Test(httptest.NewRequest(http.MethodGet, "/", nil), fiber.TestConfig{})
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	assert.Equal(t, []string{"ETag, Link, Retry-After"}, res.Header[name])
}
