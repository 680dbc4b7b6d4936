// Package routes finds the route that a Fiber app will take for a request. Fiber itself
// names it only once the route's handlers run, and a middleware in Use needs it before.
package routes

import (
	"sync"

	"github.com/gofiber/fiber/v2"

	"github.com/weir-go/weir/internal/fiberpath"
)

// Finder finds the routes of the requests to the apps in which one middleware is
// mounted: almost always one app. The zero Finder is ready for use, by many goroutines.
type Finder struct{ tables sync.Map } // of *table, by *fiber.App

// Find returns the path, as it was registered, of the route with a handler that c will
// take, or has taken. It is "" where no route matches. Constraints are not looked at,
// and of routes that match the same paths but for them, the first is returned for all.
//
// The app must be complete: its routing table is read once, at the first request. What
// is found is never kept by path, or clients could fill the memory with paths.
func (f *Finder) Find(c *fiber.Ctx) string {
	return f.table(c).Find(c.Route(), c.Method(), c.Path())
}

// Taken returns the path, in the same form, of the route that c has taken last. It is "" if that is middleware.
func (f *Finder) Taken(c *fiber.Ctx) string { return f.table(c).Name(c.Route()) }

func (f *Finder) table(c *fiber.Ctx) *table {
	found, ok := f.tables.Load(c.App())
	if !ok {
		found, _ = f.tables.LoadOrStore(c.App(), newTable(c.App()))
	}
	return found.(*table) //nolint:forcetypeassert // nothing else is stored
}

// table has the routes of an app.
type table = fiberpath.Table[fiber.Route]

func newTable(app *fiber.App) *table {
	config := app.Config()
	form := fiberpath.Form{CaseSensitive: config.CaseSensitive, StrictRouting: config.StrictRouting}
	t := fiberpath.NewTable[fiber.Route](form)
	handlers := app.GetRoutes(true) // the same routes as in Stack, but for middleware
	for number, stack := range app.Stack() {
		for order, r := range stack {
			if len(handlers) == 0 || !same(r, &handlers[0]) {
				t.AddMiddleware(r, order)
				continue
			}
			handlers = handlers[1:]
			t.AddHandler(r, order, config.RequestMethods[number], r.Path, fiberpath.Parse(form.Of(r.Path), fiberpath.Fiber2))
		}
	}
	return t
}

// same reports whether b is a copy of a.
func same(a, b *fiber.Route) bool {
	return a.Method == b.Method && a.Path == b.Path && len(a.Handlers) == len(b.Handlers) &&
		(len(a.Handlers) == 0 || &a.Handlers[0] == &b.Handlers[0])
}
