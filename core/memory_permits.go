package core

import (
	"context"

	"github.com/weir-go/weir/core/internal/algo"
	"github.com/weir-go/weir/core/internal/rows"
)

// held locks the permits of a key, and returns the terms by which p is decided.
func (m *Memory) held(p *Permit) (rows.Held, algo.Terms) {
	n, lease, _ := p.Policy.Concurrent()
	held, t := m.permits.Lock(p.Policy.Name(), p.Policy.p.options.Epoch, p.Key), algo.Terms{Most: n, Lease: lease.Microseconds(), Now: p.Now}
	if p.Now == 0 { // a forced time ends nobody else's leases
		t.Now = m.rows.Now()
		held.Ended = t.Now
	}
	return held, t
}

// Acquire implements [PermitStore].
func (m *Memory) Acquire(ctx context.Context, p Permit) (Result, error) {
	if err := p.Validate(); err != nil {
		return Result{}, err
	}
	if err := m.begin(ctx); err != nil {
		return Result{}, err
	}
	held, t := m.held(&p)
	reply := held.Acquire(p.ID, p.Places(), t)
	held.Unlock()
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
		held, t := m.held(&p)
		if !held.Renew(p.ID, p.Places(), t) {
			lost = append(lost, p)
		}
		held.Unlock()
	}
	return lost, nil
}

// Release implements [PermitStore].
func (m *Memory) Release(ctx context.Context, permits []Permit) error {
	for i := range permits {
		if err := permits[i].Validate(); err != nil {
			return err
		}
	}
	if err := m.begin(ctx); err != nil {
		return err
	}
	for i := range permits {
		p := &permits[i]
		held := m.permits.Lock(p.Policy.Name(), p.Policy.p.options.Epoch, p.Key)
		held.Release(p.ID)
		held.Unlock()
	}
	return nil
}
