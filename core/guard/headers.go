package guard

import (
	"strconv"
	"time"

	"github.com/weir-go/weir/core"
)

// Header is the answer's header, as far as a Guard needs it. http.Header is one.
// Names are in canonical form, so that an adapter need not look at them again.
type Header interface {
	Get(name string) string
	Set(name, value string)
}

// The headers, in the form in which net/http and fasthttp keep them; names of
// headers know no case.
const (
	headerLimit      = "X-Ratelimit-Limit"
	headerRemaining  = "X-Ratelimit-Remaining"
	headerReset      = "X-Ratelimit-Reset"
	headerRetryAfter = "Retry-After"
	headerCache      = "Cache-Control"
	headerType       = "Content-Type"
)

// SetHeaders sets what the client should know:
//
//	X-RateLimit-Limit      the tightest limit's burst
//	X-RateLimit-Remaining  how many units are left of it
//	X-RateLimit-Reset      when it is as if unused: Unix seconds by the store's
//	                       clock, rounded up
//	Retry-After            on a refusal, the seconds to wait, rounded up and at
//	                       least 1; absent where waiting cannot help
//	Cache-Control          no-store on a refusal
//
// A request that nobody counted, because the store failed or it had no key, has no
// X-RateLimit headers: there are no true numbers to give. An adapter calls this
// before the handler, so that the headers are there even if it streams or panics;
// a handler that sets one of them itself has the last word.
//
// Where an outer guard has set them already, the tightest stays: a refusal before
// anything else, then the least remaining, then the latest reset.
func (v *Verdict) SetHeaders(h Header) {
	res := &v.Result
	if v.rule != nil && res.Limit > 0 {
		v.setNumbers(h)
	}
	if v.Action != Pass {
		h.Set(headerCache, "no-store")
		if res.Outcome == core.Refused && res.RetryAfter > 0 {
			h.Set(headerRetryAfter, strconv.FormatInt(max(1, ceilSeconds(int64(res.RetryAfter/time.Microsecond))), 10))
		}
	}
	for _, f := range v.fields {
		h.Set(f.name, f.value)
	}
}

func (v *Verdict) setNumbers(h Header) {
	res := &v.Result
	limit := v.rule.limitText(res.Limit)
	reset := ceilSeconds(res.At + int64(res.ResetAfter/time.Microsecond))
	if outer := h.Get(headerLimit); outer != "" {
		if v.Action == Pass && looser(h, res.Remaining, reset) {
			return
		}
	}
	h.Set(headerLimit, limit)
	h.Set(headerRemaining, strconv.FormatInt(res.Remaining, 10))
	h.Set(headerReset, strconv.FormatInt(reset, 10))
}

// looser reports whether an admission with these numbers says less than the headers
// that are there already. Headers that cannot be read are not weir's.
func looser(h Header, remaining, reset int64) bool {
	outerRemaining, err1 := strconv.ParseInt(h.Get(headerRemaining), 10, 64)
	outerReset, err2 := strconv.ParseInt(h.Get(headerReset), 10, 64)
	if err1 != nil || err2 != nil {
		return false
	}
	return outerRemaining < remaining || outerRemaining == remaining && outerReset >= reset
}

func ceilSeconds(micros int64) int64 { return (micros + 999_999) / 1_000_000 }

// limitText is the text of a burst of the rule's policy.
func (ru *rule) limitText(units int64) string {
	for _, b := range ru.bursts {
		if b.units == units {
			return b.text
		}
	}
	return strconv.FormatInt(units, 10)
}
