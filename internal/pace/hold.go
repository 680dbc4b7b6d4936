package pace

import "time"

// hold is the silence that a server has asked for by Retry-After: until it is over nobody sends, then one request, and
// when that has been answered without another Retry-After, all go on at their pace.
type hold struct {
	until  instant // 0 if there is none
	by     uint64  // the number of the last request when it began
	probe  uint64  // the number of the one request, or 0
	sentAt instant // when it was sent
	now    uint64  // the number of the last request
}

// next returns the instant of the next request. held is false if there is no hold.
func (h *hold) next(now instant) (at instant, held bool) {
	switch {
	case h.until == 0:
		return 0, false
	case now < h.until:
		return h.until, true
	case h.probe == 0:
		return now, true
	default: // if it hangs, another one
		return h.sentAt + patience, true
	}
}

// sent notes a request.
func (h *hold) sent(number uint64, at instant) {
	if h.now = number; h.until > 0 {
		h.probe, h.sentAt = number, at
	}
}

// answered notes an answer. Of those that were sent before a hold the longest Retry-After counts, of those sent after it
// began the newest: a server may have recovered.
func (h *hold) answered(number uint64, retryAfter time.Duration, now instant) {
	switch {
	case retryAfter > 0 && h.until > 0 && number <= h.by:
		h.until = max(h.until, now+retryAfter)
	case retryAfter > 0:
		h.until, h.by, h.probe = now+retryAfter, h.now, 0
	case h.until > 0 && number > h.by:
		*h = hold{now: h.now}
	}
}

// failed notes that a request has no answer: if it was the one, the next becomes it.
func (h *hold) failed(number uint64) {
	if h.probe == number {
		h.probe = 0
	}
}
