package guard

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/core/guard/internal/patterns"
	"github.com/weir-go/weir/keyfunc"
)

// found is the result of looking up a request in a table.
type found struct {
	table *routes // nil if there is none
	route string  // by which it was looked up
	own   *entry  // which holds, or nil
	// Entries that do not hold, and may be meant, or nil: one that the path of the request is like, and one for the same
	// route that names another method.
	suspect, other *entry
}

// The first lookedAt requests are compared with all entries of a table, and of those that come later one in
// lookedAtLater: that costs little, and finds what is tried often.
const (
	lookedAt      = 1000
	lookedAtLater = 32
)

// maxClosed bounds the routes that are closed. Only patterns that a router has registered are among them.
const maxClosed = 1000

// overlooked has the routes that are closed because of entries that did not hold although they were meant. All
// versions of a table share it.
type overlooked struct {
	looks  atomic.Int32 // requests that were compared, about up to lookedAt
	closed sync.Map     // by route, those that Config.StrictRoutes has closed
	count  atomic.Int32 // of closed
}

// due reports whether to compare a request with all entries.
func (o *overlooked) due() bool {
	if o.looks.Load() < lookedAt {
		o.looks.Add(1)
		return true
	}
	return rand.Uint32N(lookedAtLater) == 0
}

// close remembers that requests of a route are not to go on.
func (o *overlooked) close(r route) {
	if _, known := o.closed.Load(r); known || o.count.Load() >= maxClosed {
		return
	}
	if _, known := o.closed.LoadOrStore(r, true); !known {
		o.count.Add(1)
	}
}

// unnamed, in the place of a route's method, closes it for the methods of which no entry speaks.
const unnamed = "*"

// isClosed reports whether a request is not to go on.
func (o *overlooked) isClosed(f *found) bool {
	if o.count.Load() == 0 {
		return false
	}
	_, closed := o.closed.Load(route{"", f.route})
	if !closed && f.other != nil {
		_, closed = o.closed.Load(route{unnamed, f.route})
	}
	return closed
}

// errOverlooked is the error of what StrictRoutes refuses.
var errOverlooked = errors.New("guard: refused by StrictRoutes, because an entry of Routes may be meant that does not hold for the route that was found; the log says which")

// find writes to f what the table says of a request, and reports whether the request may go on. Under StrictRoutes it
// may not if another entry may be meant for it.
func (g *Guard) find(t *routes, r keyfunc.Request, f *found) (goesOn bool) {
	method := r.Method()
	f.table, f.route = t, r.Route()
	f.own = t.lookup(method, f.route)
	if (f.own == nil || !f.own.alone) && (g.strict || t.due()) {
		f.suspect = t.suspect(method, r, f)
	}
	if f.own == nil && !usual(method) {
		f.other = t.ofOtherMethod(method, f.route)
	}
	if !g.strict {
		return true
	}
	if f.suspect != nil && len(f.suspect.rules) > 0 { // one that only lifts limits is evaded by nobody
		g.warnUnheld(f.suspect, f.route)
		return false
	}
	return !t.isClosed(f)
}

// usual reports whether a method is one for which an entry for another one may well be silent on purpose: a form is
// fetched and sent under one path.
func usual(method string) bool {
	switch method {
	case "GET", "HEAD", "POST", "OPTIONS", "TRACE", "CONNECT":
		return true
	default:
		return false
	}
}

// suspect returns an entry that the path of a request is like, but that does not hold for the route that was found,
// although that is one for more paths: as if the entry's pattern were not registered.
func (t *routes) suspect(method string, r keyfunc.Request, f *found) *entry {
	switch method {
	case "OPTIONS", "TRACE", "CONNECT": // which middleware answers
		return nil
	case "HEAD":
		method = "GET"
	}
	host := r.Host()
	var room [16]string
	asked := patterns.ReadPath(r.Path(), t.deepest, room[:0])
	for _, e := range t.all {
		if e == f.own || e.shape.Rest && len(e.shape.Parts) == 0 { // all paths are like that
			continue
		}
		if e.method != "" && e.method != method || e.holdsFor(f.route) || e.shape.Host != "" && !e.shape.IsHost(host) {
			continue
		}
		if e.shape.Fits(&asked, f.route == "") && (f.route == "" || e.isWithin(f.route)) {
			return e
		}
	}
	return nil
}

// ofOtherMethod returns an entry for a pattern that names another method, if there is one.
func (t *routes) ofOtherMethod(method, pattern string) *entry {
	for _, e := range t.all {
		if !e.prefix && e.pattern == pattern && e.method != "" && e.method != "GET" && e.method != method {
			return e
		}
	}
	return nil
}

// compare looks, when the handler has returned, at whether the request has taken the route that was found, and whether
// an entry that may have been meant would have been the right one.
func (g *Guard) compare(x Exchange, f *found, err error) {
	t := f.table
	taken, everyMethod := x.Routed()
	switch {
	case taken == "":
	case taken != f.route:
		if meant := t.lookup(x.Method(), taken); meant != f.own && !patterns.Alike(taken, f.route) {
			g.warnTaken(cmp.Or(meant, f.own), f.route, taken)
			t.close(route{"", f.route})
			return
		}
	case everyMethod && f.other != nil && answered(x.Final(err, false).Status):
		g.warnMethod(f.other)
		t.close(route{unnamed, taken})
		return
	}
	if f.suspect != nil && answered(x.Final(err, false).Status) {
		g.warnUnheld(f.suspect, f.route)
	}
}

// answered reports whether a status may be that of a handler: it is not one by which routers say that they have found
// none, or send clients to the path as they have it.
func answered(status int) bool {
	switch status {
	case 301, 307, 308, 404, 405, 501:
		return false
	default:
		return true
	}
}

// holdsFor reports whether the entry is for a registered pattern, whatever the method.
func (e *entry) holdsFor(pattern string) bool {
	return e.pattern == pattern || e.prefix && strings.HasPrefix(pattern, e.pattern)
}

// isWithin reports whether a registered pattern is for the paths of the entry and for more: in its place it has
// parameters, or it takes the rest.
func (e *entry) isWithin(pattern string) bool {
	return e.shape.IsPartOf(patterns.Read(pattern, strings.HasSuffix(pattern, "/")), e.prefix)
}
