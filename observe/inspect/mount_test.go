package inspect_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/observe/inspect"
)

// The page and its form work where docs/observe.md mounts them, and refuse what may come of a proxy.
func TestMount(t *testing.T) {
	gin.SetMode(gin.TestMode)
	for framework, serve := range map[string]func(h http.Handler) (addr string){
		"net/http": func(h http.Handler) string {
			mux := http.NewServeMux()
			mux.Handle("/debug/weir", h)
			return listen(t, mux)
		},
		"Gin": func(h http.Handler) string {
			r := gin.New()
			r.Any("/debug/weir", gin.WrapH(h))
			return listen(t, r)
		},
		"Echo": func(h http.Handler) string {
			e := echo.New()
			e.Any("/debug/weir", echo.WrapHandler(h))
			return listen(t, e)
		},
		"Fiber": func(h http.Handler) string {
			app := fiber.New(fiber.Config{DisableStartupMessage: true})
			app.All("/debug/weir", adaptor.HTTPHandler(h))
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			done := make(chan error, 1)
			go func() { done <- app.Listener(l) }()
			t.Cleanup(func() {
				assert.NoError(t, app.Shutdown())
				assert.NoError(t, <-done)
			})
			return l.Addr().String()
		},
	} {
		t.Run(framework, func(t *testing.T) {
			o := newObserver(t)
			g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "api: 2/1h", Key: keyfunc.IP()}, Observe: o.Observe})
			require.NoError(t, err)
			o.Watch([]*guard.Guard{g})
			addr := serve(inspect.Handler(o, inspect.Options{}))
			page := "http://" + addr + "/debug/weir"
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

			response, err := client.Get(page)
			require.NoError(t, err)
			defer response.Body.Close()
			status, text := read(t, response)
			assert.Equal(t, http.StatusOK, status)
			assert.Contains(t, text, "All is well: this process counts for itself", "a guard without a Store has one of its own")
			response, err = client.PostForm(page+"?explain", url.Values{"policy": {"api"}, "key": {"ip=203.0.113.7"}})
			require.NoError(t, err)
			defer response.Body.Close()
			status, text = read(t, response)
			assert.Equal(t, http.StatusOK, status)
			assert.Contains(t, text, "2/1h: 0 used, 2 left")

			conn, err := net.Dial("tcp", addr)
			require.NoError(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn, "GET /debug/weir HTTP/1.0\r\nHost: "+addr+"\r\nConnection: close\r\n\r\n")
			require.NoError(t, err)
			response, err = http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			defer response.Body.Close()
			status, text = read(t, response)
			assert.Equal(t, http.StatusForbidden, status, text)
			assert.Contains(t, text, "HTTP/1.0")
		})
	}
}

func listen(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func read(t *testing.T, response *http.Response) (status int, text string) {
	t.Helper()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}
