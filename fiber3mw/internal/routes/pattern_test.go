package routes_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-go/weir/fiber3mw/internal/routes"
)

// FuzzFind compares with Fiber: in an app of any patterns, one a line, the route that is
// found before the handler runs is the one whose handler runs. With the flag 4, the app is mounted in another one.
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
		{"/*::a\n/:::b", "/x:y"},
		{"/a/:x\n/\\*", "/m/a/b"},
		{"/*\n/:::x+\n/b", "//"},
	} {
		for flags := range uint8(8) {
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
		app.Use(func(c fiber.Ctx) error {
			c.Path(path)
			found = finder.Find(c)
			return c.Next()
		})
		served := app
		if flags&4 != 0 {
			served = fiber.New()
		}
		for pattern := range strings.SplitSeq(patterns, "\n") {
			if !registered(served, pattern, func(c fiber.Ctx) error { ran = c.Route().Path; return nil }) {
				return
			}
		}
		if served != app && !mounted(app, served) {
			return
		}
		ctx := &fasthttp.RequestCtx{}
		ctx.Request.Header.SetMethod(http.MethodGet)
		app.Handler()(ctx)
		require.Equal(t, ran, found)
	})
}

// registered reports whether Fiber accepts pattern: one with more than 30 parameters it
// refuses by a panic.
func registered(app *fiber.App, pattern string, h fiber.Handler) (ok bool) {
	defer func() { ok = recover() == nil }()
	app.Get(pattern, h)
	return true
}

// mounted mounts sub in app, and reports whether Fiber accepts that.
func mounted(app, sub *fiber.App) (ok bool) {
	defer func() { ok = recover() == nil }()
	app.Use("/m", sub)
	app.Handler()
	return true
}
