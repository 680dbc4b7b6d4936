package core

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/weir-go/weir/core/internal/algo"
)

// DefaultMaxKeys is how many keys a [Memory] holds unless told otherwise.
const DefaultMaxKeys = 1_000_000

// MemoryOptions say how a [Memory] is built. The zero value is a good choice.
type MemoryOptions struct {
	// MaxKeys is the most keys to hold at once; 0 means DefaultMaxKeys. A key of
	// a policy with one limit takes 32 bytes, of one with two limits 48, plus the
	// air that a hash table needs.
	MaxKeys int
}

// Memory is the in-process [Store]: the default where no other is given, and the
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

// Take implements [Store].
func (m *Memory) Take(ctx context.Context, t Take) (Result, error) {
	if err := t.Validate(); err != nil {
		return Result{}, err
	}
	if err := ctx.Err(); err != nil {
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
	admitted := p.admits(state, now, t.Cost)
	if admitted && t.Cost > 0 {
		p.charge(state, now, t.Cost)
		changed = true
	}
	res := p.explain(state, now, t.Cost, admitted)
	switch {
	case changed && row < 0:
		row = m.insert(s, tab, h, state, t.Now)
	case changed:
		copy(tab.stateOf(row), state)
	}
	if row >= 0 {
		tab.setLimited(row, res.Remaining == 0)
	}
	s.mu.Unlock()
	return res, nil
}

// Refund implements [Store].
func (m *Memory) Refund(ctx context.Context, t Take, r Result, units int64) error {
	if err := ValidateRefund(&t, r, units); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
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
	if p.refund(state, now, r.At, units) {
		tab.setLimited(row, false)
		changed = true
	}
	if changed {
		copy(tab.stateOf(row), state)
	}
	return nil
}

// Reset implements [Store].
func (m *Memory) Reset(ctx context.Context, p Policy, key string) error {
	t := Take{Policy: p, Key: key}
	if err := t.Validate(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
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
	s.tables = append(s.tables, table{shape: p.shape, algorithms: p.algorithms, stride: 2 + p.words})
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
		copy(state, t.stateOf(row))
	} else {
		clear(state)
	}
	return state, p.load(state, now)
}

// evict removes at least one key from the fullest table.
func (s *shard) evict(now int64) {
	fullest := &s.tables[0]
	for i := range s.tables {
		if s.tables[i].live > fullest.live {
			fullest = &s.tables[i]
		}
	}
	s.keys -= fullest.evict(now)
}

// table is a hash table with open addressing of the keys of one shape. A row is
// the two words of the hash and the state; a row whose first word is 0 is empty.
type table struct {
	shape      string
	algorithms []algo.Algorithm // of any policy of that shape
	stride     int
	rows       []int64
	live       int // rows in use
	hand       int // where eviction looks next
}

// A table is rebuilt when more than maxLoadNum/maxLoadDen of its rows are in use.
const (
	maxLoadNum = 6
	maxLoadDen = 7
	minRows    = 8
)

func (t *table) rowCount() int         { return len(t.rows) / t.stride }
func (t *table) row(i int) []int64     { return t.rows[i*t.stride : (i+1)*t.stride] }
func (t *table) stateOf(i int) []int64 { return t.row(i)[2:] }
func (t *table) empty(i int) bool      { return t.rows[i*t.stride] == 0 }

// limited tells whether the row's key was at its limit when last asked.
func (t *table) limited(i int) bool { return t.rows[i*t.stride+1]&limitedBit != 0 }

func (t *table) setLimited(i int, limited bool) {
	word := &t.rows[i*t.stride+1]
	*word &^= limitedBit
	if limited {
		*word |= limitedBit
	}
}

func (t *table) next(i int) int {
	if i++; i < t.rowCount() {
		return i
	}
	return 0
}

// home is where a hash would like to be.
func (t *table) home(lo uint64) int {
	hi, _ := bits.Mul64(lo&^limitedBit, uint64(t.rowCount()))
	return int(hi)
}

// find returns the row of a hash, or -1.
func (t *table) find(h hash) int {
	if t.live == 0 {
		return -1
	}
	for i := t.home(h.lo); !t.empty(i); i = t.next(i) {
		if r := t.rows[i*t.stride:]; uint64(r[0]) == h.hi && uint64(r[1])&^limitedBit == h.lo {
			return i
		}
	}
	return -1
}

// insert stores a new row; there must be room.
func (t *table) insert(h hash, state []int64) int {
	i := t.home(h.lo)
	for !t.empty(i) {
		i = t.next(i)
	}
	r := t.row(i)
	r[0], r[1] = int64(h.hi), int64(h.lo)
	copy(r[2:], state)
	t.live++
	return i
}

// remove empties a row and closes the gap, so that no search stops early.
func (t *table) remove(i int) {
	t.live--
	for j := t.next(i); !t.empty(j); j = t.next(j) {
		// The row at j may move to i unless its home lies behind i, cyclically.
		home := t.home(uint64(t.rows[j*t.stride+1]))
		if i <= j && (i < home && home <= j) || i > j && (i < home || home <= j) {
			continue
		}
		copy(t.row(i), t.row(j))
		i = j
	}
	clear(t.row(i))
}

// expires is the instant from which a row is as if unused.
func (t *table) expires(i int) (at int64) {
	s := t.stateOf(i)
	for _, a := range t.algorithms {
		at = max(at, a.Expires(s[:a.Words()]))
		s = s[a.Words():]
	}
	return at
}

// evictionWindow is how many rows eviction looks at before it decides.
const evictionWindow = 32

// evict removes what is dead within the window, or else the best victim in it.
func (t *table) evict(now int64) (removed int) {
	victim, victimAt, victimLimited := -1, int64(0), true
	for seen := 0; seen < evictionWindow && seen < t.live; {
		t.hand = t.hand % t.rowCount()
		if t.empty(t.hand) {
			t.hand++
			continue
		}
		at := t.expires(t.hand)
		if at <= now {
			t.remove(t.hand) // which may bring the next row here
			removed++
			continue
		}
		limited := t.limited(t.hand)
		if victim < 0 || victimLimited && !limited || limited == victimLimited && at < victimAt {
			victim, victimAt, victimLimited = t.hand, at, limited
		}
		t.hand++
		seen++
	}
	if removed == 0 && victim >= 0 {
		t.remove(victim)
		removed = 1
	}
	return removed
}

// sweep removes dead rows and gives memory back where most of it is unused.
func (t *table) sweep(now int64, most int) (removed int) {
	for i := 0; i < t.rowCount(); {
		if !t.empty(i) && t.expires(i) <= now {
			t.remove(i)
			removed++
		} else {
			i++
		}
	}
	if t.rowCount() > minRows && t.live*4 < t.rowCount() {
		removed += t.rebuild(now, most)
	}
	return removed
}

// rebuild moves what is alive to a table of the right size, with room to grow by
// a half, but never for more than most keys.
func (t *table) rebuild(now int64, most int) (removed int) {
	old := *t
	alive := 0
	for i := range old.rowCount() {
		if !old.empty(i) && old.expires(i) > now {
			alive++
		}
	}
	t.live, t.hand = 0, 0
	n := min((alive+1)*3/2, most+1)*maxLoadDen/maxLoadNum + 1
	t.rows = make([]int64, max(minRows, n)*t.stride)
	for i := range old.rowCount() {
		if old.empty(i) || old.expires(i) <= now {
			continue
		}
		r := old.row(i)
		j := t.home(uint64(r[1]))
		for !t.empty(j) {
			j = t.next(j)
		}
		copy(t.row(j), r)
		t.live++
	}
	return old.live - t.live
}

// clock is the system's clock, read so that small corrections do not reach the
// arithmetic: monotonic, and moved only when it is a second or more off.
type clock struct {
	base   time.Time
	offset *atomic.Int64 // microseconds
}

func newClock() clock { return clock{time.Now(), new(atomic.Int64)} }

// now returns microseconds since the epoch.
func (c clock) now() int64 {
	return c.base.UnixMicro() + int64(time.Since(c.base)/time.Microsecond) + c.offset.Load()
}

// adjust follows a step of the system's clock. The algorithms survive steps in
// either direction; this only keeps them rare.
func (c clock) adjust() {
	if off := time.Now().UnixMicro() - c.now(); off <= -1e6 || off >= 1e6 {
		c.offset.Add(off)
	}
}
