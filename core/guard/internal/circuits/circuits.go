// Package circuits is a table of circuits, one for each key of a policy: a circuit opens when its key has been refused
// often enough, and is open for some time. It knows policies, keys and time, and nothing of requests.
package circuits

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// MaxKeys is the greatest number of keys that Options may have: more would be a mistake of units.
const MaxKeys = 1 << 24

// Options are the numbers by which circuits open and close. All of them must be positive.
type Options struct {
	Refusals      int           // of a key that open its circuit,
	Within        time.Duration // from the first of them on
	Open, MaxOpen time.Duration // how long a circuit is open at first, and at most
	Keys          int           // how many circuits there are at a time, about
}

// Table has the circuits of one handler. A key's hash says in which bucket its circuit is, and a full bucket displaces
// one. So every method takes a few steps under the lock of one bucket, whatever the keys are, and no key is kept: two
// keys with the same 64 bits share a circuit, which nobody can bring about without the seed.
type Table struct {
	o Options

	once sync.Once
	made atomic.Pointer[memory] // nil before the first refusal
}

// New returns a Table without circuits. It takes no memory before the first refusal.
func New(o Options) *Table { return &Table{o: o} }

// Ask reports for how long requests of a key are to be refused unasked, and otherwise whether the request is the probe
// that decides. What becomes of the probe is for Refused, Admitted or Undecided; if none of them is called, the next
// probe comes a second later.
func (t *Table) Ask(policy, key string) (refuse time.Duration, probe bool) {
	m := t.made.Load()
	if m == nil {
		return 0, false
	}
	bucket, hash := m.at(policy, key)
	bucket.mu.Lock()
	defer bucket.mu.Unlock()
	c := bucket.find(hash)
	now := m.now()
	switch {
	case c == nil || c.until == 0:
		return 0, false
	case now < c.until:
		return c.until - now, false
	case t.forgotten(c, now):
		*c = circuit{}
		return 0, false
	default:
		c.probing, c.until = true, now+betweenProbes
		return 0, true
	}
}

// Outlook describes what would become of a request of a key; see [Table.Peek].
type Outlook struct {
	Refuse time.Duration // for which it would be refused unasked, as by Ask
	Probe  bool          // it would be the probe
	Opens  bool          // if it were asked and refused, the circuit would open
}

// Peek is Ask for a caller that only wants to know: it changes nothing.
func (t *Table) Peek(policy, key string) Outlook {
	first := Outlook{Opens: t.o.Refusals <= 1}
	m := t.made.Load()
	if m == nil {
		return first
	}
	bucket, hash := m.at(policy, key)
	bucket.mu.Lock()
	defer bucket.mu.Unlock()
	c, now := bucket.find(hash), m.now()
	switch {
	case c == nil:
		return first
	case c.until > now:
		return Outlook{Refuse: c.until - now}
	case c.until != 0 && !t.forgotten(c, now):
		return Outlook{Probe: true, Opens: true}
	case c.until != 0 || now-c.first > t.o.Within:
		return first
	default:
		return Outlook{Opens: c.refusals+1 >= t.o.Refusals}
	}
}

// betweenProbes is the time for which a probe that has not been decided keeps others from being one.
const betweenProbes = time.Second

// Refused counts a refusal, and returns for how long the circuit is open now.
func (t *Table) Refused(policy, key string) (open time.Duration) {
	m := t.memory()
	bucket, hash := m.at(policy, key)
	bucket.mu.Lock()
	defer bucket.mu.Unlock()
	now := m.now()
	c := bucket.find(hash)
	if c == nil {
		if c = bucket.make(t, now); c == nil {
			return 0 // all places are of open circuits
		}
		*c = circuit{hash: hash, last: now}
	}
	if c.until > now && !c.probing {
		return c.until - now // it was on its way when the circuit opened
	}
	if c.until == 0 {
		if c.refusals == 0 || now-c.first > t.o.Within {
			c.first, c.refusals = now, 0
		}
		if t.forgotten(c, now) {
			c.times = 0
		}
		c.refusals, c.last = c.refusals+1, now
		if c.refusals < t.o.Refusals {
			return 0
		}
	}
	open = t.o.Open
	for range c.times {
		if open > t.o.MaxOpen/2 {
			open = t.o.MaxOpen
			break
		}
		open *= 2
	}
	c.times = min(c.times+1, 63)
	c.probing, c.refusals, c.last, c.until = false, 0, now, now+open
	return open
}

// Open returns the number of circuits that are open now. It looks at all of them, a bucket at a time.
func (t *Table) Open() (n int) {
	m := t.made.Load()
	if m == nil {
		return 0
	}
	now := m.now()
	for i := range m.buckets {
		bucket := &m.buckets[i]
		bucket.mu.Lock()
		for j := range bucket.ways {
			if bucket.ways[j].until > now {
				n++
			}
		}
		bucket.mu.Unlock()
	}
	return n
}

// Admitted closes the circuit of a key, because its probe has passed.
func (t *Table) Admitted(policy, key string) {
	t.probed(policy, key, func(c *circuit, now time.Duration) { c.until, c.last = 0, now })
}

// Undecided makes the next request of a key the probe, because the one before has not been decided.
func (t *Table) Undecided(policy, key string) {
	t.probed(policy, key, func(c *circuit, now time.Duration) { c.until = now })
}

// probed ends the probe of a key, unless that has opened the circuit again.
func (t *Table) probed(policy, key string, then func(c *circuit, now time.Duration)) {
	m := t.made.Load()
	bucket, hash := m.at(policy, key)
	bucket.mu.Lock()
	defer bucket.mu.Unlock()
	if c := bucket.find(hash); c != nil && c.probing {
		c.probing = false
		then(c, m.now())
	}
}

// forgotten reports whether a circuit that is not open has had no refusal for so long that it begins anew.
func (t *Table) forgotten(c *circuit, now time.Duration) bool {
	return now-max(c.last, c.until) > t.o.MaxOpen
}

// memory is the memory of a Table, all of which is allocated at once.
type memory struct {
	start   time.Time // the clock counts from here, which is monotonic
	seed    maphash.Seed
	buckets []bucket // a power of two
}

// circuit is the circuit of one key. Its times count from the start of the memory.
type circuit struct {
	hash        uint64        // 0 if there is none
	until       time.Duration // when it is half open, or 0 if it is closed
	first, last time.Duration // the refusals: the first that counts, and the last
	refusals    int           // how many count, while it is closed
	times       uint8         // how often it has opened, since it last began anew
	probing     bool          // whether it is half open, and a probe is under way
}

// bucket holds the circuits of the keys with some hashes.
type bucket struct {
	mu   sync.Mutex
	ways [8]circuit
}

// memory returns the memory, and allocates it at the first refusal.
func (t *Table) memory() *memory {
	t.once.Do(func() {
		n := (t.o.Keys + len(bucket{}.ways) - 1) / len(bucket{}.ways)
		n = 1 << bits.Len(uint(n-1)) //nolint:gosec // it is positive
		t.made.Store(&memory{start: time.Now(), seed: maphash.MakeSeed(), buckets: make([]bucket, n)})
	})
	return t.made.Load()
}

// now is never 0, which is no time.
func (m *memory) now() time.Duration { return time.Since(m.start) + 1 }

// at returns the bucket of a key, and its hash.
func (m *memory) at(policy, key string) (*bucket, uint64) {
	var h maphash.Hash
	h.SetSeed(m.seed)
	_, _ = h.WriteString(policy) // it never fails
	_ = h.WriteByte(0)
	_, _ = h.WriteString(key)
	hash := max(h.Sum64(), 1)
	return &m.buckets[hash&uint64(len(m.buckets)-1)], hash
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
func (b *bucket) make(by *Table, now time.Duration) *circuit {
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
