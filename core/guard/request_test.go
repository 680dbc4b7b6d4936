package guard_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
)

// advance lets time pass in a bubble, and what it wakes finish.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// pause returns when d is over. It makes no timer for no time: such timers of several goroutines in one bubble crash the
// race detector (go.dev/issue/78156).
func pause(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}

// request is a keyfunc.Request made of plain fields.
type request struct {
	ctx    context.Context //nolint:containedctx // a request has one
	method string
	proto  int
	route  string
	peer   netip.AddrPort
	lines  map[string][]string
}

func (r *request) Context() context.Context    { return r.ctx }
func (r *request) Method() string              { return cmp.Or(r.method, "GET") }
func (r *request) ProtoMajor() int             { return cmp.Or(r.proto, 1) }
func (r *request) Host() string                { return "example.org" }
func (r *request) Path() string                { return r.route }
func (r *request) Route() string               { return r.route }
func (r *request) Peer() netip.AddrPort        { return r.peer }
func (r *request) Header(name string) []string { return r.lines[name] }
func (r *request) ContentLength() int64        { return -1 }
func (r *request) Value(key any) any           { return r.ctx.Value(key) }
func (r *request) Native() any                 { return r }

// from is a request of the peer, or of nobody.
func from(peer string) *request {
	r := &request{ctx: context.Background(), route: "/items/{id}"}
	if peer != "" {
		r.peer = netip.AddrPortFrom(netip.MustParseAddr(peer), 1234)
	}
	return r
}

const alice, bob = "203.0.113.7", "203.0.113.8"

// epoch is an instant in microseconds since 1970.
const epoch = 1_800_000_000_000_000

// header is the answer's header. Names must come in the form in which frameworks
// keep them.
type header map[string]string

func (h header) Get(name string) string { return h[name] }
func (h header) Set(name, value string) { h[name] = value }
func (h header) Del(name string)        { delete(h, name) }

// records is a slog.Handler that keeps every line.
type records struct {
	mu    sync.Mutex
	said  []string
	coded []string
}

func (r *records) Enabled(context.Context, slog.Level) bool { return true }
func (r *records) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *records) WithGroup(string) slog.Handler            { return r }

func (r *records) Handle(_ context.Context, rec slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := rec.Level.String() + " " + rec.Message
	rec.Attrs(func(a slog.Attr) bool {
		if a.Key == "code" {
			r.coded = append(r.coded, a.Value.String())
			return true
		}
		text += " " + a.String()
		return true
	})
	r.said = append(r.said, text)
	return nil
}

// all returns what was said since the last call.
func (r *records) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	said := r.said
	r.said = nil
	return said
}

// codes returns the codes of all that was said ever.
func (r *records) codes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.coded)
}

func newMemory(t testing.TB) *core.Memory {
	t.Helper()
	m, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	return m
}

// exchange is a request whose answer is kept as text. Its framework's handlers are one value.
type exchange struct {
	*request
	header
	native any
	silent bool // the native handler writes nothing
	said   string
}

func (x *exchange) Scratch() *guard.Scratch { return nil }

func (x *exchange) Next(ctx context.Context) error {
	x.said = "passed"
	return nil
}

func (x *exchange) Reply(status int, body []byte) { x.said = fmt.Sprintf("%d %s", status, body) }

func (x *exchange) Handle(native any, v *guard.Verdict) (answered, known bool, err error) {
	if native != x.native {
		return false, false, nil
	}
	if x.silent {
		v.Status, v.Body = 420, []byte("slow")
		return false, true, nil
	}
	x.said = "cached"
	return true, true, nil
}

func (x *exchange) BeforeHeader(func()) {}

func (x *exchange) Routed() (pattern string, everyMethod bool) { return "", false }

func (x *exchange) Hijacked() bool { return false }

func (x *exchange) Watch() {}

func (x *exchange) Final(err error, panicked bool) guard.Final {
	return guard.Final{Status: 200, Panicked: panicked}
}
