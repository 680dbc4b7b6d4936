package guard

import "slices"

// An answer that a limit has changed is one client's, at one time. A cache that keeps it would give it to others, or to
// the same client when the limit admits it again.

// uncached reports whether caches must not keep v's answer.
func (v *Verdict) uncached() bool { return v.Action != Pass || v.degraded }

// cacheFields are the fields that caches obey besides Cache-Control, or before it: most CDNs have one of their own.
var cacheFields = [...]string{
	"Cdn-Cache-Control", "Cloudflare-Cdn-Cache-Control", "Netlify-Cdn-Cache-Control", "Vercel-Cdn-Cache-Control",
	"Surrogate-Control", "Edge-Control", "X-Accel-Expires", "Expires", "Etag", "Last-Modified",
}

// forCaches reports whether a header says what caches may do.
func forCaches(name string) bool {
	return name == headerCache || slices.Contains(cacheFields[:], name)
}

// keepUncached repeats what setHeaders says to caches when the header is sent, after what the handler has set, and
// returns what does so once more, for a header that is sent after the handler.
func keepUncached(x Exchange) (again func()) {
	again = func() { new(Verdict).SetHeaders(x) } // which says nothing else
	x.BeforeHeader(again)
	return again
}
