package fiberpath_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/internal/fiberpath"
)

// That each dialect matches as its Fiber does, FuzzFind of the adapters holds. These are the paths where they differ.
func TestDialects(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		in2, in3      bool
	}{
		{"/items/:id", "/items/1", true, true},
		{"/items/:id", "/items/1/2", false, false},
		// An escaped star.
		{`/\*`, "/*", true, true},
		{`/\*`, "/any/thing", false, true},
		{`/\*`, "", false, true},
		{`/a/\*`, "/a/b", false, false},
		// Several signs in a row.
		{"/::a", "/:x", true, true},
		{"/:::a", "/::x", true, true},
		{"/*::a", "/x:y", true, false},
		// Constraints, which are not looked at, end elsewhere.
		{"/:a<regex((x>y)/b)>/c", "/1/c", true, false},
		{"/:a<int>/c", "/1/c", true, true},
	} {
		two, three := fiberpath.Parse(c.pattern, fiberpath.Fiber2), fiberpath.Parse(c.pattern, fiberpath.Fiber3)
		assert.Equal(t, c.in2, two.Matches(c.path), "Fiber 2: %q, %q", c.pattern, c.path)
		assert.Equal(t, c.in3, three.Matches(c.path), "Fiber 3: %q, %q", c.pattern, c.path)
	}
}

func TestLiteral(t *testing.T) {
	p := fiberpath.Literal(`/:a\:b`, fiberpath.Fiber3)
	assert.True(t, p.Matches("/:a:b"))
	assert.False(t, p.Matches("/1:b"))
	assert.Equal(t, "/:a:b", p.Shape())
	all := fiberpath.Literal(`/\*`, fiberpath.Fiber3)
	assert.True(t, all.Matches("/a"))
}

// Patterns that match the same paths but for constraints have one shape.
func TestShape(t *testing.T) {
	shape := func(pattern string, d fiberpath.Dialect) string {
		p := fiberpath.Parse(pattern, d)
		return p.Shape()
	}
	for _, d := range []fiberpath.Dialect{fiberpath.Fiber2, fiberpath.Fiber3} {
		assert.Equal(t, shape("/:a/b", d), shape("/:other<int>/b", d))
		assert.NotEqual(t, shape("/:a/b", d), shape("/:a?/b", d))
		assert.NotEqual(t, shape("/*", d), shape("/+", d))
		assert.NotEqual(t, shape("/:a", d), shape(`/\:a`, d))
	}
	assert.NotEqual(t, shape("/*", fiberpath.Fiber2), shape(`/\*`, fiberpath.Fiber2))
	assert.Equal(t, shape("/*", fiberpath.Fiber3), shape(`/\*`, fiberpath.Fiber3))
}

func TestForm(t *testing.T) {
	for _, c := range []struct {
		form       fiberpath.Form
		path, want string
	}{
		{fiberpath.Form{}, "/A/b//", "/a/b"},
		{fiberpath.Form{}, "/", "/"},
		{fiberpath.Form{}, "//", ""},
		{fiberpath.Form{}, "/É", "/É"},
		{fiberpath.Form{CaseSensitive: true}, "/A/", "/A"},
		{fiberpath.Form{StrictRouting: true}, "/A/", "/a/"},
	} {
		assert.Equal(t, c.want, c.form.Of(c.path), "%+v %q", c.form, c.path)
	}
}
