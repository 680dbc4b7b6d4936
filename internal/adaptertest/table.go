package adaptertest

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// The table of the whole behaviour: each order of rules with each over-limit handler in each style of headers, and of
// each cell, what becomes of requests that pass, that are over the limit, that have no key, that meet a store that has
// failed, and that are skipped.

// An arrangement is an order of rules, in which a key has two requests.
type arrangement struct {
	name string
	// config makes the rules of a cell: its name, for policies, and its route.
	config func(name, route string) guard.Config
	// fail is the policies' fail word.
	fail core.Failure
	// wide is the limit of another rule, with a key that the store does not fail for, which is asked as well.
	wide int
	// limits is the number of limits in the lists for a request that passes.
	limits int
}

func arrangements() []arrangement {
	text := func(format string) func(name, route string) guard.Config {
		return func(name, _ string) guard.Config {
			return guard.Config{Rule: guard.Rule{Policy: fmt.Sprintf(format, name)}}
		}
	}
	beside := func(first, second string) func(name, route string) guard.Config {
		return func(name, _ string) guard.Config {
			return guard.Config{
				Rule:  guard.Rule{Policy: fmt.Sprintf(first, name)},
				Rules: []guard.Rule{{Policy: fmt.Sprintf(second, name), Key: keyfunc.Const("all")}},
			}
		}
	}
	return []arrangement{
		{"one, closed", text("%s: 2/1h; fail closed"), core.FailClosed, 0, 1},
		{"one, open", text("%s: 2/1h; fail open"), core.FailOpen, 0, 1},
		{"one, local", text("%s: 2/1h"), core.FailLocal, 0, 1},
		{"two", beside("%s: 2/1h; fail closed", "%s.w: 1000/1h; fail closed"), core.FailClosed, 1000, 2},
		{"two, open", beside("%s: 2/1h; fail open", "%s.w: 1000/1h; fail open"), core.FailOpen, 1000, 2},
		{"one with permits", text("%s: 2/1h, 50 concurrent; fail closed"), core.FailClosed, 0, 2},
		{"a queue", text("%s: 2/1h; wait 1ms; fail closed"), core.FailClosed, 0, 1},
		{"a queue after a rate", beside("%s: 2/1h; fail closed", "%s.q: 1000/1s leaky-bucket; fail closed"), core.FailClosed, 1000, 2},
		{"a trial after a rate", beside("%s: 2/1h; fail closed", "%s.t: 1/1h; fail closed; shadow"), core.FailClosed, 0, 1},
		{"the table before the rest", func(name, route string) guard.Config {
			return guard.Config{
				Rule:   guard.Rule{Policy: name + ".w: 1000/1h; fail closed"},
				Routes: map[string]guard.Rule{route: {Policy: name + ": 2/1h; fail closed"}},
			}
		}, core.FailClosed, 1000, 2},
		{"the table instead", func(name, route string) guard.Config {
			return guard.Config{
				Rule:   guard.Rule{Policy: name + ".w: 1/1h; fail closed"},
				Routes: map[string]guard.Rule{route: {Policy: name + ": 2/1h; fail closed", Instead: true}},
			}
		}, core.FailClosed, 0, 1},
		{"a tier", func(name, _ string) guard.Config {
			return guard.Config{Rule: guard.Rule{
				Policy: name + ": 1/1h; fail closed",
				Tier:   func(keyfunc.Request) string { return "pro" },
				Tiers:  map[string]string{"pro": "2/1h; fail closed"},
			}}
		}, core.FailClosed, 0, 1},
	}
}

// A reply is the answer of an over-limit handler.
type reply struct {
	status int
	body   string // "" for that of the plain refusal
	calls  bool   // the route's handler is called, which answers with status 200
	header string // that the handler sets
	vary   bool   // by what the client accepts
}

// mine is the body that the function answers with.
const mine = "mine"

// A refusing is an over-limit handler and its answers.
type refusing struct {
	name     string
	handler  func(a Adapter) guard.OverLimit
	over     reply // over the limit
	noKey    reply // without a key
	degraded bool  // the route's handler is called over the limit, and knows it
}

func refusings() []refusing {
	plain := func(status int) reply { return reply{status: status, vary: true} }
	native := reply{status: http.StatusTeapot, body: "native", header: "X-Native"}
	none := reply{status: http.StatusTooManyRequests, body: "", header: "X-Native"}
	noneKey := none
	noneKey.status = http.StatusForbidden
	own := reply{status: http.StatusServiceUnavailable, body: mine, header: "X-Mine"}
	return []refusing{
		{"Reject", func(Adapter) guard.OverLimit { return nil }, plain(429), plain(403), false},
		{"Reject with a status", func(Adapter) guard.OverLimit {
			return guard.Reject(guard.RejectOptions{Status: 420, Body: "calm", Header: map[string]string{"X-Mine": "1"}})
		}, reply{status: 420, body: "calm", header: "X-Mine"}, reply{status: 403, vary: true, header: "X-Mine"}, false},
		{"Degrade", func(Adapter) guard.OverLimit { return guard.Degrade() }, reply{status: 200, body: "ok", calls: true}, plain(403), true},
		{"Degrade to a native handler", func(a Adapter) guard.OverLimit {
			return guard.Degrade(a.Handle(Native{Body: "native"}))
		}, reply{status: 200, body: "native", header: "X-Native"}, plain(403), false},
		{"Break", func(Adapter) guard.OverLimit { return guard.Break(guard.BreakOptions{Refusals: 1000}) }, plain(429), plain(403), false},
		{"Break that opens", func(a Adapter) guard.OverLimit {
			return guard.Break(guard.BreakOptions{Refusals: 1, Then: a.Handle(Native{Status: http.StatusTeapot})})
		}, native, plain(403), false},
		{"a native handler", func(a Adapter) guard.OverLimit { return a.Handle(Native{Status: http.StatusTeapot}) }, native, native, false},
		{"a native handler that writes nothing", func(a Adapter) guard.OverLimit { return a.Handle(Native{}) }, none, noneKey, false},
		{"a function", func(Adapter) guard.OverLimit {
			return guard.HandlerFunc("mine", func(*guard.Refusal) guard.Verdict {
				v := guard.Verdict{Status: http.StatusServiceUnavailable, Body: []byte(mine)}
				v.SetField("X-Mine", "1")
				return v
			})
		}, own, own, false},
	}
}

// A style is that of headers, and which of them there are.
type style struct {
	name        string
	headers     guard.Headers
	three, list bool
}

func styles() []style {
	return []style{
		{"X-RateLimit", guard.Headers{}, true, false},
		{"lists", guard.Headers{XRateLimit: guard.NoXRateLimit, RateLimit: true}, false, true},
		{"both", guard.Headers{XRateLimit: guard.ResetSeconds, RateLimit: true, Expose: true}, true, true},
		{"none", guard.Headers{XRateLimit: guard.NoXRateLimit}, false, false},
	}
}

// sick is a store that fails for the keys of the sick.
type sick struct{ *core.Memory }

func (s sick) Take(ctx context.Context, t core.Take) (core.Result, error) {
	if strings.Contains(t.Key, "down") {
		return core.Result{}, errDown
	}
	return s.Memory.Take(ctx, t)
}

// cell is one of the table.
type cell struct {
	arrangement
	refusing
	style
	path     string
	calls    atomic.Int64
	degrades atomic.Int64 // of these calls, those that knew it
}

func newCell(t *testing.T, a Adapter, c *cell, store core.Store) Route {
	t.Helper()
	name := strings.Trim(c.path, "/")
	route := c.path + "/{id}"
	config := c.config(name, a.Pattern(route))
	config.Store, config.Log, config.Headers = store, slog.New(slog.DiscardHandler), c.headers
	config.OverLimit = c.handler(a)
	config.Skip = func(r keyfunc.Request) bool { return len(r.Header("X-Skip")) > 0 }
	config.Key = keyfunc.Custom("sender", func(r keyfunc.Request) (string, error) {
		if lines := r.Header("X-Sender"); len(lines) > 0 {
			return lines[0], nil
		}
		return "", keyfunc.ErrNoKey
	})
	g, err := guard.New(config)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	return Route{Method: http.MethodGet, Pattern: route, Guards: []*guard.Guard{g}, Handler: Handler{
		Calls: &c.calls,
		Do: func(ctx context.Context) {
			if guard.Degraded(ctx) {
				c.degrades.Add(1)
			}
		},
	}}
}

func testWholeTable(t *testing.T, a Adapter) {
	memory, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	var app App
	var cells []*cell
	for _, arrangement := range arrangements() {
		for _, refusing := range refusings() {
			for _, style := range styles() {
				c := &cell{arrangement: arrangement, refusing: refusing, style: style, path: fmt.Sprintf("/c%d", len(cells))}
				app.Routes = append(app.Routes, newCell(t, a, c, sick{memory}))
				cells = append(cells, c)
			}
		}
	}
	s := serve(t, a, app)
	for _, c := range cells {
		t.Run(fmt.Sprintf("%s, %s, %s", c.arrangement.name, c.refusing.name, c.style.name), func(t *testing.T) {
			own := *s
			own.t = t
			c.check(t, &own)
		})
	}
}

// told is the limit in an answer's headers, and how much is left of it. A limit of 0 is none, and -1 is not looked at.
type told struct{ limit, left int }

func (c *cell) check(t *testing.T, s *server) {
	t.Helper()
	passes := reply{status: http.StatusOK, body: "ok", calls: true}
	c.ask(t, s, passes, told{2, 1}, nil, "X-Sender", "ann")
	c.ask(t, s, passes, told{2, 0}, nil, "X-Sender", "ann")

	over := map[string]string{cacheHeader: "no-store"}
	if c.over.status >= 400 { // others have no Retry-After
		over[retryHeader] = anything
	}
	c.ask(t, s, c.over, told{2, 0}, over, "X-Sender", "ann")
	assert.Equal(t, c.degraded, c.degrades.Load() == 1)

	c.ask(t, s, c.noKey, told{}, map[string]string{cacheHeader: "no-store"})
	c.ask(t, s, passes, told{}, nil, "X-Sender", "ann", "X-Skip", "1")
	switch c.fail {
	case core.FailLocal:
		c.ask(t, s, passes, told{2, 1}, nil, "X-Sender", "down")
	case core.FailOpen:
		c.ask(t, s, passes, told{c.wide, -1}, nil, "X-Sender", "down")
	default:
		closed, more := c.noKey, map[string]string{cacheHeader: "no-store", retryHeader: "1"}
		if closed.status == http.StatusForbidden {
			closed.status = http.StatusServiceUnavailable
		}
		if closed.body == mine {
			delete(more, retryHeader)
		}
		c.ask(t, s, closed, told{}, more, "X-Sender", "down")
	}
}

// ask sends a request and checks the whole answer. more are headers besides those that say where the client stands.
func (c *cell) ask(t *testing.T, s *server, want reply, where told, more map[string]string, headers ...string) {
	t.Helper()
	calls := c.calls.Load()
	res := s.get(c.path+"/1", headers...)
	assert.Equal(t, want.calls, c.calls.Load() == calls+1, "the handler is called")

	all := map[string]string{}
	if c.three && where.limit > 0 {
		all = numbers(where.limit, where.left)
		if where.left < 0 {
			all[remainingHeader] = anything
		}
	}
	if c.list && where.limit > 0 {
		all[listHeader], all[policyHeader] = anything, anything
	}
	if c.headers.Expose {
		all[exposeHeader] = anything
	}
	if want.vary {
		all[varyHeader] = "Accept"
	}
	if want.header != "" {
		all[want.header] = anything
	}
	maps.Copy(all, more)
	res.has(t, want.status, all)
	if want.body != "" {
		assert.Equal(t, want.body, res.body)
	} else {
		assert.NotEmpty(t, res.body)
	}
	for _, name := range []string{listHeader, policyHeader} {
		if all[name] != "" {
			c.checkList(t, res, name, where.limit == 2 && more == nil)
		}
	}
}

// checkList reads a list by a parser that others have written.
func (c *cell) checkList(t *testing.T, res answer, name string, admitted bool) {
	t.Helper()
	list, err := httpsfv.UnmarshalList(res.Header[name])
	require.NoError(t, err, "%s: %q", name, res.Header[name])
	for _, m := range list {
		item, ok := m.(httpsfv.Item)
		require.True(t, ok, name)
		require.IsType(t, "", item.Value, name)
	}
	if admitted {
		assert.Len(t, list, c.limits, name)
	}
}
