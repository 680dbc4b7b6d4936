package guard

import (
	"errors"
	"fmt"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/keyfunc"
)

// Statuses are plain integers here, so that guard needs no HTTP package.
const (
	statusForbidden          = 403
	statusTooManyRequests    = 429
	statusServiceUnavailable = 503
)

// RejectOptions say how [Reject] answers. The zero value is a good choice.
type RejectOptions struct {
	// Status is that of a request over its limit, from 400 to 599; 0 means 429.
	Status int
}

// Reject answers with a short text: 429 over the limit, 503 where the store failed
// and the policy fails closed, 403 where there is no key.
func Reject(o RejectOptions) OverLimit {
	if o.Status == 0 {
		o.Status = statusTooManyRequests
	}
	return reject{o}
}

type reject struct{ o RejectOptions }

func (r reject) String() string { return fmt.Sprintf("reject(%d)", r.o.Status) }

// Err reports a mistake in the options to New.
func (r reject) Err() error {
	if r.o.Status < 400 || r.o.Status > 599 {
		return fmt.Errorf("guard: RejectOptions.Status is %d; give 400 to 599, or 0 for 429", r.o.Status)
	}
	return nil
}

var (
	plainText   = []field{{headerType, "text/plain; charset=utf-8"}}
	retrySoon   = []field{plainText[0], {headerRetryAfter, "1"}}
	bodyOver    = []byte("too many requests\n")
	bodyNever   = []byte("this request costs more than its rate limit ever admits at once\n")
	bodyNoKey   = []byte("this request does not say who sent it, which its rate limit asks for\n")
	bodyNoStore = []byte("the rate limiter cannot decide at the moment\n")
)

// Serve implements OverLimit.
func (r reject) Serve(x *Refusal) Verdict { return r.answer(&x.Result, x.Err) }

func (r reject) answer(res *core.Result, err error) Verdict {
	_, failed := errors.AsType[*core.StoreError](err)
	switch {
	case res.Outcome == core.Never:
		return Verdict{Status: r.o.Status, Body: bodyNever, fields: plainText}
	case err == nil, res.Local:
		return Verdict{Status: r.o.Status, Body: bodyOver, fields: plainText}
	case failed:
		return Verdict{Status: statusServiceUnavailable, Body: bodyNoStore, fields: retrySoon}
	case errors.Is(err, keyfunc.ErrNoKey):
		return Verdict{Status: statusForbidden, Body: bodyNoKey, fields: plainText}
	default:
		return Verdict{Status: statusServiceUnavailable, Body: bodyNoStore, fields: plainText}
	}
}
