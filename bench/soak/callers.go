package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/redisstore"
)

const (
	deadline = redisstore.DefaultDeadline
	// tolerance is the time by which an answer may exceed its deadline and the scheduler's delay: one that comes so
	// late looks about for that long, for a reply that has arrived meanwhile, or sends once more what it could not
	// write.
	tolerance = 5 * time.Millisecond
)

// caller asks for one thing at a time.
type caller struct {
	*process
	index int
	key   string // in this round
	rng   *rand.Rand
}

// begin starts the callers: of ten, one never stops, and two seldom ask.
func (p *process) begin(ctx context.Context) {
	for i := range p.Callers {
		c := &caller{
			process: p, index: i,
			rng: rand.New(rand.NewPCG(p.Seed, uint64(p.Process)<<32|uint64(i))), //nolint:gosec // the same numbers for the same seed
		}
		ask, pause := c.ask, 40*time.Millisecond
		switch i % 10 {
		case 0:
			ask, pause = c.askHog, 2*time.Millisecond
		case 1, 2:
			ask, pause = c.askLight, 60*time.Millisecond
		}
		go c.run(ctx, ask, pause)
	}
}

// run asks again and again, with a pause of so long on the average between two questions.
func (c *caller) run(ctx context.Context, ask func(context.Context), pause time.Duration) {
	timer := time.NewTimer(pause)
	for {
		timer.Reset(pause/2 + time.Duration(c.rng.Int64N(int64(pause))))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		c.gate.RLock()
		c.key = ownKey(c.Process, c.index, c.round)
		ask(ctx)
		c.gate.RUnlock()
	}
}

func (c *caller) ask(ctx context.Context) {
	switch n := c.rng.IntN(100); {
	case n < 20:
		c.askOwn(ctx, deadline)
	case n < 30:
		c.askKept(ctx)
	case n < 36: // has little time
		d := time.Duration(c.rng.Int64N(int64(10 * time.Millisecond)))
		hasty, cancel := context.WithTimeout(ctx, d)
		c.askOwn(hasty, d)
		cancel()
	case n < 42: // leaves
		leaving, cancel := context.WithCancel(ctx)
		timer := time.AfterFunc(time.Duration(c.rng.Int64N(int64(2*time.Millisecond))), cancel)
		c.askOwn(leaving, deadline)
		timer.Stop()
		cancel()
	case n < 52:
		c.askBack(ctx)
	case n < 66:
		c.askShared(ctx, 0)
	case n < 76:
		c.askShared(ctx, 1)
	case n < 85:
		c.askShared(ctx, 2)
	default:
		c.askWork(ctx)
	}
}

// decide measures how long a decision takes that has so much time, and returns how it failed if it did. Failures of
// those who have less time than others are their own.
func (c *caller) decide(ctx context.Context, has time.Duration, decide func() error) (failed *core.StoreError, err error) {
	start, before := time.Now(), c.probe.Lost()
	err = decide()
	over := time.Since(start) - has
	if over > 0 {
		c.probe.Sample()
		over -= c.probe.Lost().Since(before)
	}
	failed = nil
	errors.As(err, &failed)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Decisions++
	if c.report.Latest = max(c.report.Latest, over); over > tolerance {
		c.report.Late++
	}
	switch {
	case failed != nil:
		c.report.Failures[failed.Class]++
		if ctx.Err() == nil && has == deadline {
			c.sums.Failed++
		}
	case err == nil:
		c.sums.Served++
	case ctx.Err() == nil:
		c.wrong("%v", err)
	}
	return failed, err
}

// begin decides, and says how the server failed also if the process then decided by itself.
func (c *caller) begin(ctx context.Context, l *enforce.Limiter, ask enforce.Ask, a *enforce.Admission) (failed *core.StoreError, err error) {
	return c.decide(ctx, deadline, func() error {
		if err := l.Begin(ctx, ask, a); err != nil {
			return err
		}
		return a.Err
	})
}

// wrong notes what must never be. It is locked.
func (p *process) wrong(format string, args ...any) {
	if len(p.report.Wrong) < wrongs {
		p.report.Wrong = append(p.report.Wrong, fmt.Sprintf(format, args...))
	}
}

// add notes what became of units of a caller's own.
func (p *process) add(t *tally, units int64, failed *core.StoreError, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		t.Surely += units
	case failed == nil || failed.MaybeExecuted: // nobody says what becomes of those who leave
		t.Perhaps += units
	}
}

func (c *caller) askOwn(ctx context.Context, time time.Duration) {
	cost := 1 + c.rng.Int64N(2)
	var res core.Result
	failed, err := c.decide(ctx, time, func() (err error) {
		res, err = c.limiters.private[own].AllowN(ctx, c.key, cost)
		return err
	})
	c.add(&c.report.Private[own][c.index], cost, failed, err)
	c.admitted(err, &res)
}

// admitted notes a mistake if a caller that is never over its limit was refused.
func (p *process) admitted(err error, res *core.Result) {
	if err != nil || res.Allowed() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrong("others: one is refused who is not over its limit: %v", res)
}

func (c *caller) askBack(ctx context.Context) {
	var a enforce.Admission
	failed, err := c.begin(ctx, c.limiters.private[back], enforce.Ask{Key: c.key, Cost: 2}, &a)
	c.add(&c.report.Private[back][c.index], 2, failed, err)
	if err != nil {
		return
	}
	c.admitted(nil, &a.Result)
	a.GiveBack(1)
	c.mu.Lock()
	c.report.Private[back][c.index].Back++
	c.mu.Unlock()
}

func (c *caller) askKept(ctx context.Context) {
	var a enforce.Admission
	failed, err := c.begin(ctx, c.limiters.private[kept], enforce.Ask{Key: c.key, Cost: 1}, &a)
	c.add(&c.report.Private[kept][c.index], 1, failed, err)
	if a.Result.Local { // to be handed back, which may not come to pass
		c.add(&c.report.Private[kept][c.index], 1, nil, failed)
	}
}

func (c *caller) askShared(ctx context.Context, i int) {
	var a enforce.Admission
	_, _ = c.begin(ctx, c.limiters.shared[i], enforce.Ask{Key: oneKey, Cost: 1}, &a)
	if !a.Result.Allowed() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !a.Result.Local:
		c.report.Remote[i] = append(c.report.Remote[i], admission{a.Result.At, 1})
	case a.Result.At > 0:
		c.report.Alone[i] = append(c.report.Alone[i], admission{a.Result.At, 1})
	default:
		c.report.Uncounted++
	}
}

func (c *caller) askHog(ctx context.Context) { c.askShared(ctx, hog) }

func (c *caller) askLight(ctx context.Context) {
	var res core.Result
	failed, err := c.decide(ctx, deadline, func() (err error) {
		res, err = c.limiters.light.Allow(ctx, c.key)
		return err
	})
	c.admitted(err, &res)
	if failed != nil {
		c.mu.Lock()
		c.sums.LightFailed++
		c.sums.LightLast = failed.Error()
		c.mu.Unlock()
	}
}

func (c *caller) askWork(ctx context.Context) {
	var a enforce.Admission
	_, _ = c.decide(ctx, deadline, func() error {
		err := c.limiters.work.Begin(ctx, enforce.Ask{Key: oneKey}, &a)
		if err == nil {
			err = a.Acquire(ctx, 1)
		}
		if err == nil {
			err = a.Err
		}
		return err
	})
	if !a.Held() {
		return
	}
	from := time.Now().UnixMicro()
	<-time.After(time.Duration(c.rng.Int64N(int64(20 * time.Millisecond))))
	to := time.Now().UnixMicro()
	a.Release()
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.Result.Local {
		c.report.HeldAlone = append(c.report.HeldAlone, held{from, to})
	} else {
		c.report.Held = append(c.report.Held, held{from, to})
	}
}
