package core_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-go/weir/core"
)

func ExampleParse() {
	p, err := core.Parse("search: 20/1s burst 40, 1000/1h; fail open")
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Name(), p.Options().Fail)
	for _, l := range p.Limits() {
		fmt.Println(l.Rate, "per", l.Period, "and", l.Burst, "at once")
	}
	_, err = core.Parse("100/1m burst 1e3")
	fmt.Println(err)
	// Output:
	// search open
	// 20 per 1s and 40 at once
	// 1000 per 1h0m0s and 1000 at once
	// core: policy "100/1m burst 1e3": at offset 14, found "e3": expected a space between a word and a number, as in "burst 20"
}

// A policy may mix algorithms: each limit counts in its own way, and all must admit.
func ExampleParse_algorithms() {
	for _, text := range []string{
		"20/1s, 1000/1d fixed-window calendar Europe/Berlin",
		"5/1m sliding-log; fail closed",
		"100/1m sliding-window buckets 6",
		"10/1s burst 5 debt 3; wait 2s",
		"50/1s leaky-bucket, 20 concurrent lease 1m",
	} {
		p := core.MustParse(text)
		for _, l := range p.Limits() {
			fmt.Print(l.Algorithm, " ", l, "; ")
		}
		fmt.Println("wait", p.Options().Wait, "fail", p.Options().Fail)
	}
	_, err := core.Parse("1000/1mo")
	fmt.Println(err)
	// Output:
	// gcra 20/1s; fixed-window 1000/1d fixed-window calendar Europe/Berlin; wait 0s fail local
	// sliding-log 5/1m sliding-log; wait 0s fail closed
	// sliding-window 100/1m sliding-window buckets 6; wait 0s fail local
	// gcra 10/1s burst 5 debt 3; wait 2s fail local
	// leaky-bucket 50/1s leaky-bucket; concurrent 20 concurrent lease 1m; wait 0s fail local
	// core: policy "1000/1mo": at offset 5, found "1mo": a month has no fixed length; write "30d", or add "fixed-window calendar UTC"
}

// A text in the place of another policy: what it leaves out stays.
func ExamplePolicy_ParseLike() {
	login := core.MustParse("login: 5/1m; fail closed; shadow")
	for _, text := range []string{"9/1m", "9/1m; shadow off", "9/1m; epoch 1"} {
		p, err := login.ParseLike(text)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%v (permits are kept under %q)\n", p, p.Spec().PermitShape())
	}
	// Output:
	// login: 9/1m; fail closed; shadow (permits are kept under "p")
	// login: 9/1m; fail closed (permits are kept under "p")
	// login: 9/1m; fail closed; shadow; epoch 1 (permits are kept under "p@1")
}

// Built in code, a policy reports every mistake at once.
func ExampleNewPolicy() {
	p, err := core.NewPolicy("search", core.PolicyOptions{Fail: core.FailOpen},
		core.Limit{Rate: 20, Burst: 40, Period: time.Second},
		core.Limit{Algorithm: core.FixedWindow, Rate: 1000, Align: "day Europe/Berlin"})
	fmt.Println(p, err)
	_, err = core.NewPolicy("search", core.PolicyOptions{},
		core.Limit{Rate: 0, Period: time.Second},
		core.Limit{Algorithm: core.SlidingLog, Rate: 20, Period: time.Minute, Debt: 5})
	fmt.Println(err)
	// Output:
	// search: 20/1s burst 40, 1000/1d fixed-window calendar Europe/Berlin; fail open <nil>
	// core: limit 1 (0/1s): Rate is 0; give 1 to 2147483648 units
	// core: limit 2 (20/1m sliding-log debt 5): Debt is 5, but "sliding-log" cannot lend; use "gcra" or "token-bucket"
}

// A decision of the in-process store, at a time that is forced.
func ExampleMemory() {
	memory, err := core.NewMemory(core.MemoryOptions{MaxKeys: 100_000})
	if err != nil {
		panic(err)
	}
	take := core.Take{Policy: core.MustParse("search: 10/1s"), Key: "alice", Now: 1_700_000_000_000_000}
	for _, take.Cost = range []int64{6, 4, 3, 11} {
		res, err := memory.Take(context.Background(), take)
		if err != nil {
			panic(err)
		}
		fmt.Println(res)
	}
	// Output:
	// admitted, 4 of 10 left, reset in 600ms
	// at-limit, 0 of 10 left, reset in 1s
	// refused, 0 of 10 left, reset in 1s, retry in 300ms
	// never, 0 of 10 left, reset in 1s
}

// A key that gives way to another one is forgotten: somebody who was at the limit may begin again.
func ExampleMemory_Displaced() {
	m, err := core.NewMemory(core.MemoryOptions{MaxKeys: 1})
	if err != nil {
		panic(err)
	}
	p := core.MustParse("1/1h")
	for _, key := range []string{"ann", "ben"} {
		if _, err := m.Take(context.Background(), core.Take{Policy: p, Key: key, Cost: 1}); err != nil {
			panic(err)
		}
	}
	displaced, atLimit := m.Displaced()
	fmt.Println(m.Len(), "of", m.MaxKeys(), "keys;", displaced, "forgotten,", atLimit, "of them at its limit")
	// Output: 1 of 1 keys; 1 forgotten, 1 of them at its limit
}

// Each limit of a policy has a part in the Result.
func ExampleResult_Each() {
	memory, err := core.NewMemory(core.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	p := core.MustParse("search: 10/1s, 100/1h fixed-window")
	res, err := memory.Take(context.Background(), core.Take{Policy: p, Key: "alice", Cost: 6, Now: 1_700_000_000_000_000})
	if err != nil {
		panic(err)
	}
	for i, limit := range p.Limits() {
		part := res.Each(i)
		fmt.Println(limit, part.Remaining, part.MoreAfter)
	}
	// Output:
	// 10/1s 4 100ms
	// 100/1h fixed-window 94 1h0m0s
}

// A policy stands in a configuration as its text.
func ExamplePolicy_UnmarshalText() {
	var config struct {
		Login, Search core.Policy
	}
	err := json.Unmarshal([]byte(`{"login": "login: 5/1m; fail closed", "search": "100/1x"}`), &config)
	fmt.Println(config.Login)
	fmt.Println(err)
	// Output:
	// login: 5/1m; fail closed
	// core: policy "100/1x": at offset 5, found "x": expected a unit right after the number: "d", "h", "m", "s", "ms" or "us"
}

// A permit is held under an id until it is released, or its lease ends.
func ExampleMemory_Acquire() {
	memory, err := core.NewMemory(core.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	ctx, permit := context.Background(), core.Permit{Policy: core.MustParse("export: 2 concurrent"), Key: "tenant-7"}
	for _, permit.ID = range []string{"a", "b", "c"} {
		res, err := memory.Acquire(ctx, permit)
		fmt.Println(permit.ID, res.Outcome, res.Remaining, err)
	}
	permit.ID = "a"
	fmt.Println(memory.Release(ctx, []core.Permit{permit}))
	// Output:
	// a admitted 1 <nil>
	// b at-limit 0 <nil>
	// c refused 0 <nil>
	// <nil>
}

// swapStore is a Store made of nothing but a map that can compare and swap. A real
// one would also let texts expire after their ttl, and report failures as
// *core.StoreError.
type swapStore struct{ texts sync.Map }

func (s *swapStore) Take(ctx context.Context, t core.Take) (res core.Result, err error) {
	if err := t.Validate(); err != nil {
		return core.Result{}, err
	}
	err = s.swap(ctx, t, func(text []byte, t core.Take) (next []byte, ttl time.Duration) {
		res, next, ttl = t.Policy.Spec().Step(text, t)
		return next, ttl
	})
	return res, err
}

func (s *swapStore) Refund(ctx context.Context, refunds []core.Refund) error {
	for i := range refunds {
		if err := refunds[i].Validate(); err != nil {
			return err
		}
	}
	errs := make([]error, len(refunds))
	for i, r := range refunds {
		t := core.Take{Policy: r.Policy, Key: r.Key, Now: r.Now}
		errs[i] = s.swap(ctx, t, func(text []byte, t core.Take) ([]byte, time.Duration) {
			r.Now = t.Now
			return r.Policy.Spec().StepRefund(text, r)
		})
	}
	if errors.Join(errs...) != nil {
		return &core.BatchError{Errs: errs}
	}
	return nil
}

func (s *swapStore) Reset(ctx context.Context, p core.Policy, key string) error {
	t := core.Take{Policy: p, Key: key}
	if err := t.Validate(); err != nil {
		return err
	}
	if ctx.Err() == nil {
		s.texts.Delete([3]string{p.Name(), p.Spec().Shape(), key})
	}
	return ctx.Err()
}

func (s *swapStore) swap(ctx context.Context, t core.Take, step func([]byte, core.Take) ([]byte, time.Duration)) error {
	at := [3]string{t.Policy.Name(), t.Policy.Spec().Shape(), t.Key}
	for forced := t.Now != 0; ctx.Err() == nil; {
		old, _ := s.texts.LoadOrStore(at, "")
		if !forced { // read after the state, so that it is not before the time of what wrote that
			t.Now = time.Now().UnixMicro()
		}
		var text []byte
		if old != "" {
			text = []byte(old.(string))
		}
		next, ttl := step(text, t)
		if ttl == 0 || s.texts.CompareAndSwap(at, old, string(next)) {
			return nil
		}
	}
	return ctx.Err()
}

func ExampleSpec_Step() {
	p := core.MustParse("3/1s")
	store := new(swapStore)
	for range 4 {
		res, err := store.Take(context.Background(), core.Take{Policy: p, Key: "alice", Cost: 1, Now: 1_800_000_000_000_000})
		if err != nil {
			panic(err)
		}
		fmt.Println(res.Outcome, res.Remaining, res.RetryAfter)
	}
	store.texts.Range(func(_, text any) bool {
		fmt.Println(text)
		return true
	})
	// Output:
	// admitted 2 0s
	// admitted 1 0s
	// at-limit 0 0s
	// refused 0 333.334ms
	// 1800000001000000
}
