package ginmw_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/ginmw"
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
	engine := gin.New()
	engine.Use(ginmw.Limit(g))
	engine.GET("/items/:id", func(c *gin.Context) { c.String(http.StatusOK, "item") })

	for _, path := range []string{"/items/1", "/items/2", "/items/3"} {
		w := httptest.NewRecorder()
		engine.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
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
			OverLimit: ginmw.Handle(func(c *gin.Context, v *guard.Verdict) {
				c.JSON(v.Status, gin.H{"policy": v.Policy})
			}),
		},
	})
	if err != nil {
		panic(err)
	}
	engine := gin.New()
	engine.POST("/login", ginmw.Limit(g), func(c *gin.Context) { c.String(http.StatusOK, "welcome") })

	for range 2 {
		w := httptest.NewRecorder()
		engine.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/login", nil))
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 welcome
	// 429 {"policy":"default"}
}
