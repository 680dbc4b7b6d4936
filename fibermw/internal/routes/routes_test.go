package routes_test

import (
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-go/weir/fibermw/internal/routes"
)

// probe notes the routes that its middleware finds.
type probe struct {
	finder routes.Finder
	mu     sync.Mutex
	found  []string
}

// middleware finds the route of a request and calls the next handler.
func (p *probe) middleware() fiber.Handler {
	return func(c *fiber.Ctx) error {
		route := p.finder.Find(c)
		p.mu.Lock()
		p.found = append(p.found, route)
		p.mu.Unlock()
		return c.Next()
	}
}

func (p *probe) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.found
	p.found = nil
	return found
}

// get sends a request to f without a network.
func get(t *testing.T, f *fiber.App, target string) (status int, body string) {
	t.Helper()
	res, err := f.Test(httptest.NewRequest(http.MethodGet, target, nil), -1)
	require.NoError(t, err)
	read, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode, string(read)
}

func ok(c *fiber.Ctx) error { return c.SendString(c.Route().Path) }

const dayPattern = `/d/:day<regex(\d{4}-\d{2})>/:x<minLen(2);maxLen(3)>?`

func TestRoutes(t *testing.T) {
	for name, c := range map[string]struct {
		config fiber.Config
		build  func(f *fiber.App, probe func() fiber.Handler)
		want   map[string][]string // by path
	}{
		"use": {fiber.Config{}, func(f *fiber.App, probe func() fiber.Handler) {
			f.Use(probe())
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
			"/opt": {"/opt/:a?"}, "/opt/x": {"/opt/:a?"}, "/num/12": {"/num/:n<int>"}, "/num/x": {"/num/:n<int>"},
			"/from-a.b": {"/from-:a.:b"}, "/rest/": {"/rest/*"}, "/rest": {"/rest/*"}, "/rest/a/b": {"/rest/*"},
			"/more/a/b": {"/more/+"}, "/more/": {""}, "/verb:do": {"/verb\\:do"}, "/files/doc.go": {""}, "/nothing": {""},
		}},
		"case and slashes matter": {fiber.Config{CaseSensitive: true, StrictRouting: true}, func(f *fiber.App, probe func() fiber.Handler) {
			f.Use(probe())
			f.Get("/Items/:id", ok)
			f.Get("/fixed/", ok)
		}, map[string][]string{
			"/Items/1": {"/Items/:id"}, "/items/1": {""}, "/Items/1/": {""}, "/fixed": {""}, "/fixed/": {"/fixed/"},
		}},
		"decoded paths": {fiber.Config{UnescapePath: true}, func(f *fiber.App, probe func() fiber.Handler) {
			f.Use(probe())
			f.Get("/a b/:id", ok)
		}, map[string][]string{"/a%20b/1": {"/a b/:id"}, "/a%20b/x%2Fy": {""}}},
		"the first match, in order": {fiber.Config{}, func(f *fiber.App, probe func() fiber.Handler) {
			f.Get("/items/before", ok) // answers before the probe is asked
			f.Get("/:pass/:id", func(c *fiber.Ctx) error { return c.Next() })
			f.Use(probe())
			f.Get("/items/special", ok)
			f.Get("/items/:id", ok)
			f.Get("/*", ok)
		}, map[string][]string{
			"/items/before": nil, "/items/special": {"/items/special"}, "/items/1": {"/items/:id"}, "/other/1": {"/*"}, "/else": {"/*"},
		}},
		"groups and routes": {fiber.Config{}, func(f *fiber.App, probe func() fiber.Handler) {
			api := f.Group("/api/:tenant", probe())
			api.Get("/items/:id", probe(), ok)
			api.Use("/deep", probe())
			api.Group("/deep").Get("/er", ok)
			f.Get("/plain", probe(), ok)
		}, map[string][]string{
			"/api/t/items/1": {"/api/:tenant/items/:id", "/api/:tenant/items/:id"},
			"/api/t/deep/er": {"/api/:tenant/deep/er", "/api/:tenant/deep/er"},
			"/api/t/nothing": {""}, "/plain": {"/plain"}, "/nothing": nil,
		}},
		"the same path for all": {fiber.Config{}, func(f *fiber.App, probe func() fiber.Handler) {
			f.Use("/x", probe())
			f.Get("/x", probe(), ok)
			f.Use("/x", ok)
		}, map[string][]string{"/x": {"/x", "/x"}, "/x/y": {""}}},
		"constraints do not count": {fiber.Config{}, func(f *fiber.App, probe func() fiber.Handler) {
			f.Use(probe())
			f.Get("/n/:n<int>", probe(), ok)
			f.Get("/n/:word<regex([a-z]\\d+)>", probe(), func(c *fiber.Ctx) error { return c.SendString("/n/:n<int>") })
			f.Get("/d/:day<regex(\\d{4}-\\d{2})>/:x<minLen(2);maxLen(3)>?", probe(), ok)
		}, map[string][]string{
			"/n/12": {"/n/:n<int>", "/n/:n<int>"}, "/n/a1": {"/n/:n<int>", "/n/:n<int>"}, "/n/aa": {"/n/:n<int>"},
			"/d/2020-01": {dayPattern, dayPattern}, "/d/never/a": {dayPattern}, "/d/": {""},
		}},
		"paths shorter than the keys of the tree": {fiber.Config{}, func(f *fiber.App, probe func() fiber.Handler) {
			f.Use(probe())
			f.Get("/a/*", ok)
			f.Get("/b/:x?", ok)
			f.Get("/b", ok)
		}, map[string][]string{"/a": {""}, "/a/b": {"/a/*"}, "/b": {"/b"}, "/b/c": {"/b/:x?"}}},
		"mounted apps": {fiber.Config{}, func(f *fiber.App, probe func() fiber.Handler) {
			f.Use(probe())
			sub := fiber.New()
			sub.Use(probe())
			sub.Get("/items/:id", ok)
			sub.Get("/", ok)
			f.Mount("/sub", sub)
			f.Get("/after", ok)
		}, map[string][]string{
			"/sub/items/1": {"/sub/items/:id", "/sub/items/:id"}, "/sub": {"/sub/", "/sub/"}, "/sub/nothing": {"", ""}, "/after": {"/after"},
		}},
		"a path that was rewritten": {fiber.Config{}, func(f *fiber.App, probe func() fiber.Handler) {
			f.Use(func(c *fiber.Ctx) error { c.Path(strings.TrimPrefix(c.Path(), "/old")); return c.Next() })
			f.Use(probe())
			f.Get("/items/:id", ok)
		}, map[string][]string{"/old/items/1": {"/items/:id"}}},
		"custom methods": {fiber.Config{RequestMethods: []string{"LOAD", "GET", "HEAD"}}, func(f *fiber.App, probe func() fiber.Handler) {
			f.Use(probe())
			f.Add("LOAD", "/loaded", ok)
			f.Get("/got", ok)
		}, map[string][]string{"/got": {"/got"}, "/loaded": {""}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &probe{}
			f := fiber.New(c.config)
			c.build(f, p.middleware)
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

var (
	constraints = regexp.MustCompile(`<[^>]*>`)
	names       = regexp.MustCompile(`:\w+`)
)

// The table says before the handler what Fiber says within it where there are
// no constraints, and routes of one shape have one name.
func TestRoutesAgreeWithFiber(t *testing.T) {
	segments := []string{
		"aa", "bb", "Abc", ":x", ":x?", "*", "+", ":n<int>", "a-:x", ":x.:y", ":x:y", "12", "a", "*-b",
		"a\\:b", ":d<regex(\\d{2}-?)>", ":w<minLen(2)>?", "+.y",
	}
	words := []string{"aa", "bb", "ABC", "12", "a-b", "x.y", "", "a%2Fb", "%61a", "a", "b", "a:b", "a-a-b"}
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
		f, plain, p := fiber.New(config), fiber.New(config), &probe{}
		first := map[string]string{} // by shape
		f.Use(p.middleware())
		var patterns []string
		for range 1 + r.IntN(6) {
			pattern := join(segments)
			if strings.Count(pattern, "*")+strings.Count(pattern, "+") > 1 {
				continue
			}
			patterns = append(patterns, pattern)
			f.Get(pattern, ok)
			stripped := constraints.ReplaceAllString(pattern, "")
			shape := names.ReplaceAllString(stripped, ":")
			if !config.CaseSensitive {
				shape = strings.ToLower(shape)
			}
			if _, ok := first[shape]; !ok {
				first[shape] = pattern
			}
			name := first[shape]
			plain.Get(stripped, func(c *fiber.Ctx) error { return c.SendString(name) })
		}
		for range 40 {
			path := join(words)
			get(t, f, "http://x"+path)
			status, body := get(t, plain, "http://x"+path)
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

// A lookup parses nothing: its time does not depend on the constraints.
func BenchmarkRoute(b *testing.B) {
	for name, constraint := range map[string]string{"plain": "", "regex": `<regex([a-z0-9-]+\d{2,7})>`} {
		b.Run(name, func(b *testing.B) {
			f := fiber.New()
			var finder routes.Finder
			f.Use(func(c *fiber.Ctx) error { finder.Find(c); return nil })
			for i := range 20 {
				f.Get("/items/:id"+constraint+"/deep-"+strconv.Itoa(i), ok)
			}
			handle, ctx := f.Handler(), &fasthttp.RequestCtx{}
			ctx.Request.SetRequestURI("/items/1/nothing")
			b.ReportAllocs()
			for b.Loop() {
				ctx.Response.Reset()
				handle(ctx)
			}
		})
	}
}

// The first requests may come all at once, and a handler may serve two apps.
func TestRoutesAtOnce(t *testing.T) {
	p := &probe{}
	middleware := p.middleware()
	var wg sync.WaitGroup
	for _, path := range []string{"/one/:x", "/two/:x"} {
		f := fiber.New(fiber.Config{DisableStartupMessage: true})
		f.Use(middleware)
		f.Get(path, ok)
		handle := f.Handler()
		for range 16 {
			wg.Go(func() {
				ctx := &fasthttp.RequestCtx{}
				ctx.Request.SetRequestURI(strings.Replace(path, ":x", "1", 1))
				handle(ctx)
				assert.Equal(t, http.StatusOK, ctx.Response.StatusCode())
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
