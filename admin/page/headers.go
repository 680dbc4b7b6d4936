package page

import "net/http"

// policy is the Content-Security-Policy of all pages: they load nothing from elsewhere, have no script or style within
// them, and stand in no frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Protect sets the headers that keep browsers from doing more with an answer than to show it. What has other needs,
// such as files that may be cached, sets its headers itself.
func Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w.Header())
		next.ServeHTTP(w, r)
	})
}

func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	// Browsers heed it over TLS alone, when a proxy in front of this server has received the request.
	h.Set("Strict-Transport-Security", "max-age=31536000")
}
