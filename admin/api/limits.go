package api

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/adminapi"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

// The limits of the API itself, in this process: no change of a policy can lock anybody out.
const (
	ofStrangers = "60/1m"  // of an address
	ofKnown     = "600/1m" // of a token, or of a person in all their sessions
	maxCounted  = 100_000  // tokens, people and addresses
)

// limits returns a middleware that limits those who are known by their token, and others by their address.
func limits(trusted []netip.Prefix, strangers, known string, log *slog.Logger) (func(http.Handler) http.Handler, error) {
	memory, err := core.NewMemory(core.MemoryOptions{MaxKeys: maxCounted})
	if err != nil {
		return nil, err
	}
	byCaller := keyfunc.Custom("caller", func(r keyfunc.Request) (string, error) {
		if p := who(r.Context()); p != nil {
			return caller(p), nil
		}
		return "", keyfunc.ErrNoKey
	})
	socket := keyfunc.Const("socket") // all who come by a unix socket share one
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{
			Policy: "admin-api: " + strangers,
			Tiers:  map[string]string{"known": known},
			Tier: func(r keyfunc.Request) string {
				if who(r.Context()) != nil {
					return "known"
				}
				return ""
			},
			Key: keyfunc.FirstOf(byCaller, keyfunc.ForwardedIP(trusted...), socket),
			OverLimit: nethttp.Handle(func(w http.ResponseWriter, _ *http.Request, _ *guard.Verdict) {
				writeProblem(w, &adminapi.Problem{
					Type: adminapi.TypeTooMany, Title: http.StatusText(http.StatusTooManyRequests), Status: http.StatusTooManyRequests,
					Detail: fmt.Sprintf("a token may send %s, and an address without one %s; "+
						"Retry-After says when the next is admitted", known, strangers),
				})
			}),
		},
		Store: memory, Log: log,
	})
	if err != nil {
		return nil, errors.Join(errors.New("api: the limits"), err)
	}
	return nethttp.Limit(g), nil
}
