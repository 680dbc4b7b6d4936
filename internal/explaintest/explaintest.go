// Package explaintest compares what a Limiter explains with what a store then does, for tests of both stores.
package explaintest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/explain"
)

// Store is a store of which everything can be explained.
type Store interface {
	core.Store
	core.PermitStore
	core.StateStore
}

// clocked is a store at a forced time.
type clocked struct {
	Store
	now int64
}

func (c *clocked) Take(ctx context.Context, t core.Take) (core.Result, error) {
	t.Now = c.now
	return c.Store.Take(ctx, t)
}

func (c *clocked) State(ctx context.Context, t core.Take) (core.State, error) {
	t.Now = c.now
	return c.Store.State(ctx, t)
}

func (c *clocked) Acquire(ctx context.Context, p core.Permit) (core.Result, error) {
	p.Now = c.now
	return c.Store.Acquire(ctx, p)
}

// run is one random state of one key.
type run struct {
	*testing.T
	*rand.Rand
	store  *clocked
	policy core.Policy
	key    string
	told   []string // what was done, for a failure
	n      int      // of permits
}

// Check brings as many keys into random states, under policies of all algorithms, and demands of each that a request gets
// what Explain has said, that the next ones are admitted at the instants that it has named, and refused a microsecond
// earlier; and that Explain has changed nothing. share makes the policies such as a fallback decides by. No key is used twice.
func Check(t *testing.T, store Store, seed uint64, states int) {
	random := rand.New(rand.NewPCG(seed, 17))
	outcomes := map[string]int{}
	for i := range states {
		r := &run{T: t, Rand: random, store: &clocked{store, epoch + random.Int64N(int64(40*24*time.Hour/time.Microsecond))}}
		r.policy, r.key = r.aPolicy(), fmt.Sprintf("explained-%d-%d", seed, i)
		outcomes[r.check()]++
		if t.Failed() {
			return
		}
	}
	t.Logf("%d states: %v", states, outcomes)
	for _, what := range []string{"admitted", "refused", "at-limit", "never"} {
		require.Positive(t, outcomes[what], what)
	}
}

const epoch = 1_800_000_000_000_000

// aPolicy returns a policy whose numbers are so small that much is refused.
func (r *run) aPolicy() core.Policy {
	periods := []string{"50ms", "1s", "7s", "1m", "1h"}
	period := func() string { return periods[r.IntN(len(periods))] }
	rate := func() int64 { return 1 + r.Int64N(12) }
	optional := func(format string, args ...any) string {
		if r.IntN(3) > 0 {
			return ""
		}
		return fmt.Sprintf(format, args...)
	}
	limits := []func() string{
		func() string {
			return fmt.Sprintf("%d/%s%s%s", rate(), period(), optional(" burst %d", rate()), optional(" debt %d", rate()))
		},
		func() string {
			return fmt.Sprintf("%d/%s token-bucket%s%s", rate(), period(), optional(" burst %d", rate()), optional(" debt %d", rate()))
		},
		func() string {
			return fmt.Sprintf("%d/%s leaky-bucket%s", rate(), period(), optional(" burst %d", rate()))
		},
		func() string { return fmt.Sprintf("%d/%s fixed-window%s", rate(), period(), optional(" aligned")) },
		func() string { return fmt.Sprintf("%d/day fixed-window calendar Europe/Berlin", rate()) },
		func() string {
			return fmt.Sprintf("%d/%s sliding-window%s", rate(), period(), optional(" buckets %d", rate()))
		},
		func() string { return fmt.Sprintf("%d/%s sliding-counter", rate(), period()) },
		func() string { return fmt.Sprintf("%d/%s sliding-log", rate(), period()) },
		func() string {
			return fmt.Sprintf("%d concurrent%s", rate(), optional(" lease %s", periods[1:][r.IntN(4)]))
		},
	}
	for {
		text, n := "e: ", 1+r.IntN(8)/5+r.IntN(8)/6
		for i := range n {
			if i > 0 {
				text += ", "
			}
			text += limits[r.IntN(len(limits))]()
		}
		text += optional("; wait %s", period()) + optional("; epoch %d", rate())
		if p, err := core.Parse(text); err == nil {
			return p
		}
	}
}

// check makes the state and returns the outcome of the request.
func (r *run) check() string {
	ctx := r.Context()
	var receipts []core.Refund
	for range r.IntN(8) {
		r.store.now += r.step()
		switch kind := r.IntN(8); {
		case kind == 0 && len(receipts) > 0:
			back := receipts[r.IntN(len(receipts))]
			back.Now, back.Units = r.store.now, 1+r.Int64N(back.Units)
			r.tell("refund %d", back.Units)
			require.NoError(r, r.store.Refund(ctx, []core.Refund{back}))
		case kind == 1 && r.rates():
			r.other()
		case kind < 4 && r.permits():
			r.n++
			p := core.Permit{Policy: r.policy, Key: r.key, ID: fmt.Sprint("p", r.n), Weight: 1 + r.Int64N(3)}
			r.tell("acquire %d", p.Weight)
			_, err := r.store.Acquire(ctx, p)
			require.NoError(r, err)
		case r.rates():
			t := core.Take{Policy: r.policy, Key: r.key, Cost: 1 + r.Int64N(12), AtMost: r.IntN(3) == 0}
			if !t.AtMost && r.IntN(3) == 0 {
				t.Wait = time.Hour
			}
			r.tell("take %d, at most: %v, wait: %v", t.Cost, t.AtMost, t.Wait)
			res, err := r.store.Take(ctx, t)
			require.NoError(r, err)
			if res.Taken > 0 {
				receipts = append(receipts, core.Refund{Policy: r.policy, Key: r.key, Receipt: res, Units: res.Taken})
			}
		}
	}
	r.store.now += r.step()
	ask := enforce.Ask{Key: r.key, Cost: 1 + r.Int64N(1+r.Int64N(12))}
	if r.IntN(4) == 0 {
		ask.Wait = time.Duration(r.Int64N(int64(time.Minute)))
	}
	l, err := enforce.New(r.store, r.policy, enforce.Options{})
	require.NoError(r, err)
	before := r.state()
	x, err := l.ExplainAsk(ctx, ask)
	require.NoError(r, err)
	require.Equal(r, before, r.state(), "Explain changes nothing")
	r.tell("explain %+v:\n%v", ask, x)

	said := x.Result
	at := time.UnixMicro(r.store.now)
	require.True(r, x.At.Equal(at), "%v", r)
	got := r.ask(ask)
	same := said.Outcome == got.Outcome && said.RetryAfter == got.RetryAfter && said.Delay == got.Delay && said.Remaining == got.Remaining && said.Limit == got.Limit && said.ResetAfter == got.ResetAfter && said.Taken == got.Taken
	require.True(r, same, "said %v, and got %v\n%v", said, got, r)
	r.limits(&x, got)
	next := x.Next
	if got.Allowed() {
		require.Len(r, x.Next, 5, "%v", r)
		require.True(r, next[0].At.Equal(at), "%v", r)
		next = next[1:]
	} else if got.Outcome != core.Never {
		require.Len(r, x.Next, 5, "%v", r)
		for got.Delay+got.RetryAfter < next[0].At.Sub(at) { // it obeys, and is refused by permits, or by rates that were free before
			at = at.Add(got.Delay + got.RetryAfter)
			r.store.now = at.UnixMicro()
			got = r.ask(ask)
			require.Equal(r, core.Refused, got.Outcome, "%v", r)
		}
	} else {
		require.Empty(r, x.Next, "%v", r)
	}
	for i, turn := range next {
		if turn.At.After(time.UnixMicro(r.store.now)) {
			r.store.now = turn.At.UnixMicro() - 1
			early := r.ask(ask)
			require.False(r, early.Allowed(), "turn %d, a microsecond earlier: %v\n%v", i, early, r)
			r.store.now++
		}
		got := r.ask(ask)
		require.True(r, got.Allowed(), "turn %d: %v\n%v", i, got, r)
		require.Equal(r, turn.Delay, got.Delay, "turn %d: %v\n%v", i, got, r)
	}
	return said.Outcome.String()
}

// limits compares what was said of each limit with what has decided.
func (r *run) limits(x *explain.Explanation, got core.Result) {
	refuses := false
	for i, l := range x.Limits {
		refuses = refuses || l.Refuses
		require.GreaterOrEqual(r, l.Used, int64(0), "%v", r)
		if part := got.Each(i); part.Refused {
			require.True(r, l.Refuses, "%v", r)
			require.Equal(r, got.Delay+part.RetryAfter, l.RetryAfter, "%v", r)
			require.Equal(r, part.Never, l.Never, "%v", r)
			if got.Delay == 0 {
				require.Equal(r, part.Remaining, l.Left, "%v", r)
			}
		}
	}
	require.Equal(r, !got.Allowed(), refuses, "%v", r)
}

// ask makes a request as Limiter.Begin, Wait and Acquire do.
func (r *run) ask(ask enforce.Ask) (res core.Result) {
	ctx := r.Context()
	var err error
	if res.Outcome = core.Admitted; r.rates() {
		res, err = r.store.Take(ctx, core.Take{Policy: r.policy, Key: ask.Key, Cost: ask.Cost, Wait: ask.Wait})
		require.NoError(r, err)
	}
	if !r.permits() || !res.Allowed() {
		return res
	}
	now := r.store.now
	defer func() { r.store.now = now }()
	r.store.now += res.Delay.Microseconds()
	r.n++
	p := core.Permit{Policy: r.policy, Key: ask.Key, ID: fmt.Sprint("p", r.n)}
	held, err := r.store.Acquire(ctx, p)
	require.NoError(r, err)
	if held.Allowed() {
		require.NoError(r, r.store.Release(ctx, []core.Permit{p}))
	} else {
		if res.Taken > 0 {
			require.NoError(r, r.store.Refund(ctx, []core.Refund{{Policy: r.policy, Key: ask.Key, Receipt: res, Units: res.Taken, Now: now}}))
		}
		res.Taken = 0
	}
	r.policy.Combine(&res, &held)
	return res
}

// other lets other numbers of the policy take something.
func (r *run) other() {
	limits := r.policy.Limits()
	for i := range limits {
		if l := &limits[i]; l.Algorithm != core.Concurrent {
			l.Rate, l.Debt = max(1, l.Rate+r.Int64N(5)-2), 0
			l.Burst = l.Rate
		}
	}
	p, err := core.NewPolicy("e", r.policy.Options(), limits...)
	if err != nil || p.Spec().Shape() != r.policy.Spec().Shape() {
		return
	}
	t := core.Take{Policy: p, Key: r.key, Cost: 1 + r.Int64N(12)}
	r.tell("take %d by %q", t.Cost, p)
	_, err = r.store.Take(r.Context(), t)
	require.NoError(r, err)
}

// step returns how much the clock goes on, or back.
func (r *run) step() int64 {
	d := []int64{1, 1000, 50_000, 1_000_000, 60_000_000}[r.IntN(5)]
	d = 1 + r.Int64N(d)
	if r.IntN(40) == 0 {
		return -d
	}
	return d
}

func (r *run) rates() bool { return r.policy.Spec().Shape() != "" }

func (r *run) permits() bool {
	_, _, ok := r.policy.Concurrent()
	return ok
}

func (r *run) state() core.State {
	s, err := r.store.State(r.Context(), core.Take{Policy: r.policy, Key: r.key})
	require.NoError(r, err)
	return s
}

func (r *run) tell(format string, args ...any) {
	r.told = append(r.told, fmt.Sprintf("%d: ", r.store.now-epoch)+fmt.Sprintf(format, args...))
}

// String is the history of the key.
func (r *run) String() string {
	return r.policy.String() + "\n" + strings.Join(r.told, "\n") + "\n"
}
