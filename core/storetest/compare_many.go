package storetest

import (
	"context"

	"github.com/weir-go/weir/core"
)

// OrderedStore is a store that can decide for many takes at once, in their order. [Compare] then has it decide some of
// them so.
type OrderedStore interface {
	core.Store
	// TakeInOrder answers each take as if they came one after the other.
	TakeInOrder(ctx context.Context, takes []core.Take) ([]core.Result, error)
}

// many is takes for several keys at one instant. Most often they are equal in all but the
// key, and most often a key is asked for several times in a row: up to a length at which a
// limit has had enough of it.
func (c *comparison) many(t core.Take) {
	c.ask(&t)
	var takes []core.Take
	for range 1 + c.rng.IntN(6) {
		switch c.rng.IntN(8) {
		case 0:
			c.ask(&t)
		case 1:
			t.Policy = pick(c.rng, pick(c.rng, c.families[:]...).policies...)
		}
		t.Key = pick(c.rng, c.keys...)
		for range pick(c.rng, 1, 1, 2, 3, 1+c.rng.IntN(12), 1+c.rng.IntN(40)) {
			takes = append(takes, t)
			c.noteTake(t)
		}
	}
	ra, erra := c.takeMany(c.a, takes)
	rb, errb := c.takeMany(c.b, takes)
	c.same(erra, errb)
	if erra != nil || errb != nil {
		return
	}
	for i, t := range takes {
		if c.answer(t, ra[i], rb[i]); c.Failed() {
			c.note(t, "which was number %d of these %d at once", i+1, len(takes))
			return
		}
	}
}

func (c *comparison) takeMany(s core.Store, takes []core.Take) ([]core.Result, error) {
	if s, ok := s.(OrderedStore); ok {
		return s.TakeInOrder(c.Context(), takes)
	}
	results := make([]core.Result, len(takes))
	for i, t := range takes {
		var err error
		if results[i], err = s.Take(c.Context(), t); err != nil {
			return nil, err
		}
	}
	return results, nil
}
