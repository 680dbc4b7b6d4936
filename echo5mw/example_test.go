package echo5mw_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v5"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/echo5mw"
	"github.com/weir-go/weir/keyfunc"
)

// Two requests a minute from each address to each route.
func ExampleLimit() {
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{
			Policy: "2/1m",
			Key:    keyfunc.Join(keyfunc.IP(), keyfunc.Route()),
		},
	})
	if err != nil {
		panic(err)
	}
	e := echo.New()
	e.Use(echo5mw.Limit(g))
	e.GET("/items/:id", func(c *echo.Context) error { return c.String(http.StatusOK, "item") })

	for _, path := range []string{"/items/1", "/items/2", "/items/3"} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Printf("%d remaining=%q retry-after=%q\n", w.Code, w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("Retry-After"))
	}
	// Output:
	// 200 remaining="1" retry-after=""
	// 200 remaining="0" retry-after=""
	// 429 remaining="0" retry-after="30"
}

// An answer of the program's own: JSON instead of text.
func ExampleHandle() {
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{
			Policy: "1/1m",
			Key:    keyfunc.IP(),
			OverLimit: echo5mw.Handle(func(c *echo.Context, v *guard.Verdict) error {
				return c.JSON(v.Status, map[string]string{"policy": v.Policy})
			}),
		},
	})
	if err != nil {
		panic(err)
	}
	e := echo.New()
	e.POST("/login", func(c *echo.Context) error { return c.String(http.StatusOK, "welcome") }, echo5mw.Limit(g))

	for range 2 {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/login", nil))
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 welcome
	// 429 {"policy":"default"}
}

// failure is an error of the program with the status that Echo answers it with.
type failure struct {
	text   string
	status int
}

func (f *failure) Error() string   { return f.text }
func (f *failure) StatusCode() int { return f.status }

var errWrongPassword = &failure{"wrong password", http.StatusUnauthorized}

// Logins that failed are counted, and no others, by the status of the error that the handler returns.
func ExampleLimit_failedLogins() {
	g, err := guard.New(guard.Config{Rule: guard.Rule{
		Policy: "login: 2/1m",
		Key:    keyfunc.IP(),
		After: func(f guard.Final) int64 {
			if f.Status == http.StatusUnauthorized {
				return 1
			}
			return 0
		},
	}})
	if err != nil {
		panic(err)
	}
	e := echo.New()
	e.Use(echo5mw.Limit(g))
	e.POST("/login", func(c *echo.Context) error {
		if c.QueryParam("password") != "secret" {
			return fmt.Errorf("login of %s: %w", c.RealIP(), errWrongPassword)
		}
		return c.String(http.StatusOK, "welcome")
	})

	for _, password := range []string{"secret", "guess", "secret", "guess", "secret"} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/login?password="+password, nil))
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 401
	// 200
	// 401
	// 429
}
