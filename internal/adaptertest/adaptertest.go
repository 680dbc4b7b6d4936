// Package adaptertest is the behaviour that all adapters share, as tests that each
// adapter runs on real HTTP servers. It knows no framework: an [Adapter] translates
// the description of an application into one.
//
// The form of answers is core's doing and tested there too; here a client looks at it
// through a framework.
package adaptertest

import (
	"context"
	"mime/multipart"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/weir-go/weir/core/guard"
)

// Adapter is an adapter under test.
type Adapter struct {
	// Name is the package's.
	Name string
	// Serve starts a server on a free port of 127.0.0.1, which ends with the
	// test, and returns its URL without a slash at the end.
	Serve func(t testing.TB, app App) string
	// Handle is the adapter's Handle of a handler that does what n says.
	Handle func(n Native) guard.OverLimit
	// HandleNil is the adapter's Handle(nil).
	HandleNil func() guard.OverLimit
	// Pattern is the framework's form of a pattern such as "/items/{id}".
	Pattern func(pattern string) string
	// IsNative reports whether r is the framework's own request.
	IsNative func(r any) bool
	// UploadsInMemory says that the framework keeps the files of small forms in memory.
	UploadsInMemory bool
	// HTTP1Only says that the framework does not speak HTTP/2. All others do so without TLS.
	HTTP1Only bool
	// NeverLeaves says that the framework does not notice when a client has left.
	NeverLeaves bool
}

// App is an application to serve. Outside of all guards, it has
//
//   - a middleware that recovers from panics, calls Recovered, and answers 500,
//   - a middleware that calls Left,
//   - a middleware that stores the header UserInStore, if there is one, under
//     StoreKey in the framework's own store, and the header UserInContext under
//     ContextKey in the request's context, and puts the address in the header
//     RewrittenPeer, if there is one, in the place of the socket's, without a port.
type App struct {
	// Guards are around everything, also what matches no route; outermost first.
	Guards []*guard.Guard
	// Routes are the routes served. Those of GET also answer HEAD.
	Routes []Route
	// Recovered is called with a value that was recovered. It may be nil.
	Recovered func(any)
	// Left is called with the request's context as middleware outside finds it when the guards have done with the request,
	// also after a panic. It may be nil.
	Left func(ctx context.Context)
	// Unread asks not to read the bodies of requests in advance.
	Unread bool
}

// Where authentication leaves the user, and what other middleware makes of the peer.
const (
	StoreKey      = "uid"
	UserInStore   = "X-Test-User-In-Store"
	UserInContext = "X-Test-User-In-Context"
	RewrittenPeer = "X-Test-Rewritten-Peer"
)

// ContextKey is the key of the user in the request's context.
type ContextKey struct{}

// Route is a route of an App.
type Route struct {
	Method  string
	Pattern string         // as http.ServeMux has it: "/items/{id}"
	Guards  []*guard.Guard // on the route alone, outermost first
	Handler Handler
}

// Handler is the task of a route's handler. The zero Handler answers 200 and "ok".
type Handler struct {
	// Status is that of the answer; 0 means 200.
	Status int
	// Fail answers with the framework's own error of that status, which is
	// returned where the framework has such. Without a Status, it is an error
	// that has none either, for which a framework answers 500.
	Fail bool
	// Panic panics with that value.
	Panic any
	// Header holds the fields that the handler sets before it answers.
	Header Fields
	// Stream, unless nil, sends "first", waits for Stream to be closed, and
	// sends "last".
	Stream <-chan struct{}
	// Detached detaches what is owed for the request for the Stream, where the framework writes it after the handler
	// has returned.
	Detached bool
	// Hijack, unless nil, is called with the connection, which is taken over, and closed afterwards. The context ends
	// with the permits.
	Hijack func(held context.Context, conn net.Conn)
	// Calls counts the calls. It may be nil.
	Calls *atomic.Int64
	// Do, unless nil, is called first, with the request's context.
	Do func(ctx context.Context)
	// DoNative, unless nil, is called next, with the framework's own context if that is a context.Context, and else
	// with the request's.
	DoNative func(ctx context.Context)
	// Upload, unless nil, is called with the request's form, parsed so that its
	// files are on the disk if the framework can do that.
	Upload func(*multipart.Form, error)
}

// Fields are headers, each a name and a value.
type Fields [][2]string

// Each calls set with each of them.
func (f Fields) Each(set func(name, value string)) {
	for _, field := range f {
		set(field[0], field[1])
	}
}

// Called counts a call, and does what there is to do. ctx is the request's context, and native the framework's own.
func (h Handler) Called(ctx, native context.Context) {
	if h.Calls != nil {
		h.Calls.Add(1)
	}
	if h.Do != nil {
		h.Do(ctx)
	}
	if h.DoNative != nil {
		h.DoNative(native)
	}
}

// Code is the answer's status.
func (h Handler) Code() int {
	if h.Status == 0 {
		return http.StatusOK
	}
	return h.Status
}

// Native is the task of an over-limit handler of the framework's own kind. It sets
// the header X-Native to the policy's name in any case.
type Native struct {
	// Status is the status of its answer, with "native" for a body; 0: it writes nothing.
	Status int
	// Fail answers with the framework's own error of that status, as in Handler.
	Fail bool
	// Body, unless empty, is the body of an answer for which it sets no status.
	Body string
	// Panic panics with that value.
	Panic any
	// Header holds the fields that it sets besides.
	Header Fields
	// Change, unless nil, is called with the Verdict before anything else.
	Change func(*guard.Verdict)
}

// Edit lets n change v.
func (n Native) Edit(v *guard.Verdict) {
	if n.Change != nil {
		n.Change(v)
	}
}

// Run tests an adapter.
func Run(t *testing.T, a Adapter) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(*testing.T, Adapter)
	}{
		{"headers of an admission and a refusal", testHeaders},
		{"headers of a cost that never fits", testNeverFits},
		{"headers before a stream", testStream},
		{"headers that the handler sets itself", testOwnHeader},
		{"stacked guards show the tightest", testStacked},
		{"styles of headers", testHeaderStyles},
		{"stacked guards have one list", testLists},
		{"two guards with the same numbers", testSameNumbers},
		{"one guard mounted twice", testTwice},

		{"paths of one route share a key", testRoute},
		{"paths of no route share a key", testNoRoute},
		{"invented methods share a key", testMethods},
		{"HEAD counts as GET", testHead},
		{"the request as key functions see it", testRequest},
		{"strings outlive the request", testStrings},
		{"targets of any form", testTargets},
		{"users in the store and in the context", testUser},
		{"all lines of a forwarded header", testForwarded},
		{"an address without a port", testRewrittenPeer},

		{"a native handler", testNative},
		{"a native handler that writes nothing", testNativeSilent},
		{"a native handler of another framework", testNativeMisplaced},
		{"a native handler's body without a status", testNativeBody},
		{"a refusal in the form that the client accepts", testAccepted},
		{"a refusal of a call of gRPC", testGRPC},
		{"a degraded answer", testDegrade},
		{"another handler that answers instead", testDegradeInstead},
		{"answers in caches", testCaches},
		{"a circuit that breaks", testBreak},
		{"a zero Verdict", testZeroVerdict},
		{"a Verdict that passes", testPassingVerdict},
		{"requests without a key", testNoKey},
		{"key functions that fail", testKeyError},
		{"a store that fails", testStoreFails},
		{"skipped requests", testSkip},

		{"panics pass through", testPanic},
		{"a thousand panics leave nothing behind", testPanics},
		{"the end of a request", testFinal},
		{"failures alone are counted", testFailuresCount},
		{"tokens that the handler reports", testTokens},
		{"tokens that are reported after the handler", testDetachedTokens},
		{"either context will do", testContexts},
		{"failed logins", testFailedLogins},

		{"permits are held while the handler runs", testPermits},
		{"a thousand panics leave no permit behind", testPermitsPanic},
		{"what refuses gives the permit back", testPermitsGivenBack},
		{"a permit that is lost ends the context", testPermitLost},
		{"middleware outside of a permit", testPermitInside},
		{"a permit that is detached", testPermitDetached},
		{"a stream holds its permit until it ends", testPermitOfStream},
		{"a hijacked connection holds its permit until it ends", testPermitOfHijacked},
		{"files of a form are removed", testUpload},
		{"a turn that is yet to come", testDelay},

		{"the whole behaviour", testWholeTable},
		{"a table of routes", testTable},
		{"several rules and tiers", testRules},
		{"a queue with few places", testQueue},
		{"policies that change", testChanging},
		{"what is seen of a request", testSeen},
		{"nothing is left of a thousand requests of each kind", testNothingLeft},

		{"a hundred clients at once", testConcurrent},
		{"a large body is refused unread", testUnread},
		{"clients that leave", testLeave},
		{"clients that leave a queue", testLeaveQueue},
		{"clients that leave a queue unseen", testLeaveQueueUnseen},
		{"Close ends what a guard runs", testClose},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, a) })
	}
}
