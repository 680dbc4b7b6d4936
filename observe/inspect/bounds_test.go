package inspect

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/observe"
)

// busy returns a handler of a program with very many policies, keys and refusals.
func busy(t testing.TB, policies, keys int) (h *handler, numbers *atomic.Pointer[guard.Set]) {
	t.Helper()
	o, err := observe.New(observe.Options{})
	require.NoError(t, err)
	store, err := core.NewMemory(core.MemoryOptions{MaxKeys: keys / 2})
	require.NoError(t, err)
	routes, numbers := map[string]guard.Rule{}, new(atomic.Pointer[guard.Set])
	for i := range policies {
		routes["/r"+strconv.Itoa(i)] = guard.Rule{
			Policy: fmt.Sprintf("policy-with-a-rather-long-name-of-%d: 1/1h, 1000/366d; fail closed", i), Tiers: map[string]string{"pro": "1000/1h, 10000/366d"},
			Tier: func(r keyfunc.Request) string { return r.Header("Tier")[0] },
		}
	}
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{Policy: "all: 1000000/1s", Key: keyfunc.HeaderInClear("User")}, Routes: routes, Store: store, Observe: o.Observe, Source: numbers,
	})
	require.NoError(t, err)
	o.Watch([]*guard.Guard{g}, store)
	mux := http.NewServeMux()
	limit := nethttp.Limit(g)
	for i := range policies {
		mux.Handle("/r"+strconv.Itoa(i), limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	}
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	for i := range keys {
		r.URL.Path = "/r" + strconv.Itoa(i%policies)
		r.Header["User"] = []string{"<script>" + strings.Repeat("\x1b\xff<&", 30) + strconv.Itoa(i)}
		r.Header["Tier"] = []string{"<" + strconv.Itoa(i)}
		for range 2 {
			mux.ServeHTTP(httptest.NewRecorder(), r)
		}
	}
	return Handler(o, Options{Unmasked: true}).(*handler), numbers
}

// However much there is, the page is small.
func TestBounds(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector slows it down, and nothing here is concurrent")
	}
	h, _ := busy(t, 10_000, 20_000)
	for format, least := range map[string]int{formatHTML: 50_000, formatText: 50_000, formatJSON: 50_000} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/?format="+format, http.NoBody)
		r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
		h.ServeHTTP(w, r)
		assert.Equal(t, http.StatusOK, w.Code)
		assert.Greater(t, w.Body.Len(), least, "%s: it shows something", format)
		assert.Less(t, w.Body.Len(), 1<<20, format)
		assert.NotContains(t, w.Body.String(), "<script>")
		t.Log(format, w.Body.Len())
	}
	p := h.current()
	assert.Len(t, p.Guards[0].Rules, maxRules)
	assert.Equal(t, 20_001-maxRules, p.Left.Rules, "each route has the rule of all, and its own")
	assert.LessOrEqual(t, len(p.Policies), maxPolicies)
	assert.Len(t, p.Refusals, 100)
}

// BenchmarkPage makes the page of 10 000 policies and 10^6 keys: the first look at the numbers of a Set, and the next.
func BenchmarkPage(b *testing.B) {
	h, numbers := busy(b, 10_000, 1_000_000)
	for _, name := range []string{"first", "next"} {
		b.Run(name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				h.made = time.Time{}
				if name == "first" {
					b.StopTimer()
					numbers.Store(&guard.Set{Revision: strconv.Itoa(i)})
					h.observer.Guards()[0].Stats() // as a request does, it sees that there is another Set
					b.StartTimer()
				}
				h.html(httptest.NewRecorder(), http.StatusOK, &content{View: h.current().view()})
			}
		})
	}
}

// Many may look at the page while the program decides.
func TestManyLook(t *testing.T) {
	h, _ := busy(t, 10, 100)
	var lookers sync.WaitGroup
	for i := range 6 {
		lookers.Go(func() {
			for n := range 20 {
				w := httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodGet, "/?format="+[]string{formatHTML, formatText, formatJSON}[(i+n)%3], http.NoBody)
				r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
				if n%5 == 0 {
					h.mu.Lock()
					h.made = time.Time{} // as if a second had passed
					h.mu.Unlock()
				}
				h.ServeHTTP(w, r)
				assert.Equal(t, http.StatusOK, w.Code)
			}
		})
	}
	lookers.Wait()
}
