package core

import (
	"context"
	"hash/maphash"
	"sync"

	"github.com/weir-go/weir/core/internal/algo"
)

// permitTable keeps the permits of a [Memory]. There are never more keys than permits
// that were acquired and not released; what was never released is swept away when
// others come.
type permitTable [16]permitShard

type permitShard struct {
	mu   sync.Mutex
	keys map[permitKey]*algo.Leases
}

type permitKey struct{ policy, key string }

func keyOf(p *Permit) permitKey { return permitKey{p.Policy.Name(), p.Key} }

func (t *permitTable) shard(key string) *permitShard {
	return &t[maphash.String(seeds[0], key)%uint64(len(t))]
}

// use is for work on the permits of a key: it is locked until done, which forgets the key
// if there is nothing left to know of it. Under a forced clock nothing is swept.
func (t *permitTable) use(p *Permit, now int64) (l *algo.Leases, done func()) {
	s, k := t.shard(p.Key), keyOf(p)
	s.mu.Lock()
	l, known := s.keys[k]
	if !known {
		l = new(algo.Leases)
	}
	return l, func() {
		switch {
		case l.Empty():
			delete(s.keys, k)
		case !known:
			if p.Now == 0 {
				s.sweep(now)
			}
			if s.keys == nil {
				s.keys = map[permitKey]*algo.Leases{}
			}
			s.keys[k] = l
		}
		s.mu.Unlock()
	}
}

// sweep looks at a few keys, others each time, and forgets those whose permits have all
// ended: more of them than come.
func (s *permitShard) sweep(now int64) {
	looks := 0
	for k, l := range s.keys { // from anywhere
		if l.Ended(now) {
			delete(s.keys, k)
		}
		if looks++; looks == 4 {
			return
		}
	}
}

func (m *Memory) terms(p *Permit) algo.Terms {
	n, lease, _ := p.Policy.Concurrent()
	t := algo.Terms{Most: n, Lease: lease.Microseconds(), Now: p.Now}
	if t.Now == 0 {
		t.Now = m.clock.now()
	}
	return t
}

// Acquire implements [PermitStore].
func (m *Memory) Acquire(ctx context.Context, p Permit) (Result, error) {
	if err := p.Validate(); err != nil {
		return Result{}, err
	}
	if err := m.begin(ctx); err != nil {
		return Result{}, err
	}
	t := m.terms(&p)
	l, done := m.permits.use(&p, t.Now)
	reply := l.Acquire(p.ID, p.Places(), t)
	done()
	return p.Explain(reply[:])
}

// Renew implements [PermitStore].
func (m *Memory) Renew(ctx context.Context, permits []Permit) (lost []Permit, err error) {
	for i := range permits {
		if err := permits[i].Validate(); err != nil {
			return nil, err
		}
	}
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	for _, p := range permits {
		t := m.terms(&p)
		l, done := m.permits.use(&p, t.Now)
		if !l.Renew(p.ID, p.Places(), t) {
			lost = append(lost, p)
		}
		done()
	}
	return lost, nil
}

// Release implements [PermitStore].
func (m *Memory) Release(ctx context.Context, p Permit) error {
	if err := p.Validate(); err != nil {
		return err
	}
	if err := m.begin(ctx); err != nil {
		return err
	}
	l, done := m.permits.use(&p, 0)
	l.Release(p.ID)
	done()
	return nil
}
