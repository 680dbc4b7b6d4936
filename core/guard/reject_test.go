package guard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/keyfunc"
)

// accepting is a request of alice's with an Accept header.
func accepting(accept string) *request {
	r := from(alice)
	r.lines = map[string][]string{"Accept": {accept}}
	return r
}

// Whatever is refused, each form says so, and reveals the policy's name alone.
func TestRejectBodies(t *testing.T) {
	const quota, reduced = "https://iana.org/assignments/http-problem-types#quota-exceeded", "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	store := &answering{}
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "login: 10/1h; fail closed", NoKey: guard.NoKeyRefuse}, Store: store, Log: slog.New(new(records))})
	for _, c := range []struct {
		name   string
		res    core.Result
		err    error
		peer   string
		status int
		kind   string // of problem
		grpc   string
	}{
		{"over", core.Result{Limit: 10}, nil, alice, 429, quota, "8"},
		{"never", core.Result{Outcome: core.Never, Limit: 10}, nil, alice, 429, quota, "8"},
		{"store", core.Result{}, down(), alice, 503, reduced, "14"},
		{"left", core.Result{}, context.Canceled, alice, 503, reduced, "14"},
		{"no key", core.Result{}, nil, "", 403, "about:blank", "7"},
	} {
		store.res, store.err = c.res, c.err
		ask := func(name, value string) (guard.Verdict, header) {
			r := from(c.peer)
			r.lines = map[string][]string{name: {value}}
			r.method, r.proto = "POST", 2
			v := g.Check(r)
			h := header{}
			v.SetHeaders(h)
			assert.Equal(t, "no-store", h["Cache-Control"])
			return v, h
		}
		text, h := ask("Accept", "text/plain")
		assert.Equal(t, c.status, text.Status, c.name)
		assert.Equal(t, "text/plain; charset=utf-8 Accept", h["Content-Type"]+" "+h["Vary"], c.name)

		var got map[string]any
		v, h := ask("Accept", "application/json")
		assert.Equal(t, c.status, v.Status, c.name)
		assert.Equal(t, "application/json Accept", h["Content-Type"]+" "+h["Vary"], c.name)
		require.NoError(t, json.Unmarshal(v.Body, &got), c.name)
		assert.Equal(t, map[string]any{"error": string(text.Body[:len(text.Body)-1]), "policy": "login"}, got, c.name)

		got = nil
		v, h = ask("Accept", "application/problem+json")
		assert.Equal(t, c.status, v.Status, c.name)
		assert.Equal(t, "application/problem+json Accept", h["Content-Type"]+" "+h["Vary"], c.name)
		require.NoError(t, json.Unmarshal(v.Body, &got), c.name)
		assert.Equal(t, c.kind, got["type"], c.name)
		assert.NotEmpty(t, got["title"], c.name)
		assert.Equal(t, string(text.Body[:len(text.Body)-1]), got["detail"], c.name)
		if c.peer != "" {
			assert.Equal(t, []any{"login"}, got["violated-policies"], c.name)
		} else {
			assert.NotContains(t, got, "violated-policies", c.name)
		}

		v, h = ask("Content-Type", "application/grpc")
		assert.Equal(t, 200, v.Status, c.name)
		assert.Empty(t, v.Body, c.name)
		assert.Equal(t, "application/grpc", h["Content-Type"], c.name)
		assert.Equal(t, c.grpc, h["Grpc-Status"], c.name)
		assert.Equal(t, string(text.Body[:len(text.Body)-1]), h["Grpc-Message"], c.name)
		assert.Empty(t, h["Vary"], c.name)

		for _, r := range []*request{{method: "GET", proto: 2}, {method: "POST", proto: 1}, {method: "POST", proto: 3}} {
			r.ctx, r.peer, r.lines = context.Background(), from(c.peer).peer, map[string][]string{"Content-Type": {"application/grpc"}}
			v = g.Check(r)
			assert.Equal(t, c.status, v.Status, "%s: it only claims to be a call", c.name)
			assert.Equal(t, text.Body, v.Body, c.name)
		}
	}
	x := accepting("application/json")
	v := guard.Reject(guard.RejectOptions{}).Serve(&guard.Refusal{Request: x})
	assert.Equal(t, `{"error":"too many requests"}`+"\n", string(v.Body), "a Refusal of no Guard")
}

// violated-policies names the limits that refuse, as RateLimit does.
func TestViolatedPolicies(t *testing.T) {
	for _, c := range []struct {
		policy string
		used   int
		cost   int64
		want   []any
	}{
		{"2/1h", 2, 1, []any{"default"}},
		{"login: 2/1h, 5/1d", 2, 1, []any{"login/1"}},
		{"login: 5/1h, 2/1d", 2, 1, []any{"login/2"}},
		{"login: 2/1h, 2/1d", 2, 1, []any{"login/1", "login/2"}},
		{"login: 9/1h, 9/1d, 2 concurrent", 2, 1, []any{"login/3"}},
		{"login: 5/1h, 3/1d", 0, 4, []any{"login/2"}}, // never
	} {
		g := newGuard(t, guard.Config{
			Rule:    guard.Rule{Policy: c.policy, Cost: func(keyfunc.Request) int64 { return c.cost }},
			Headers: guard.Headers{RateLimit: true},
			Log:     slog.New(new(records)),
		})
		for range c.used {
			v := g.Check(from(alice))
			require.Equal(t, guard.Pass, v.Action)
			defer v.Finish(guard.Final{})
		}
		v, h := g.Check(accepting("application/problem+json")), header{}
		v.SetHeaders(h)
		var got map[string]any
		require.NoError(t, json.Unmarshal(v.Body, &got), c.policy)
		assert.Equal(t, c.want, got["violated-policies"], c.policy)
		for _, name := range c.want {
			assert.Contains(t, h["Ratelimit"], fmt.Sprintf("%q;r=", name), c.policy)
		}
	}
}

// What a client learns of a limit is numbers and the policy's name: in no form and no style of headers is there
// anything of the key, whose parts may be another's secret.
func TestAnswersRevealNoKey(t *testing.T) {
	const secret = "s3cret"
	secretly := func(accept, contentType string) *request {
		r := sent("X-Api-Key", secret, "Accept", accept)
		if contentType != "" {
			r.lines["Content-Type"] = []string{contentType}
			r.method, r.proto = "POST", 2
		}
		return r
	}
	key := keyfunc.Join(keyfunc.IP(), keyfunc.Header("X-Api-Key"), keyfunc.Hash(keyfunc.Const(secret)))
	for i, style := range []guard.Headers{{}, {XRateLimit: guard.ResetDate, Expose: true}, {RateLimit: true}, {RateLimit: true, PartitionSecret: "that of the program"}} {
		for _, c := range []struct {
			name string
			res  core.Result
			err  error
		}{
			{"admitted", core.Result{Outcome: core.Admitted, Limit: 10, Remaining: 3, ResetAfter: time.Hour, At: epoch}, nil},
			{"refused", core.Result{Limit: 10, RetryAfter: time.Hour, ResetAfter: time.Hour, At: epoch}, nil},
			{"never", core.Result{Outcome: core.Never, Limit: 10, At: epoch}, nil},
			{"down", core.Result{}, &core.StoreError{Class: core.ClassDown, Err: errors.New("dial " + alice + ": no route for " + secret)}},
			{"another error", core.Result{}, errors.New("no " + secret)},
		} {
			// A circuit that a refusal opens stays open: so each case has handlers and a guard of its own.
			for _, handler := range []guard.OverLimit{guard.Reject(guard.RejectOptions{}), guard.Degrade(), guard.Break(guard.BreakOptions{Refusals: 1})} {
				about := fmt.Sprintf("%d %v %s", i, handler, c.name)
				store := &answering{res: c.res, err: c.err}
				g := newGuard(t, guard.Config{
					Rule:  guard.Rule{Policy: "10/1h; fail closed", Key: key, OverLimit: handler},
					Store: store, Headers: style, Log: slog.New(new(records)),
				})
				var answers []string
				for _, accept := range []string{"", "application/json", "application/problem+json"} {
					for _, contentType := range []string{"", "application/grpc"} {
						v, h := g.Check(secretly(accept, contentType)), header{}
						v.SetHeaders(h)
						answers = append(answers, fmt.Sprint(h, string(v.Body)))
						v.Finish(guard.Final{})
					}
				}
				_, hashed, found := strings.Cut(store.key, "hash=")
				require.True(t, found, "%s: the store was asked for %q", about, store.key)
				for _, answer := range answers {
					for _, told := range []string{secret, alice, "203.0.113", "X-Api-Key", "api-key=", store.key, hashed} {
						require.NotContains(t, answer, told, about)
					}
				}
			}
		}
	}
}

func TestRejectOptions(t *testing.T) {
	store := &answering{}
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{Policy: "10/1h; fail closed", OverLimit: guard.Reject(guard.RejectOptions{
			Status: 420,
			Body:   "<p>calm",
			Header: map[string]string{"content-type": "text/html", "X-Support": "7", "vary": "Origin"},
		})},
		Store: store,
		Log:   slog.New(new(records)),
	})
	for _, accept := range []string{"", "application/json"} {
		store.err = nil
		v := g.Check(accepting(accept))
		h := header{}
		v.SetHeaders(h)
		assert.Equal(t, "420 <p>calm", fmt.Sprintf("%d %s", v.Status, v.Body))
		assert.Equal(t, "text/html 7 Origin", h["Content-Type"]+" "+h["X-Support"]+" "+h["Vary"])
	}
	store.err = down()
	v := g.Check(accepting("application/json"))
	h := header{}
	v.SetHeaders(h)
	assert.Equal(t, 503, v.Status, "it is not over its limit")
	assert.Equal(t, "application/json 7 Accept, Origin 1", h["Content-Type"]+" "+h["X-Support"]+" "+h["Vary"]+" "+h["Retry-After"])

	v = guard.Reject(guard.RejectOptions{Body: "slow"}).Serve(&guard.Refusal{})
	h = header{}
	v.SetHeaders(h)
	assert.Equal(t, "text/plain; charset=utf-8", h["Content-Type"])
}

func TestRejectMistakes(t *testing.T) {
	for want, o := range map[string]guard.RejectOptions{
		"RejectOptions.Status is 399":                       {Status: 399},
		"RejectOptions.Status is 600":                       {Status: 600},
		`"" is not the name of a header`:                    {Header: map[string]string{"": "a"}},
		`"X Y" is not the name of a header`:                 {Header: map[string]string{"X Y": "a"}},
		`"X:" is not the name of a header`:                  {Header: map[string]string{"X:": "a"}},
		`Header["X"] is "a\r\nB: c"; a header is one line`:  {Header: map[string]string{"X": "a\r\nB: c"}},
		`Header["content-type"] is the type of Body, which`: {Header: map[string]string{"content-type": "text/html"}},
	} {
		_, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.IP(), OverLimit: guard.Reject(o)}})
		assert.ErrorContains(t, err, want)
	}
	_, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.IP(), OverLimit: guard.Reject(guard.RejectOptions{Status: 200, Header: map[string]string{"": ""}})}})
	var all interface{ Unwrap() []error }
	assert.True(t, errors.As(err, &all))
	assert.ErrorContains(t, err, "Status is 200")
	assert.ErrorContains(t, err, "is not the name")
}

// A refusal takes no memory, in whatever form.
func TestRejectAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector drops pooled keys")
	}
	for _, handler := range []guard.OverLimit{nil, guard.Reject(guard.RejectOptions{Body: "slow"}), guard.Break(guard.BreakOptions{})} {
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1h", OverLimit: handler}})
		r := accepting("application/problem+json, application/json;q=0.5")
		g.Check(r)
		assert.LessOrEqual(t, testing.AllocsPerRun(200, func() {
			v := g.Check(r)
			v.Finish(guard.Final{})
		}), 0.0)
	}
}

func TestReject(t *testing.T) {
	const over, noStore = "too many requests\n", "the rate limiter cannot decide at the moment\n"
	reject := guard.Reject(guard.RejectOptions{})
	assert.Equal(t, "reject(429)", reject.String())
	assert.Equal(t, "reject(420)", guard.Reject(guard.RejectOptions{Status: 420}).String())
	assert.Equal(t, "mine", guard.HandlerFunc("mine", nil).String())
	for _, c := range []struct {
		name    string
		refusal guard.Refusal
		status  int
		body    string
		retry   string
	}{
		{"over", guard.Refusal{}, 420, over, ""},
		{"never", guard.Refusal{Result: core.Result{Outcome: core.Never}}, 420, "this request costs more than its rate limit ever admits at once\n", ""},
		{"over, locally", guard.Refusal{Err: down(), Result: core.Result{Local: true}}, 420, over, ""},
		{"never, locally", guard.Refusal{Err: down(), Result: core.Result{Outcome: core.Never, Local: true}}, 420, "this request costs more than its rate limit ever admits at once\n", ""},
		{"store", guard.Refusal{Err: fmt.Errorf("wrapped: %w", down())}, 503, noStore, "1"},
		{"no key", guard.Refusal{Err: fmt.Errorf("wrapped: %w", keyfunc.ErrNoKey)}, 403, "this request does not say who sent it, which its rate limit asks for\n", ""},
		{"other", guard.Refusal{Err: context.Canceled}, 503, noStore, ""},
	} {
		v := guard.Reject(guard.RejectOptions{Status: 420}).Serve(&c.refusal)
		assert.Equal(t, guard.Reply, v.Action, c.name)
		assert.Equal(t, c.status, v.Status, c.name)
		assert.Equal(t, c.body, string(v.Body), c.name)
		h := header{}
		v.SetHeaders(h)
		assert.Equal(t, "text/plain; charset=utf-8", h["Content-Type"], c.name)
		assert.Equal(t, c.retry, h["Retry-After"], c.name)
		assert.Equal(t, "no-store", h["Cache-Control"], c.name)
	}
}
