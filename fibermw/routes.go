package fibermw

import (
	"strings"
	"sync"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"
)

// apps are the routing tables of the apps in which one Limit is mounted: almost
// always one.
type apps struct{ tables sync.Map }

// route finds the pattern of the route that c will take, or has taken. Fiber does
// not know it in Use, before Next; so it is looked up in the app's routing table,
// in the same order. What is found is never kept by path: clients would fill the
// memory with paths.
func (a *apps) route(c *fiber.Ctx) string {
	found, ok := a.tables.Load(c.App())
	if !ok { // the app is complete once it serves
		found, _ = a.tables.LoadOrStore(c.App(), newTable(c.App()))
	}
	return found.(*table).route(c) //nolint:forcetypeassert // nothing else is stored
}

// table is an app's routing table.
type table struct {
	lower, trim bool                   // how paths are compared
	places      map[*fiber.Route]place // of all routes, middleware included
	handlers    map[string][]entry     // by method
}

// place is where a route stands in the list of its method.
type place struct {
	order   int
	handler bool   // not middleware
	name    string // as in entry
}

// entry is a route with a handler.
type entry struct {
	order   int
	name    string // the path of the first route of this shape, as it was registered
	pattern pattern
}

func newTable(app *fiber.App) *table {
	config := app.Config()
	t := &table{
		lower:    !config.CaseSensitive,
		trim:     !config.StrictRouting,
		places:   map[*fiber.Route]place{},
		handlers: map[string][]entry{},
	}
	handlers := app.GetRoutes(true) // the same routes as in Stack, but for middleware
	for number, stack := range app.Stack() {
		method, names := config.RequestMethods[number], map[string]string{}
		for order, r := range stack {
			if len(handlers) == 0 || !same(r, &handlers[0]) {
				t.places[r] = place{order: order}
				continue
			}
			handlers = handlers[1:]
			p := parse(t.comparable(r.Path))
			shape := p.shape()
			if _, ok := names[shape]; !ok {
				names[shape] = r.Path
			}
			t.places[r] = place{order: order, handler: true, name: names[shape]}
			t.handlers[method] = append(t.handlers[method], entry{order, names[shape], p})
		}
	}
	return t
}

// same tells whether b is a copy of a.
func same(a, b *fiber.Route) bool {
	return a.Method == b.Method && a.Path == b.Path && len(a.Handlers) == len(b.Handlers) &&
		(len(a.Handlers) == 0 || &a.Handlers[0] == &b.Handlers[0])
}

// comparable is a path or a pattern in the form in which Fiber compares them.
func (t *table) comparable(path string) string {
	if t.lower {
		path = lower(path)
	}
	if t.trim && len(path) > 1 {
		path = utils.TrimRight(path, '/')
	}
	return path
}

// lower spares almost all paths the copy.
func lower(path string) string {
	if strings.ContainsAny(path, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		return utils.ToLower(path)
	}
	return path
}

func (t *table) route(c *fiber.Ctx) string {
	current, ok := t.places[c.Route()]
	if current.handler {
		return current.name
	}
	if !ok {
		current.order = -1
	}
	path := t.comparable(c.Path())
	for i := range t.handlers[c.Method()] {
		e := &t.handlers[c.Method()][i]
		if e.order > current.order && e.pattern.matches(path) {
			return e.name
		}
	}
	return ""
}
