package core

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

// DefaultMaxKeys is how many keys a [Memory] holds unless told otherwise.
const DefaultMaxKeys = 1_000_000

// MemoryOptions say how a [Memory] is built. The zero value is a good choice.
type MemoryOptions struct {
	// MaxKeys is the most keys to hold at once; 0 means DefaultMaxKeys. A key of
	// a policy with one GCRA limit takes 32 bytes, of one with two 48, plus the
	// air that a hash table needs; one with a SlidingLog of 1000 takes 20 KB when it is
	// full. The README tells what the others take. Permits are not counted here: there
	// are no more of them than are held.
	MaxKeys int
}

// Memory is the in-process [Store], built by [NewMemory]: the default where no other is given, and the
// one that decides while Redis does not answer. A decision takes well under a
// microsecond and allocates nothing.
//
// It holds at most MaxKeys keys. When it is full, a new key displaces one that is
// as if unused; if it finds none nearby, the one closest to that; and a key that
// is at its limit last. Keys are spread over independent parts by a seeded hash,
// and a part may be full a little before the whole is. Dead keys are swept away
// part by part, and their memory is given back.
//
// The clock is the system's, but steps of less than a second are ignored.
type Memory struct {
	shards []shard
	clock  clock
	// sweeping tells that a sweep is due: only then is there a timer.
	sweeping atomic.Bool
	permits  permitTable
}

// sweepEvery is how long dead keys may linger.
const sweepEvery = 10 * time.Second

// Shards of a few thousand keys keep every pause, to grow or to sweep, in the
// microseconds.
const (
	minShardKeys = 64
	maxShardKeys = 4096
)

// NewMemory builds an in-process store. It fails if o.MaxKeys is negative.
func NewMemory(o MemoryOptions) (*Memory, error) {
	if o.MaxKeys < 0 {
		return nil, fmt.Errorf("core: MaxKeys is %d; give a positive number, or 0 for %d", o.MaxKeys, DefaultMaxKeys)
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = DefaultMaxKeys
	}
	n := 1
	for n < 1<<16 && (n < 256 && o.MaxKeys/(n*2) >= minShardKeys || o.MaxKeys/n > maxShardKeys) {
		n *= 2
	}
	m := &Memory{shards: make([]shard, n), clock: newClock()}
	for i := range m.shards {
		m.shards[i].most = o.MaxKeys / n
		if i < o.MaxKeys%n {
			m.shards[i].most++
		}
	}
	return m, nil
}

func defaultMemory() *Memory {
	m, err := NewMemory(MemoryOptions{})
	if err != nil {
		panic(err) // the defaults are valid
	}
	return m
}

// begin tells why a call cannot be made.
func (m *Memory) begin(ctx context.Context) error {
	if len(m.shards) == 0 {
		return errors.New("core: a zero Memory; build one with NewMemory")
	}
	return ctx.Err()
}

// Take implements [Store].
func (m *Memory) Take(ctx context.Context, t Take) (res Result, err error) {
	if err := t.Validate(); err != nil {
		return Result{}, err
	}
	if err := m.begin(ctx); err != nil {
		return Result{}, err
	}
	p, now := t.Policy.p, t.Now
	if now == 0 {
		now = m.clock.now()
	}
	h := hashOf(p, t.Key)
	s := m.shard(h)
	s.mu.Lock()
	tab := s.table(p)
	row := tab.find(h)
	state, changed := s.load(p, tab, row, now)
	taken, admitted := p.take(state, &t, now)
	p.explain(&res, state, &t, now, taken, admitted)
	switch {
	case !changed && taken == 0:
	case row < 0:
		row = m.insert(s, tab, h, state, t.Now)
	default:
		tab.write(row, state)
	}
	if row >= 0 && t.Cost > 0 && res.Outcome != Never {
		tab.setLimited(row, res.Remaining == 0 || res.Outcome == Refused)
	}
	s.mu.Unlock()
	return res, nil
}

// Refund implements [Store].
func (m *Memory) Refund(ctx context.Context, t Take, r Result, units int64) error {
	if err := ValidateRefund(&t, r, units); err != nil {
		return err
	}
	if err := m.begin(ctx); err != nil || units == 0 {
		return err
	}
	p, now := t.Policy.p, t.Now
	if now == 0 {
		now = m.clock.now()
	}
	h := hashOf(p, t.Key)
	s := m.shard(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	tab := s.table(p)
	row := tab.find(h)
	if row < 0 {
		return nil
	}
	state, changed := s.load(p, tab, row, now)
	if p.refund(state, now, units, &r) {
		tab.setLimited(row, false)
		changed = true
	}
	if changed {
		tab.write(row, state)
	}
	return nil
}

// Reset implements [Store].
func (m *Memory) Reset(ctx context.Context, p Policy, key string) error {
	t := Take{Policy: p, Key: key}
	if err := t.Validate(); err != nil {
		return err
	}
	if err := m.begin(ctx); err != nil {
		return err
	}
	h := hashOf(p.p, key)
	s := m.shard(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	tab := s.table(p.p)
	if row := tab.find(h); row >= 0 {
		tab.remove(row)
		s.keys--
	}
	return nil
}

// Len returns how many keys are held, dead ones that wait to be swept included.
func (m *Memory) Len() int {
	n := 0
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		n += s.keys
		s.mu.Unlock()
	}
	return n
}

// insert makes room for a key if there is none, and stores it. Under a forced
// clock, which is not 0, nothing is swept: the sweep goes by the system's clock.
func (m *Memory) insert(s *shard, tab *table, h hash, state []int64, forced int64) (row int) {
	now := forced
	if forced == 0 {
		now = m.clock.now()
	}
	if s.keys >= s.most {
		s.evict(now)
	}
	if (tab.live+1)*maxLoadDen > tab.rowCount()*maxLoadNum {
		s.keys -= tab.rebuild(now, s.most)
	}
	row = tab.insert(h, state)
	s.keys++
	if forced == 0 && !m.sweeping.Load() && m.sweeping.CompareAndSwap(false, true) {
		m.scheduleSweep()
	}
	return row
}

// scheduleSweep sets a timer that does not keep the store alive: a Memory needs
// no Close, and one that nobody uses any more is collected with all it holds.
func (m *Memory) scheduleSweep() {
	w := weak.Make(m)
	time.AfterFunc(sweepEvery, func() {
		if m := w.Value(); m != nil {
			m.sweep()
		}
	})
}

// sweep removes dead keys, a shard at a time, and gives their memory back. It
// goes on for as long as there are keys.
func (m *Memory) sweep() {
	m.clock.adjust()
	now, left := m.clock.now(), 0
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		for j := range s.tables {
			s.keys -= s.tables[j].sweep(now, s.most)
		}
		left += s.keys
		s.mu.Unlock()
	}
	if left > 0 {
		m.scheduleSweep()
		return
	}
	m.sweeping.Store(false)
	if m.Len() > 0 && m.sweeping.CompareAndSwap(false, true) { // one came in between
		m.scheduleSweep()
	}
}

// hash stands for a policy and a key. It has 126 bits, so that even among a
// billion keys two meet with a chance of one in 10^20. hi is odd, because a row
// that begins with 0 is empty; the last bit of lo is left to the row.
type hash struct{ hi, lo uint64 }

const limitedBit = 1

func hashOf(p *policy, key string) hash {
	return hash{
		(maphash.String(seeds[0], key) ^ p.id[0]) | 1,
		(maphash.String(seeds[1], key) ^ p.id[1]) &^ limitedBit,
	}
}

func (m *Memory) shard(h hash) *shard {
	return &m.shards[h.hi>>1&uint64(len(m.shards)-1)]
}

// shard is an independent part of the store.
type shard struct {
	mu     sync.Mutex
	keys   int // in all tables
	most   int
	tables []table
	// spare is the state that a decision works on.
	spare []int64
	_     [40]byte // one cache line more, so that neighbours do not slow each other
}

// table returns the table of the policy's shape, which it makes if need be.
func (s *shard) table(p *policy) *table {
	for i := range s.tables {
		if s.tables[i].shape == p.shape {
			return &s.tables[i]
		}
	}
	s.tables = append(s.tables, newTable(p))
	if p.words > len(s.spare) {
		s.spare = make([]int64, p.words)
	}
	return &s.tables[len(s.tables)-1]
}

// load copies the state of a row, unused if there is no row, and brings it to what
// the rules allow now. The row stays as it is unless the state changed: what is in
// the past must not be forgotten by a look at it, in case the clock steps back.
func (s *shard) load(p *policy, t *table, row int, now int64) (state []int64, healed bool) {
	state = s.spare[:p.words]
	if row >= 0 {
		t.read(row, state)
	} else {
		p.unused(state)
	}
	return state, p.load(state, now)
}

// unused makes state that of a key that was never seen.
func (p *policy) unused(state []int64) {
	for _, a := range p.algorithms {
		state[0] = 0 // which is all that Len looks at
		clear(state[:a.Len(state)])
		state = state[a.Words():]
	}
}

// evict removes at least one key: what is dead, or else the best of all tables.
func (s *shard) evict(now int64) {
	var best victim
	dead := 0
	for i := range s.tables {
		removed, v := s.tables[i].evict(now)
		if dead += removed; v.table != nil && v.better(best) {
			best = v
		}
	}
	if dead == 0 && best.table != nil {
		best.table.remove(best.row)
		dead = 1
	}
	s.keys -= dead
}
