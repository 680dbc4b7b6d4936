package fibermw_test

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/fibermw"
	"github.com/weir-go/weir/keyfunc"
)

// probe notes the routes that the guards that it makes see.
type probe struct {
	t      *testing.T
	mu     sync.Mutex
	routes []string
}

// limit is the middleware under test.
func (p *probe) limit() fiber.Handler {
	return fibermw.Limit(guard(p.t, "1000000/1h", keyfunc.Custom("probe", func(r keyfunc.Request) (string, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.routes = append(p.routes, r.Route())
		return "key", nil
	}), core.Config{}))
}

func (p *probe) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := p.routes
	p.routes = nil
	return seen
}

func ok(c *fiber.Ctx) error { return c.SendString(c.Route().Path) }

func TestRoutes(t *testing.T) {
	for name, c := range map[string]struct {
		config fiber.Config
		build  func(f *fiber.App, limit func() fiber.Handler)
		want   map[string][]string // by path
	}{
		"use": {fiber.Config{}, func(f *fiber.App, limit func() fiber.Handler) {
			f.Use(limit())
			f.Get("/", ok)
			f.Get("/items/:id", ok)
			f.Post("/posted/:id", ok)
			f.Get("/Fixed/Path/", ok)
			f.Get("/opt/:a?", ok)
			f.Get("/num/:n<int>", ok)
			f.Get("/from-:a.:b", ok)
			f.Get("/rest/*", ok)
			f.Get("/more/+", ok)
			f.Get("/verb\\:do", ok)
			f.Static("/files", ".")
		}, map[string][]string{
			"/": {"/"}, "/items/1": {"/items/:id"}, "/ITEMS/1/": {"/items/:id"}, "/items/": {""}, "/items/a%2Fb": {"/items/:id"},
			"/posted/1": {""}, "/fixed/path": {"/Fixed/Path/"}, "/FIXED/path///": {"/Fixed/Path/"},
			"/opt": {"/opt/:a?"}, "/opt/x": {"/opt/:a?"}, "/num/12": {"/num/:n<int>"}, "/num/x": {""},
			"/from-a.b": {"/from-:a.:b"}, "/rest/": {"/rest/*"}, "/rest": {"/rest/*"}, "/rest/a/b": {"/rest/*"},
			"/more/a/b": {"/more/+"}, "/more/": {""}, "/verb:do": {"/verb\\:do"}, "/files/doc.go": {""}, "/nothing": {""},
		}},
		"case and slashes matter": {fiber.Config{CaseSensitive: true, StrictRouting: true}, func(f *fiber.App, limit func() fiber.Handler) {
			f.Use(limit())
			f.Get("/Items/:id", ok)
			f.Get("/fixed/", ok)
		}, map[string][]string{
			"/Items/1": {"/Items/:id"}, "/items/1": {""}, "/Items/1/": {""}, "/fixed": {""}, "/fixed/": {"/fixed/"},
		}},
		"decoded paths": {fiber.Config{UnescapePath: true}, func(f *fiber.App, limit func() fiber.Handler) {
			f.Use(limit())
			f.Get("/a b/:id", ok)
		}, map[string][]string{"/a%20b/1": {"/a b/:id"}, "/a%20b/x%2Fy": {""}}},
		"the first match, in order": {fiber.Config{}, func(f *fiber.App, limit func() fiber.Handler) {
			f.Get("/items/before", ok) // answers before the limit is asked
			f.Get("/:pass/:id", func(c *fiber.Ctx) error { return c.Next() })
			f.Use(limit())
			f.Get("/items/special", ok)
			f.Get("/items/:id", ok)
			f.Get("/*", ok)
		}, map[string][]string{
			"/items/before": nil, "/items/special": {"/items/special"}, "/items/1": {"/items/:id"}, "/other/1": {"/*"}, "/else": {"/*"},
		}},
		"groups and routes": {fiber.Config{}, func(f *fiber.App, limit func() fiber.Handler) {
			api := f.Group("/api/:tenant", limit())
			api.Get("/items/:id", limit(), ok)
			api.Use("/deep", limit())
			api.Group("/deep").Get("/er", ok)
			f.Get("/plain", limit(), ok)
		}, map[string][]string{
			"/api/t/items/1": {"/api/:tenant/items/:id", "/api/:tenant/items/:id"},
			"/api/t/deep/er": {"/api/:tenant/deep/er", "/api/:tenant/deep/er"},
			"/api/t/nothing": {""}, "/plain": {"/plain"}, "/nothing": nil,
		}},
		"the same path for all": {fiber.Config{}, func(f *fiber.App, limit func() fiber.Handler) {
			f.Use("/x", limit())
			f.Get("/x", limit(), ok)
			f.Use("/x", ok)
		}, map[string][]string{"/x": {"/x", "/x"}, "/x/y": {""}}},
		"mounted apps": {fiber.Config{}, func(f *fiber.App, limit func() fiber.Handler) {
			f.Use(limit())
			sub := fiber.New()
			sub.Use(limit())
			sub.Get("/items/:id", ok)
			sub.Get("/", ok)
			f.Mount("/sub", sub)
			f.Get("/after", ok)
		}, map[string][]string{
			"/sub/items/1": {"/sub/items/:id", "/sub/items/:id"}, "/sub": {"/sub/", "/sub/"}, "/sub/nothing": {"", ""}, "/after": {"/after"},
		}},
		"a path that was rewritten": {fiber.Config{}, func(f *fiber.App, limit func() fiber.Handler) {
			f.Use(func(c *fiber.Ctx) error { c.Path(strings.TrimPrefix(c.Path(), "/old")); return c.Next() })
			f.Use(limit())
			f.Get("/items/:id", ok)
		}, map[string][]string{"/old/items/1": {"/items/:id"}}},
		"custom methods": {fiber.Config{RequestMethods: []string{"LOAD", "GET", "HEAD"}}, func(f *fiber.App, limit func() fiber.Handler) {
			f.Use(limit())
			f.Add("LOAD", "/loaded", ok)
			f.Get("/got", ok)
		}, map[string][]string{"/got": {"/got"}, "/loaded": {""}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &probe{t: t}
			f := fiber.New(c.config)
			c.build(f, p.limit)
			for path, want := range c.want {
				status, body := get(t, f, path)
				got := p.seen()
				assert.Equal(t, want, got, path)
				if status == http.StatusOK && len(got) > 0 && got[0] != "" {
					assert.Equal(t, body, got[0], path) // what Fiber says afterwards
				}
			}
		})
	}
}

// What the table says before the handler is what Fiber says within it.
func TestRoutesAgreeWithFiber(t *testing.T) {
	// No short words: Fiber does not find /a/* for /a, which is shorter than the keys of its tree.
	segments := []string{"aa", "bb", "Abc", ":x", ":x?", "*", "+", ":n<int>", "a-:x", ":x.:y", "12"}
	words := []string{"aa", "bb", "ABC", "12", "a-b", "x.y", "", "a%2Fb", "%61a"}
	r := rand.New(rand.NewPCG(1, 2))
	join := func(of []string) string {
		var path strings.Builder
		for range 1 + r.IntN(3) {
			path.WriteString("/" + of[r.IntN(len(of))])
		}
		return path.String()
	}
	matched := 0
	for range 200 {
		config := fiber.Config{CaseSensitive: r.IntN(2) == 0, StrictRouting: r.IntN(2) == 0, UnescapePath: r.IntN(2) == 0}
		f, p := fiber.New(config), &probe{t: t}
		f.Use(p.limit())
		var patterns []string
		for range 1 + r.IntN(6) {
			pattern := join(segments)
			if strings.Count(pattern, "*")+strings.Count(pattern, "+") > 1 {
				continue
			}
			patterns = append(patterns, pattern)
			f.Get(pattern, ok)
		}
		for range 40 {
			path := join(words)
			status, body := get(t, f, "http://x"+path)
			want := ""
			if status == http.StatusOK {
				want = body
				matched++
			}
			require.Equal(t, []string{want}, p.seen(), "%q in %q", path, patterns)
		}
	}
	assert.Greater(t, matched, 500)
}

// The first requests may come all at once, and a handler may serve two apps.
func TestRoutesAtOnce(t *testing.T) {
	p := &probe{t: t}
	limit := p.limit()
	var wg sync.WaitGroup
	for _, path := range []string{"/one/:x", "/two/:x"} {
		f := fiber.New(fiber.Config{DisableStartupMessage: true})
		f.Use(limit)
		f.Get(path, ok)
		address := listen(t, f, "tcp", "127.0.0.1:0")
		for range 16 {
			wg.Go(func() {
				res, err := http.Get("http://" + address + strings.Replace(path, ":x", "1", 1))
				if assert.NoError(t, err) {
					assert.NoError(t, res.Body.Close())
				}
			})
		}
	}
	wg.Wait()
	counts := map[string]int{}
	for _, route := range p.seen() {
		counts[route]++
	}
	assert.Equal(t, map[string]int{"/one/:x": 16, "/two/:x": 16}, counts)
}
