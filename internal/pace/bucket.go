package pace

import (
	"math"
	"time"
)

// instant is a time since the Pace was made.
type instant = time.Duration

// bucket has the knowledge of one limit of one key. It is data: nothing here waits, locks or reads a clock.
//
// A limit is of one of three kinds, by which the pace goes. left is the number of requests that remain, less those under
// way and those that others have probably sent since; alone means that hardly anybody else uses the limit, and share is
// the part of all its requests that is sent from here.
//
//	kind     recognised by                                     requests a second
//	unknown  a new limit                                       (left - 1) / time to the reset
//	window   more than half of what was used came back in one  share * left / time to the reset
//	         moment, and the next reset is far away
//	flow     requests came back before the reset, or not all   what comes back less what others take,
//	         after it: meters, sliding windows and logs        plus what is left above a reserve, over a part
//	                                                           of the window; less if it is below the reserve
//
// Even processes that know nothing of each other come to equal shares this way, because each sees in the numbers what
// the others send. Nobody has to know what kind of meter or sliding window a server has: what comes back is measured.
//
// Times from the server are rounded up, so that the earliest of all resets of a window is the best, and it is late rather
// than early. Where no answer names the window, the longest time to a reset stands in for it.
type bucket struct {
	name, partition string
	kind            kind
	limit           int64         // as stated, or else the most that ever remained, and one
	window          time.Duration // as stated, or else the longest time to a reset
	stated          bool          // the window is

	// The last answer, which is that of the request sent last.
	number    uint64
	at        instant
	remaining int64
	more      instant // when more will remain
	skipped   uint64  // answers since that do not name the limit
	tangled   int     // answers since of requests that it has overtaken

	reset instant       // of this window
	began instant       // when its first answer came
	trip  time.Duration // the shortest time of a request and its answer

	// Sums over the last answers, of which old ones fade.
	back    float64 // requests that came back, less those that others sent
	seconds float64 // in which they did
	own     float64 // requests sent from here
	all     float64 // requests that anybody sent
}

// kind is the way in which a limit gives requests back.
type kind uint8

const (
	unknown kind = iota
	window
	flow
)

// learn takes up what the answer to a request says, which was sent and has arrived at these instants.
func (b *bucket) learn(number uint64, sent, at instant, refused bool, q Quota) {
	first := b.window == 0 && b.limit == 0
	reset := at + max(q.Reset, 0)
	switch {
	case !first && number < b.number:
		return // a later request has its answer
	case sent < b.began && reset < b.reset-b.window/4:
		return // it has met the window before
	}
	if q.Limit > 0 && !first && q.Limit != b.limit || q.Window > 0 && b.stated && q.Window != b.window {
		b.kind, b.back, b.seconds, b.own, b.all, b.window, b.limit = unknown, 0, 0, 0, 0, 0, 0 // another limit
		first, b.stated = true, false
	}
	if b.limit = max(b.limit, q.Remaining+1); q.Limit > 0 {
		b.limit = q.Limit
	}
	if q.Window > 0 {
		b.window, b.stated = q.Window, true
	} else if !b.stated {
		b.window = max(b.window, q.Reset, time.Second)
	}
	if first {
		b.trip, b.reset = at-sent, reset
	} else {
		b.trip = min(b.trip, at-sent)
		own := int64(number - b.number - min(b.skipped, number-b.number-1)) //nolint:gosec // few are under way
		if refused {
			own--
		}
		if b.overtaken(own, sent, at, q) {
			b.skipped++ // the last answer counts it, and seemed to count somebody else's
			b.tangled++
			b.own, b.back = b.own+1, b.back+1
			return
		}
		b.tangled = 0
		b.compare(own, sent, at, q)
	}
	b.number, b.at, b.remaining, b.skipped = number, at, q.Remaining, 0
	b.more = at + min(seconds64(max(0.03*float64(b.limit), 1)/max(b.drift(), b.even()/10)), b.window/4)
	if q.More && q.Reset > 0 {
		b.more = at + q.Reset
	}
}

// overtaken reports whether a request was probably counted by the server before the one whose answer is known, although
// it was sent later: the two were under way together, and its answer has more left. Where that goes on, requests come
// back.
func (b *bucket) overtaken(own int64, sent, at instant, q Quota) bool {
	reset := q.Remaining+own >= b.limit-(b.limit-b.remaining)/2
	return b.kind != flow && sent < b.at && at < b.reset && q.Remaining >= b.remaining && !reset && b.tangled < 3
}

// compare learns from what has changed since the last answer, between which own requests were sent from here.
func (b *bucket) compare(own int64, sent, at instant, q Quota) {
	reset := at + max(q.Reset, 0)
	back := q.Remaining - b.remaining + own
	used := b.limit - b.remaining
	much := used >= b.limit/4 // so that it is worth to conclude anything
	jump := back >= max(used/2, 2) && q.Remaining+own >= b.limit-used/2
	if jump && (sent-b.at < b.window/8 || at >= b.reset && b.kind != flow) {
		if much && (q.Reset < 0 || q.Reset > b.window/2) {
			b.kind = window
		}
		b.reset, b.began, b.back, b.seconds = reset, at, 0, 0
		return
	}
	passed := (at - b.at).Seconds()
	// Requests that were sent together are counted in any order, which looks as if some came back for a moment.
	steady := b.back+float64(back) >= 4 && b.seconds+passed > min(2*b.trip+10*time.Millisecond, b.window/16).Seconds()
	if !jump && (back > 0 && steady && at < b.reset-time.Second ||
		much && sent >= b.reset && sent < b.reset+b.window/4) {
		b.kind = flow
	}
	cameBack, sentByAll := float64(back), float64(own-back)
	if b.kind == flow {
		sentByAll += b.even() * passed
		if most := 2 * (b.even()*passed + 1); cameBack > most && b.share() < alone {
			cameBack, sentByAll = most, max(sentByAll, -0.05*float64(b.limit)) // a lump, which is not for one alone
		}
	}
	fade := max(math.Exp(-8*passed/b.window.Seconds()), 0.7) // an eighth of the window, but a few answers at least
	b.back, b.seconds = b.back*fade+cameBack, b.seconds*fade+passed
	b.own, b.all = b.own*fade+float64(own), b.all*fade+sentByAll
	if sent < b.reset {
		reset = min(reset, b.reset)
	}
	b.reset = reset
}

// even is the number of requests a second that use all of the limit.
func (b *bucket) even() float64 { return float64(b.limit) / b.window.Seconds() }

// share is the part of all requests that is sent from here.
func (b *bucket) share() float64 {
	if b.all <= b.own {
		return 1
	}
	return max(b.own/b.all, 0.05)
}

// reserve is the number of requests that stay unused of a limit that flows: more where others may be about to send.
func (b *bucket) reserve() float64 {
	reserve := max(0.03*float64(b.limit), 1)
	if b.share() < alone {
		reserve = 5*reserve + b.even()*b.trip.Seconds()/2
	}
	return reserve
}

// alone is the share from which on others do not matter.
const alone = 0.7

// drift is the number of requests that come back in a second, less those that others take.
func (b *bucket) drift() float64 {
	if b.seconds == 0 {
		return 0
	}
	most := 3 * b.even()
	if b.stated {
		most = 1.2 * b.even()
	}
	return min(max(b.back/b.seconds, -3*b.even()), most)
}

// next returns the earliest instant of the next request, if underWay requests have no answer yet and the last was sent
// at the instant last.
func (b *bucket) next(last instant, underWay int, now instant) instant {
	left := float64(b.remaining - int64(underWay))
	unseen := b.drift() * (now - b.at + b.trip).Seconds() // since the answer, and until a request arrives
	if b.kind == flow {
		return b.nextOfFlow(last, left+unseen)
	}
	rest := b.reset - now
	if rest <= 0 { // presumably all is there
		left, rest = float64(b.limit-int64(underWay)), b.window
	} else { // a part of what is left is believed whatever others are thought to do
		left = max((left-3)/4, left+min(unseen, 0))
	}
	if b.kind == unknown {
		left--
	}
	if now >= b.reset && underWay == 0 {
		left = max(left, 1) // which finds out
	}
	if left <= 0 {
		return now + rest
	}
	if b.kind == window && b.share() >= alone {
		left++ // the last goes a little before the reset, which may be earlier than it seems
	}
	return min(last+time.Duration(float64(rest)/left/math.Pow(b.share(), 0.85)), now+rest)
}

// nextOfFlow is next of a limit of which left requests are left, as far as one can tell.
func (b *bucket) nextOfFlow(last instant, left float64) instant {
	even, share, reserve := b.even(), b.share(), b.reserve()
	// Powers below 1 give to small shares more than they had, so that shares become equal in time.
	rate := even * math.Pow(max(b.drift()/even, 0), 0.8)
	switch over := left - reserve; {
	case over > 0 && share >= alone:
		rate = min(rate+over/(b.window.Seconds()/10), 3*even)
	case over > 0:
		part := math.Sqrt(share)
		rate = min(rate+part*over/(b.window.Seconds()/4), 3*even*part)
	case share < alone:
		rate *= left / reserve
	}
	at := last + seconds64(1.3/(even*math.Pow(share, 0.85))) // one now and then, to hear what is left
	if left >= 1 && rate > 0 {
		at = min(at, last+seconds64(1/rate))
	}
	if b.remaining == 0 {
		at = max(at, b.more)
	}
	return at
}

// spare reports whether a request would be admitted now, although the pace would let it wait.
func (b *bucket) spare(underWay int, now instant) bool {
	left := float64(b.remaining - int64(underWay))
	if now >= b.reset && b.kind != flow { // presumably all is there, which one finds out
		left = max(left, float64(1-underWay))
	}
	if b.share() < alone {
		left -= b.reserve()
	}
	return left >= 1
}

// soonest returns the least time until so many requests were sent, the place in the line of the last of them.
func (b *bucket) soonest(place, underWay int, now instant) time.Duration {
	left := b.remaining - int64(underWay)
	switch {
	case now >= b.reset || left >= int64(place) || b.kind == flow:
		return 0
	case b.kind == window && b.limit > 0:
		return b.reset - now + time.Duration((int64(place)-max(left, 0)-1)/b.limit)*b.window
	case b.remaining == 0: // those under way may have been counted already
		return b.reset - now
	}
	return 0
}

// over reports whether nothing of the bucket matters any more: no answer has named the limit for longer than it takes
// to come back.
func (b *bucket) over(now instant) bool { return b.skipped > 0 && now > max(b.reset, b.at+b.window) }

func seconds64(s float64) time.Duration { return time.Duration(min(s, 86400) * 1e9) }
