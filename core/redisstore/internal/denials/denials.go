// Package denials answers again what a remote store has refused a moment ago, without asking
// it: the client that does not stop is the one whose requests must cost nothing.
//
// A [Cache] keeps, of a refusal, the state that the store has shown, and applies the pure
// functions of core to it for each further request. So each gets the answer for its own cost,
// wait and instant, and one that would be admitted, or may be, is left to the store. What
// others take of the same key in the meantime can only keep it refused for longer.
//
// What others give back is not seen at once: the entry dies soon, whatever happens; see
// [Cache.Answer]. What is given back through the cache's own store is; see [Cache.Forget].
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
	// alive is when the last entry will have died: nothing is looked up while there is none.
	alive  atomic.Int64
	scopes [scopes]scope
	own    sync.Pool // *atomic.Uint64: the counter of hits that a processor uses, most of the time
	next   atomic.Uint32
	hits   [cells]cell
}

// ways is how many entries a set has room for. With what else it has, it fills a cache line.
const ways = 4

// set is where all entries of a key are, and of those keys that share it.
type set struct {
	entries [ways]atomic.Pointer[entry]
	// changed is the generation of the entries: when one of the keys was last changed by
	// anything but use. What was sent before that, or at the same instant, is not valid.
	changed atomic.Int64
	// last is under which numbers a key was last asked for, in a scope where they vary.
	last atomic.Uint64
	_    [64 - 8*ways - 16]byte
}

// entry is a refusal.
type entry struct {
	policy *Policy
	key    name
	cost   int64
	// The store decided at an instant between sent and received.
	sent, received, dies time.Duration
	hit                  atomic.Bool // since the last time that room was needed
	n                    int
	reply                [MaxReply]int64
}

// MaxReply is how many integers the script take replies with at most.
const MaxReply = 1 + 3*core.MaxLimits

// name is a key, or what stands for one that is too long to be kept.
type name struct {
	text   string
	hashed bool
}

// scope is what is known of the policies of one name and shape, which share their state. Some
// scopes are one; they are then treated with the caution that any of them needs.
type scope struct {
	givesBack atomic.Bool
	numbers   atomic.Uint64 // of the policy that was seen first
	vary      atomic.Bool
}

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
	id      uint64 // of numbers
	scope   *scope
	summary bool
}

// Policy prepares a policy, once for all of its decisions. before is what the names of its keys
// begin with; policies that share it share their state.
func (c *Cache) Policy(before string, p core.Policy) *Policy {
	if c == nil {
		return nil
	}
	q := &Policy{spec: p.Spec(), before: before, numbers: p.String(), summary: p.Spec().Summarized()}
	q.hash, q.id = maphash.String(c.seed, before), maphash.String(c.seed, q.numbers)
	q.scope = &c.scopes[q.hash%scopes]
	if !q.scope.numbers.CompareAndSwap(0, q.id) && q.scope.numbers.Load() != q.id {
		q.scope.vary.Store(true)
	}
	// Whoever gives up waiting for its turn gives back what it has reserved.
	if p.Options().Wait > 0 || slices.ContainsFunc(p.Limits(), func(l core.Limit) bool { return l.Algorithm == core.LeakyBucket }) {
		q.scope.givesBack.Store(true)
	}
	return q
}

// Now is the cache's clock, for what is given to it afterwards.
func (c *Cache) Now() time.Duration {
	if c == nil {
		return 0
	}
	return c.clock()
}

// Answer refuses t if the store is sure to refuse it, too, unless something was given back
// within the last second, or the last 250 ms if that happens with this policy. Otherwise ok is
// false, and the store must be asked; now is then what [Cache.Keep] needs to know.
//
// The server's clock is not read for it, but it is known between which two instants it stands:
// what was refused was decided after it was sent, and before the reply was received. By the
// later instant t must still be refused; by the earlier one, RetryAfter is never too short.
func (c *Cache) Answer(p *Policy, t *core.Take, now time.Duration) (res core.Result, ok bool) {
	if c == nil {
		return core.Result{}, false
	}
	var at *set
	if p.scope.vary.Load() {
		at = c.set(p, t.Key)
		if at.last.Load() != p.id && at.last.Swap(p.id) != p.id {
			c.raise(at) // these numbers may cut off what was in the bounds of the others
			return core.Result{}, false
		}
	}
	if !answerable(t) || int64(now) >= c.alive.Load() {
		return core.Result{}, false
	}
	if at == nil {
		at = c.set(p, t.Key)
	}
	var key name
	for i := range at.entries {
		e := at.entries[i].Load()
		if e == nil || !e.alive(at, p, now) {
			continue
		}
		if key.text == "" {
			key = nameOf(t.Key)
		}
		if !e.is(p, key, t.Cost) {
			continue
		}
		if res, ok = c.again(e, p, t, now); ok {
			return res, true
		}
		// It is asked for by somebody who may change the state by that.
		at.entries[i].CompareAndSwap(e, nil)
		return core.Result{}, false
	}
	return core.Result{}, false
}

// answerable reports whether t is of the kind that is answered at all: a peek and AtMost are
// there to see how things stand, and a forced clock is not the one that the cache knows.
func answerable(t *core.Take) bool { return t.Cost > 0 && !t.AtMost && t.Now == 0 }

func (c *Cache) again(e *entry, p *Policy, t *core.Take, now time.Duration) (core.Result, bool) {
	// The server rounds its clock down, and so there may be a microsecond more.
	earliest, latest := e.reply[0]+(now-e.received).Microseconds(), e.reply[0]+(now-e.sent).Microseconds()+1
	res, ok := p.spec.Again(*t, e.cost, e.reply[:e.n], earliest, latest)
	if ok {
		hits := c.own.Get().(*atomic.Uint64)
		hits.Add(1)
		c.own.Put(hits)
		if !e.hit.Load() {
			e.hit.Store(true)
		}
	}
	return res, ok
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

// Keep notes that the store has refused t: res is what it made of reply, which is that of the
// script take, and sent is a reading of the clock from before it was asked. What was admitted
// must not come here, nor what another store has decided in its place.
func (c *Cache) Keep(p *Policy, t *core.Take, reply []int64, res *core.Result, sent time.Duration) {
	if c == nil || !answerable(t) || len(reply) > MaxReply {
		return
	}
	lives := life
	if res.Outcome == core.Refused {
		lives = min(lives, res.RetryAfter)
	}
	received := c.clock()
	set := c.set(p, t.Key)
	e := &entry{
		policy: p, key: nameOf(t.Key), cost: t.Cost, n: len(reply),
		sent: sent, received: received, dies: sent + lives,
	}
	if !e.alive(set, p, received) {
		return
	}
	if !e.key.hashed {
		e.key.text = strings.Clone(e.key.text) // it may be a part of a request
	}
	copy(e.reply[:], reply)
	c.put(set, e)
	for alive := c.alive.Load(); alive < int64(e.dies) && !c.alive.CompareAndSwap(alive, int64(e.dies)); {
		alive = c.alive.Load()
	}
}

// put stores e, unless there is a newer entry for the same, or others are storing at this instant.
func (c *Cache) put(set *set, e *entry) {
	const none = -1
	dead, idle := none, none
	for i := range set.entries {
		old := set.entries[i].Load()
		switch {
		case old == nil || !old.alive(set, old.policy, e.received):
			dead = i
		case old.is(e.policy, e.key, e.cost):
			if old.sent < e.sent {
				set.entries[i].CompareAndSwap(old, e)
			}
			return
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
	now := int64(c.clock())
	for changed := set.changed.Load(); changed < now && !set.changed.CompareAndSwap(changed, now); {
		changed = set.changed.Load()
	}
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
