package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/textproto"
	"strconv"
	"time"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/nethttp"
)

// Options describe the gateway that asks. Style, and Trusted or Socket, must be given; every other zero field is a good
// choice.
type Options struct {
	// Style is the way in which the gateway describes a request.
	Style Style
	// Trusted are the networks of the gateways. All others get 403, and no limit is asked: they could use up somebody
	// else's. A network of size /0, which is everybody, is a mistake.
	Trusted []netip.Prefix
	// Socket trusts those that have no address, as on a unix socket, which the permissions of its file protect.
	Socket bool
	// Deny is the status of all refusals, for a gateway that knows 403 alone, as nginx, which makes a 500 of 429. The
	// refusal's own status is then in the field X-Weir-Status. 0 means that refusals have their own status, and 403 is
	// the only other value.
	Deny int
	// Find returns the route of a request that a gateway has described. nil means a ServeMux of the keys of the guard's
	// Routes, which must be patterns of a ServeMux then.
	Find nethttp.Router
	// Prefix is the path_prefix of Envoy, which stands before the path of a request: with "/check", a request for "/items/1"
	// comes as one for "/check/items/1". Other styles have none.
	Prefix string
	// Hops is the number of proxies that have appended an address to X-Forwarded-For, the gateway included, from 1 to 64:
	// the client's address is that many from the right. With 2, and "a, b, c", it is b. 0 means 1. The style Nginx has none.
	Hops int
	// Length names the header in which the gateway sends the length of the request's body, for rules with a Cost by
	// ContentLength. A request without it has a length of -1, which is unknown. "" means that rules with a Cost are a
	// mistake.
	Length string
	// MaxWait is the longest time that a policy may let a request wait for its turn: less than the time for which the
	// gateway waits for an answer. 0 means that policies that wait are a mistake.
	MaxWait time.Duration
	// Log receives a line for a peer that is not trusted, and for a description that cannot be read: at most one a
	// minute for each header, with the header's name and never with its value. nil means slog.Default().
	Log *slog.Logger
}

// StatusHeader is the field with a refusal's own status, where [Options].Deny replaces it.
const StatusHeader = "X-Weir-Status"

// New returns the handler that answers gateways. A request that g admits gets 200 with the headers of g and no body; one
// that it refuses gets the headers of g, its body, which the style Nginx leaves out because nginx does not read it, and its
// status, or that of [Options].Deny. A description that cannot be read gets 400, and is not counted.
//
// Every path is the check, so that the handler can be that of a server, or of a pattern of a mux. In the style Envoy let it
// be that of the server: the path is the client's, and a ServeMux redirects those that it would write otherwise.
//
// The error lists every mistake in o, and the rules of g that cannot work behind a gateway: those that need the end of a
// request (Settle, After, permits), a handler to go on with (Degrade), a framework (native handlers), a length that
// nobody sends (Cost), or more time than the gateway gives.
func New(g *guard.Guard, o Options) (http.Handler, error) {
	if g == nil {
		return nil, errors.New("gateway: the guard is nil; give it the one that guard.New returned")
	}
	var mistakes []error
	wrong := func(format string, args ...any) {
		mistakes = append(mistakes, fmt.Errorf("gateway: "+format, args...))
	}
	if o.Style < Nginx || o.Style > Envoy {
		wrong("Options.Style is %d; give Nginx, Forwarded or Envoy", o.Style)
	}
	if o.Deny != 0 && o.Deny != http.StatusForbidden {
		wrong("Options.Deny is %d; give 403, or 0 for the status of each refusal", o.Deny)
	}
	switch {
	case o.Style == Envoy:
		o.Prefix = cleanPrefix(o.Prefix, wrong)
	case o.Prefix != "":
		wrong("Options.Prefix is %q, which has a meaning in the style Envoy only; leave it out", o.Prefix)
	}
	switch {
	case o.Style == Nginx && o.Hops != 0:
		wrong("Options.Hops is %d, and the style Nginx has one address; leave it out, and let nginx find the client's", o.Hops)
	case o.Hops < 0 || o.Hops > maxHops:
		wrong("Options.Hops is %d; give 1 to %d", o.Hops, maxHops)
	}
	o.Length = textproto.CanonicalMIMEHeaderKey(o.Length)
	if o.MaxWait < 0 {
		wrong("Options.MaxWait is %s; give the time for which the gateway waits, or 0", o.MaxWait)
	}
	trusted := checkTrusted(&o, wrong)
	checkRules(g, &o, wrong)
	if o.Find == nil {
		o.Find = routesOf(g, wrong)
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	log := o.Log
	if log == nil {
		log = slog.Default()
	}
	e := &endpoint{options: o, trusted: trusted, complaints: complaints{log: log}}
	e.limit = nethttp.Limit(g, o.Find)(http.HandlerFunc(admit))
	return e, nil
}

// endpoint answers gateways.
type endpoint struct {
	options    Options
	trusted    []netip.Prefix
	limit      http.Handler // decides on described requests
	complaints complaints
}

// ServeHTTP implements http.Handler.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !e.trusts(r.RemoteAddr) {
		e.complaints.add("weir: a peer that is no trusted gateway asks for checks; it gets 403, and nothing is counted", "")
		http.Error(w, "this peer is no trusted gateway", http.StatusForbidden)
		return
	}
	described, bad := e.describe(r)
	if bad != nil {
		e.complaints.add("weir: a gateway's description of a request cannot be read; it gets 400, and nothing is counted",
			bad.header, "problem", bad.problem)
		http.Error(w, bad.header+" "+bad.problem, http.StatusBadRequest)
		return
	}
	e.limit.ServeHTTP(&answer{w, &e.options}, described)
}

// admit answers for a request that passes. It writes no header, by which answer knows refusals.
func admit(http.ResponseWriter, *http.Request) {}

// answer is the writer of a check. Of a request that passes nothing is written to it.
type answer struct {
	http.ResponseWriter
	options *Options
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if status >= 200 && status < 300 { // by which the gateway would let it pass
		status = http.StatusTooManyRequests
	}
	if deny := a.options.Deny; deny != 0 {
		a.Header().Set(StatusHeader, strconv.Itoa(status))
		status = deny
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer. nginx reads no body of a check, and closes the connection of one that has a body, so that
// each refusal would open another.
func (a *answer) Write(p []byte) (int, error) {
	if a.options.Style == Nginx {
		return len(p), nil
	}
	return a.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController find the writer below.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
