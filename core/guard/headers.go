package guard

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"github.com/weir-go/weir/core"
)

// Header is the header of an answer, as far as a Guard needs it. http.Header is one. The names that a Guard gives are
// in canonical form, and the values have no line breaks.
type Header interface {
	// Get returns the value of a field, several lines joined by commas, or "" if it is not set.
	Get(name string) string
	// Set replaces the value of a field.
	Set(name, value string)
	// Del removes a field.
	Del(name string)
}

// The headers whose names are not for the program to choose, in the form in which net/http and fasthttp keep them;
// names of headers know no case.
const (
	headerRetryAfter = "Retry-After"
	headerCache      = "Cache-Control"
	headerType       = "Content-Type"
	headerRateLimit  = "Ratelimit"
	headerPolicy     = "Ratelimit-Policy"
	headerExpose     = "Access-Control-Expose-Headers"
	headerAccept     = "Accept"
	headerVary       = "Vary"
)

// SetHeaders sets what the client should know, in the style of [Config].Headers:
//
//	X-RateLimit-Limit      the tightest limit's burst
//	X-RateLimit-Remaining  how many units are left of it
//	X-RateLimit-Reset      when it is as if unused: Unix seconds by the store's
//	                       clock, rounded up
//	RateLimit, and         every limit that was asked, if the Config says so
//	RateLimit-Policy
//	Retry-After            on a refusal, the seconds to wait, rounded up and at
//	                       least 1; absent where waiting cannot help
//	Cache-Control          no-store on a refusal, and where it is degraded; then
//	                       there is no other header by which caches go
//
// A request that nobody counted, because the store failed or it had no key, has no
// headers of limits: there are no true numbers to give. An adapter calls this
// before the handler, so that the headers are there even if it streams or panics;
// a handler that sets one of them itself has the last word, except on what caches may do.
//
// Where an outer guard has set them already, the tightest stays: a refusal before
// anything else, then the least remaining, then the latest reset. The lists of
// RateLimit and RateLimit-Policy become one.
func (v *Verdict) SetHeaders(h Header) {
	d := scratches.Get().(*Scratch)
	v.setHeaders(h, d, false)
	scratches.Put(d)
}

// setHeaders is SetHeaders with a Scratch. copied reports that h copies what it is given.
func (v *Verdict) setHeaders(h Header, d *Scratch, copied bool) {
	s := &plainHeaders
	if v.guard != nil { // a program may have made the Verdict
		s = &v.guard.headers
	}
	var limit string
	var remaining, reset int
	text := d.numbers[:0] // which become one string
	if v.rule != nil && v.Result.Limit > 0 && s.XRateLimit != NoXRateLimit {
		if limit = v.rule.burst.text; v.Result.Limit != v.rule.burst.units {
			limit = strconv.FormatInt(v.Result.Limit, 10)
		}
		seconds := v.Result.ResetAfter.Microseconds()
		if s.XRateLimit != ResetSeconds {
			seconds += v.Result.At
		}
		seconds = ceilSeconds(seconds)
		if outer := h.Get(s.limit); outer == "" || !v.stacked(h, s, outer == limit, seconds) {
			text = strconv.AppendInt(text, v.Result.Remaining, 10)
			remaining = len(text)
			if s.XRateLimit == ResetDate {
				text = time.Unix(seconds, 0).UTC().AppendFormat(text, httpDate)
			} else {
				text = strconv.AppendInt(text, seconds, 10)
			}
			reset = len(text)
		}
	}
	var wait int64 // in seconds, or 0 where waiting cannot help
	if v.Action != Pass && !v.degraded && v.Result.Outcome == core.Refused && v.Result.RetryAfter > 0 {
		if wait = max(1, ceilSeconds(v.Result.RetryAfter.Microseconds())); s.Jitter {
			wait += rand.Int64N(wait/10 + 1) // whole seconds, so that the shortest waits stay as they are
		}
		text = strconv.AppendInt(text, wait, 10)
	}
	numbers := unsafe.String(unsafe.SliceData(text), len(text))
	if !copied {
		numbers = string(text)
	}
	if reset > 0 {
		h.Set(s.limit, limit)
		h.Set(s.remaining, numbers[:remaining])
		h.Set(s.reset, numbers[remaining:reset])
	}
	if wait > 0 {
		h.Set(headerRetryAfter, numbers[reset:])
	}
	for i := range v.fields {
		f := &v.fields[i]
		value := f.value
		if f.name == headerVary {
			if outer := h.Get(f.name); outer != "" { // others vary the answer too
				value = varied(outer, value)
			}
		}
		h.Set(f.name, value)
		if f.name == headerRetryAfter && v.Action != Pass {
			wait, _ = strconv.ParseInt(f.value, 10, 64)
		}
	}
	if v.uncached() { // whatever a handler's fields say
		for _, name := range cacheFields {
			h.Del(name)
		}
		h.Set(headerCache, "no-store")
	}
	if len(v.members) > 0 {
		v.setLists(h, wait)
	}
	if s.Expose {
		s.expose(h)
	}
}

// stacked notes that there are headers of an outer guard, and reports whether they stay, because they are tighter than
// this admission. alike reports that they have the rule's own limit, and reset is the reset that this guard would set.
func (v *Verdict) stacked(h Header, s *headers, alike bool, reset int64) (stay bool) {
	if alike {
		v.rule.repeats.suspect()
	}
	return v.Action == Pass && s.tighter(h, v.Result.Remaining, reset)
}

// tighter reports whether the headers that are set already are tighter than an admission. Headers that cannot be read
// are not weir's.
func (s *headers) tighter(h Header, remaining, reset int64) bool {
	outer, err := strconv.ParseInt(h.Get(s.remaining), 10, 64)
	if err != nil {
		return false
	}
	var until int64
	if text := h.Get(s.reset); s.XRateLimit == ResetDate {
		var date time.Time
		date, err = time.Parse(httpDate, text)
		until = date.Unix()
	} else {
		until, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil {
		return false
	}
	return outer < remaining || outer == remaining && until >= reset
}

// varied adds a name to a Vary header.
func varied(outer, name string) string {
	if outer == name {
		return name
	}
	return outer + ", " + name
}

func ceilSeconds(micros int64) int64 { return (micros + 999_999) / 1_000_000 }

// uncached reports whether caches must not keep v's answer. An answer that a limit has changed is for one client, at
// one time: a cache that kept it would give it to others, or to the same client when the limit admits it again.
func (v *Verdict) uncached() bool { return v.Action != Pass || v.degraded }

// cacheFields are the fields that caches obey besides Cache-Control, or before it: most CDNs have their own.
var cacheFields = [...]string{
	"Cdn-Cache-Control", "Cloudflare-Cdn-Cache-Control", "Netlify-Cdn-Cache-Control", "Vercel-Cdn-Cache-Control",
	"Surrogate-Control", "Edge-Control", "X-Accel-Expires", "Expires", "Etag", "Last-Modified",
}

// forCaches reports whether a header says what caches may do.
func forCaches(name string) bool {
	return name == headerCache || slices.Contains(cacheFields[:], name)
}

// keepUncached forbids caches to keep the answer right before the header is sent, whatever the handler has set, and
// returns a function that does so once more, for a header that is sent after the handler.
func keepUncached(x Exchange) (again func()) {
	again = func() { new(Verdict).SetHeaders(x) } // which says nothing else
	x.BeforeHeader(again)
	return again
}
