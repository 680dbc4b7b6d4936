package fiber3mw_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/fiber3mw"
	"github.com/weir-go/weir/internal/fibertest"
	"github.com/weir-go/weir/keyfunc"
)

// Fiber calls middleware also for what it could not read. Bytes that are no header are no request, and not counted;
// a request without any header field is one, and so is one whose body is too large.
func TestUnread(t *testing.T) {
	for name, newApp := range newApps {
		t.Run(name, func(t *testing.T) {
			f, middleware := newApp(fiber.Config{BodyLimit: 10}), 0
			f.Use(func(c fiber.Ctx) error { middleware++; return c.Next() })
			counted := make(chan guard.Event, 100)
			g, err := guard.New(guard.Config{
				Rule:    guard.Rule{Policy: "100/1h", Key: keyfunc.Const("all")},
				Observe: func(e guard.Event) { counted <- e },
			})
			require.NoError(t, err)
			f.Use(fiber3mw.Limit(g))
			f.Use(func(c fiber.Ctx) error { c.Set("X-Inner", "called"); return c.Next() })
			f.All("/", func(c fiber.Ctx) error { return c.SendString("hello") })
			addr := fibertest.Listen(t, app{f}, "tcp", "127.0.0.1:0")
			for _, c := range []struct {
				sent           string
				statuses       []int
				counts, passes int
			}{
				{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", []int{200}, 1, 1},
				{"GET / HTTP/1.0\r\n\r\n", []int{200}, 1, 1},
				{"GET / HTTP/1.1\r\n\r\n", nil, 0, 0}, // newer servers want a Host
				{"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", []int{200, 200}, 2, 2},
				{"rubbish\r\n\r\n", []int{400}, 0, 1},
				{"GET / HTTP/1.1\r\nHost: x\r\n\r\nrubbish", []int{200, 400}, 1, 2},
				{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\nhello world", []int{413}, 1, 1},
			} {
				middleware = 0
				conn, err := net.Dial("tcp", addr)
				require.NoError(t, err)
				_, err = io.WriteString(conn, c.sent)
				require.NoError(t, err)
				require.NoError(t, conn.(*net.TCPConn).CloseWrite())
				answers := bufio.NewReader(conn)
				var statuses []int
				for {
					res, err := http.ReadResponse(answers, nil)
					if errors.Is(err, io.ErrUnexpectedEOF) {
						break
					}
					require.NoError(t, err, "%q", c.sent)
					_, err = io.Copy(io.Discard, res.Body)
					require.NoError(t, err)
					require.NoError(t, res.Body.Close())
					assert.Equal(t, "called", res.Header.Get("X-Inner"), "%q", c.sent)
					statuses = append(statuses, res.StatusCode)
				}
				require.NoError(t, conn.Close())
				if c.statuses == nil {
					c.statuses, c.counts, c.passes = []int{http.StatusBadRequest}, 0, 1
					if len(counted) > 0 {
						c.statuses, c.counts = []int{http.StatusOK}, 1
					}
				}
				assert.Equal(t, c.statuses, statuses, "%q", c.sent)
				assert.Equal(t, c.passes, middleware, "%q", c.sent)
				assert.Len(t, counted, c.counts, "%q", c.sent)
				for len(counted) > 0 {
					<-counted
				}
			}
		})
	}
}
