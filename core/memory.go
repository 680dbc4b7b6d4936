package core

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/core/internal/rows"
)

// defaultMaxKeys is the default of MemoryOptions.MaxKeys.
const defaultMaxKeys = 1_000_000

// MemoryOptions are the options of [NewMemory]. The zero value is a good choice.
type MemoryOptions struct {
	// MaxKeys is the most keys to hold at once; 0 means a million. A key of a policy with one GCRA limit takes about 24
	// to 37 bytes, of one with two 60 to 90, with the air that a hash table needs; one with a SlidingLog of 1000 takes
	// 20 KB when it is full. Rates that divide a microsecond into more than 2048 parts, such as 7777 a second, make it
	// 36 to 54 bytes for all keys with one GCRA limit. docs/algorithms.md has the sizes of the other algorithms. Permits
	// are not counted here: there are no more of them than are held.
	MaxKeys int
}

// Memory is the in-process [Store], built by [NewMemory]: the default where no other is given, and the one that decides
// while Redis does not answer. A decision takes well under a microsecond and allocates nothing.
//
// It holds at most MaxKeys keys. When it is full, a new key displaces one that is as if unused; if it finds none
// nearby, the one that is closest to that, and one that is at its limit last. Keys are spread over independent parts by
// a seeded hash, and a part may be full a little before the whole is. Keys that are as if unused are swept away part by
// part, and their memory is given back.
//
// The clock is the system's, but steps of less than a second are ignored.
type Memory struct {
	rows    *rows.Map // nil in a zero Memory
	permits rows.Permits
	maxKeys int
}

// NewMemory builds an in-process store. It fails if o.MaxKeys is negative.
func NewMemory(o MemoryOptions) (*Memory, error) {
	if o.MaxKeys < 0 {
		return nil, fmt.Errorf("core: MaxKeys is %d; give a positive number, or 0 for %d", o.MaxKeys, defaultMaxKeys)
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = defaultMaxKeys
	}
	return &Memory{rows: rows.New(o.MaxKeys), maxKeys: o.MaxKeys}, nil
}

// Fallback returns m: a store in the process needs no other one to decide for it. For stores elsewhere, see [Store].
func (m *Memory) Fallback() *Memory { return m }

// begin returns the error with which a call fails before it begins.
func (m *Memory) begin(ctx context.Context) error {
	if m.rows == nil {
		return errors.New("core: a zero Memory; build one with NewMemory")
	}
	return ctx.Err()
}

// Take implements [Store].
func (m *Memory) Take(ctx context.Context, t Take) (res Result, err error) {
	err = m.TakeInto(ctx, &t, &res)
	return res, err
}

// TakeInto is Take in place, because copying a Result takes as long as a part of a decision. res must be zero.
func (m *Memory) TakeInto(ctx context.Context, t *Take, res *Result) error {
	if err := t.Validate(); err != nil {
		return err
	}
	if err := m.begin(ctx); err != nil {
		return err
	}
	p := t.Policy.p
	if p.simple(t) {
		if row, locked := m.rows.Meter(&p.rows, t.Key, t.Now); locked {
			next, changed := p.alone.Decide(&res.each[0], row.State(), row.Now(), t.Cost, p.ahead(t))
			if changed {
				row.Store(next)
			}
			p.explainAlone(res, t.Cost, row.Now())
			if t.Cost > 0 && res.Outcome != Never {
				row = row.Limited(res.Remaining == 0 || res.Outcome == Refused)
			}
			row.Unlock()
			if p.whole != nil {
				p.whole.ofShare(res, t.Cost)
			}
			return nil
		}
	}
	var row rows.Row
	row.Lock(m.rows, &p.rows, t.Key, t.Now)
	if p.decide(res, row.State(), t, row.Now()) {
		row.Store()
	}
	if t.Cost > 0 && res.Outcome != Never {
		row.SetLimited(res.Remaining == 0 || res.Outcome == Refused)
	}
	row.Unlock()
	if p.whole != nil {
		p.whole.ofShare(res, t.Cost)
	}
	return nil
}

// Refund implements [Store].
func (m *Memory) Refund(ctx context.Context, refunds []Refund) error {
	for i := range refunds {
		if err := refunds[i].Validate(); err != nil {
			return err
		}
	}
	if err := m.begin(ctx); err != nil {
		return err
	}
	for i := range refunds {
		if refunds[i].Units > 0 {
			m.refund(&refunds[i])
		}
	}
	return nil
}

func (m *Memory) refund(r *Refund) {
	p := r.Policy.p
	var row rows.Row
	row.Lock(m.rows, &p.rows, r.Key, r.Now)
	defer row.Unlock()
	if !row.Stored() {
		return
	}
	state, now := row.State(), row.Now()
	changed := p.load(state, now)
	if p.refund(state, now, r) {
		row.SetLimited(false)
		changed = true
	}
	if changed {
		row.Store()
	}
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
	m.rows.Remove(&p.p.rows, key)
	return nil
}

// State implements [StateStore].
func (m *Memory) State(ctx context.Context, t Take) (State, error) {
	if err := t.ValidateState(); err != nil {
		return State{}, err
	}
	if err := m.begin(ctx); err != nil {
		return State{}, err
	}
	p, s := t.Policy.p, State{At: t.Now}
	if len(p.algorithms) > 0 {
		var row rows.Row
		row.Lock(m.rows, &p.rows, t.Key, t.Now)
		if s.At = row.Now(); row.Stored() {
			s.Text, _ = p.text(row.State(), s.At)
		}
		row.Unlock()
	}
	if p.permits != nil {
		held := m.permits.Lock(p.name, p.options.Epoch, t.Key)
		s.Leases = held.Ends()
		held.Unlock()
		if s.At == 0 {
			s.At = m.rows.Now()
		}
	}
	return s, nil
}

// MaxKeys returns the most keys that m holds at once; see [MemoryOptions].
func (m *Memory) MaxKeys() int { return m.maxKeys }

// Len returns the number of keys that m holds, including those that are as if unused and not swept yet. It takes about
// 20 microseconds where there is room for a million keys, and a millisecond where there is room for a hundred million,
// and so does Displaced.
func (m *Memory) Len() int {
	if m.rows == nil {
		return 0
	}
	return m.rows.Len()
}

// Displaced returns the number of keys that m has forgotten so far, to make room for others, while they still counted
// for something: what had been used of their limits is unknown since then. Those in atLimit had been refused, or had
// nothing left, when last asked. Both only grow. If they do, MaxKeys is too small, or somebody makes up keys.
func (m *Memory) Displaced() (keys, atLimit uint64) {
	if m.rows == nil {
		return 0, 0
	}
	return m.rows.Displaced()
}
