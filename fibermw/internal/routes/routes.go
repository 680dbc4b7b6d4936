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
func (f *Finder) Find(c *fiber.Ctx) string { return f.table(c).find(c) }

// Taken returns the path, in the same form, of the route that c has taken last. It is "" if that is middleware.
func (f *Finder) Taken(c *fiber.Ctx) string { return f.table(c).positions[c.Route()].name }

func (f *Finder) table(c *fiber.Ctx) *table {
	found, ok := f.tables.Load(c.App())
	if !ok {
		found, _ = f.tables.LoadOrStore(c.App(), newTable(c.App()))
	}
	return found.(*table) //nolint:forcetypeassert // nothing else is stored
}

// table is an app's routing table.
type table struct {
	form      fiberpath.Form
	positions map[*fiber.Route]position // of all routes, middleware included
	handlers  map[string][]endpoint     // by method
}

// position is the order of a route in the list of its method.
type position struct {
	order   int
	handler bool   // not middleware
	name    string // as in endpoint
}

// endpoint is a route with a handler.
type endpoint struct {
	order   int
	name    string // the path of the first route of this shape, as it was registered
	pattern fiberpath.Pattern
}

func newTable(app *fiber.App) *table {
	config := app.Config()
	t := &table{
		form:      fiberpath.Form{CaseSensitive: config.CaseSensitive, StrictRouting: config.StrictRouting},
		positions: map[*fiber.Route]position{},
		handlers:  map[string][]endpoint{},
	}
	handlers := app.GetRoutes(true) // the same routes as in Stack, but for middleware
	for number, stack := range app.Stack() {
		method, names := config.RequestMethods[number], map[string]string{}
		for order, r := range stack {
			if len(handlers) == 0 || !same(r, &handlers[0]) {
				t.positions[r] = position{order: order}
				continue
			}
			handlers = handlers[1:]
			p := fiberpath.Parse(t.form.Of(r.Path), fiberpath.Fiber2)
			shape := p.Shape()
			if _, ok := names[shape]; !ok {
				names[shape] = r.Path
			}
			t.positions[r] = position{order: order, handler: true, name: names[shape]}
			t.handlers[method] = append(t.handlers[method], endpoint{order, names[shape], p})
		}
	}
	return t
}

// same reports whether b is a copy of a.
func same(a, b *fiber.Route) bool {
	return a.Method == b.Method && a.Path == b.Path && len(a.Handlers) == len(b.Handlers) &&
		(len(a.Handlers) == 0 || &a.Handlers[0] == &b.Handlers[0])
}

// find looks for c's route among those that come after the current one, as Fiber does.
func (t *table) find(c *fiber.Ctx) string {
	current, ok := t.positions[c.Route()]
	if current.handler {
		return current.name
	}
	if !ok {
		current.order = -1
	}
	path := t.form.Of(c.Path())
	for i := range t.handlers[c.Method()] {
		e := &t.handlers[c.Method()][i]
		if e.order > current.order && e.pattern.Matches(path) {
			return e.name
		}
	}
	return ""
}
