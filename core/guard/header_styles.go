package guard

import (
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strings"
)

// Headers is the style of the headers that show clients their limits. The zero Headers are X-RateLimit-Limit,
// X-RateLimit-Remaining and X-RateLimit-Reset, with Unix seconds. All guards of a family, which [Guard.With] and
// [Guard.WithRule] make, have one style; give it to other guards of the program as well, so that what they say where
// they are stacked becomes one.
type Headers struct {
	// XRateLimit is the style of X-RateLimit-Reset, or sends none of the three.
	XRateLimit XRateLimit
	// Names are other names for X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset, in this order.
	Names [3]string
	// RateLimit adds RateLimit and RateLimit-Policy, as draft-ietf-httpapi-ratelimit-headers-11 has them:
	//
	//	RateLimit-Policy: "default";q=100;w=60, "open";q=5;qu="concurrent-requests"
	//	RateLimit: "default";r=99;t=1, "open";r=4
	//
	// Every limit that was asked is listed, under the name of its policy, or as "default/1" and "default/2" where a
	// policy has several limits. The quota q is the burst, and w the time in which it comes back: with the period's
	// rate where units come back one by one ("100/1m burst 20" has q=20;w=12), else the window. A time that is no whole
	// number of seconds, in which w must be, is left out: any other number would promise more or less than what holds.
	// The time t is rounded up: until more than r units are there, or, where the limit refuses, until it would admit
	// the request; never longer than Retry-After, beyond which it is left out, as it is where all units are there.
	// Permits have neither w nor t. With a [Rule].Cost, q and r are units of the program's own, for which the draft has
	// no word.
	//
	// The draft may change, and the two fields with it.
	RateLimit bool
	// PartitionSecret adds to RateLimit and RateLimit-Policy whose quota it is: pk, a hash of the key, by which a
	// client with several keys can tell them apart. It is a secret of the program, the same in all its processes,
	// without which nobody can find the key by trying: 16 random bytes at least. "" means no pk.
	PartitionSecret string
	// Expose lets scripts in browsers read the headers across origins: it adds their names to
	// Access-Control-Expose-Headers. A CORS middleware must be outside of the guard, to set its own first.
	Expose bool
	// Jitter adds up to a tenth to Retry-After, at random, so that clients that were refused together do not all come
	// back together. Seconds are whole, so that waits below ten seconds stay as they are.
	Jitter bool
}

// XRateLimit is a style of the X-RateLimit headers.
type XRateLimit uint8

// The styles of X-RateLimit-Reset.
const (
	// ResetUnix is the time at which the limit is as if unused, in seconds since 1970, rounded up.
	ResetUnix XRateLimit = iota
	// ResetSeconds is the time until then, in seconds, rounded up.
	ResetSeconds
	// ResetDate is the time of ResetUnix as a date, such as "Fri, 15 Jan 2027 08:00:00 GMT".
	ResetDate
	// NoXRateLimit sends none of the three headers. A guard that is mounted twice is then noticed by RateLimit alone.
	NoXRateLimit
)

// minSecret is the least length of a PartitionSecret: what is shorter can be found by trying.
const minSecret = 16

// httpDate is the layout of a date of HTTP, in UTC.
const httpDate = "Mon, 02 Jan 2006 15:04:05 GMT"

// headers are Headers with all that depends on them alone.
type headers struct {
	Headers
	limit, remaining, reset string
	exposed                 []string // for Access-Control-Expose-Headers
	exposedText             string
}

// plainHeaders are those of the zero Headers.
var plainHeaders, _ = Headers{}.prepare()

var defaultNames = [3]string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}

// prepare checks h, and fills in what was left out.
func (h Headers) prepare() (headers, error) {
	var mistakes []error
	wrong := func(format string, args ...any) {
		mistakes = append(mistakes, fmt.Errorf("guard: Headers: "+format, args...))
	}
	if h.XRateLimit > NoXRateLimit {
		wrong("XRateLimit is %d; give ResetUnix, ResetSeconds, ResetDate or NoXRateLimit", h.XRateLimit)
	}
	if h.PartitionSecret != "" && !h.RateLimit {
		wrong("PartitionSecret is for RateLimit and RateLimit-Policy; set RateLimit as well")
	}
	if n := len(h.PartitionSecret); n > 0 && n < minSecret {
		wrong("PartitionSecret has %d bytes; give %d or more, at random, such as those of crypto/rand.Text", n, minSecret)
	}
	names := h.Names
	switch {
	case names == [3]string{}:
		names = defaultNames
	case h.XRateLimit == NoXRateLimit:
		wrong("Names are given, and NoXRateLimit sends none of them; leave one of the two out")
	default:
		taken := []string{"", headerRetryAfter, headerCache, headerType, headerRateLimit, headerPolicy, headerExpose}
		for i, name := range names {
			canonical := textproto.CanonicalMIMEHeaderKey(name)
			switch {
			case !isToken(name):
				wrong("Names[%d] is %q; give all three, each of letters, digits and \"-\"", i, name)
			case slices.Contains(taken, canonical):
				wrong("Names[%d] is %q, which is the name of another header; give one of its own", i, name)
			}
			taken = append(taken, canonical)
		}
	}
	if err := errors.Join(mistakes...); err != nil {
		return headers{}, err
	}
	s := headers{Headers: h}
	s.limit, s.remaining, s.reset = textproto.CanonicalMIMEHeaderKey(names[0]), textproto.CanonicalMIMEHeaderKey(names[1]), textproto.CanonicalMIMEHeaderKey(names[2])
	if h.XRateLimit != NoXRateLimit {
		s.exposed = append(s.exposed, names[:]...)
	}
	if h.RateLimit {
		s.exposed = append(s.exposed, "RateLimit", "RateLimit-Policy")
	}
	s.exposed = append(s.exposed, headerRetryAfter)
	s.exposedText = strings.Join(s.exposed, ", ")
	return s, nil
}

// expose adds the names of the headers to Access-Control-Expose-Headers.
func (s *headers) expose(h Header) {
	there := h.Get(headerExpose)
	switch there {
	case s.exposedText: // an outer guard's
		return
	case "":
		h.Set(headerExpose, s.exposedText)
		return
	}
	names := strings.Split(there, ",")
	for i := range names {
		if names[i] = strings.TrimSpace(names[i]); names[i] == "*" {
			return
		}
	}
	all := []string{there}
	for _, name := range s.exposed {
		if !slices.ContainsFunc(names, func(other string) bool { return strings.EqualFold(name, other) }) {
			all = append(all, name)
		}
	}
	if len(all) > 1 {
		h.Set(headerExpose, strings.Join(all, ", "))
	}
}
