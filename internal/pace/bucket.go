package pace

import (
	"math"
	"time"
)

// instant is a time since the Pace was made.
type instant = time.Duration

// kind is the way in which a limit gives requests back.
type kind uint8

const (
	unknown kind = iota
	window       // all at once, when it is reset
	flow         // bit by bit
)

// bucket is what is known of one quota of one key.
type bucket struct {
	name, partition string
	kind            kind
	limit           int64         // of requests, as stated, or else the most that were ever left
	window          time.Duration // as stated, or else the longest time to a reset
	stated          bool          // the window is
	remaining       int64
	number          uint64 // of the request whose answer this is
	sent, at        instant
	reset           instant // the earliest arrival + Reset of all answers of this window
	began           instant // when the first answer of this window came
	soon            instant // when more will be there
	skipped         uint64  // requests after it that did not count here
	trip            time.Duration
	gained, during  float64 // requests that came back, less those that others took, and seconds; old ones fade
	own, all        float64
}

// reserve is the part of a limit that stays unused, for what others have under way.
func (b *bucket) reserve() float64 { return max(0.03*float64(b.limit), 1) }

// learn takes up the answer to a request.
func (b *bucket) learn(number uint64, sent, at instant, q Quota) {
	first := b.at == 0 && b.number == 0
	if !first && number < b.number {
		return // a later request has its answer
	}
	if q.Limit > 0 {
		b.limit = q.Limit
	} else {
		b.limit = max(b.limit, q.Remaining+1)
	}
	if q.Window > 0 {
		b.window, b.stated = q.Window, true
	} else if !b.stated {
		b.window = max(b.window, q.Reset)
	}
	reset := at + max(q.Reset, 0)
	if sent < b.began && reset < b.reset-b.window/4 {
		return // it has met the window before
	}
	if first {
		b.trip = at - sent
	} else {
		b.trip = min(b.trip, at-sent)
		reset = b.compare(number, sent, at, q, reset)
	}
	b.reset = reset
	b.soon = at + time.Duration(b.reserve()/b.even()*1e9)
	if q.More && q.Reset > 0 {
		b.soon = at + q.Reset
	}
	b.number, b.sent, b.at, b.remaining, b.skipped = number, sent, at, q.Remaining, 0
}

// compare learns from what has changed since the last answer, and returns the reset of the window.
func (b *bucket) compare(number uint64, sent, at instant, q Quota, reset instant) instant {
	own := int64(number - b.number - min(b.skipped, number-b.number-1))
	gain := q.Remaining - b.remaining + own
	used := b.limit - b.remaining
	full := used > 0 && q.Remaining+own >= b.limit-used/2 && gain >= max(used/2, 2)
	quick := sent-b.at < b.window/8
	switch {
	case full && (quick || at >= b.reset && b.kind != flow): // all came back
		if used >= b.limit/4 && (q.Reset < 0 || q.Reset > b.window/2) {
			b.kind = window
		}
		b.gained, b.during, b.began = 0, 0, at
		return reset
	case gain >= 2 && at < b.reset-time.Second && !full,
		sent >= b.reset && sent < b.reset+b.window/4 && used >= b.limit/4 && !full:
		b.kind = flow
	}
	seconds := (at - b.at).Seconds()
	fade := max(math.Exp(-seconds/(b.window.Seconds()/8+1e-9)), 0.7)
	b.gained, b.during = b.gained*fade+float64(gain), b.during*fade+seconds
	used2 := float64(own - gain)
	if b.kind == flow {
		used2 += b.even() * seconds
	}
	b.own, b.all = b.own*fade+float64(own), b.all*fade+used2
	if sent >= b.reset {
		return reset
	}
	return min(reset, b.reset)
}

// drift is the number of requests that come back in a second, less those that others take.
func (b *bucket) drift() float64 {
	if b.during == 0 {
		return 0
	}
	return b.gained / b.during
}

// even is the number of requests a second that use all of the limit.
func (b *bucket) even() float64 { return float64(b.limit) / b.window.Seconds() }

// share is the part of all requests that is sent from here.
func (b *bucket) share() float64 {
	if b.all <= b.own {
		return 1
	}
	return max(b.own/b.all, 0.02)
}

// next returns the earliest instant of the next request, if underWay requests have no answer yet and the last was sent
// at the instant last.
func (b *bucket) next(last instant, underWay int, now instant) instant {
	left := float64(b.remaining - int64(underWay))
	share, drift := b.share(), b.drift()
	if b.kind == flow {
		even := b.even()
		most := 1.2 * even
		if !b.stated {
			most = 3 * even
		}
		drift := min(max(drift, -3*even), most)
		left += drift * (now - b.at + b.trip).Seconds()
		reserve := b.reserve()
		if share < 0.7 {
			reserve = 6*reserve + 0.5*even*b.trip.Seconds()
		}
		poke := last + time.Duration(1.2e9/(math.Pow(share, 0.85)*even))
		rate := even * math.Pow(max(drift/even, 0), 0.8)
		switch over := left - reserve; {
		case over > 0 && share >= 0.7:
			rate = min(rate+over/(b.window.Seconds()/10), 3*even)
		case over > 0: // each adds more alike than each takes away, which makes shares equal in time
			part := math.Sqrt(share)
			rate = min(rate+part*over/(b.window.Seconds()/4), 3*even*part)
		case share < 0.7:
			rate *= left / reserve
		}
		if left >= 1 && rate > 0 {
			poke = min(poke, last+time.Duration(1e9/rate))
		}
		if b.remaining == 0 {
			poke = max(poke, b.soon)
		}
		return poke
	}
	rest := b.reset - now
	if rest <= 0 { // presumably all is there
		left, rest = float64(b.limit-int64(underWay)), b.window
	} else {
		left = max(left/4, left+min(drift, 0)*(now-b.at+b.trip).Seconds())
	}
	if b.kind == unknown {
		left--
	}
	if left <= 0 {
		return now + rest
	}
	return min(last+time.Duration(float64(rest)/left/math.Pow(share, 0.95)), now+rest)
}
