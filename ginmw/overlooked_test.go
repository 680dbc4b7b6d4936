package ginmw_test

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/ginmw"
	"github.com/weir-go/weir/internal/adaptertest"
)

// Where NoRoute serves what an entry is for, and where another pattern is registered, an entry that does not hold is
// noticed.
func TestOverlooked(t *testing.T) {
	for name, c := range map[string]struct {
		found string
		serve func(r *gin.Engine, login gin.HandlerFunc)
	}{
		"NoRoute":       {"", func(r *gin.Engine, login gin.HandlerFunc) { r.NoRoute(login) }},
		"a parameter":   {"/:page", func(r *gin.Engine, login gin.HandlerFunc) { r.POST("/:page", login) }},
		"a prefix":      {"/*path", func(r *gin.Engine, login gin.HandlerFunc) { r.Any("/*path", login) }},
		"a mounted mux": {"/*path", func(r *gin.Engine, login gin.HandlerFunc) { r.POST("/*path", login) }},
	} {
		t.Run(name, func(t *testing.T) {
			adaptertest.Overlooked{
				Entry: "POST /login", Method: http.MethodPost, Path: "/login", Found: c.found,
				Build: func(g *guard.Guard, runs *int) func(*http.Request) int {
					r := gin.New()
					r.Use(ginmw.Limit(g))
					c.serve(r, func(c *gin.Context) {
						*runs++
						c.AbortWithStatus(http.StatusUnauthorized)
					})
					return adaptertest.Send(r)
				},
			}.Run(t)
		})
	}
}
