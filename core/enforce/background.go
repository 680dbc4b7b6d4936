package enforce

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/internal/later"
	"github.com/weir-go/weir/core/internal/ledger"
)

// batchSize bounds a batch of permits or refunds: to a server 10 ms away, 50 000 a second are sent.
const batchSize = 512

// Units are given back or charged within refundLife, or not at all: they expire by themselves. maxRefunds bounds how
// many refunds wait, and how many charges; only a store that hangs lets so many wait. Permits need no bound: there are
// no more than were held within one lease, and none is dropped before its lease ends.
const (
	refundLife = 10 * time.Second
	maxRefunds = 1 << 14
)

// chargesAtOnce bounds the charges that are out together: they are takes, which a store has no batches for, and which
// must leave connections for the decisions. To a server 10 ms away, 1600 a second are charged.
const chargesAtOnce = 16

// handsAtOnce is the same for hand-backs. There are no more of them than the ledger has had keys, and all come in the
// first moments after an outage.
const handsAtOnce = 64

// background has the work that no caller waits for, if the store is remote: it renews and releases permits, gives units
// back, charges and hands back. Each has a queue, so that none can hold up another.
type background struct {
	group     later.Group
	renewals  later.Queue[*hold]
	releases  later.Queue[*release]
	refunds   later.Queue[*refund]
	charges   later.Queue[*charge]
	handBacks later.Queue[*handBack]
}

// release is a permit to release. It is of no use after the time given.
type release struct {
	permit core.Permit
	until  time.Time
}

// refund is units to give back until the time given.
type refund struct {
	core.Refund
	until time.Time
}

// charge is units to take until the time given.
type charge struct {
	take  core.Take
	until time.Time
	done  func() // called when they are charged, or given up
}

// handBack is units to charge that the fallback has admitted. They weigh nothing after the time given.
type handBack struct {
	take  core.Take
	until time.Time
}

func newBackground(e *engine) *background {
	b := new(background)
	b.renewals.Group, b.renewals.Batch, b.renewals.Send = &b.group, batchSize, e.holder.renew

	b.releases.Group, b.releases.Batch = &b.group, batchSize
	b.releases.Send = func(ctx context.Context, batch []*release) []error {
		permits := make([]core.Permit, len(batch))
		for i := range batch {
			permits[i] = batch[i].permit
		}
		return eachError(e.permits.Release(ctx, permits), len(batch))
	}
	b.releases.Keep = func(x *release, _ error) bool { return time.Now().Before(x.until) } // releasing twice does no harm
	b.releases.GaveUp = e.gaveUp("could not be given back, and counts until it expires", "permits")

	b.refunds.Group, b.refunds.Batch, b.refunds.Max = &b.group, batchSize, maxRefunds
	b.refunds.Send = func(ctx context.Context, batch []*refund) []error {
		refunds := make([]core.Refund, len(batch))
		for i := range batch {
			refunds[i] = batch[i].Refund
		}
		return eachError(e.store.Refund(ctx, refunds), len(batch))
	}
	b.refunds.Keep = func(x *refund, err error) bool { return time.Now().Before(x.until) && mayRetry(err) }
	b.refunds.GaveUp = e.gaveUp("could not be given back, and counts until it expires", "units")

	b.charges.Group, b.charges.Batch, b.charges.Max = &b.group, chargesAtOnce, maxRefunds
	b.charges.Send = func(ctx context.Context, batch []*charge) []error {
		return e.takeAll(ctx, len(batch), func(i int) *core.Take { return &batch[i].take })
	}
	b.charges.Keep = func(x *charge, err error) bool { return time.Now().Before(x.until) && mayRetry(err) }
	b.charges.GaveUp = e.gaveUp("could not be charged, and are not counted", "units")
	b.charges.Done = func(x *charge) { x.done() }

	b.handBacks.Group, b.handBacks.Batch, b.handBacks.Send = &b.group, handsAtOnce, e.sendHandBacks
	return b
}

// mayRetry reports whether units that could not be given back or charged may be sent again: what may have been done
// must not be done twice.
func mayRetry(err error) bool {
	var failed *core.StoreError
	return errors.As(err, &failed) && !failed.MaybeExecuted && failed.Class != core.ClassDenied
}

// takeAll charges all of a batch at the same time.
func (e *engine) takeAll(ctx context.Context, n int, take func(i int) *core.Take) []error {
	errs := make([]error, n)
	var done sync.WaitGroup
	for i := range n {
		done.Go(func() {
			defer func() {
				if value := recover(); value != nil {
					errs[i] = panicked(value)
				}
			}()
			_, errs[i] = e.store.Take(ctx, *take(i))
			var late *core.LateError
			if errors.As(errs[i], &late) {
				errs[i] = waitForAnswer(ctx, late)
			}
		})
	}
	done.Wait()
	return errs
}

// flush waits until nothing is left to do, or until ctx ends. The error says how much was given up since the last
// flush, and how much is left.
func (b *background) flush(ctx context.Context) error {
	_ = b.group.Wait(ctx)
	renewing := b.renewals.Unsent() // a permit that is released while its renewal is out is released once more behind that
	n := max(renewing, b.releases.Unsent()) + b.refunds.Unsent() + b.charges.Unsent() + b.handBacks.Unsent()
	if n == 0 {
		return nil
	}
	return fmt.Errorf("enforce: Close: %d releases, refunds, charges and hand-backs may not have reached the store; what was not given back expires by itself", n)
}

// owe notes what the fallback has admitted, to be handed back to the store.
func (e *engine) owe(t *core.Take, res *core.Result) {
	if res.Taken > 0 {
		e.ledger.Add(ledgerKeyOf(t.Policy, t.Key), res.Taken, weighs(res))
	}
}

// ledgerKeyOf returns the ledger's Key for a key of p. Other numbers of p that share its state have the same.
func ledgerKeyOf(p core.Policy, key string) ledger.Key { return ledger.KeyOf(p.Name(), shape(p), key) }

// handBack charges to the store, in the background, what this process has admitted without it for the key of t. The
// store has just answered for that key: a store that still hangs might lose the charge, which cannot be sent twice.
// Units that do not weigh any more in the fallback are left out.
func (e *engine) handBack(t *core.Take) {
	units := e.ledger.Collect(ledgerKeyOf(t.Policy, t.Key))
	if units == 0 {
		return
	}
	used, lasting, err := e.usedInFallback(t.Policy, t.Key)
	if err != nil {
		return
	}
	if units = min(units, used); units > 0 {
		e.background.handBacks.Add(&handBack{
			core.Take{Policy: t.Policy, Key: t.Key, Cost: units, AtMost: true}, time.Now().Add(lasting),
		})
	}
}

// usedInFallback returns how many units of a key the fallback counts, in the limit that counts most, and the time until
// they weigh nothing.
func (e *engine) usedInFallback(p core.Policy, key string) (used int64, lasting time.Duration, err error) {
	now := core.Result{}
	if err := e.takeInFallback(inMemory, &core.Take{Policy: p, Key: key}, &now); err != nil {
		return 0, 0, err
	}
	share := p.Local()
	for i, l := range share.Limits() {
		if l.Algorithm != core.Concurrent {
			used = max(used, l.Burst-now.Each(i).Remaining)
		}
	}
	return used, weighs(&now), nil
}

// sendHandBacks charges a batch to the store. Units that were surely not charged are owed again; those that may have
// been charged are not, and so may be lost.
func (e *engine) sendHandBacks(ctx context.Context, batch []*handBack) []error {
	errs := e.takeAll(ctx, len(batch), func(i int) *core.Take { return &batch[i].take })
	for i, err := range errs {
		var failed *core.StoreError
		if errors.As(err, &failed) && !failed.MaybeExecuted {
			t := &batch[i].take
			e.ledger.Add(ledgerKeyOf(t.Policy, t.Key), t.Cost, time.Until(batch[i].until))
			errs[i] = nil
		}
	}
	return errs
}
