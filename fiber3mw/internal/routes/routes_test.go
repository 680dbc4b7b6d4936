package routes_test

import (
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/static"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-go/weir/fiber3mw/internal/routes"
)

// probe notes the routes that its middleware finds.
type probe struct {
	finder routes.Finder
	mu     sync.Mutex
	found  []string
}

// middleware finds the route of a request and calls the next handler.
func (p *probe) middleware() fiber.Handler {
	return func(c fiber.Ctx) error {
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
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RequestURI = target // it need not be an address that net/url would take
	res, err := f.Test(r, fiber.TestConfig{})
	require.NoError(t, err)
	read, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode, string(read)
}

func ok(c fiber.Ctx) error { return c.SendString(c.Route().Path) }

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
			f.Use("/files", static.New("."))
			f.Get("/served/*", static.New("."))
		}, map[string][]string{
			"/": {"/"}, "/items/1": {"/items/:id"}, "/ITEMS/1/": {"/items/:id"}, "/items/": {""}, "/items/a%2Fb": {"/items/:id"},
			"/posted/1": {""}, "/fixed/path": {"/Fixed/Path/"}, "/FIXED/path///": {"/Fixed/Path/"},
			"/opt": {"/opt/:a?"}, "/opt/x": {"/opt/:a?"}, "/num/12": {"/num/:n<int>"}, "/num/x": {"/num/:n<int>"},
			"/from-a.b": {"/from-:a.:b"}, "/rest/": {"/rest/*"}, "/rest": {"/rest/*"}, "/rest/a/b": {"/rest/*"},
			"/more/a/b": {"/more/+"}, "/more/": {""}, "/verb:do": {"/verb\\:do"}, "/files/routes.go": {""}, "/served/nothing": {"/served/*"}, "/nothing": {""},
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
			f.Get("/:pass/:id", func(c fiber.Ctx) error { return c.Next() })
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
			f.Get("/n/:word<regex([a-z]\\d+)>", probe(), func(c fiber.Ctx) error { return c.SendString("/n/:n<int>") })
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
		"an escaped star matches all": {fiber.Config{}, func(f *fiber.App, probe func() fiber.Handler) {
			f.Use(probe())
			f.Get("/a\\*", ok)
			f.Get("/\\*", ok)
		}, map[string][]string{"/a*": {"/a\\*"}, "/b": {"/\\*"}, "/": {"/\\*"}}},
		"slashes alone reach no middleware": {fiber.Config{}, func(f *fiber.App, probe func() fiber.Handler) {
			f.Use(probe())
			f.Get("/", ok)
			f.Get("/a", ok)
		}, map[string][]string{"//": nil, "///": nil, "/": {"/"}, "//a": {""}}},
		"but for middleware of all paths": {fiber.Config{}, func(f *fiber.App, probe func() fiber.Handler) {
			f.Use("/*", probe())
			f.Get("/a", ok)
			f.Get("/*", ok)
		}, map[string][]string{"//": {"/*"}, "/a": {"/a"}, "/": {"/*"}}},
		"slashes alone where they matter": {fiber.Config{StrictRouting: true}, func(f *fiber.App, probe func() fiber.Handler) {
			f.Use(probe())
			f.Get("/*", ok)
		}, map[string][]string{"//": {"/*"}, "/": {"/*"}}},
		"apps mounted below a parameter, which is text to Fiber": {fiber.Config{}, func(f *fiber.App, probe func() fiber.Handler) {
			f.Use(probe())
			sub := fiber.New()
			sub.Get("/items", ok)
			sub.Get("/items/:id", ok)
			f.Use("/:tenant", sub)
		}, map[string][]string{"/t/items": {""}, "/:tenant/items": {"/:tenant/items"}, "/t/items/1": {"/:tenant/items/:id"}}},
		"apps in apps": {fiber.Config{}, func(f *fiber.App, probe func() fiber.Handler) {
			sub, deep := fiber.New(), fiber.New()
			deep.Use(probe())
			deep.Get("/items/:id", ok)
			sub.Use("/deep", deep)
			sub.Get("/*", ok)
			f.Use("/sub", sub)
			f.Group("/group").Use("/sub", sub)
		}, map[string][]string{
			"/sub/deep/items/1": {"/sub/deep/items/:id"}, "/sub/deep/nothing": {"/sub/*"}, "/sub/x": nil,
			"/group/sub/deep/items/1": {"/group/sub/deep/items/:id"},
		}},
		"mounted apps": {fiber.Config{}, func(f *fiber.App, probe func() fiber.Handler) {
			f.Use(probe())
			sub := fiber.New()
			sub.Use(probe())
			sub.Get("/items/:id", ok)
			sub.Get("/", ok)
			f.Use("/sub", sub)
			f.Get("/after", ok)
		}, map[string][]string{
			"/sub/items/1": {"/sub/items/:id", "/sub/items/:id"}, "/sub": {"/sub/", "/sub/"}, "/sub/nothing": {"", ""}, "/after": {"/after"},
		}},
		"a path that was rewritten": {fiber.Config{}, func(f *fiber.App, probe func() fiber.Handler) {
			f.Use(func(c fiber.Ctx) error { c.Path(strings.TrimPrefix(c.Path(), "/old")); return c.Next() })
			f.Use(probe())
			f.Get("/items/:id", ok)
		}, map[string][]string{"/old/items/1": {"/items/:id"}}},
		"custom methods": {fiber.Config{RequestMethods: []string{"LOAD", "GET", "HEAD"}}, func(f *fiber.App, probe func() fiber.Handler) {
			f.Use(probe())
			f.Add([]string{"LOAD"}, "/loaded", ok)
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

// A HEAD is that of the route of GET, which Fiber copies to the end of its list, unless there is a route of its own.
func TestHead(t *testing.T) {
	for _, c := range []struct {
		disabled bool
		want     map[string]string
	}{
		{false, map[string]string{"/items/1": "/items/:id", "/own/1": "/own/:head", "/all/1": "/all/:x", "/posted": ""}},
		{true, map[string]string{"/items/1": "", "/own/1": "/own/:head", "/all/1": "/all/:x", "/posted": ""}},
	} {
		p := &probe{}
		f := fiber.New(fiber.Config{DisableHeadAutoRegister: c.disabled})
		f.Use(p.middleware())
		f.Get("/items/:id", ok)
		f.Get("/own/:get", ok)
		f.Head("/own/:head", ok)
		f.All("/all/:x", ok)
		f.Post("/posted", ok)
		for path, want := range c.want {
			res, err := f.Test(httptest.NewRequest(http.MethodHead, path, nil))
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			assert.Equal(t, []string{want}, p.seen(), path)
			assert.Equal(t, want != "", res.StatusCode == http.StatusOK, path)
		}
	}
}

// What changes is seen by the next request: a route that was added, removed, or has taken the place of another, and an
// app that was mounted.
func TestRoutesChange(t *testing.T) {
	p := &probe{}
	f := fiber.New()
	f.Use(p.middleware())
	f.Post("/first", ok)
	f.Get("/a/:x", ok)
	expect := func(path, want string) {
		t.Helper()
		status, body := get(t, f, path)
		assert.Equal(t, []string{want}, p.seen(), path)
		if want == "" {
			assert.Equal(t, http.StatusNotFound, status, path)
		} else {
			assert.Equal(t, want, body, path)
		}
	}
	expect("/a/1", "/a/:x")
	expect("/b/1", "")

	f.Get("/b/:x", ok)
	f.RebuildTree()
	expect("/b/1", "/b/:x")

	f.RemoveRoute("/a/:x", http.MethodGet)
	f.RebuildTree()
	expect("/a/1", "")
	expect("/b/1", "/b/:x")

	before := f.HandlersCount()
	f.RemoveRoute("/b/:x", http.MethodGet)
	f.Get("/b/:y", ok)
	f.Head("/b/:y", ok)
	f.RebuildTree()
	require.Equal(t, before, f.HandlersCount(), "the count does not show it")
	expect("/b/1", "/b/:y")

	f.RemoveRouteFunc(func(r *fiber.Route) bool { return r.Path == "/first" || r.Path == "/b/:y" })
	f.Get("/*", ok)
	f.RebuildTree()
	expect("/b/1", "/*")

	sub := fiber.New()
	sub.All("/items/:id", ok) // one for each method, in the place of the mount
	f.RemoveRoute("/*")
	f.Use("/sub", sub)
	f.All("/*", ok)
	f.RebuildTree()
	ctx := &fasthttp.RequestCtx{} // App.Test would mount it
	ctx.Request.SetRequestURI("/sub/items/1")
	c := f.AcquireCtx(ctx)
	assert.Equal(t, "/*", p.finder.Find(c))
	f.ReleaseCtx(c)
	f.Handler() // mounts it
	expect("/sub/items/1", "/sub/items/:id")
	expect("/sub/nothing", "/*")
}

// A request that is under way while routes change, as in a handler that adds one, goes on by those that there are.
func TestRoutesChangeInHandler(t *testing.T) {
	p := &probe{}
	f := fiber.New()
	f.Use(p.middleware())
	f.Get("/define", func(c fiber.Ctx) error {
		f.RemoveRoute("/define", http.MethodGet)
		f.Get("/defined/:x", ok)
		f.RebuildTree()
		assert.Empty(t, p.finder.Taken(c), "its route is no more")
		return c.SendStatus(http.StatusNoContent)
	})
	for range 2 {
		get(t, f, "/defined/1")
		get(t, f, "/define")
	}
	assert.Equal(t, []string{"", "/define", "/defined/:x", ""}, p.seen())
}

// The table is read once for each change, by however many requests that come at once.
func TestTableIsReadOnce(t *testing.T) {
	f := fiber.New()
	for i := range 1000 { // so that it takes a while
		f.Get("/a/:x/"+strconv.Itoa(i), ok)
	}
	f.Handler()
	var finder routes.Finder
	tables := func() (seen []any) {
		var mu sync.Mutex
		var all sync.WaitGroup
		start := make(chan struct{})
		for range 50 {
			all.Go(func() {
				ctx := &fasthttp.RequestCtx{}
				ctx.Request.SetRequestURI("/a")
				c := f.AcquireCtx(ctx)
				defer f.ReleaseCtx(c)
				<-start
				table := finder.Table(c)
				mu.Lock()
				defer mu.Unlock()
				if !slices.Contains(seen, table) {
					seen = append(seen, table)
				}
			})
		}
		close(start)
		all.Wait()
		return seen
	}
	first := tables()
	require.Len(t, first, 1)
	assert.Equal(t, first, tables())
	f.Get("/b", ok)
	f.RebuildTree()
	second := tables()
	require.Len(t, second, 1)
	assert.NotSame(t, first[0], second[0])
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
			plain.Get(stripped, func(c fiber.Ctx) error { return c.SendString(name) })
		}
		for range 40 {
			path := join(words)
			get(t, f, path)
			status, body := get(t, plain, path)
			want := []string{""}
			if status == http.StatusOK {
				want[0] = body
				matched++
			}
			if !config.StrictRouting && path != "/" && strings.Trim(path, "/") == "" {
				want = nil // it reaches no middleware, but a route for all paths
			}
			require.Equal(t, want, p.seen(), "%q in %q", path, patterns)
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
			f.Use(func(c fiber.Ctx) error { finder.Find(c); return nil })
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
		f := fiber.New()
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
