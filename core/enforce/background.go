package enforce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/core"
)

// Tasks are sent in batches of at most batchSize, each of which may take callTimeout: to a server 10 ms away, 50 000 a
// second. A batch is all that has come while the one before it was out; a lone task leaves at once. What failed is sent
// again after retryFirst, then after longer pauses, up to retryLast: 2 s after a short fault all has been sent.
const (
	batchSize   = 512
	callTimeout = time.Second
	retryFirst  = 50 * time.Millisecond
	retryLast   = 400 * time.Millisecond
)

// Units are given back or charged within refundLife, or not at all: they expire by themselves. maxRefunds bounds how
// many refunds wait, and how many charges; only a store that hangs lets so many wait. Permits need no bound: there are
// no more than were held within one lease, and none is dropped before its lease ends.
const (
	refundLife = 10 * time.Second
	maxRefunds = 1 << 14
)

// chargesAtOnce is how many charges are out together: they are takes, which a store has no batches for, and which must
// leave connections for the decisions. To a server 10 ms away, 1600 a second are charged.
const chargesAtOnce = 16

// handsAtOnce is the same for hand-backs. There are no more of them than the ledger has had keys, and all come in the
// first moments after an outage.
const handsAtOnce = 64

// background does what no caller waits for, if the store is remote: it renews and releases permits, gives units back,
// charges and hands back. It has goroutines only while there is something to do.
type background struct {
	engine *engine

	mu    sync.Mutex
	lanes [kinds]lane
	idle  []chan struct{} // closed when there is nothing left to do
	lost  int             // tasks that were given up, since the last flush
}

// lane is the queue of one kind of task: none can hold up another. Its batches go one after the other, so that units
// come back in the order in which they were given, which those of a queue depend on.
type lane struct {
	tasks  []task
	later  []task // those that failed
	busy   bool   // a batch is out, or about to be
	out    int    // how many tasks are out
	paused bool   // what failed is sent again when the pause is over
	pause  time.Duration
}

// kind is what a task does.
type kind uint8

const (
	renewing kind = iota
	releasing
	refunding
	charging
	handing
	kinds
)

// task is a permit to renew or to release, or units to give back, to charge or to hand back.
type task struct {
	hold   *hold       // to renew
	permit core.Permit // to release
	refund *core.Refund
	charge *core.Take // also to hand back
	over   func()     // called when a charge is made, or given up; nil for all else
	until  time.Time  // after which it is of no use
}

func newBackground(e *engine) *background { return &background{engine: e} }

func (b *background) renew(holds []*hold) {
	tasks := make([]task, len(holds))
	for i, h := range holds {
		tasks[i].hold = h
	}
	b.add(renewing, tasks...)
}

// release gives back a permit whose lease ends no later than one that begins now.
func (b *background) release(p core.Permit, lease time.Duration) {
	b.add(releasing, task{permit: p, until: time.Now().Add(lease)})
}

func (b *background) refund(r core.Refund) {
	b.add(refunding, task{refund: &r, until: time.Now().Add(refundLife)})
}

func (b *background) charge(t core.Take, over func()) {
	b.add(charging, task{charge: &t, over: over, until: time.Now().Add(refundLife)})
}

// handBack charges what the fallback has admitted. It is of use for as long as that weighs.
func (b *background) handBack(t core.Take, weighs time.Duration) {
	b.add(handing, task{charge: &t, until: time.Now().Add(weighs)})
}

var errFull = fmt.Errorf("enforce: %d others wait for a store that does not answer", maxRefunds)

func (b *background) add(k kind, tasks ...task) {
	b.mu.Lock()
	l := &b.lanes[k]
	full := (k == refunding || k == charging) && len(l.tasks)+len(l.later) >= maxRefunds
	if full {
		b.lost += len(tasks)
	} else {
		l.tasks = append(l.tasks, tasks...)
		b.start(k)
	}
	b.mu.Unlock()
	if full {
		b.giveUp(k, len(tasks), errFull)
		end(tasks)
	}
}

// start begins work on a lane's tasks. b is locked.
func (b *background) start(k kind) {
	if l := &b.lanes[k]; !l.busy && len(l.tasks) > 0 {
		l.busy = true
		go b.work(k)
	}
}

// work sends a lane's batches until there are none left.
func (b *background) work(k kind) {
	l := &b.lanes[k]
	for {
		b.mu.Lock()
		n := min(len(l.tasks), k.batch())
		l.out = n
		if n == 0 {
			l.busy = false
			b.rest()
			b.mu.Unlock()
			return
		}
		batch := l.tasks[:n:n]
		l.tasks = l.tasks[n:] // what is left is copied when it grows, and the rest freed
		b.mu.Unlock()

		sent := time.Now()
		lost, errs := b.call(k, batch)
		switch k {
		case renewing:
			b.engine.holder.renewed(batch, lost, errs, sent)
		case handing:
			b.engine.handedBack(batch, errs)
		default:
			b.done(k, batch, errs)
		}
	}
}

// batch is how many tasks go together.
func (k kind) batch() int {
	switch k {
	case charging:
		return chargesAtOnce
	case handing:
		return handsAtOnce
	default:
		return batchSize
	}
}

// rest tells those that wait for it that there is nothing left to do. b is locked.
func (b *background) rest() {
	if b.left() > 0 || slices.ContainsFunc(b.lanes[:], func(l lane) bool { return l.busy }) {
		return
	}
	for _, c := range b.idle {
		close(c)
	}
	b.idle = nil
}

// left returns how many tasks wait. b is locked.
func (b *background) left() (n int) {
	for i := range b.lanes {
		n += len(b.lanes[i].tasks) + len(b.lanes[i].later)
	}
	return n
}

// done keeps what failed, to be sent again later if that is of use.
func (b *background) done(k kind, batch []task, errs []error) {
	lost, why := 0, error(nil)
	b.mu.Lock()
	l, now, failed := &b.lanes[k], time.Now(), false
	l.out = 0
	ended := batch[:0]
	for i, err := range errs {
		failed = failed || err != nil
		switch {
		case err != nil && now.Before(batch[i].until) && mayRetry(k, err):
			l.later = append(l.later, batch[i])
			continue
		case err != nil:
			lost, why = lost+1, err
		}
		ended = append(ended, batch[i])
	}
	b.lost += lost
	switch {
	case !failed:
		l.pause = 0
	case len(l.later) > 0 && !l.paused: // one pause for all batches that fail meanwhile
		l.paused, l.pause = true, min(max(retryFirst, l.pause*2), retryLast)
		time.AfterFunc(l.pause, func() { b.retry(k) })
	}
	b.mu.Unlock()
	if lost > 0 {
		b.giveUp(k, lost, why)
	}
	end(ended)
}

// end says of charges that nothing more will become of them.
func end(tasks []task) {
	for i := range tasks {
		if over := tasks[i].over; over != nil {
			over()
		}
	}
}

// mayRetry reports whether what failed may be sent again: releasing twice does no harm, but units that may have been
// given back or charged must not be given back or charged twice.
func mayRetry(k kind, err error) bool {
	var failed *core.StoreError
	known := errors.As(err, &failed)
	return k == releasing || known && !failed.MaybeExecuted && failed.Class != core.ClassDenied
}

func (b *background) retry(k kind) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := &b.lanes[k]
	l.tasks, l.later, l.paused = append(l.tasks, l.later...), nil, false
	b.start(k)
	b.rest()
}

// giveUp logs what is not sent again. b is not locked: a log that blocks must hold up nobody.
func (b *background) giveUp(k kind, n int, why error) {
	switch k {
	case charging:
		b.engine.lost("could not be charged, and are not counted", "units", n, why)
	case releasing:
		b.engine.lost("could not be given back, and counts until it expires", "permits", n, why)
	default:
		b.engine.lost("could not be given back, and counts until it expires", "units", n, why)
	}
}

// call asks the store, and returns an error for each task, nil if it was done. A panic in the store, such as that of a
// client's hook, is an error: no caller is there to recover it.
func (b *background) call(k kind, batch []task) (lost []core.Permit, errs []error) {
	timeout := callTimeout
	if k == renewing {
		for i := range batch {
			timeout = min(timeout, batch[i].hold.lease/renewals)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout) //nolint:forbidigo // it is of many requests
	defer cancel()
	lost, err := b.ask(ctx, k, batch)
	errs = make([]error, len(batch))
	var partly *core.BatchError
	switch {
	case err == nil:
	case errors.As(err, &partly) && len(partly.Errs) == len(batch):
		copy(errs, partly.Errs)
	default:
		for i := range errs {
			errs[i] = err
		}
	}
	return lost, errs
}

func (b *background) ask(ctx context.Context, k kind, batch []task) (lost []core.Permit, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = panicked(value)
		}
	}()
	if k == charging || k == handing {
		return nil, b.takeAll(ctx, batch)
	}
	if k == refunding {
		refunds := make([]core.Refund, len(batch))
		for i := range batch {
			refunds[i] = *batch[i].refund
		}
		return nil, b.engine.store.Refund(ctx, refunds)
	}
	permits := make([]core.Permit, len(batch))
	for i, x := range batch {
		if permits[i] = x.permit; k == renewing {
			permits[i] = x.hold.permit
		}
	}
	if k == releasing {
		return nil, b.engine.permits.Release(ctx, permits)
	}
	return b.engine.permits.Renew(ctx, permits)
}

// takeAll charges all of a batch at the same time.
func (b *background) takeAll(ctx context.Context, batch []task) error {
	errs := make([]error, len(batch))
	var done sync.WaitGroup
	for i := range batch {
		done.Go(func() {
			defer func() {
				if value := recover(); value != nil {
					errs[i] = panicked(value)
				}
			}()
			_, errs[i] = b.engine.store.Take(ctx, *batch[i].charge)
			var late *core.LateError
			if errors.As(errs[i], &late) {
				errs[i] = waitForAnswer(ctx, late)
			}
		})
	}
	done.Wait()
	return &core.BatchError{Errs: errs}
}

func panicked(value any) error { return fmt.Errorf("enforce: the store panicked: %v", value) }

// flush waits until nothing is left to do, or until ctx ends. The error says what was given up since the last flush,
// and what is left.
func (b *background) flush(ctx context.Context) error {
	b.mu.Lock()
	idle := make(chan struct{})
	b.idle = append(b.idle, idle)
	b.rest()
	b.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.lost
	for _, k := range []kind{releasing, refunding, charging} {
		l := &b.lanes[k]
		n += len(l.tasks) + len(l.later) + l.out
	}
	b.lost = 0
	if n > 0 || ctx.Err() != nil {
		return fmt.Errorf("enforce: Close: %d permits and charges may not have been given back or made; they expire by themselves", n)
	}
	return nil
}
