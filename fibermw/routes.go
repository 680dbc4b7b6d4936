package fibermw

import (
	"regexp"
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
	handler bool // not middleware
}

// entry is a route with a handler.
type entry struct {
	order   int
	path    string // as it was registered
	pattern string // as it is compared
	prefix  string // with which every path begins that matches
	// segments are those of a pattern in which each is a literal or a parameter
	// like ":id", which begins with a colon then. nil for other patterns.
	segments []string
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
	for method, stack := range app.Stack() {
		name := config.RequestMethods[method]
		for order, r := range stack {
			if len(handlers) == 0 || !same(r, &handlers[0]) {
				t.places[r] = place{order: order}
				continue
			}
			handlers = handlers[1:]
			t.places[r] = place{order: order, handler: true}
			t.handlers[name] = append(t.handlers[name], t.entry(order, r.Path))
		}
	}
	return t
}

// same tells whether b is a copy of a.
func same(a, b *fiber.Route) bool {
	return a.Method == b.Method && a.Path == b.Path && len(a.Handlers) == len(b.Handlers) &&
		(len(a.Handlers) == 0 || &a.Handlers[0] == &b.Handlers[0])
}

var (
	special = regexp.MustCompile(`[:*+\\]`)
	simple  = regexp.MustCompile(`^(/(:\w+|[^:*+\\/]+))+$`)
)

func (t *table) entry(order int, path string) entry {
	e := entry{order: order, path: path, pattern: t.comparable(path)}
	e.prefix = special.Split(e.pattern, 2)[0]
	if e.prefix != e.pattern {
		e.prefix = strings.TrimRight(e.prefix, "/") // which an optional parameter takes along
	}
	if simple.MatchString(e.pattern) {
		e.segments = strings.Split(e.pattern[1:], "/")
	}
	return e
}

// comparable is a path or a pattern in the form in which Fiber compares them.
func (t *table) comparable(path string) string {
	if t.lower && strings.ContainsAny(path, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		path = utils.ToLower(path)
	}
	if t.trim && len(path) > 1 {
		path = utils.TrimRight(path, '/')
	}
	return path
}

func (t *table) route(c *fiber.Ctx) string {
	current, ok := t.places[c.Route()]
	if current.handler {
		return c.Route().Path
	}
	if !ok {
		current.order = -1
	}
	path := t.comparable(c.Path())
	for _, e := range t.handlers[c.Method()] {
		if e.order > current.order && e.matches(path) {
			return e.path
		}
	}
	return ""
}

func (e *entry) matches(path string) bool {
	if !strings.HasPrefix(path, e.prefix) {
		return false
	}
	if e.prefix == e.pattern {
		return path == e.pattern
	}
	if e.segments == nil { // path and pattern are lowered and trimmed already
		return fiber.RoutePatternMatch(path, e.pattern, fiber.Config{CaseSensitive: true, StrictRouting: true})
	}
	for _, want := range e.segments {
		if path == "" || path[0] != '/' {
			return false
		}
		end := strings.IndexByte(path[1:], '/') + 1
		if end == 0 {
			end = len(path)
		}
		if segment := path[1:end]; segment != want && (want[0] != ':' || segment == "") {
			return false
		}
		path = path[end:]
	}
	return path == ""
}
