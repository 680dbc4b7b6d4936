package fiber3mw_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/basicauth"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/fiber3mw"
	"github.com/weir-go/weir/keyfunc"
)

// Two requests a minute from each user to each route.
func ExampleLimit() {
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{
			Policy: "2/1m",
			Key:    keyfunc.Join(keyfunc.User("uid"), keyfunc.Route()),
		},
	})
	if err != nil {
		panic(err)
	}
	app := fiber.New()
	app.Use(func(c fiber.Ctx) error { // in place of authentication
		c.Locals("uid", 42)
		return c.Next()
	})
	app.Use("/*", fiber3mw.Limit(g))
	app.Get("/items/:id", func(c fiber.Ctx) error { return c.SendString("item") })

	for _, path := range []string{"/items/1", "/items/2", "/items/3"} {
		res, err := app.Test(httptest.NewRequest(http.MethodGet, path, nil))
		if err != nil {
			panic(err)
		}
		res.Body.Close()
		fmt.Printf("%d remaining=%q retry-after=%q\n", res.StatusCode, res.Header.Get("X-RateLimit-Remaining"), res.Header.Get("Retry-After"))
	}
	// Output:
	// 200 remaining="1" retry-after=""
	// 200 remaining="0" retry-after=""
	// 429 remaining="0" retry-after="30"
}

// Two requests a minute from each user that Fiber's own middleware knows.
func ExampleLimit_user() {
	known := func(name, password string, _ fiber.Ctx) bool { return name == password }

	app := fiber.New()
	app.Use(basicauth.New(basicauth.Config{Authorizer: known}))
	app.Use(func(c fiber.Ctx) error {
		c.Locals("username", basicauth.UsernameFromContext(c))
		return c.Next()
	})
	app.Use("/*", fiber3mw.Limit(guard.Must("2/1m", keyfunc.User("username"))))
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("welcome") })

	for _, user := range []string{"ada", "ada", "ada", "bob"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.SetBasicAuth(user, user)
		res, err := app.Test(r)
		if err != nil {
			panic(err)
		}
		res.Body.Close()
		fmt.Println(user, res.StatusCode)
	}
	// Output:
	// ada 200
	// ada 200
	// ada 429
	// bob 200
}

// An answer of the program's own: JSON instead of text.
func ExampleHandle() {
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{
			Policy: "1/1m",
			Key:    keyfunc.Const("everybody"),
			OverLimit: fiber3mw.Handle(func(c fiber.Ctx, v *guard.Verdict) error {
				return c.Status(v.Status).JSON(fiber.Map{"policy": v.Policy})
			}),
		},
	})
	if err != nil {
		panic(err)
	}
	app := fiber.New()
	app.Post("/login", fiber3mw.Limit(g), func(c fiber.Ctx) error { return c.SendString("welcome") })

	for range 2 {
		res, err := app.Test(httptest.NewRequest(http.MethodPost, "/login", nil))
		if err != nil {
			panic(err)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			panic(err)
		}
		res.Body.Close()
		fmt.Println(res.StatusCode, string(body))
	}
	// Output:
	// 200 welcome
	// 429 {"policy":"default"}
}
