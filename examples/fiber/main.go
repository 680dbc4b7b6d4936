// Fiber limits a program of Fiber v2: all routes together and two routes more strictly, with an answer of its own over
// the limit. It sends itself a few requests:
//
//	go run ./examples/fiber
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/fibermw"
	"github.com/weir-go/weir/keyfunc"
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func slowDown(c *fiber.Ctx, v *guard.Verdict) error {
	return c.Status(v.Status).JSON(fiber.Map{"error": "slow down", "policy": v.Policy})
}

func newApp(g *guard.Guard) *fiber.App {
	answer := func(text string) fiber.Handler {
		return func(c *fiber.Ctx) error { return c.SendString(text) }
	}
	app := fiber.New()
	app.Use(fibermw.Limit(g))
	app.Get("/hello", answer("hello"))
	app.Post("/login", fibermw.Limit(g.With("login", "2/1m; fail closed")), answer("welcome"))
	app.Get("/reports/:id", fibermw.Limit(g.With("reports", "1/1m")), answer("a report"))
	return app
}

func run(out io.Writer) error {
	g, err := guard.New(guard.Config{Rule: guard.Rule{
		Policy:    "100/1m",
		Key:       keyfunc.IP(),
		OverLimit: fibermw.Handle(slowDown),
	}})
	if err != nil {
		return err
	}
	app := newApp(g)
	for _, text := range []string{"GET /hello", "POST /login", "POST /login", "POST /login", "GET /reports/7", "GET /reports/8"} {
		method, path, _ := strings.Cut(text, " ")
		res, err := app.Test(httptest.NewRequest(method, path, http.NoBody), -1)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			return err
		}
		_ = res.Body.Close()
		fmt.Fprintln(out, text, res.StatusCode, string(body))
	}
	return nil
}
