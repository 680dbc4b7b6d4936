package routes_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-go/weir/fibermw/internal/routes"
)

// FuzzFind compares with Fiber: in an app of any patterns, one a line, the route that is
// found before the handler runs is the one whose handler runs.
func FuzzFind(f *testing.F) {
	for _, seed := range [][2]string{
		{"/items/:id", "/items/1"},
		{"/items/special\n/items/:id\n/*", "/items/special/"},
		{"/from-:a.:b\n/:x:y", "/from-a.b"},
		{"/opt/:a?\n/opt/+", "/OPT"},
		{"/a/*-b/:c\n/a/*", "/a/x-b/y-b/z"},
		{"/verb\\:do\n/\\*\n/:\\:", "/verb:do"},
		{"*\n+", "/a"},
		{"::a\n/b+*", "/b"},
		{"/ab\n/ab/*\n/b/:x?", "/b"},
	} {
		for flags := range uint8(4) {
			f.Add(seed[0], seed[1], flags)
		}
	}
	f.Fuzz(func(t *testing.T, patterns, path string, flags uint8) {
		if strings.ContainsAny(patterns, "<>") || !strings.HasPrefix(path, "/") {
			return // constraints are left out on purpose, and no request has such a path
		}
		var finder routes.Finder
		found, ran := "", ""
		app := fiber.New(fiber.Config{CaseSensitive: flags&1 != 0, StrictRouting: flags&2 != 0})
		app.Use(func(c *fiber.Ctx) error {
			c.Path(path)
			found = finder.Find(c)
			return c.Next()
		})
		for pattern := range strings.SplitSeq(patterns, "\n") {
			if !registered(app, pattern, func(c *fiber.Ctx) error { ran = c.Route().Path; return nil }) {
				return
			}
		}
		ctx := &fasthttp.RequestCtx{}
		ctx.Request.Header.SetMethod(http.MethodGet)
		app.Handler()(ctx)
		require.Equal(t, ran, found)
	})
}

// registered reports whether Fiber accepts pattern: one with more than 30 parameters it refuses by a panic, or, in
// old versions, panics at the first request.
func registered(app *fiber.App, pattern string, h fiber.Handler) (ok bool) {
	if strings.Count(pattern, "*")+strings.Count(pattern, "+")+strings.Count(pattern, ":") > 30 {
		return false
	}
	defer func() { ok = recover() == nil }()
	app.Get(pattern, h)
	return true
}
