package recipes

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/fibermw"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

// What docs/testing.md shows: the window passes at once, because the bubble's clock is a fake.
func TestTheLimitComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := nethttp.Limit(guard.Must("2/1m fixed-window", keyfunc.IP()))(hello) // made in the bubble
		get := func() int {
			r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
			limited.ServeHTTP(w, r)
			return w.Code
		}
		assert.Equal(t, []int{200, 200, 429}, []int{get(), get(), get()})
		<-time.After(time.Minute) // by the bubble's clock: at once
		assert.Equal(t, 200, get())
	})
}

func TestClientsAreCountedApart(t *testing.T) {
	limited := nethttp.Limit(guard.Must("1/1h", keyfunc.IP()))(hello)
	from := func(peer string) int {
		r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
		r.RemoteAddr = peer // httptest says 192.0.2.1:1234
		limited.ServeHTTP(w, r)
		return w.Code
	}
	assert.Equal(t, 200, from("203.0.113.1:1234"))
	assert.Equal(t, 429, from("203.0.113.1:9999"))
	assert.Equal(t, 200, from("203.0.113.2:1234"))
}

func TestFiberApp(t *testing.T) {
	proxy := netip.MustParsePrefix("0.0.0.0/32") // the peer of every request of App.Test
	app := fiber.New()
	app.Use(fibermw.Limit(guard.Must("1/1h", keyfunc.ForwardedIP(proxy))))
	app.Get("/", func(c *fiber.Ctx) error { return c.SendString("hello") })
	from := func(client string) int {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Forwarded-For", client)
		res, err := app.Test(r, -1) // without a timeout of real time
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res.StatusCode
	}
	assert.Equal(t, 200, from("203.0.113.1"))
	assert.Equal(t, 429, from("203.0.113.1"))
	assert.Equal(t, 200, from("203.0.113.2"))
}
