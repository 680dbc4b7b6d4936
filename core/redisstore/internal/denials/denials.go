// Package denials answers again what a remote store has refused a moment ago, without asking
// it: the client that does not stop is the one whose requests must cost nothing.
//
// A [Cache] keeps, of a refusal, the state that the store has shown, and applies the pure
// functions of core to it for each further request. So each gets the answer for its own cost,
// wait and instant, and one that would be admitted, or may be, is left to the store.
//
// What the cache's own store is charged counts: a charge ends what was known before it; see
// [Cache.Seen]. So does what is given back through it; see [Cache.Forget]. What others take of
// the same key in the meantime can only keep it refused for longer, and what they give back is
// not seen at once: the entry dies soon, whatever happens; see [Cache.Answer].
package denials

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core"
)

// An entry dies as soon as the cost that was refused may fit, and after life at the latest. If
// units of its policy are given back now and then, it dies after shortLife. Both count from
// the sending of what was refused.
const (
	life      = time.Second
	shortLife = 250 * time.Millisecond
)

// Cache is a bounded table of refusals. It is safe for concurrent use. The methods of a nil
// Cache do nothing.
//
// It needs no goroutine, no timer and no lock: entries are immutable, and replaced as a whole.
// When there is no room, a dead entry gives way, then one that was not asked for since the
// last time, then any. So a crowd of keys that are refused once each drives out others like
// them first; and to be driven out costs a key no more than another question to the store.
type Cache struct {
	// clock is monotonic, and positive.
	clock func() time.Duration
	seed  maphash.Seed
	sets  []set
	// alive is the time at which the last entry will have died: nothing is looked up while there is none.
	alive  atomic.Int64
	scopes [scopes]scope
	own    sync.Pool // *atomic.Uint64: the counter of hits that a processor uses, most of the time
	next   atomic.Uint32
	hits   [cells]cell
}

// ways is the number of entries that a set has room for. With what else it has, it fills a cache line.
const ways = 4

// set holds all entries of a key, and of those keys that share it.
type set struct {
	entries [ways]atomic.Pointer[entry]
	// changed is the generation of the entries: when one of the keys was last changed by
	// anything but a decision that the cache has seen. What was sent before that, or at the same
	// instant, is not valid.
	changed atomic.Int64
	// decided is the latest instant of a decision about one of the keys, by the server's clock,
	// and seen when the last one was seen, by the cache's. A refusal that was under way then is
	// kept only if it was decided at decided or later. The servers of a cluster have clocks of
	// their own, and clocks step back: then a refusal may be left out that could be kept.
	decided, seen atomic.Int64
	_             [64 - 8*ways - 24]byte
}

// entry is a refusal.
type entry struct {
	policy *Policy
	key    name
	cost   int64 // see asked
	// The store decided at an instant between sent and received.
	sent, received, dies time.Duration
	hit                  atomic.Bool // since the last time that room was needed
	n                    int
	reply                [MaxReply]int64
}

// MaxReply is the length of the longest reply that is kept. Four logs, or four sliding windows, reply with more: their
// refusals are asked for anew, so that the entries of all others are smaller.
const MaxReply = 1 + 3*core.MaxLimits

// name is a key, or what stands for one that is too long to be kept.
type name struct {
	text   string
	hashed bool
}

// scope is shared by the policies of one name and shape, which share their state. Some
// scopes are one; they are then treated with the caution that any of them needs.
type scope struct{ givesBack atomic.Bool }

// scopes and cells are powers of two.
const (
	scopes = 1024
	cells  = 64
)

// cell is a counter in a cache line of its own.
type cell struct {
	atomic.Uint64
	_ [56]byte
}

// MaxEntries is the largest size of a [Cache].
const MaxEntries = 1 << 24

// New builds a cache for so many entries, from 1 to MaxEntries, rounded up to a power of two of
// at least 4. An entry takes about 200 bytes, the key of up to 200 included if it is short.
// clock is the time that has passed since some instant, and always positive; it must never be
// set back.
func New(entries int, clock func() time.Duration) *Cache {
	n := 1 << bits.Len(uint(max(entries, ways)-1)) / ways
	c := &Cache{clock: clock, seed: maphash.MakeSeed(), sets: make([]set, n)}
	c.own.New = func() any { return &c.hits[c.next.Add(1)%cells].Uint64 }
	return c
}

// Policy is a policy as a [Cache] sees it; see [Cache.Policy].
type Policy struct {
	spec    core.Spec
	before  string // what tells its keys from those of other policies
	numbers string // what tells it from others that share the state of its keys
	hash    uint64 // of before
	scope   *scope
	summary bool
}

// Policy prepares a policy, once for all of its decisions. before is the beginning of the
// names of its keys; policies that share it share their state.
func (c *Cache) Policy(before string, p core.Policy) *Policy {
	if c == nil {
		return nil
	}
	q := &Policy{spec: p.Spec(), before: before, numbers: p.String(), summary: p.Spec().Summarized()}
	q.hash = maphash.String(c.seed, before)
	q.scope = &c.scopes[q.hash%scopes]
	// A caller that gives up waiting for its turn gives back what it has reserved.
	if p.Options().Wait > 0 || slices.ContainsFunc(p.Limits(), func(l core.Limit) bool { return l.Algorithm == core.LeakyBucket }) {
		q.scope.givesBack.Store(true)
	}
	return q
}

// Answer refuses t if the store is sure to refuse it, too, unless something was given back
// within the last second, or the last 250 ms if that happens with this policy. Otherwise ok is
// false, and the store must be asked; now is then what [Cache.Keep] needs to know.
//
// The server's clock is not read for it, but it is known between which two instants it stands:
// what was refused was decided after it was sent, and before the reply was received. By the
// later instant t must still be refused; by the earlier one, RetryAfter is never too short.
func (c *Cache) Answer(p *Policy, t *core.Take, now time.Duration) (res core.Result, ok bool) {
	e, res := c.again(p, t, now)
	if e == nil {
		return core.Result{}, false
	}
	hits := c.own.Get().(*atomic.Uint64)
	hits.Add(1)
	c.own.Put(hits)
	if !e.hit.Load() {
		e.hit.Store(true)
	}
	return res, true
}

// Peek is Answer for a caller that only wants to know: it counts nothing. It returns as well the time for which Answer
// would go on like that at most.
func (c *Cache) Peek(p *Policy, t *core.Take, now time.Duration) (res core.Result, left time.Duration, ok bool) {
	e, res := c.again(p, t, now)
	if e == nil {
		return core.Result{}, 0, false
	}
	left = e.dies - now
	if p.scope.givesBack.Load() {
		left = min(left, e.sent+shortLife-now)
	}
	return res, left, true
}

// again returns the entry by which t is refused, and the refusal, or nil.
func (c *Cache) again(p *Policy, t *core.Take, now time.Duration) (by *entry, res core.Result) {
	if c == nil || !answerable(t) || int64(now) >= c.alive.Load() {
		return nil, core.Result{}
	}
	set := c.set(p, t.Key)
	var key name
	for i := range set.entries {
		e := set.entries[i].Load()
		if e == nil || !e.alive(set, p, now) {
			continue
		}
		if key.text == "" {
			key = nameOf(t.Key)
		}
		if e.is(p, key, asked(t)) {
			// The server rounds its clock down, and so there may be a microsecond more.
			earliest, latest := e.reply[0]+(now-e.received).Microseconds(), e.reply[0]+(now-e.sent).Microseconds()+1
			if res, ok := p.spec.Again(*t, e.cost, e.reply[:e.n], earliest, latest); ok {
				return e, res
			}
			break
		}
	}
	return nil, core.Result{}
}

// answerable reports whether t is of the kind that is answered at all: a peek is never refused,
// and a forced clock is not the one that the cache knows.
func answerable(t *core.Take) bool { return (t.Cost > 0 || t.AtMost) && t.Now == 0 }

// asked is the cost that a limit decides by whose script replies with a summary.
func asked(t *core.Take) int64 {
	if t.AtMost {
		return 1
	}
	return t.Cost
}

// alive reports whether e may still be asked. Its policy may have begun to give back after it was
// stored.
func (e *entry) alive(set *set, p *Policy, now time.Duration) bool {
	return now < e.dies && int64(e.sent) > set.changed.Load() && (now-e.sent < shortLife || !p.scope.givesBack.Load())
}

// is reports whether e is of that key and policy, and good for that cost.
func (e *entry) is(p *Policy, key name, cost int64) bool {
	return e.key == key && (e.policy == p || e.policy.numbers == p.numbers && e.policy.before == p.before) &&
		(!p.summary || e.cost == cost)
}

// Keep notes that the store has refused t: res is its reading of reply, which is that of the
// script take, or with AtMost of the script upto, and sent is a reading of the clock from before
// it was asked. What was admitted must not come here, nor what another store has decided in its
// place.
func (c *Cache) Keep(p *Policy, t *core.Take, reply []int64, res *core.Result, sent time.Duration) {
	if c == nil {
		return
	}
	now := reply[0]
	if reply = reply[1:]; t.AtMost {
		reply = reply[1:] // without how many were taken
	}
	if !answerable(t) || 1+len(reply) > MaxReply {
		return
	}
	lives := life
	if res.Outcome == core.Refused {
		lives = min(lives, res.RetryAfter)
	}
	received := c.clock()
	set := c.set(p, t.Key)
	e := &entry{
		policy: p, key: nameOf(t.Key), cost: asked(t), n: 1 + len(reply),
		sent: sent, received: received, dies: sent + lives,
	}
	if !e.key.hashed {
		e.key.text = strings.Clone(e.key.text) // it may be a part of a request
	}
	e.reply[0] = now
	copy(e.reply[1:], reply)
	if at := c.put(set, e); at != nil {
		atLeast(&c.alive, int64(e.dies))
		// Either this sees that another decision was seen meanwhile, or that one sees the entry.
		if int64(sent) <= set.seen.Load() && now < set.decided.Load() {
			at.CompareAndSwap(e, nil)
		}
	}
	c.see(set, p, t.Key, res, sent, received)
}

// Seen notes what the store has decided about t, unless that comes to Keep: sent is a reading of
// the clock from before it was asked. Nothing is answered any more from what was decided before,
// if t was charged or if the numbers are others, under which the store may have read something
// else out of the same state.
func (c *Cache) Seen(p *Policy, t *core.Take, res *core.Result, sent time.Duration) {
	if c != nil && t.Now == 0 {
		c.see(c.set(p, t.Key), p, t.Key, res, sent, c.clock())
	}
}

func (c *Cache) see(set *set, p *Policy, key string, res *core.Result, sent, now time.Duration) {
	atLeast(&set.decided, res.At)
	atLeast(&set.seen, int64(now))
	if int64(now) >= c.alive.Load() {
		return
	}
	var of name
	for i := range set.entries {
		e := set.entries[i].Load()
		if e == nil || e.reply[0] >= res.At && e.received > sent || res.Taken == 0 && e.policy.numbers == p.numbers {
			continue
		}
		if of.text == "" {
			of = nameOf(key)
		}
		if e.key == of && e.policy.before == p.before {
			set.entries[i].CompareAndSwap(e, nil)
		}
	}
}

// atLeast raises a to n if it is less.
func atLeast(a *atomic.Int64, n int64) {
	for old := a.Load(); old < n && !a.CompareAndSwap(old, n); {
		old = a.Load()
	}
}

// put stores e and returns where. It returns nil if e is over already, if there is a newer entry for
// the same, and if others are storing at this instant.
func (c *Cache) put(set *set, e *entry) *atomic.Pointer[entry] {
	if !e.alive(set, e.policy, e.received) {
		return nil
	}
	const none = -1
	dead, idle := none, none
	for i := range set.entries {
		old := set.entries[i].Load()
		switch {
		case old == nil || !old.alive(set, old.policy, e.received):
			dead = i
		case old.is(e.policy, e.key, e.cost):
			if old.sent < e.sent && set.entries[i].CompareAndSwap(old, e) {
				return &set.entries[i]
			}
			return nil
		case !old.hit.Load():
			idle = i
		}
	}
	at := dead
	if at == none {
		at = idle
	}
	if at == none {
		at = int(e.sent/time.Microsecond) % ways
		for i := range set.entries {
			if old := set.entries[i].Load(); old != nil {
				old.hit.Store(false)
			}
		}
	}
	set.entries[at].Store(e)
	return &set.entries[at]
}

// Forget ends what is known of a key, whose state is changed by something else than a Take. Call
// it before that is sent, so that nobody is refused any more for what was before; and again when
// it is over, however it ended, because what was sent in between may have been decided before it.
func (c *Cache) Forget(p *Policy, key string) {
	if c != nil {
		c.raise(c.set(p, key))
	}
}

// GivesBack notes that units of a policy are given back now and then, perhaps by others, too.
func (c *Cache) GivesBack(p *Policy) {
	if c != nil && !p.scope.givesBack.Load() {
		p.scope.givesBack.Store(true)
	}
}

// raise ends all entries of a set, and keeps out what was sent before.
func (c *Cache) raise(set *set) {
	atLeast(&set.changed, int64(c.clock()))
}

// Hits returns how many times Answer has answered.
func (c *Cache) Hits() (sum uint64) {
	if c == nil {
		return 0
	}
	for i := range c.hits {
		sum += c.hits[i].Load()
	}
	return sum
}

func (c *Cache) set(p *Policy, key string) *set {
	h := bits.RotateLeft64(p.hash, 1) ^ maphash.String(c.seed, key)
	return &c.sets[h&uint64(len(c.sets)-1)]
}
