package enforce_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/follow"
)

func ExampleLimiter() {
	limiter, err := enforce.New(nil, core.MustParse("mails: 3/1h"), enforce.Options{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for _, mails := range []int64{2, 2, 1} {
		res, err := limiter.AllowN(ctx, "alice", mails)
		if err != nil {
			panic(err)
		}
		fmt.Println(res.Outcome, res.Remaining)
	}
	// Output:
	// admitted 1
	// refused 1
	// at-limit 0
}

// At most two exports of a tenant run at the same time, however many processes there are.
func ExampleLimiter_Acquire() {
	limiter, err := enforce.New(nil, core.MustParse("export: 2 concurrent lease 1m"), enforce.Options{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	held, release, err := limiter.Acquire(ctx, "tenant-7")
	if err != nil {
		panic(err)
	}
	_, _, err = limiter.AcquireN(ctx, "tenant-7", 2) // of which one is left
	fmt.Println(errors.As(err, new(*enforce.OverLimitError)), held.Err())
	release()
	fmt.Println(held.Err())
	// Output:
	// true <nil>
	// context canceled
}

// What a job did not use is given back.
func ExampleLimiter_Refund() {
	limiter, err := enforce.New(nil, core.MustParse("tokens: 1000/1h fixed-window"), enforce.Options{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	res, err := limiter.AllowN(ctx, "alice", 800)
	if err != nil {
		panic(err)
	}
	const used = 300
	if err := limiter.Refund(ctx, "alice", res, res.Taken-used); err != nil {
		panic(err)
	}
	now, err := limiter.Peek(ctx, "alice")
	fmt.Println(now.Remaining, err)
	// Output: 700 <nil>
}

// A gateway learns that calls of a customer have failed at its own fault, and not which of them.
func ExampleLimiter_Credit() {
	limiter, err := enforce.New(nil, core.MustParse("calls: 1000/1h fixed-window"), enforce.Options{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	if _, err := limiter.AllowN(ctx, "alice", 700); err != nil {
		panic(err)
	}
	for _, failed := range []int64{200, 900} {
		if err := limiter.Credit(ctx, "alice", failed); err != nil {
			panic(err)
		}
		res, err := limiter.Peek(ctx, "alice")
		if err != nil {
			panic(err)
		}
		fmt.Println(res.Remaining)
	}
	// Output:
	// 500
	// 1000
}

// Another tier has other numbers of the same policy, which count on.
func ExampleLimiter_Variant() {
	free, err := enforce.New(nil, core.MustParse("api: 3/1h fixed-window"), enforce.Options{})
	if err != nil {
		panic(err)
	}
	pro, err := free.Variant(core.MustParse("100/1h fixed-window"))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for _, limiter := range []*enforce.Limiter{free, pro} {
		res, err := limiter.AllowN(ctx, "alice", 2)
		if err != nil {
			panic(err)
		}
		fmt.Println(limiter.Policy(), res.Remaining)
	}
	// Output:
	// api: 3/1h fixed-window 1
	// api: 100/1h fixed-window 96
}

// A fleet sets the numbers of a policy, and of single keys.
func ExampleLimiter_Variants() {
	limiter, err := enforce.New(nil, core.MustParse("api: 3/1h; fail closed"), enforce.Options{})
	if err != nil {
		panic(err)
	}
	tiers := map[string]string{"pro": "100/1h"}
	set := &follow.Set{
		Revision: "3.17",
		Policies: map[string]string{"api": "5/1h; shadow"},
		Keys:     map[string]map[string]string{"api": {"user=7": "500/1h", "user=8": follow.Blocked, "user=9": "a lot"}},
	}
	now, entries := limiter.Variants(tiers, set, nil)
	fmt.Println(now.Limiter.Policy())
	fmt.Println(now.Tiers["pro"].Policy())
	fmt.Println(now.Keys["user=7"].Policy())
	for _, entry := range entries {
		fmt.Printf("%v is %s (on trial: %v, used: %v)\n", entry, entry.Now, entry.Trial, entry.Err == nil)
	}
	// Output:
	// api: 5/1h; fail closed; shadow
	// api: 100/1h; fail closed; shadow
	// api: 500/1h; fail closed; shadow
	// Policies["api"] is api: 5/1h; fail closed; shadow (on trial: true, used: true)
	// Keys["api"]["user=7"] is api: 500/1h; fail closed; shadow (on trial: true, used: true)
	// Keys["api"]["user=8"] is blocked (on trial: true, used: true)
	// Keys["api"]["user=9"] is api: 5/1h; fail closed; shadow (on trial: true, used: false)
}

// What a text may change while a program runs: of a policy more than of a tier.
func ExampleFits() {
	code := core.MustParse("api: 100/1m; fail closed")
	now, err := enforce.Fits(code, "200/1m; fail open; epoch 1")
	fmt.Println(now, err)
	_, err = enforce.Fits(code, "200/1m fixed-window")
	fmt.Println(err)
	_, err = enforce.FitsTier(now, "500/1m; fail closed")
	fmt.Println(err)
	// Output:
	// api: 200/1m; fail open; epoch 1 <nil>
	// enforce: the variant "api: 200/1m fixed-window; fail closed" of "api: 100/1m; fail closed" differs in more than numbers, and so would not share its counts; give it the same algorithms
	// enforce: in "api: 500/1m; fail closed; epoch 1" only the numbers may differ; leave the options out, or write those of the policy: "fail open; epoch 1"
}

// reporting is a Source that prepares each Set before it shows it, and reports what became of it.
type reporting struct {
	atomic.Pointer[follow.Set]
	followers []*follow.Follower
}

func (r *reporting) Listen(f *follow.Follower) {
	r.followers = append(r.followers, f)
	f.Prepare(r.Load())
}

func (r *reporting) show(s *follow.Set) {
	for _, f := range r.followers {
		for _, rule := range f.Rules() {
			fmt.Println("the code has", rule.Text)
		}
		entries, alive := f.Prepare(s)
		for _, entry := range entries {
			fmt.Println(entry, "=", entry.Now, "in use:", alive && entry.Err == nil)
		}
	}
	r.Store(s)
}

// A Source with a goroutine of its own prepares what it shows. Here it runs by hand, and has one Limiter.
func ExampleListener() {
	source := new(reporting)
	limiter, err := enforce.New(nil, core.MustParse("mail: 10/1s"), enforce.Options{Source: source})
	if err != nil {
		panic(err)
	}
	source.show(&follow.Set{
		Policies: map[string]string{"mail": "20/1s"},
		Keys:     map[string]map[string]string{"mail": {"customer-8": follow.Blocked}},
	})
	fmt.Println(limiter.Policy())
	res, err := limiter.Allow(context.Background(), "customer-8")
	fmt.Println(res.Allowed(), res.RetryAfter, err)
	// Output:
	// the code has mail: 10/1s
	// Policies["mail"] = mail: 20/1s in use: true
	// Keys["mail"]["customer-8"] = blocked in use: true
	// mail: 20/1s
	// false 1m0s <nil>
}

// One store is for all policies of a process.
func ExampleLimiter_With() {
	logins, err := enforce.New(nil, core.MustParse("login: 5/1m"), enforce.Options{})
	if err != nil {
		panic(err)
	}
	mails, err := logins.With(core.MustParse("mail: 10/1s"))
	if err != nil {
		panic(err)
	}
	for _, limiter := range []*enforce.Limiter{logins, mails} {
		res, err := limiter.Allow(context.Background(), "alice")
		fmt.Println(limiter.Policy().Name(), res.Remaining, err)
	}
	_, err = logins.With(core.MustParse("mail: 99/1s"))
	fmt.Println(err)
	// Output:
	// login 4 <nil>
	// mail 9 <nil>
	// enforce: the name "mail" stands for both "mail: 10/1s" and "mail: 99/1s"; they would share one count: rename one
}

// failingStore is a store that cannot be reached.
type failingStore struct{ core.Store }

func (failingStore) Take(context.Context, core.Take) (core.Result, error) {
	return core.Result{}, &core.StoreError{Class: core.ClassDown, Err: errors.New("connection refused")}
}

// A configuration that is loaded again may give its names other numbers and algorithms.
func ExampleLimiter_WithAll() {
	root, err := enforce.New(nil, core.MustParse("all: 1000/1s"), enforce.Options{})
	if err != nil {
		panic(err)
	}
	var rules map[string]*enforce.Limiter
	load := func(texts ...string) {
		policies := make([]core.Policy, len(texts))
		for i, text := range texts {
			policies[i] = core.MustParse(text)
		}
		limiters, err := root.WithAll(policies...)
		if err != nil {
			fmt.Println(err)
			return
		}
		rules = map[string]*enforce.Limiter{} // in the place of those from before
		for _, l := range limiters {
			rules[l.Policy().Name()] = l
		}
	}
	load("mail: 10/1s", "login: 5/1m")
	load("mail: 600/1h fixed-window", "search: 20/1s")
	load("mail: 1/1s", "mail: 2/1s")
	fmt.Println(rules["mail"], len(rules))
	// Output:
	// enforce: the name "mail" stands for both "mail: 1/1s" and "mail: 2/1s"; they would share one count: rename one
	// mail: 600/1h fixed-window 2
}

// While the store fails, the fail word of the policy decides.
func Example_failing() {
	for _, policy := range []string{"a: 10/1s; fail local", "b: 10/1s; fail open", "c: 10/1s; fail closed"} {
		limiter, err := enforce.New(failingStore{}, core.MustParse(policy), enforce.Options{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			panic(err)
		}
		res, err := limiter.Allow(context.Background(), "alice")
		fmt.Println(res, err)
	}
	// Output:
	// admitted, 9 of 10 left, reset in 100ms, without the store <nil>
	// admitted, 0 of 0 left, reset in 0s, without the store <nil>
	// refused, 0 of 0 left, reset in 0s store failed (down, surely not executed): connection refused
}

func ExampleLimiter_Stats() {
	downloads, err := enforce.New(nil, core.MustParse("downloads: 10 concurrent"), enforce.Options{})
	if err != nil {
		panic(err)
	}
	_, release, err := downloads.Acquire(context.Background(), "ann")
	if err != nil {
		panic(err)
	}
	defer release()

	s := downloads.Stats()
	fmt.Println(s.Waiting, "wait;", s.Permits, "permits are held;", len(s.Outages), "servers fail")
	for _, lane := range s.Lanes {
		fmt.Print(lane.Name, " ", lane.Pending, "; ")
	}
	// Output:
	// 0 wait; 1 permits are held; 0 servers fail
	// renewals 0; releases 0; refunds 0; charges 0; hand-backs 0;
}

// Begin, Wait and Acquire are the steps that the other methods are made of.
func ExampleLimiter_Begin() {
	limiter, err := enforce.New(nil, core.MustParse("report: 10/1h fixed-window, 2 concurrent"), enforce.Options{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	var a enforce.Admission
	err = limiter.Begin(ctx, enforce.Ask{Key: "alice", Cost: 5}, &a)
	if err == nil {
		err = a.Wait(ctx)
	}
	if err == nil {
		err = a.Acquire(ctx, 1)
	}
	if err != nil {
		panic(err)
	}
	if !a.Result.Allowed() {
		return // and nothing is taken
	}
	defer a.Finish(false)
	a.GiveBack(2) // of the units, three are enough
	now, err := limiter.Peek(ctx, "alice")
	fmt.Println(now.Remaining, a.Held(), err)
	// Output: 7 true <nil>
}

// A call counts for its user and for the tenant, which on Redis takes one round trip.
func ExampleAllowEach() {
	users, err := enforce.New(nil, core.MustParse("user: 2/1h"), enforce.Options{})
	if err != nil {
		panic(err)
	}
	tenants, err := users.With(core.MustParse("tenant: 100/1h"))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for range 3 {
		each := []enforce.Each{
			{Limiter: tenants, Key: "acme", Cost: 1},
			{Limiter: users, Key: "alice", Cost: 1},
		}
		admitted, err := enforce.AllowEach(ctx, each)
		if err != nil {
			panic(err)
		}
		fmt.Println(admitted, each[0].Result.Taken, each[1].Result.Remaining)
	}
	res, err := tenants.Peek(ctx, "acme")
	fmt.Println(res.Remaining, err)
	// Output:
	// true 1 1
	// true 1 0
	// false 0 0
	// 98 <nil>
}

// Explain returns the answer that a request would get, and takes nothing.
func ExampleLimiter_Explain() {
	limiter, err := enforce.New(nil, core.MustParse("mail: 3/1h fixed-window, 2 concurrent"), enforce.Options{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for range 3 {
		_, _ = limiter.Allow(ctx, "alice")
	}
	x, err := limiter.Explain(ctx, "alice", 1)
	if err != nil {
		panic(err)
	}
	fmt.Println(x.Outcome, "by", x.From)
	for _, l := range x.Limits {
		fmt.Printf("%s: %d used, %d left, refuses: %v\n", l.Limit, l.Used, l.Left, l.Refuses)
	}
	fmt.Println(x.Permits.Held, "of", x.Permits.Most, "permits held")
	fmt.Println(len(x.Next), "times at which one is admitted, the first in", x.Next[0].At.Sub(x.At).Round(time.Hour))
	// Output:
	// refused by process
	// 3/1h fixed-window: 3 used, 0 left, refuses: true
	// 2 concurrent: 0 used, 2 left, refuses: false
	// 0 of 2 permits held
	// 5 times at which one is admitted, the first in 1h0m0s
}
