package guard

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core"
)

// BreakOptions say when the circuits of [Break] open, for how long, and what answers. The zero value is a choice to
// begin with.
type BreakOptions struct {
	// Refusals of one key, in the time Within, open its circuit. The time begins with the first of them. 0 means 10
	// refusals in a minute.
	Refusals int
	Within   time.Duration
	// Open is how long the circuit is open at first; 0 means a minute. Each time it opens again, that doubles, up to
	// MaxOpen; 0 means an hour, or Open if that is longer. It begins anew with a key that was not refused for as long
	// as MaxOpen.
	Open, MaxOpen time.Duration
	// Before answers what is refused while the circuit is closed. nil means Reject.
	Before OverLimit
	// Then answers while it is open, and when it opens. nil means Reject.
	Then OverLimit
	// MaxKeys is how many keys are watched at a time, about; 0 means 10000. Each takes 50 to 100 bytes, all at the
	// first refusal.
	MaxKeys int
}

// Break refuses a key that does not stop: after some refusals the circuit of the key opens, and for some time its
// requests are refused without asking the store, with a Retry-After that says for how long. Use it if refusing has a
// price, such as a round trip to Redis, or as a ban: of an address after failed logins. Each key of each policy has a
// circuit of its own, in this process.
//
// When the time is over, one request a second is let through to the store. If it is admitted, the circuit closes; if it
// is refused, it opens for twice the time.
//
// Only refusals by the limit count, and not those of an open circuit: a client that goes on asking does not make it
// longer. A request without a key, or one for which the store failed under "fail closed", is for Before to answer, and so
// is one of a rule with After that is refused while there are units left, because others that are under way may use them.
//
// Nobody can open the circuit of another key, or close it: what a key is refused counts for that key. A flood of keys
// takes no more memory than MaxKeys says. It displaces keys whose time is over before keys whose circuits are closed, and
// never one whose circuit is open. If all are open, further ones do not open, and those keys are refused by the limit
// alone.
//
// A request that passes pays for a look at its key's circuit; before the first refusal, nothing.
func Break(o BreakOptions) OverLimit {
	b := &breaker{err: o.check()}
	o.Refusals, o.Within = cmp.Or(o.Refusals, 10), cmp.Or(o.Within, time.Minute)
	o.Open = cmp.Or(o.Open, min(time.Minute, cmp.Or(o.MaxOpen, time.Minute)))
	o.MaxOpen = cmp.Or(o.MaxOpen, max(time.Hour, o.Open))
	o.MaxKeys = cmp.Or(o.MaxKeys, 10_000)
	if o.Before == nil {
		o.Before = plain
	}
	if o.Then == nil {
		o.Then = plain
	}
	b.o = o
	return b
}

// check reports the mistakes in the options.
func (o BreakOptions) check() error {
	var mistakes []error
	wrong := func(format string, args ...any) {
		mistakes = append(mistakes, fmt.Errorf("BreakOptions."+format, args...))
	}
	if o.Refusals < 0 {
		wrong("Refusals is %d; give how many open a circuit, or 0 for 10", o.Refusals)
	}
	if o.Within < 0 {
		wrong("Within is %v; give the time in which refusals count, or 0 for a minute", o.Within)
	}
	if o.Open < 0 {
		wrong("Open is %v; give how long a circuit is open, or 0 for a minute", o.Open)
	}
	if o.MaxOpen != 0 && o.MaxOpen < max(o.Open, 1) {
		wrong("MaxOpen is %v, and Open %v; give a MaxOpen that is not less, or 0 for an hour", o.MaxOpen, o.Open)
	}
	for _, d := range []struct {
		name string
		time time.Duration
	}{{"Within", o.Within}, {"Open", o.Open}, {"MaxOpen", o.MaxOpen}} {
		if d.time > 0 && d.time < time.Millisecond {
			wrong("%s is %v; give a unit with the number, as in %d * time.Second", d.name, d.time, d.time.Nanoseconds())
		}
	}
	if o.MaxKeys < 0 || o.MaxKeys > maxCircuits {
		wrong("MaxKeys is %d; give 1 to %d, or 0 for 10000", o.MaxKeys, maxCircuits)
	}
	for _, f := range []struct {
		name    string
		handler OverLimit
	}{{"Before", o.Before}, {"Then", o.Then}} {
		switch h := f.handler.(type) {
		case *breaker:
			wrong("%s: Break within Break; one circuit is enough", f.name)
		case degrade:
			if f.name == "Then" && h.goesOn() {
				wrong("Then: Degrade would let everybody pass whom the circuit keeps out; give it to Before, or a handler that answers")
			} else if err := h.Err(); err != nil {
				wrong("%s: %w", f.name, err)
			}
		case interface{ Err() error }:
			if err := h.Err(); err != nil {
				wrong("%s: %w", f.name, err)
			}
		}
	}
	return errors.Join(mistakes...)
}

// breaker is asked before the store, and told of refusals, by the rule whose handler it is.
type breaker struct {
	o   BreakOptions
	err error

	begin sync.Once
	table atomic.Pointer[circuits] // nil before the first refusal
}

func (b *breaker) String() string { return fmt.Sprintf("break(%v, %v)", b.o.Before, b.o.Then) }

// Err reports the mistakes in the options to New.
func (b *breaker) Err() error { return b.err }

// Serve implements OverLimit, for a handler of the program's own that passes on what it does not answer. Circuits open
// only if Break is a rule's own handler.
func (b *breaker) Serve(x *Refusal) Verdict { return b.o.Before.Serve(x) }

// ask reports for how long requests of a key are to be refused unasked, and otherwise whether the request is the probe
// whose fate decides. The probe is told to admitted or choose; if it is not, the next one comes a second later.
func (b *breaker) ask(policy, key string) (refuse time.Duration, probe bool) {
	t := b.table.Load()
	if t == nil {
		return 0, false
	}
	bucket, hash := t.at(policy, key)
	bucket.mu.Lock()
	defer bucket.mu.Unlock()
	c := bucket.find(hash)
	now := t.now()
	switch {
	case c == nil || c.until == 0:
		return 0, false
	case now < c.until:
		return c.until - now, false
	case b.forgotten(c, now):
		*c = circuit{}
		return 0, false
	default:
		c.probing, c.until = true, now+betweenProbes
		return 0, true
	}
}

// betweenProbes is how long a probe that has not been decided keeps others from being one.
const betweenProbes = time.Second

// choose is told of a refusal, and returns the handler that answers it. If the circuit is open now, res says for how
// long.
func (b *breaker) choose(policy string, t *taken, res *core.Result, err error) OverLimit {
	switch {
	case t.barred:
		return b.o.Then
	case !overLimit(res, err), t.attempt != nil && t.attempt.forNow: // by others that may use nothing of the limit
		if t.probe {
			b.undecided(policy, t.key)
		}
		return b.o.Before
	}
	open := b.refused(policy, t.key)
	if open == 0 {
		return b.o.Before
	}
	res.RetryAfter = max(res.RetryAfter, open)
	return b.o.Then
}

// refused counts a refusal, and returns for how long the circuit is open now.
func (b *breaker) refused(policy, key string) (open time.Duration) {
	t := b.circuits()
	bucket, hash := t.at(policy, key)
	bucket.mu.Lock()
	defer bucket.mu.Unlock()
	now := t.now()
	c := bucket.find(hash)
	if c == nil {
		if c = bucket.make(b, now); c == nil {
			return 0 // all places are of open circuits
		}
		*c = circuit{hash: hash, last: now}
	}
	if c.until > now && !c.probing {
		return c.until - now // it was on its way when the circuit opened
	}
	if c.until == 0 {
		if c.refusals == 0 || now-c.first > b.o.Within {
			c.first, c.refusals = now, 0
		}
		if b.forgotten(c, now) {
			c.times = 0
		}
		c.refusals, c.last = c.refusals+1, now
		if c.refusals < b.o.Refusals {
			return 0
		}
	}
	open = b.o.Open
	for range c.times {
		if open > b.o.MaxOpen/2 {
			open = b.o.MaxOpen
			break
		}
		open *= 2
	}
	c.times = min(c.times+1, 63)
	c.probing, c.refusals, c.last, c.until = false, 0, now, now+open
	return open
}

// admitted closes the circuit: its probe has passed.
func (b *breaker) admitted(policy, key string) {
	b.probed(policy, key, func(c *circuit, now time.Duration) { c.until, c.last = 0, now })
}

// undecided lets the next request be the probe.
func (b *breaker) undecided(policy, key string) {
	b.probed(policy, key, func(c *circuit, now time.Duration) { c.until = now })
}

// probed is told that the probe of a key has ended, unless it has opened the circuit again.
func (b *breaker) probed(policy, key string, then func(c *circuit, now time.Duration)) {
	t := b.table.Load()
	bucket, hash := t.at(policy, key)
	bucket.mu.Lock()
	defer bucket.mu.Unlock()
	if c := bucket.find(hash); c != nil && c.probing {
		c.probing = false
		then(c, t.now())
	}
}

// forgotten reports whether a circuit that is not open has had no refusal for so long that it begins anew.
func (b *breaker) forgotten(c *circuit, now time.Duration) bool {
	return now-max(c.last, c.until) > b.o.MaxOpen
}

// maxCircuits bounds MaxKeys: what is more would be a mistake of units.
const maxCircuits = 1 << 24

// circuits is a table of fixed size: a key's hash says in which bucket it is, and a bucket that is full displaces. So
// everything is done in a few steps under a lock of its own, whatever the keys are, and no key is kept: two that have
// the same 64 bits share a circuit, which nobody can bring about without the seed.
type circuits struct {
	start   time.Time // the clock counts from here, which is monotonic
	seed    maphash.Seed
	buckets []bucket // a power of two
}

// circuit is that of one key. Times are the table's.
type circuit struct {
	hash        uint64        // 0 if there is none
	until       time.Duration // when it is half open, or 0 if it is closed
	first, last time.Duration // the refusals: the first that counts, and the last
	refusals    int           // how many count, while it is closed
	times       uint8         // how often it has opened, since it last began anew
	probing     bool          // whether it is half open, and a probe is under way
}

// bucket is where the keys of some hashes are.
type bucket struct {
	mu   sync.Mutex
	ways [8]circuit
}

// circuits returns the table, and makes it at the first refusal.
func (b *breaker) circuits() *circuits {
	b.begin.Do(func() {
		n := (b.o.MaxKeys + len(bucket{}.ways) - 1) / len(bucket{}.ways)
		n = 1 << bits.Len(uint(n-1)) //nolint:gosec // it is positive
		b.table.Store(&circuits{start: time.Now(), seed: maphash.MakeSeed(), buckets: make([]bucket, n)})
	})
	return b.table.Load()
}

// now is never 0, which is no time.
func (t *circuits) now() time.Duration { return time.Since(t.start) + 1 }

// at returns the bucket of a key, and its hash.
func (t *circuits) at(policy, key string) (*bucket, uint64) {
	var h maphash.Hash
	h.SetSeed(t.seed)
	_, _ = h.WriteString(policy) // it never fails
	_ = h.WriteByte(0)
	_, _ = h.WriteString(key)
	hash := max(h.Sum64(), 1)
	return &t.buckets[hash&uint64(len(t.buckets)-1)], hash
}

// find returns the circuit of a hash, or nil. b is locked.
func (b *bucket) find(hash uint64) *circuit {
	for i := range b.ways {
		if b.ways[i].hash == hash {
			return &b.ways[i]
		}
	}
	return nil
}

// make returns a place for another circuit: a free one, or that of one that is forgotten, or whose time has been over
// for the longest, or of the closed circuit that has the least to lose; nil if all are open. b is locked.
func (b *bucket) make(by *breaker, now time.Duration) *circuit {
	var over, least *circuit
	for i := range b.ways {
		c := &b.ways[i]
		switch {
		case c.hash == 0, c.until <= now && by.forgotten(c, now):
			return c
		case c.until > now: // it is open, or its probe is under way
		case c.until != 0:
			if over == nil || c.until < over.until {
				over = c
			}
		case least == nil || c.less(least):
			least = c
		}
	}
	return cmp.Or(over, least)
}

// less reports whether c, which is closed, has less to lose than d.
func (c *circuit) less(d *circuit) bool {
	return cmp.Or(cmp.Compare(c.times, d.times), cmp.Compare(c.refusals, d.refusals), cmp.Compare(c.last, d.last)) < 0
}
