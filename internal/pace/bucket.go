package pace

import "time"

// instant is a time since the Pace was made.
type instant = time.Duration

// bucket is what is known of one quota of one key.
type bucket struct {
	name, partition string
	limit           int64
	window          time.Duration
	remaining       int64
	number          uint64 // of the request whose answer this is
	at              instant
	reset           instant // the earliest arrival + Reset of all answers of this window
}

// learn takes up the answer to a request, which arrived at an instant.
func (b *bucket) learn(number uint64, at instant, q Quota) {
	if number < b.number {
		return // an answer to a later request is known
	}
	if q.Limit > 0 {
		b.limit, b.window = q.Limit, q.Window
	}
	reset := at + max(q.Reset, 0)
	if q.Remaining > b.remaining || at >= b.reset || reset < b.reset {
		b.reset = reset
	}
	b.number, b.at, b.remaining = number, at, q.Remaining
}

// next returns the earliest instant of the next request, if underWay requests have no answer yet and the last was sent
// at the instant last: what is left is spread over the time that is left.
func (b *bucket) next(last instant, underWay int, now instant) instant {
	if now >= b.reset {
		return last
	}
	left := float64(b.remaining-int64(underWay)) - 0.03*float64(b.limit)
	if left < 1 {
		return b.reset
	}
	return last + time.Duration(float64(b.reset-max(last, b.at))/left)
}
