// Package routes finds the route that a Fiber app will take for a request. Fiber itself
// names it only once the route's handlers run, and a middleware in Use needs it before.
package routes

import (
	"sync"
	"sync/atomic"

	"github.com/gofiber/fiber/v3"

	"github.com/weir-go/weir/internal/fiberpath"
)

// Finder finds the routes of the requests to the apps in which one middleware is
// mounted: almost always one app. The zero Finder is ready for use, by many goroutines.
type Finder struct{ apps sync.Map } // of *tables, by *fiber.App

// tables holds the routing table of an app.
type tables struct {
	reading sync.Mutex
	last    atomic.Pointer[table]
}

// Find returns the path, as it was registered, of the route with a handler that c will
// take, or has taken. It is "" where no route matches. Constraints are not looked at,
// and of routes that match the same paths but for them, the first is returned for all.
//
// The app's routing table is read at the first request, and again when routes were added or removed, which Fiber
// does not allow while it serves requests. What is found is never kept by path, or clients could fill the memory with
// paths.
func (f *Finder) Find(c fiber.Ctx) string {
	return f.table(c).Find(c.Route(), c.Method(), c.Path())
}

// Taken returns the path, in the same form, of the route that c has taken last. It is "" if that is middleware.
func (f *Finder) Taken(c fiber.Ctx) string { return f.table(c).Name(c.Route()) }

func (f *Finder) table(c fiber.Ctx) *table {
	app := c.App()
	found, ok := f.apps.Load(app)
	if !ok {
		found, _ = f.apps.LoadOrStore(app, &tables{})
	}
	return found.(*tables).of(app) //nolint:forcetypeassert // nothing else is stored
}

// of returns the table of the app's present routes, which one goroutine reads for all.
func (s *tables) of(app *fiber.App) *table {
	if t := s.last.Load(); t != nil && t.current(app) {
		return t
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	t := s.last.Load()
	if t == nil || !t.current(app) {
		t = newTable(app)
		s.last.Store(t)
	}
	return t
}

// table has the routes of an app.
type table struct {
	*fiberpath.Table[fiber.Route]
	extents []extent // of the lists of routes that were read
}

// extent has the marks of a list of routes. Fiber appends routes to it, removes some, and makes another one where it
// mounts an app. So a list with the same marks has the same routes: HandlersCount is also the same where one route has
// taken the place of another.
type extent struct {
	first  **fiber.Route
	length int
	last   *fiber.Route
}

func extentOf(stack []*fiber.Route) extent {
	if len(stack) == 0 {
		return extent{}
	}
	return extent{&stack[0], len(stack), stack[len(stack)-1]}
}

// current reports whether the app's routes are still those that were read.
func (t *table) current(app *fiber.App) bool {
	for number, stack := range app.Stack() {
		if extentOf(stack) != t.extents[number] {
			return false
		}
	}
	return true
}

func newTable(app *fiber.App) *table {
	config := app.Config()
	form := fiberpath.Form{CaseSensitive: config.CaseSensitive, StrictRouting: config.StrictRouting}
	t := &table{Table: fiberpath.NewTable[fiber.Route](form)}
	handlers := app.GetRoutes(true) // the same routes as in Stack, but for middleware
	for number, stack := range app.Stack() {
		t.extents = append(t.extents, extentOf(stack))
		for order, r := range stack {
			if len(handlers) == 0 || !same(r, &handlers[0]) {
				t.AddMiddleware(r, order)
				continue
			}
			handlers = handlers[1:]
			parse := fiberpath.Parse
			if len(r.Params) == 0 { // those of the path at which an app is mounted are text to Fiber
				parse = fiberpath.Literal
			}
			t.AddHandler(r, order, config.RequestMethods[number], r.Path, parse(form.Of(r.Path), fiberpath.Fiber3))
		}
	}
	return t
}

// same reports whether b is a copy of a.
func same(a, b *fiber.Route) bool {
	return a.Method == b.Method && a.Path == b.Path && len(a.Handlers) == len(b.Handlers) &&
		(len(a.Handlers) == 0 || &a.Handlers[0] == &b.Handlers[0])
}
