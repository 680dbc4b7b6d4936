package patterns_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/core/guard/internal/patterns"
)

// Patterns of four frameworks that stand for the same paths are alike.
func TestAlike(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"/items/{id}", "/items/:id", true},
		{"/items/{id}/", "/items/:other", true},
		{"/files/{rest...}", "/files/*rest", true},
		{"/files/+", "/files/*", true},
		{"/{$}", "/", true},
		{"/items/{id}", "/items", false},
		{"/items/{id}", "/items/*", false},
		{"a.org/items", "/items", false},
		{"", "/", false},
	} {
		assert.Equal(t, c.want, patterns.Alike(c.a, c.b), "%s %s", c.a, c.b)
		assert.Equal(t, c.want, patterns.Alike(c.b, c.a), "%s %s", c.b, c.a)
	}
}

// A path fits the patterns under which a router would serve it, but for case and slashes.
func TestFits(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		extension     bool
		want          bool
	}{
		{"/items/{id}", "/items/7", false, true},
		{"/items/{id}", "/Items//7/", false, true},
		{"/items/{id}", "/items/7/more", false, false},
		{"/items/{id}", "/items", false, false},
		{"/files/*rest", "/files/a/b/c", false, true},
		{"/login", "/login.json", false, false},
		{"/login", "/login.json", true, true},
		{"/login", "/a/../login", false, true},
		{"/", "/", false, true},
	} {
		p := patterns.Read(c.pattern, false)
		path := patterns.ReadPath(c.path, 5, nil)
		assert.Equal(t, c.want, p.Fits(&path, c.extension), "%s %s", c.pattern, c.path)
	}
}

// A path is read once, as far as patterns go: what stands behind that is not read for any of them.
func TestPathWork(t *testing.T) {
	const long = 1 << 20
	for name, text := range map[string]string{
		"many parts":  strings.Repeat("/a", long/2),
		"a long part": "/" + strings.Repeat("a", long),
		"dots":        strings.Repeat("/a/..", long/5),
		"slashes":     strings.Repeat("/", long),
	} {
		var room [4]string
		p := patterns.Read("/{a}/{b}/login", false)
		allocs := testing.AllocsPerRun(10, func() {
			path := patterns.ReadPath(text, 3, room[:0])
			for range 1000 {
				p.Fits(&path, true)
			}
		})
		assert.LessOrEqual(t, allocs, 2.0, "%s: no memory for the rest", name)
	}
}
