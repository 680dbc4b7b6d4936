package fiberpath

// Table has the routes of an app, of the type R of one version of Fiber, in the form in which the app compares paths.
type Table[R any] struct {
	form      Form
	positions map[*R]position
	handlers  map[string][]endpoint // by method
	names     map[string]string     // by method and shape
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
	pattern Pattern
}

// NewTable makes an empty table.
func NewTable[R any](form Form) *Table[R] {
	return &Table[R]{form, map[*R]position{}, map[string][]endpoint{}, map[string]string{}}
}

// AddMiddleware adds a route without a handler, which has that place in the list of its method.
func (t *Table[R]) AddMiddleware(route *R, order int) { t.positions[route] = position{order: order} }

// AddHandler adds a route with a handler, which has that place in the list of its method. path is as it was registered,
// and p is the pattern of it in the table's form.
func (t *Table[R]) AddHandler(route *R, order int, method, path string, p Pattern) {
	shape := method + " " + p.Shape()
	name, ok := t.names[shape]
	if !ok {
		name, t.names[shape] = path, path
	}
	t.positions[route] = position{order: order, handler: true, name: name}
	t.handlers[method] = append(t.handlers[method], endpoint{order, name, p})
}

// Name returns the path of a route with a handler: that of the first of its shape, as it was registered. It is "" for
// middleware, and for a route that is not in the table.
func (t *Table[R]) Name(route *R) string { return t.positions[route].name }

// Find returns the name of the route with a handler that a request at route will take, or has taken: it looks among
// those that come after, as Fiber does. It is "" where no route matches.
func (t *Table[R]) Find(route *R, method, path string) string {
	current, ok := t.positions[route]
	if current.handler {
		return current.name
	}
	if !ok {
		current.order = -1
	}
	path = t.form.Of(path)
	handlers := t.handlers[method]
	for i := range handlers {
		e := &handlers[i]
		if e.order > current.order && e.pattern.Matches(path) {
			return e.name
		}
	}
	return ""
}
