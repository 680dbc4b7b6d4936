package adaptertest

import (
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// testChanging changes policies while requests come: each change holds from the next request on, and so does undoing
// it.
func testChanging(t *testing.T, a Adapter) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, Adapter)
	}{
		{"put on trial, and enforced again", testTrial},
		{"another fail word while the store fails", testFailWord},
		{"a longer wait", testLongerWait},
		{"another epoch starts afresh", testEpoch},
		{"a blocked key", testBlocked},
		{"numbers of one customer", testCustomer},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, a) })
	}
}

// changing is an App whose policy a Source may change.
type changing struct {
	*server
	store *recorder
	sets  atomic.Pointer[guard.Set]
}

func serveChanging(t *testing.T, a Adapter, policy string, c guard.Config) *changing {
	t.Helper()
	s := &changing{store: newRecorder(t)}
	if c.Source, c.Log = &s.sets, slog.New(slog.DiscardHandler); c.Store == nil {
		c.Store = s.store
	}
	s.server = serve(t, a, hello(Handler{}, newGuard(t, "api: "+policy, c)))
	return s
}

// set changes the policy's text.
func (s *changing) set(text string) {
	s.sets.Store(&guard.Set{Policies: map[string]string{"api": text}})
}

// undo leaves all to the code again.
func (s *changing) undo() { s.sets.Store(nil) }

func testTrial(t *testing.T, a Adapter) {
	s := serveChanging(t, a, "1/1h fixed-window", guard.Config{})
	s.get("/hello").admitted(t, 1, 0)
	s.get("/hello").refused(t, 1)
	s.set("1/1h fixed-window; shadow")
	for range 3 {
		s.get("/hello").has(t, http.StatusOK, uncounted())
	}
	s.undo()
	s.get("/hello").refused(t, 1)

	s = serveChanging(t, a, "1/1h fixed-window; shadow", guard.Config{})
	for range 3 {
		s.get("/hello").has(t, http.StatusOK, uncounted())
	}
	s.set("1/1h fixed-window; shadow off")
	s.get("/hello").refused(t, 1)
	s.undo()
	s.get("/hello").has(t, http.StatusOK, uncounted())
}

func testFailWord(t *testing.T, a Adapter) {
	s := serveChanging(t, a, "1/1h; fail closed", guard.Config{Store: broken{}})
	unavailable := func() {
		t.Helper()
		assert.Equal(t, http.StatusServiceUnavailable, s.get("/hello").StatusCode)
	}
	unavailable()
	s.set("1/1h; fail open")
	for range 3 {
		s.get("/hello").has(t, http.StatusOK, uncounted())
	}
	s.set("1/1h; fail local")
	s.get("/hello").admitted(t, 1, 0)
	s.get("/hello").refused(t, 1)
	s.undo()
	unavailable()
}

func testLongerWait(t *testing.T, a Adapter) {
	s := serveChanging(t, a, "1/1h burst 1; wait 1ms", guard.Config{})
	s.get("/hello").admitted(t, 1, 0)
	s.get("/hello").refused(t, 1)
	s.set("20/1s burst 1; wait 1h") // another wait starts afresh, as the numbers would
	for range 5 {
		s.get("/hello").admitted(t, 1, 0)
	}
	s.undo()
	s.get("/hello").refused(t, 1)
}

func testEpoch(t *testing.T, a Adapter) {
	s := serveChanging(t, a, "1/1h", guard.Config{})
	for epoch, text := range []string{"", "1/1h; epoch 1", "1/1h; epoch 2"} {
		if epoch > 0 {
			s.set(text)
		}
		s.get("/hello").admitted(t, 1, 0)
		s.get("/hello").refused(t, 1)
	}
	s.undo()
	s.get("/hello").refused(t, 1)
}

// byUser counts by a header.
var byUser = keyfunc.Custom("uid", func(r keyfunc.Request) (string, error) { return strings.Join(r.Header("X-User"), ""), nil })

func testBlocked(t *testing.T, a Adapter) {
	s := serveChanging(t, a, "9/1h", guard.Config{Rule: guard.Rule{Key: byUser}})
	s.get("/hello", "X-User", "eve").admitted(t, 9, 8)
	s.sets.Store(&guard.Set{Keys: map[string]map[string]string{"api": {key("uid", "eve"): "blocked"}}})
	asked := s.store.counts()["api"]
	for range 3 {
		s.get("/hello", "X-User", "eve").has(t, http.StatusTooManyRequests, map[string]string{
			retryHeader: "60", cacheHeader: "no-store", varyHeader: "Accept",
		})
	}
	assert.Equal(t, asked, s.store.counts()["api"], "the store is not asked")
	s.get("/hello", "X-User", "ann").admitted(t, 9, 8)
	s.undo()
	s.get("/hello", "X-User", "eve").admitted(t, 9, 7)
}

func testCustomer(t *testing.T, a Adapter) {
	s := serveChanging(t, a, "1/1h", guard.Config{Rule: guard.Rule{Key: byUser}})
	by := func(user string) answer {
		t.Helper()
		return s.get("/hello", "X-User", user)
	}
	s.sets.Store(&guard.Set{Keys: map[string]map[string]string{"api": {key("uid", "ann"): "3/1h", key("uid", "root"): "unlimited"}}})
	for remaining := 2; remaining >= 0; remaining-- {
		by("ann").admitted(t, 3, remaining)
	}
	by("ann").refused(t, 3)
	by("bob").admitted(t, 1, 0)
	by("bob").refused(t, 1)
	for range 5 {
		by("root").has(t, http.StatusOK, uncounted())
	}
	s.undo()
	by("ann").refused(t, 1)
	by("root").admitted(t, 1, 0)
}
