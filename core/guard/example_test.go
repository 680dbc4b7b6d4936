package guard_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"

	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

func ExampleNew() {
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{
			Policy: "2/1h",
			Key:    keyfunc.Join(keyfunc.IP(), keyfunc.Route()),
		},
	})
	if err != nil {
		panic(err)
	}
	defer g.Close()

	// Without an adapter; nethttp.Limit and the others call Serve, which does this and more.
	for range 3 {
		verdict := g.Check(from("203.0.113.7"))
		answer := header{}
		verdict.SetHeaders(answer)
		fmt.Println(verdict.Action == guard.Pass, verdict.Status, answer["X-Ratelimit-Remaining"])
		verdict.Finish(guard.Final{Status: 200})
	}
	// Output:
	// true 0 1
	// true 0 0
	// false 429 0
}

// What holds for each route, for the log at start-up, and what may not be meant.
func ExampleGuard_Lint() {
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{Policy: "100/1m", Key: keyfunc.IP()},
		Routes: map[string]guard.Rule{
			"POST /login": {Policy: "login: 5/1m"},
			"/items/:id":  {Instead: true},
		},
	})
	if err != nil {
		panic(err)
	}
	routes := []string{"POST /login", "GET /items/{id}"} // as the router has them
	fmt.Print(g.Describe(routes))
	for _, w := range g.Lint(routes) {
		fmt.Println(w)
	}
	// Output:
	// POST /login      Routes["POST /login"]  login: 5/1m      by ip  reject(429)
	//                  Rule                   default: 100/1m  by ip  reject(429)
	// GET /items/{id}  Rule                   default: 100/1m  by ip  reject(429)
	// all others       Rule                   default: 100/1m  by ip  reject(429)
	// unmatched-entry: Routes["/items/:id"]: it matches no registered route; did you mean "GET /items/{id}"?
}

// The rules as data, for a page that shows them. A program that only checks, as a gateway does, refuses those that it
// cannot carry out.
func ExampleGuard_Rules() {
	g, err := guard.New(guard.Config{
		Rule:   guard.Rule{Policy: "100/1m", Key: keyfunc.IP()},
		Routes: map[string]guard.Rule{"POST /report": {Policy: "report: 2 concurrent", Instead: true}},
	})
	if err != nil {
		panic(err)
	}
	rules := g.Rules([]string{"POST /report"})
	text, err := json.MarshalIndent(rules[0], "", "  ")
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s\n", text)
	for _, rule := range rules {
		if rule.Needs.Permits || rule.Needs.Settlement {
			fmt.Printf("%s: %q needs the end of the request\n", rule.Place, rule.Policy)
		}
	}
	// Output:
	// {
	//   "route": "POST /report",
	//   "place": "Routes[\"POST /report\"]",
	//   "name": "report",
	//   "policy": "report: 2 concurrent",
	//   "key": "ip",
	//   "noKey": "refuse",
	//   "overLimit": "reject(429)",
	//   "shadow": false,
	//   "needs": {
	//     "permits": true,
	//     "settlement": false,
	//     "waiting": false,
	//     "degrading": false,
	//     "native": false,
	//     "contentLength": false
	//   }
	// }
	// Routes["POST /report"]: "report: 2 concurrent" needs the end of the request
}

// load reads a file such as {"policies": {"api": "200/1m"}, "tiers": {"api": {"pro": "5000/1m"}}}.
func load(file io.Reader, numbers *atomic.Pointer[guard.Set], guards ...follow.Named) error {
	set, decoder := new(guard.Set), json.NewDecoder(file)
	decoder.DisallowUnknownFields() // a mistake in it leaves the numbers as they are
	if err := decoder.Decode(set); err != nil {
		return err
	}
	if names := set.Unused(guards...); len(names) > 0 {
		return fmt.Errorf("no rule is called %q", names)
	}
	numbers.Store(set)
	return nil
}

// Numbers that come from a file, which has mistakes at first.
func ExampleSet() {
	numbers := new(atomic.Pointer[guard.Set])
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "api: 2/1h", Key: keyfunc.IP()}, Source: numbers})
	if err != nil {
		panic(err)
	}
	for _, text := range []string{`{"api": "5/1h"}`, `{"policies": {"apy": "5/1h"}}`, `{"policies": {"api": "5/1h"}}`} {
		fmt.Println(load(strings.NewReader(text), numbers, g), g.Policies()[0])
	}
	// Output:
	// json: unknown field "api" api: 2/1h
	// no rule is called ["apy"] api: 2/1h
	// <nil> api: 5/1h
}

// Numbers change while the program runs, as when a file is read again. What was counted is kept.
func ExampleSource() {
	numbers := new(atomic.Pointer[guard.Set])
	g, err := guard.New(guard.Config{
		Rule:   guard.Rule{Policy: "api: 2/1h fixed-window", Key: keyfunc.IP()},
		Source: numbers,
	})
	if err != nil {
		panic(err)
	}
	for i := range 4 {
		verdict := g.Check(from("203.0.113.7"))
		fmt.Println(verdict.Action == guard.Pass, verdict.Result.Remaining, "of", verdict.Result.Limit)
		verdict.Finish(guard.Final{Status: 200})
		if i == 2 {
			numbers.Store(&guard.Set{Policies: map[string]string{"api": "5/1h fixed-window"}})
		}
	}
	// Output:
	// true 1 of 2
	// true 0 of 2
	// false 0 of 2
	// true 2 of 5
}

// The fields of the IETF's draft, which scripts of other origins may read, in the place of X-RateLimit.
func ExampleHeaders() {
	g, err := guard.New(guard.Config{
		Rule:    guard.Rule{Policy: "10/1s, 1000/1h", Key: keyfunc.IP()},
		Headers: guard.Headers{XRateLimit: guard.NoXRateLimit, RateLimit: true, Expose: true},
	})
	if err != nil {
		panic(err)
	}
	answer := header{}
	verdict := g.Check(from("203.0.113.7"))
	verdict.SetHeaders(answer)
	for _, name := range []string{"Ratelimit", "Ratelimit-Policy", "Access-Control-Expose-Headers"} {
		fmt.Printf("%s: %s\n", name, answer[name])
	}
	// Output:
	// Ratelimit: "default/1";r=9;t=1, "default/2";r=999;t=4
	// Ratelimit-Policy: "default/1";q=10;w=1, "default/2";q=1000;w=3600
	// Access-Control-Expose-Headers: RateLimit, RateLimit-Policy, Retry-After
}

// An observer that counts by rule. What it counts with is found in the rule's Memo, and not by the Event's texts.
func ExampleMemo() {
	type counters struct{ refused, spared atomic.Int64 }
	owner := new(int) // any pointer of the observer's
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{Policy: "login: 1/1h", Key: keyfunc.IP(), OverLimit: guard.Break(guard.BreakOptions{Refusals: 2})},
		Observe: func(e guard.Event) {
			c, known := e.Memo().Load(owner).(*counters)
			if !known {
				c = e.Memo().LoadOrStore(owner, new(counters)).(*counters)
			}
			if e.Outcome.Allowed() {
				return
			}
			var room [64]byte
			if c.refused.Add(1); e.From == guard.FromCircuit && string(e.AppendKey(room[:0])) == "ip=203.0.113.7" {
				c.spared.Add(1)
			}
			fmt.Println(e.Rule, e.From, c.refused.Load(), c.spared.Load())
		},
	})
	if err != nil {
		panic(err)
	}
	for range 5 {
		verdict := g.Check(from("203.0.113.7"))
		verdict.Finish(guard.Final{Status: 200})
	}
	// Output:
	// Rule process 1 0
	// Rule process 2 0
	// Rule circuit 3 1
	// Rule circuit 4 2
}

// What a page for the people on duty shows of a Guard.
func ExampleGuard_Stats() {
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{
			Policy: "login: 1/1h, 20 concurrent", Key: keyfunc.IP(), OverLimit: guard.Break(guard.BreakOptions{Refusals: 3}),
		},
		Rules: []guard.Rule{{Policy: "mail: 10/1s; wait 2s"}},
	})
	if err != nil {
		panic(err)
	}
	for range 4 {
		verdict := g.Check(from("203.0.113.7"))
		defer verdict.Finish(guard.Final{Status: 200})
	}
	s := g.Stats()
	fmt.Println("permits held:", s.Limiter.Permits)
	for _, q := range s.Queues {
		fmt.Println(q.Policy, q.Rule, "waiting:", q.Requests, "of", q.Places)
	}
	for _, c := range s.Circuits {
		fmt.Println(c.Policies, "open circuits:", c.Open)
	}
	if s.Lag != "" {
		fmt.Println("revision", s.Revision, "is not the latest since", s.LagsSince, s.Lag)
	}
	// Output:
	// permits held: 1
	// mail Rules[0] waiting: 0 of 1000
	// [login mail] open circuits: 1
}

// A line of the log for each refusal, with the names that the metrics have. Keys and routes are added where they are
// wanted.
func ExampleEvent() {
	withoutTimes := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Value.Kind() == slog.KindDuration {
			return slog.Attr{}
		}
		return a
	}
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTimes}))
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{Policy: "login: 1/1h", Key: keyfunc.IP()},
		Observe: func(e guard.Event) {
			if !e.Settled && !e.Outcome.Allowed() {
				log.LogAttrs(e.Context(), slog.LevelWarn, "refused", slog.Any("", e), slog.String("weir.key", e.Key()))
			}
		},
	})
	if err != nil {
		panic(err)
	}
	for range 2 {
		verdict := g.Check(from("203.0.113.7"))
		verdict.Finish(guard.Final{Status: 200})
	}
	// Output:
	// level=WARN msg=refused weir.policy=login weir.rule=Rule weir.outcome=refused weir.from=process weir.limit=1 weir.remaining=0 weir.key="ip=203.0.113.7"
}
