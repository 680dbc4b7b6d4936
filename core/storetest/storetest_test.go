package storetest_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/internal/algo"
	"github.com/weir-go/weir/core/storetest"
	"github.com/weir-go/weir/internal/race"
)

func memory(t testing.TB) core.Store {
	m, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	return m
}

func TestExercise(t *testing.T) {
	t.Run("reference", func(t *testing.T) {
		storetest.Exercise(t, func(*testing.T) core.Store { return storetest.Reference() })
	})
	t.Run("memory", func(t *testing.T) {
		storetest.Exercise(t, func(t *testing.T) core.Store { return memory(t) })
	})
}

func TestAlgorithms(t *testing.T) {
	var words []string
	for _, a := range storetest.Algorithms() {
		words = append(words, a.String())
	}
	var want []string
	for _, k := range algo.Kinds {
		want = append(want, k.Word)
	}
	assert.Equal(t, want, words)
}

func TestCompare(t *testing.T) {
	operations := 2000
	if race.Enabled { // nothing here is concurrent
		operations = 400
	}
	for seed := range uint64(40) {
		storetest.Compare(t, memory(t), storetest.Reference(), seed, operations)
	}
	for _, a := range storetest.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			for seed := range uint64(4) {
				storetest.Compare(t, memory(t), storetest.Reference(), seed, 2*operations, a)
			}
		})
	}
}

// census counts what happens to a store.
type census struct {
	*storetest.ReferenceStore
	seen map[string]int
}

func (c census) count(what string, happened bool) {
	if happened {
		c.seen[what]++
	}
}

func (c census) Take(ctx context.Context, t core.Take) (core.Result, error) {
	before := c.Text(t.Policy, t.Key)
	res, err := c.ReferenceStore.Take(ctx, t)
	changed := !bytes.Equal(before, c.Text(t.Policy, t.Key))
	c.count("mistake", err != nil)
	if err != nil {
		return res, err
	}
	c.count(res.Outcome.String(), t.Cost > 0)
	c.count("healed by a refusal", changed && !res.Allowed())
	c.count("healed by a peek", changed && t.Cost == 0)
	c.count("partial", t.AtMost && res.Taken > 0 && res.Taken < t.Cost)
	c.count("nothing left", t.AtMost && !res.Allowed())
	c.count("looked in vain", t.AtMost && t.Cost == 0 && !res.Allowed())
	c.count("charged to who is in debt", t.Debt && res.Taken > 0 && res.Delay > 0)
	c.count("no more debt", t.Debt && !res.Allowed())
	c.count("reserved", t.Wait > 0 && res.Delay > 0)
	c.count("too far ahead", t.Wait > 0 && res.Outcome == core.Refused)
	c.count("delayed", res.Delay > 0)
	limits := t.Policy.Limits()
	c.count(fmt.Sprint(len(limits), " limits"), true)
	for _, l := range limits {
		c.count("borrowed", res.Taken > l.Burst)
		c.count("aligned", l.Align == "epoch")
		c.count("calendar", strings.Contains(l.Align, " "))
	}
	return res, nil
}

func (c census) Refund(ctx context.Context, refunds []core.Refund) error {
	for _, r := range refunds {
		before := c.Text(r.Policy, r.Key)
		if err := c.ReferenceStore.Refund(ctx, []core.Refund{r}); err != nil {
			return err
		}
		changed := !bytes.Equal(before, c.Text(r.Policy, r.Key))
		c.count("refunded", changed)
		c.count("refund of nothing", r.Units > 0 && !changed)
		c.count("refunded before its turn", changed && r.Now < r.Receipt.At+r.Receipt.Delay.Microseconds())
	}
	return nil
}

// Operations that do not reach what they are to compare would agree on anything.
func TestCompareReachesEverything(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector slows it down, and nothing here is concurrent")
	}
	type reach struct {
		algorithms []core.Algorithm
		more       []string
	}
	tests := []reach{{nil, []string{"reserved", "too far ahead", "delayed", "borrowed", "refunded before its turn", "aligned", "calendar"}}}
	for i, k := range algo.Kinds {
		var more []string
		if k.Wait {
			more = append(more, "reserved", "too far ahead")
		}
		if k.Wait || core.Algorithm(i) == core.LeakyBucket {
			more = append(more, "delayed", "refunded before its turn")
		}
		if k.Debt {
			more = append(more, "borrowed", "charged to who is in debt", "no more debt")
		}
		if k.Align {
			more = append(more, "aligned", "calendar")
		}
		tests = append(tests, reach{[]core.Algorithm{core.Algorithm(i)}, more})
	}
	for _, test := range tests {
		name := "mixes"
		if len(test.algorithms) > 0 {
			name = test.algorithms[0].String()
		}
		t.Run(name, func(t *testing.T) {
			c := census{storetest.Reference(), map[string]int{}}
			storetest.Compare(t, memory(t), c, 1, 20_000, test.algorithms...)
			for _, what := range append(test.more, "mistake", "admitted", "at-limit", "refused", "never", "partial", "nothing left",
				"healed by a refusal", "healed by a peek", "refunded", "refund of nothing", "1 limits", "2 limits", "3 limits", "4 limits") {
				assert.GreaterOrEqual(t, c.seen[what], 10, what)
			}
		})
	}
}

// altered is a store with a mistake.
type altered struct {
	core.Store
	take   func(*core.Take, *core.Result)
	refund func(*core.Refund)
	reset  bool
}

func (a altered) Take(ctx context.Context, t core.Take) (core.Result, error) {
	res, err := a.Store.Take(ctx, t)
	if a.take != nil && err == nil {
		a.take(&t, &res)
	}
	return res, err
}

func (a altered) Refund(ctx context.Context, refunds []core.Refund) error {
	refunds = slices.Clone(refunds)
	if a.refund != nil {
		for i := range refunds {
			a.refund(&refunds[i])
		}
	}
	return a.Store.Refund(ctx, refunds)
}

func (a altered) Reset(ctx context.Context, p core.Policy, key string) error {
	if a.reset {
		return nil
	}
	return a.Store.Reset(ctx, p, key)
}

// tb is a test that is meant to fail.
type tb struct {
	testing.TB
	messages []string
}

func (t *tb) Helper()      {}
func (t *tb) Failed() bool { return len(t.messages) > 0 }
func (t *tb) Errorf(format string, a ...any) {
	t.messages = append(t.messages, fmt.Sprintf(format, a...))
}

func (t *tb) Fatalf(format string, a ...any) {
	t.Errorf(format, a...)
	panic(t)
}

// each changes what a Result says of its first limit.
func each(r *core.Result, change func(*core.LimitResult)) {
	l := r.Each(0)
	change(&l)
	r.SetEach(0, l)
}

// A suite that finds nothing is worth nothing: each of these must be found.
func TestCompareFindsMistakes(t *testing.T) {
	for name, a := range map[string]altered{
		"one remaining too many": {take: func(_ *core.Take, r *core.Result) { each(r, func(l *core.LimitResult) { l.Remaining++ }) }},
		"retry 1 us too short": {take: func(_ *core.Take, r *core.Result) {
			if r.RetryAfter > 0 {
				r.RetryAfter -= time.Microsecond
			}
		}},
		"never said to be refused": {take: func(_ *core.Take, r *core.Result) {
			if r.Outcome == core.Never {
				r.Outcome = core.Refused
			}
		}},
		"a turn 1 us too early": {take: func(_ *core.Take, r *core.Result) {
			if r.Each(0).Delay > 0 {
				each(r, func(l *core.LimitResult) { l.Delay -= time.Microsecond })
			}
		}},
		"one more than there is": {take: func(t *core.Take, r *core.Result) {
			if t.AtMost && r.Taken > 0 && r.Taken < t.Cost {
				r.Taken++
			}
		}},
		"a look that charges": {take: func(t *core.Take, r *core.Result) {
			if t.AtMost && t.Cost == 0 && r.Allowed() {
				r.Taken++
			}
		}},
		"a look that is a peek": {take: func(t *core.Take, r *core.Result) {
			if t.AtMost && t.Cost == 0 {
				r.Outcome, r.RetryAfter = core.Admitted, 0
			}
		}},
		"less than nothing taken": {take: func(_ *core.Take, r *core.Result) {
			if !r.Allowed() {
				r.Taken = -1
			}
		}},
		"a turn that is over": {refund: func(r *core.Refund) { each(&r.Receipt, func(l *core.LimitResult) { l.Delay = 0 }) }},
		"a refund as if just charged": {refund: func(r *core.Refund) {
			if !r.Credit {
				r.Receipt.At = r.Now
			}
		}},
		"a reset that does nothing": {reset: true},
	} {
		t.Run(name, func(t *testing.T) {
			a.Store = memory(t)
			inner := &tb{TB: t}
			assert.PanicsWithValue(t, inner, func() { storetest.Compare(inner, a, storetest.Reference(), 7, 20_000) })
			require.Len(t, inner.messages, 2)
			assert.Contains(t, inner.messages[1], "Compare(t, a, b, 7, 20000)", "the seed")
		})
	}
}

// swapping answers the first of many takes with what is the second's.
type swapping struct {
	*storetest.ReferenceStore
	many int
}

func (s *swapping) TakeInOrder(ctx context.Context, takes []core.Take) ([]core.Result, error) {
	s.many += len(takes)
	results := make([]core.Result, len(takes))
	for i, t := range takes {
		res, err := s.Take(ctx, t)
		if err != nil {
			return nil, err
		}
		results[i] = res
	}
	if len(takes) > 1 {
		results[0], results[1] = results[1], results[0]
	}
	return results, nil
}

// Many takes at once are asked of a store that can have them so.
func TestCompareManyTakes(t *testing.T) {
	s := &swapping{ReferenceStore: storetest.Reference()}
	inner := &tb{TB: t}
	assert.PanicsWithValue(t, inner, func() { storetest.Compare(inner, memory(t), s, 7, 20_000) })
	require.Len(t, inner.messages, 2)
	assert.Contains(t, inner.messages[1], "at once")
	assert.Greater(t, s.many, 1)
}

// What no store may answer is found where both answer it as well.
func TestCompareFindsTheImpossible(t *testing.T) {
	for name, take := range map[string]func(*core.Take, *core.Result){
		"a wait of":   func(_ *core.Take, r *core.Result) { r.RetryAfter-- },
		"for limit":   func(_ *core.Take, r *core.Result) { each(r, func(l *core.LimitResult) { l.Delay = -time.Microsecond }) },
		"taken at":    func(_ *core.Take, r *core.Result) { r.Taken = -r.Taken },
		"at a cost":   func(t *core.Take, r *core.Result) { r.Taken = t.Cost + 1 },
		"remaining":   func(_ *core.Take, r *core.Result) { r.Remaining = -1 },
		"of":          func(_ *core.Take, r *core.Result) { r.Remaining = r.Limit + 1 },
		"at limit":    func(_ *core.Take, r *core.Result) { each(r, func(l *core.LimitResult) { l.Remaining = -1 }) },
		"at limit 1":  func(_ *core.Take, r *core.Result) { each(r, func(l *core.LimitResult) { l.Remaining = 1 << 40 }) },
		"which admit": func(t *core.Take, r *core.Result) { r.Taken = t.Cost },
	} {
		t.Run(name, func(t *testing.T) {
			inner := &tb{TB: t}
			a, b := altered{Store: memory(t), take: take}, altered{Store: storetest.Reference(), take: take}
			assert.PanicsWithValue(t, inner, func() { storetest.Compare(inner, a, b, 7, 20_000) })
			require.Len(t, inner.messages, 2)
			assert.Contains(t, inner.messages[0], "impossible")
			assert.Contains(t, inner.messages[0], name)
			assert.Contains(t, inner.messages[1], "Compare(t, a, b, 7, 20000)", "the seed")
		})
	}
}
