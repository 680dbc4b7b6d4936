package guard

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard/internal/patterns"
)

// routes is the table of Config.Routes: what holds for a route, worked out when the Guard is built.
type routes struct {
	exact    map[route]*entry
	prefixes []*entry // the longest first, and of these the one with a method
	all      []*entry // in the order of their text
	deepest  int      // how many parts a pattern of them has at most
	*overlooked
}

// route is a registered pattern, and a method or "" for all.
type route struct{ method, pattern string }

// entry is one of the table.
type entry struct {
	route  // of a prefix, the pattern is the beginning of registered patterns
	prefix bool
	rules  []*rule
	shape  patterns.Pattern
	alone  bool         // no other entry is for a part of its paths
	warned *atomic.Bool // that it was overlooked
}

// newRoutes reads the table. all are the rules that hold for every request; add prepares one.
func newRoutes(table map[string]Rule, all []*rule, add func(r Rule, name, where string) *rule) (*routes, error) {
	if len(table) == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	t := &routes{exact: map[route]*entry{}, overlooked: new(overlooked)}
	var mistakes []error
	names := map[string]string{}
	for _, text := range slices.Sorted(maps.Keys(table)) {
		r := table[text]
		where := fmt.Sprintf("Routes[%q]: ", text)
		to, err := parseRoute(text)
		if err != nil {
			mistakes = append(mistakes, prefixed(where, err))
			continue
		}
		var rules []*rule
		switch {
		case r.Policy != "":
			name := to.name()
			if other, taken := names[name]; taken && hasNoName(r.Policy) {
				mistakes = append(mistakes, prefixed(where, fmt.Errorf("without a name it is called %q, and so is %q; name one, as in \"login: 5/1m\"", name, other)))
				continue
			}
			if hasNoName(r.Policy) {
				names[name] = text
			}
			rules = append(rules, add(r, name, where))
		case !r.Instead:
			mistakes = append(mistakes, prefixed(where, errors.New("there is neither a Policy nor Instead, so it changes nothing; give a Policy, or leave the entry out")))
			continue
		default:
			if idle := r.besidesPolicy(); len(idle) > 0 {
				mistakes = append(mistakes, prefixed(where, fmt.Errorf("without a Policy, Instead means no limit, so that there is nothing to do for %s; give a Policy, or Instead alone", strings.Join(idle, ", "))))
				continue
			}
		}
		if !r.Instead {
			rules = append(rules, all...)
		}
		e := &entry{route: to, rules: rules, warned: new(atomic.Bool)}
		if pattern, ok := strings.CutSuffix(to.pattern, "/*"); ok {
			e.pattern, e.prefix = pattern+"/", true
		}
		e.shape = patterns.Read(e.pattern, e.prefix)
		t.add(e)
	}
	t.sort()
	for _, e := range t.all {
		of := patterns.Read(e.pattern, strings.HasSuffix(e.pattern, "/"))
		e.alone = !e.prefix && !slices.ContainsFunc(t.all, func(other *entry) bool { return other != e && other.shape.IsPartOf(of, other.prefix) })
	}
	return t, errors.Join(mistakes...)
}

func (t *routes) add(e *entry) {
	if e.prefix {
		t.prefixes = append(t.prefixes, e)
	} else {
		t.exact[e.route] = e
	}
	t.all = append(t.all, e)
	t.deepest = max(t.deepest, len(e.shape.Parts))
}

func (t *routes) sort() {
	slices.SortFunc(t.prefixes, func(a, b *entry) int {
		if n := len(b.pattern) - len(a.pattern); n != 0 {
			return n
		}
		return strings.Compare(b.method, a.method)
	})
	slices.SortFunc(t.all, func(a, b *entry) int { return strings.Compare(a.place(), b.place()) })
}

// renewed is the table with other rules.
func (t *routes) renewed(rules func([]*rule) []*rule) *routes {
	next := &routes{exact: make(map[route]*entry, len(t.exact)), overlooked: t.overlooked}
	for _, e := range t.all {
		other := *e
		other.rules = rules(e.rules)
		next.add(&other)
	}
	next.sort()
	return next
}

// besidesPolicy names the fields of r that are set, and have a meaning only beside a Policy.
func (r Rule) besidesPolicy() (names []string) {
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"Key", r.Key.String() != ""},
		{"Skip", r.Skip != nil},
		{"Tier", r.Tier != nil},
		{"Tiers", len(r.Tiers) > 0},
		{"Waiting", r.Waiting != 0},
		{"Cost", r.Cost != nil},
		{"Settle", r.Settle != nil},
		{"After", r.After != nil},
		{"OverLimit", r.OverLimit != nil},
		{"NoKey", r.NoKey != NoKeyDefault},
	} {
		if field.set {
			names = append(names, field.name)
		}
	}
	return names
}

// hasNoName reports whether a policy is to be named after its route. A text that cannot be read is not: that is another
// mistake.
func hasNoName(policy string) bool {
	p, err := core.Parse(policy)
	return err == nil && p.Name() == ""
}

// methods are those that a key of the table may begin with by mistake, without a space after it.
var methods = []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// rooted returns a pattern with a "/" before it, unless it begins with one.
func rooted(pattern string) string { return "/" + strings.TrimPrefix(pattern, "/") }

// parseRoute reads a key of the table: "/items/{id}", "POST /login", "/files/*", "example.com/x". It refuses what is the
// pattern of no router.
func parseRoute(text string) (route, error) {
	method, pattern, found := strings.Cut(text, " ")
	if !found {
		method, pattern = "", text
	}
	switch {
	case slices.Contains(methods, text):
		return route{}, fmt.Errorf("a method alone; add the pattern, as in %q, or \"/*\" for all", text+" /login")
	case pattern == "" || strings.ContainsAny(pattern, " \t") || found && method == "":
		return route{}, errors.New(`give a pattern as the router has it, such as "/items/{id}", with a method before it if need be, as in "POST /login"`)
	case strings.ToUpper(method) != method:
		return route{}, fmt.Errorf("the method %q; give it in upper case, as in %q", method, strings.ToUpper(method)+" "+pattern)
	case method == "HEAD":
		return route{}, errors.New(`HEAD counts as GET; give "GET"`)
	case strings.ContainsAny(method, ",|;/+"):
		return route{}, fmt.Errorf("%q is not one method; give an entry to each, as in %q, or leave the method out for all", method, "POST "+rooted(pattern))
	case !strings.Contains(pattern, "/"):
		return route{}, fmt.Errorf("a pattern has a \"/\"; did you mean %q?", strings.TrimLeft(method+" ", " ")+rooted(pattern))
	}
	if first, rest, _ := strings.Cut(pattern, "/"); !found && slices.Contains(methods, first) {
		return route{}, fmt.Errorf("no space after the method; did you mean %q?", first+" /"+rest)
	}
	return route{method, pattern}, nil
}

// name returns the name of a policy for that route that has none in its text.
func (r route) name() string {
	text := strings.ToLower(r.method) + r.pattern
	name := strings.Trim(strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' {
			return c
		}
		return '-'
	}, text), "-")
	for strings.Contains(name, "--") {
		name = strings.ReplaceAll(name, "--", "-")
	}
	if name == "" {
		name = "root"
	}
	return name[:min(len(name), 64)]
}

// lookup returns the entry that holds for the requests of a registered pattern, or nil.
func (t *routes) lookup(method, pattern string) *entry {
	if method == "HEAD" {
		method = "GET"
	}
	if e, ok := t.exact[route{method, pattern}]; ok {
		return e
	}
	if e, ok := t.exact[route{"", pattern}]; ok || pattern == "" {
		return e
	}
	for _, e := range t.prefixes {
		if (e.method == "" || e.method == method) && strings.HasPrefix(pattern, e.pattern) {
			return e
		}
	}
	return nil
}

// registered reads a route as a router or a person writes it.
func registered(text string) route {
	method, pattern, found := strings.Cut(strings.TrimSpace(text), " ")
	if !found {
		return route{"", method}
	}
	if method == "HEAD" {
		method = "GET"
	}
	return route{method, strings.TrimSpace(pattern)}
}

// String is the route as it is written.
func (r route) String() string { return strings.TrimPrefix(r.method+" "+r.pattern, " ") }

// text returns the entry's key in Config.Routes.
func (e *entry) text() string {
	if e.prefix {
		return e.String() + "*"
	}
	return e.String()
}

func (e *entry) place() string { return fmt.Sprintf("Routes[%q]", e.text()) }

// matches reports whether the entry is for a route that is registered.
func (e *entry) matches(r route) bool {
	return e.hasMethodOf(r) && (e.pattern == r.pattern || e.prefix && strings.HasPrefix(r.pattern, e.pattern))
}

// hasMethodOf reports whether some method is both the entry's and the route's.
func (e *entry) hasMethodOf(r route) bool {
	return e.method == "" || r.method == "" || e.method == r.method
}
