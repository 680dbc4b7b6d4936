package obey

import (
	"io"
	"net/http"
)

// maxDrain is the part of a refusal's body that is read so that its connection can be used again.
const maxDrain = 4 << 10

// repeatable returns a request like r that can be sent again, or nil if that might do something twice or its body cannot
// be had again.
func repeatable(r *http.Request) *http.Request {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
	default:
		_, is := r.Header["Idempotency-Key"] // net/http itself goes by the same two
		if _, was := r.Header["X-Idempotency-Key"]; !is && !was {
			return nil
		}
	}
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	if r.GetBody == nil {
		return nil
	}
	body, err := r.GetBody()
	if err != nil {
		return nil
	}
	again := *r // the contract of http.RoundTripper: r is not modified
	again.Body = body
	return &again
}

// drain reads a little of a body and closes it.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, maxDrain) // the connection is closed if there is more
	body.Close()
}
