// Gin limits a program of Gin: all routes together and two routes more strictly, with an answer of its own over
// the limit. It sends itself a few requests:
//
//	go run ./examples/gin
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/ginmw"
	"github.com/weir-go/weir/keyfunc"
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func slowDown(c *gin.Context, v *guard.Verdict) {
	c.JSON(v.Status, gin.H{"error": "slow down", "policy": v.Policy})
}

func newApp(g *guard.Guard) http.Handler {
	answer := func(text string) gin.HandlerFunc {
		return func(c *gin.Context) { c.String(http.StatusOK, text) }
	}
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.Use(ginmw.Limit(g))
	r.GET("/hello", answer("hello"))
	r.POST("/login", ginmw.Limit(g.With("login", "2/1m; fail closed")), answer("welcome"))
	r.GET("/reports/:id", ginmw.Limit(g.With("reports", "1/1m")), answer("a report"))
	return r
}

func run(out io.Writer) error {
	g, err := guard.New(guard.Config{Rule: guard.Rule{
		Policy:    "100/1m",
		Key:       keyfunc.IP(),
		OverLimit: ginmw.Handle(slowDown),
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
