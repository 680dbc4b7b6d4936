package guard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// call is a request of a framework that has no adapter, with its answer.
type call struct {
	ctx           context.Context //nolint:containedctx // a request has one
	method, route string
	peer          netip.AddrPort
	in, out       http.Header
	status        int
	body          string
}

// callHandler is a handler of that framework.
type callHandler func(*call) error

// limitCalls is the framework's middleware.
func limitCalls(g *guard.Guard, next callHandler) callHandler {
	return func(c *call) error { return g.Serve(&callExchange{c, next}) }
}

// handleCall makes an over-limit handler of a handler of the framework.
func handleCall(h callHandler) guard.OverLimit { return guard.HandleNative("handleCall", h) }

// callExchange implements guard.Exchange: it translates, and decides nothing.
type callExchange struct {
	*call
	next callHandler
}

// The request, of which keys are made.

func (x *callExchange) Context() context.Context    { return x.ctx }
func (x *callExchange) Method() string              { return x.method }
func (x *callExchange) ProtoMajor() int             { return 1 }
func (x *callExchange) Host() string                { return "" }
func (x *callExchange) Path() string                { return x.route }
func (x *callExchange) Route() string               { return x.route }
func (x *callExchange) Peer() netip.AddrPort        { return x.peer }
func (x *callExchange) Header(name string) []string { return x.in[name] }
func (x *callExchange) ContentLength() int64        { return -1 }
func (x *callExchange) Value(key any) any           { return x.ctx.Value(key) }
func (x *callExchange) Native() any                 { return x.call }

// The answer.

func (x *callExchange) Get(name string) string           { return strings.Join(x.out[name], ", ") }
func (x *callExchange) Set(name, value string)           { x.out.Set(name, value) }
func (x *callExchange) Del(name string)                  { x.out.Del(name) }
func (x *callExchange) Scratch() *guard.Scratch          { return nil } // Set keeps the strings
func (x *callExchange) BeforeHeader(func())              {}             // the header is sent after the handler
func (x *callExchange) Reply(status int, body []byte)    { x.status, x.body = status, string(body) }
func (x *callExchange) Routed() (route string, all bool) { return x.route, false }
func (x *callExchange) Hijacked() bool                   { return false }
func (x *callExchange) Watch()                           {} // a call keeps its status

func (x *callExchange) Final(err error, panicked bool) guard.Final {
	return guard.Final{Status: x.status, Err: err, Bytes: int64(len(x.body)), Panicked: panicked}
}

// The handlers.

func (x *callExchange) Next(ctx context.Context) error {
	if ctx != nil { // Report, FromContext, Degraded and Detach take it
		x.ctx = ctx
	}
	return x.next(x.call)
}

func (x *callExchange) Handle(native any, v *guard.Verdict) (answered, known bool, err error) {
	h, known := native.(callHandler)
	if known {
		x.status = v.Status
		err = h(x.call)
	}
	return known, known, err
}

// An adapter for a framework that has none.
func ExampleExchange() {
	g, err := guard.New(guard.Config{Rule: guard.Rule{
		Policy: "1/1m",
		Key:    keyfunc.IP(),
		OverLimit: handleCall(func(c *call) error {
			c.body = "come back later"
			return nil
		}),
	}})
	if err != nil {
		panic(err)
	}
	hello := limitCalls(g, func(c *call) error {
		c.status, c.body = 200, "hello"
		return nil
	})
	for range 2 {
		c := &call{
			ctx: context.Background(), method: "GET", route: "/hello", out: http.Header{},
			peer: netip.MustParseAddrPort("203.0.113.7:1234"),
		}
		if err := hello(c); err != nil {
			panic(err)
		}
		fmt.Println(c.status, c.body, c.out["X-Ratelimit-Remaining"])
	}
	// Output:
	// 200 hello [0]
	// 429 come back later [0]
}

// exactCall is a callExchange that answers refusals with the exact time to wait.
type exactCall struct{ callExchange }

func (x *exactCall) Refuse(v *guard.Verdict) {
	x.status, x.body = v.Status, fmt.Sprintf("come back in %v", v.RetryAfter().Round(100*time.Millisecond))
}

// A protocol that has room for the exact wait.
func ExampleRefuser() {
	g := guard.Must("1/1500ms", keyfunc.IP())
	for range 2 {
		c := &call{
			ctx: context.Background(), method: "GET", route: "/hello", out: http.Header{},
			peer: netip.MustParseAddrPort("203.0.113.7:1234"),
		}
		x := &exactCall{callExchange{c, func(c *call) error {
			c.status, c.body = 200, "hello"
			return nil
		}}}
		if err := g.Serve(x); err != nil {
			panic(err)
		}
		fmt.Println(c.status, c.body, c.out["Retry-After"])
	}
	// Output:
	// 200 hello []
	// 429 come back in 1.5s [2]
}
