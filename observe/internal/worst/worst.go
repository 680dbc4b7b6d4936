// Package worst finds the keys that are seen most, in a bounded table: Space-Saving in buckets of eight. It knows keys
// and numbers, and nothing of requests.
package worst

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Options are the numbers of a [Table].
type Options struct {
	// Counters is the number of keys that are counted at a time: a power of two, and at least 8.
	Counters int
	// Period is the time for which a table counts before the next one begins; the last two are kept.
	Period time.Duration
}

// check panics where Options are no numbers of a table, which is a mistake of this module.
func (o Options) check() {
	if o.Counters < ways || o.Counters&(o.Counters-1) != 0 || o.Period <= 0 {
		panic("worst: Counters must be a power of two, and Period positive")
	}
}

// Table counts keys. A key's hash says in which bucket its counter is. A full bucket gives the counter that has counted
// least to a new key, which takes over what was counted there, and notes that as its error. So what a key was counted
// lies between count - error and count, whoever else was there, and a method takes a few steps under the lock of one
// bucket. Nobody can aim at a bucket without the seed.
//
// A key is copied when it is seen for the second time, into memory that its counter has and keeps: a flood of new keys
// copies none, and no traffic allocates for long.
type Table struct {
	o    Options
	seed maphash.Seed

	mu     sync.Mutex // of a change of the generation
	now    atomic.Pointer[generation]
	before atomic.Pointer[generation] // nil before the first change
	lost   uint64                     // what News would have returned as missed of counters that were cleared before
}

// generation is a period and the counters of it.
type generation struct {
	since   atomic.Int64 // a time.Duration
	buckets []bucket     // a power of two
}

const ways = 8

// bucket has the counters of the keys with some hashes.
type bucket struct {
	mu     sync.Mutex
	hashes [ways]uint64 // 0 if there is no key
	counts [ways]uint64
	errors [ways]uint64
	keys   [ways][]byte // empty before the second sight

	told  [ways]uint64 // the counts at the last News, of keys that have had their counters since then; else 0
	floor uint64       // that of the last News
}

// longest is the length above which a key is cut.
const longest = 200

// New returns a Table that counts from now on.
func New(o Options, now time.Duration) *Table {
	o.check()
	t := &Table{o: o, seed: maphash.MakeSeed()}
	t.now.Store(t.generation(now))
	return t
}

func (t *Table) generation(now time.Duration) *generation {
	g := &generation{buckets: make([]bucket, t.o.Counters/ways)}
	g.since.Store(int64(now))
	return g
}

// Add counts a key, with a weight of 1 or more.
func (t *Table) Add(now time.Duration, key []byte, weight uint64) {
	g := t.now.Load()
	if now-time.Duration(g.since.Load()) >= t.o.Period {
		g = t.turn(now)
	}
	hash := max(maphash.Bytes(t.seed, key), 1)
	g.buckets[hash&uint64(len(g.buckets)-1)].add(hash, key, weight)
}

// turn begins another period, if it is time.
func (t *Table) turn(now time.Duration) *generation {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.now.Load()
	over := now - time.Duration(last.since.Load())
	if over < t.o.Period {
		return last
	}
	next := t.before.Load()
	if next == nil {
		next = t.generation(now)
	}
	t.lost += next.clear(now)
	if over >= 2*t.o.Period { // what the last has counted is too old as well
		t.lost += last.clear(now)
	}
	t.before.Store(last)
	t.now.Store(next)
	return next
}

// clear forgets all but the memory of the keys. It returns the most that a key was counted since the last News.
func (g *generation) clear(now time.Duration) (lost uint64) {
	g.since.Store(int64(now))
	for i := range g.buckets {
		b := &g.buckets[i]
		b.mu.Lock()
		for k := range b.keys {
			lost = max(lost, b.most(k))
			b.keys[k] = b.keys[k][:0]
		}
		b.hashes, b.counts, b.errors, b.told, b.floor = [ways]uint64{}, [ways]uint64{}, [ways]uint64{}, [ways]uint64{}, 0
		b.mu.Unlock()
	}
	return lost
}

func (b *bucket) add(hash uint64, key []byte, weight uint64) {
	b.mu.Lock()
	for i := range &b.hashes {
		if b.hashes[i] == hash {
			b.counts[i] += weight
			if len(b.keys[i]) == 0 {
				b.name(i, key)
			}
			b.mu.Unlock()
			return
		}
	}
	least := 0
	for i := range &b.counts { // one without a key has counted 0
		if b.counts[i] < b.counts[least] {
			least = i
		}
	}
	i, floor := least, b.counts[least]
	b.hashes[i], b.errors[i], b.counts[i], b.keys[i], b.told[i] = hash, floor, floor+weight, b.keys[i][:0], 0
	if weight > 1 && weight > floor { // it counts for more than all that were there before
		b.name(i, key)
	}
	b.mu.Unlock()
}

// name copies the key of a counter.
func (b *bucket) name(i int, key []byte) {
	if len(key) > longest {
		b.keys[i] = append(append(b.keys[i], key[:longest]...), "…"...)
		return
	}
	b.keys[i] = append(b.keys[i], key...)
}

// least returns the most that a key without a counter can have been counted. b is locked, or a copy.
func (b *bucket) least() uint64 { return slices.Min(b.counts[:]) }

// Key is a key and the bounds of what it was counted: between Count - Error and Count.
type Key struct {
	Key          string
	Count, Error uint64
}

// Top returns the n keys that are counted most, the most first, and the instant since which they were counted. It has
// no key that was seen once only.
func (t *Table) Top(now time.Duration, n int) (keys []Key, since time.Duration) {
	t.turn(now)
	t.mu.Lock()
	defer t.mu.Unlock()
	last, before := t.now.Load(), t.before.Load()
	since = time.Duration(last.since.Load())
	if before != nil {
		since = time.Duration(before.since.Load())
	}
	var found []Key
	for i := range last.buckets {
		var earlier bucket
		if before != nil {
			earlier.copy(&before.buckets[i])
		}
		var now bucket
		now.copy(&last.buckets[i])
		found = now.keysWith(&earlier, found)
	}
	slices.SortFunc(found, func(a, b Key) int { return compare(b, a) })
	return found[:min(n, len(found))], since
}

// News returns, of what was counted since the last News, the n keys with most of it and how much that surely is, and the
// most that it can be short of for any key: one that it does not return, or one that it returns. Sums of it over time and
// over tables are bounds of what a key was counted in all of them.
func (t *Table) News(now time.Duration, n int) (news map[string]uint64, missed uint64) {
	t.turn(now)
	t.mu.Lock()
	defer t.mu.Unlock()
	missed, t.lost = t.lost, 0
	news = map[string]uint64{}
	for _, g := range []*generation{t.before.Load(), t.now.Load()} {
		if g != nil {
			missed += g.news(n, news)
		}
	}
	return news, missed
}

// news adds to news what is new of the n keys with most that is new, and returns what that can be short of.
func (g *generation) news(n int, news map[string]uint64) (missed uint64) {
	type fresh struct {
		key        string
		sure, most uint64
	}
	var all []fresh
	for i := range g.buckets {
		b := &g.buckets[i]
		b.mu.Lock()
		for k := range b.keys {
			if sure := b.sure(k); sure > 0 && len(b.keys[k]) > 0 {
				all = append(all, fresh{string(b.keys[k]), sure, b.most(k)})
			} else {
				missed = max(missed, b.most(k))
			}
			b.told[k] = b.counts[k]
		}
		// A key that had a counter for some of the time was counted there from one floor to a higher one.
		floor := b.least()
		missed, b.floor = max(missed, floor-b.floor), floor
		b.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b fresh) int { return cmp.Or(cmp.Compare(b.sure, a.sure), cmp.Compare(a.key, b.key)) })
	for i, f := range all {
		if i < n {
			news[f.key] += f.sure
		} else {
			missed = max(missed, f.most)
		}
	}
	return missed
}

// sure returns what the key of a counter was surely counted since the last News. b is locked.
func (b *bucket) sure(i int) uint64 { return b.counts[i] - max(b.told[i], b.errors[i]) }

// most returns the most that it can have been counted since then: before it took the counter, what another counter of the
// bucket had beyond the floor.
func (b *bucket) most(i int) uint64 { return b.counts[i] - min(max(b.told[i], b.floor), b.counts[i]) }

// compare orders by what was surely counted, and then by what may have been.
func compare(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Count-a.Error, b.Count-b.Error), cmp.Compare(a.Count, b.Count), cmp.Compare(b.Key, a.Key))
}

// copy makes b a copy of c, which is in use.
func (b *bucket) copy(c *bucket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b.hashes, b.counts, b.errors = c.hashes, c.counts, c.errors
	for i, key := range c.keys {
		b.keys[i] = append(b.keys[i], key...)
	}
}

// keysWith appends the keys of b and of the same bucket of the period before.
func (b *bucket) keysWith(before *bucket, found []Key) []Key {
	for i, hash := range b.hashes {
		if hash == 0 {
			continue
		}
		k := Key{Key: string(b.keys[i]), Count: b.counts[i], Error: b.errors[i]}
		if j := slices.Index(before.hashes[:], hash); j >= 0 {
			k.Count, k.Error = k.Count+before.counts[j], k.Error+before.errors[j]
			if k.Key == "" {
				k.Key = string(before.keys[j])
			}
		} else {
			k.Count, k.Error = k.Count+before.least(), k.Error+before.least()
		}
		if k.Key != "" {
			found = append(found, k)
		}
	}
	for i, hash := range before.hashes {
		if hash != 0 && len(before.keys[i]) > 0 && !slices.Contains(b.hashes[:], hash) {
			found = append(found, Key{string(before.keys[i]), before.counts[i] + b.least(), before.errors[i] + b.least()})
		}
	}
	return found
}
