// Echo limits a program of Echo v4: all routes together and two routes more strictly, with an answer of its own over
// the limit. It sends itself a few requests:
//
//	go run ./examples/echo
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/echomw"
	"github.com/weir-go/weir/keyfunc"
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func slowDown(c echo.Context, v *guard.Verdict) error {
	return c.JSON(v.Status, map[string]string{"error": "slow down", "policy": v.Policy})
}

func newApp(g *guard.Guard) http.Handler {
	answer := func(text string) echo.HandlerFunc {
		return func(c echo.Context) error { return c.String(http.StatusOK, text) }
	}
	e := echo.New()
	e.Use(echomw.Limit(g))
	e.GET("/hello", answer("hello"))
	e.POST("/login", answer("welcome"), echomw.Limit(g.With("login", "2/1m; fail closed")))
	e.GET("/reports/:id", answer("a report"), echomw.Limit(g.With("reports", "1/1m")))
	return e
}

func run(out io.Writer) error {
	g, err := guard.New(guard.Config{Rule: guard.Rule{
		Policy:    "100/1m",
		Key:       keyfunc.IP(),
		OverLimit: echomw.Handle(slowDown),
	}})
	if err != nil {
		return err
	}
	app := newApp(g)
	for _, text := range []string{"GET /hello", "POST /login", "POST /login", "POST /login", "GET /reports/7", "GET /reports/8"} {
		method, path, _ := strings.Cut(text, " ")
		w := httptest.NewRecorder()
		app.ServeHTTP(w, httptest.NewRequest(method, path, http.NoBody))
		fmt.Fprintln(out, text, w.Code, strings.TrimSpace(w.Body.String()))
	}
	return nil
}
