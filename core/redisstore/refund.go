package redisstore

import (
	"context"

	"github.com/weir-go/weir/core"
)

// refundWeight is what a refund weighs beside a permit of weight 1, and logWeight the
// refund of a log, which may have a thousand entries to go through.
const (
	refundWeight = 15
	logWeight    = 10 * refundWeight
)

// Refund implements [core.Store]. It needs one script for each refund, and one pipeline
// for up to 256 of them.
func (s *Store) Refund(ctx context.Context, refunds []core.Refund) error {
	programs := make([]*program, len(refunds))
	for i := range refunds {
		if err := refunds[i].Validate(); err != nil {
			return err
		}
		p, err := s.programs.of(refunds[i].Policy)
		if err != nil {
			return err
		}
		programs[i] = p
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	errs := make([]error, len(refunds))
	var entries []entry
	var which []int // the refund of each entry
	for i := range refunds {
		if refunds[i].Units > 0 {
			entries = append(entries, s.refund(programs[i], &refunds[i], s.guess(refunds[i].Now)))
			which = append(which, i)
		}
	}
	s.askAll(ctx, entries)

	// In some nothing ran, because the server's clock is in another calendar window:
	// ask again by the server's clock.
	var again []entry
	n := 0
	for k, i := range which {
		switch e := &entries[k]; {
		case e.err != nil:
			errs[i] = e.err
		case len(e.reply) == 1:
			again = append(again, s.refund(programs[i], &refunds[i], e.reply[0]))
			which[n] = i
			n++
		}
	}
	s.askAll(ctx, again)
	for k, i := range which[:n] {
		if e := &again[k]; e.err == nil && len(e.reply) == 1 { // its clock leaps about
			errs[i] = errLeaps
		} else {
			errs[i] = e.err
		}
	}
	return batchError(errs)
}

func (s *Store) refund(p *program, r *core.Refund, guess int64) entry {
	e := scripted(p.refund, s.names.key(r.Policy, r.Key), arguments(r.Policy.Spec().RefundArgs(*r, guess)), r.Now)
	e.weight = refundWeight
	if p.log {
		e.weight = logWeight
	}
	return e
}

// batchError is nil if all errors are.
func batchError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return &core.BatchError{Errs: errs}
		}
	}
	return nil
}
