package counts

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/policies"
)

// Reset forgets the units that were counted for a key by the rules of one policy, under all numbers that the document of
// the app and the code have for it. Permits stay held, processes that remember a refusal may refuse for a second longer,
// and what they have counted themselves while the store did not answer stays with them.
//
// The error is for people and does not have the key. If there is one, some of it may have been forgotten.
func (s *Stores) Reset(ctx context.Context, rules []Rule, document *policies.Document, key string) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if len(rules) == 0 {
		return errors.New("no process has the policy, so that it is not known where its counts are")
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	errs := make([]error, len(rules))
	var all sync.WaitGroup
	for i := range rules {
		all.Go(func() { errs[i] = s.reset(ctx, &rules[i], document, key) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (s *Stores) reset(ctx context.Context, r *Rule, document *policies.Document, key string) error {
	var fleet policies.Policy
	if document != nil {
		fleet = document.Policies[r.Policy]
		fleet.Keys = among(fleet.Keys, []string{key})
	}
	view, err := s.View(r)
	if err != nil {
		return err
	}
	from, err := s.open(r.Where, key)
	if err != nil {
		return err
	}
	n, err := NumbersOf(r, view, fleet, "")
	if err != nil {
		return err
	}
	var all []core.Policy
	for _, n := range []*Numbers{n, n.Then(policies.Policy{}, "")} { // those of the code hold again when the fleet's are deleted
		all = append(all, n.Limiter.Policy())
		for _, l := range slices.AppendSeq(slices.Collect(maps.Values(n.Tiers)), maps.Values(n.Keys)) {
			if l != nil {
				all = append(all, l.Policy())
			}
		}
	}
	done := map[string]bool{"": true} // permits alone
	for _, p := range all {
		if shape := p.Spec().Shape(); !done[shape] {
			done[shape] = true
			if err := from.Reset(ctx, p, key); err != nil {
				return unreadable(err, key)
			}
		}
	}
	return nil
}
