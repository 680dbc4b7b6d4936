package people

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/keyfunc"
)

// attempts limits the attempts to enter of each address, in this process, by numbers that no fleet can change. Only
// those that fail are counted, since many people may have one address: what is right is never refused for the sake of
// others.
type attempts struct {
	limiter *enforce.Limiter
	address keyfunc.Func
}

const (
	ofAddress    = "20/1m" // attempts that fail
	maxAddresses = 100_000 // that are counted at once
)

func newAttempts(trusted []netip.Prefix, log *slog.Logger) (*attempts, error) {
	address := keyfunc.ForwardedIP(trusted...)
	if err := address.Err(); err != nil {
		return nil, err
	}
	memory, err := core.NewMemory(core.MemoryOptions{MaxKeys: maxAddresses})
	if err != nil {
		return nil, err
	}
	limiter, err := enforce.New(memory, core.MustParse("enter: "+ofAddress), enforce.Options{Log: log})
	return &attempts{limiter, address}, err
}

// wrong counts an attempt with something that is not known, and returns how to take that back if it turns out to be
// right. The error is a *TooManyError if there were too many.
func (a *attempts) wrong(r *http.Request) (right func(), err error) { return a.take(r, "") }

// login counts a login that asks the provider, before it does, and returns how to take that back when it succeeds.
func (a *attempts) login(r *http.Request) (succeeded func(), err error) {
	return a.take(r, "login ")
}

func (a *attempts) take(r *http.Request, what string) (refund func(), err error) {
	var key keyfunc.Key
	if err := a.address.AppendTo(&key, request{r}); err != nil {
		key.Add("peer", "unknown") // a unix socket: all share one
	}
	text := what + key.Text()
	res, err := a.limiter.Allow(r.Context(), text)
	switch {
	case err != nil:
		return nil, err
	case !res.Allowed():
		return nil, &TooManyError{res.RetryAfter}
	}
	return func() { _ = a.limiter.Refund(context.WithoutCancel(r.Context()), text, res, 1) }, nil // memory does not fail
}

// request lets keyfunc read a request.
type request struct{ r *http.Request }

func (q request) Context() context.Context    { return q.r.Context() }
func (q request) Method() string              { return q.r.Method }
func (q request) ProtoMajor() int             { return q.r.ProtoMajor }
func (q request) Host() string                { return q.r.Host }
func (q request) Path() string                { return q.r.URL.Path }
func (q request) Route() string               { return "" }
func (q request) Peer() netip.AddrPort        { return keyfunc.ParsePeer(q.r.RemoteAddr) }
func (q request) Header(name string) []string { return q.r.Header[name] }
func (q request) ContentLength() int64        { return q.r.ContentLength }
func (q request) Value(key any) any           { return q.r.Context().Value(key) }
func (q request) Native() any                 { return q.r }
