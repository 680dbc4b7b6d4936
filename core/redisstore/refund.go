package redisstore

import (
	"context"

	"github.com/weir-go/weir/core"
)

// refundWeight is the weight of a refund beside a permit of weight 1, and logWeight that of the refund of a log, which
// may have a thousand entries to go through.
const (
	refundWeight = 15
	logWeight    = 10 * refundWeight
)

// Refund implements [core.Store]. It needs one script for each refund, and one pipeline
// for up to 256 of them.
func (s *Store) Refund(ctx context.Context, refunds []core.Refund) error {
	programs := make([]*program, len(refunds))
	guesses := make([]int64, len(refunds))
	var due []int
	for i := range refunds {
		r := &refunds[i]
		if err := r.Validate(); err != nil {
			return err
		}
		p, err := s.programs.of(s.names, r.Policy)
		if err != nil {
			return err
		}
		if programs[i] = p; p.unit == nil {
			guesses[i] = s.guess(r.Now)
		}
		if r.Units > 0 {
			due = append(due, i)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	forget := func(all []int) {
		for _, i := range all {
			s.denials.GivesBack(programs[i].denials)
			s.denials.Forget(programs[i].denials, refunds[i].Key)
		}
	}
	forget(due)
	defer forget(due)
	errs := make([]error, len(refunds))
	for range 2 { // again for those in which nothing ran, by the server's clock
		entries := make([]entry, len(due))
		for k, i := range due {
			entries[k] = s.refund(programs[i], &refunds[i], guesses[i])
		}
		s.askAll(ctx, refunding, entries)
		var again []int
		for k, i := range due {
			e := &entries[k]
			errs[i] = e.err
			if e.err == nil && len(e.reply) == 1 { // the clock is in another calendar window
				errs[i], guesses[i] = errClock, e.reply[0]
				again = append(again, i)
			}
		}
		due = again
	}
	return batchError(errs)
}

func (s *Store) refund(p *program, r *core.Refund, guess int64) entry {
	weight := int64(refundWeight)
	if p.log {
		weight = logWeight
	}
	return entry{
		key:    s.names.Of(p.before, r.Key),
		script: p.refund,
		args:   arguments(r.Policy.Spec().RefundArgs(*r, guess), r.Now),
		weight: weight,
	}
}

// batchError returns nil if all errors are nil.
func batchError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return &core.BatchError{Errs: errs}
		}
	}
	return nil
}
