package core

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// ErrPermitLost is the cause with which the context of a permit's holder ends if the
// store has given the place to somebody else, or has not confirmed for a whole lease that
// it is still held.
var ErrPermitLost = errors.New("core: the permit is lost; somebody else may have its place")

// A permit is renewed every lease/renewals, together with others that are due within
// lease/together of it, and after a failure every lease/retries. Renewing and releasing
// may take permitTimeout. Releasing is tried again releaseRetries times, after releasePause
// and longer; at most releaseWorkers at a time do it, for at most maxReleases in a queue.
// What is left over ends with its lease.
const (
	renewals       = 3
	retries        = 10
	together       = 30
	permitTimeout  = 500 * time.Millisecond
	releaseRetries = 3
	releasePause   = 50 * time.Millisecond
	releaseWorkers = 8
	maxReleases    = 4096
)

// holder keeps the permits that a process holds alive, each in the store that granted it,
// and gives them back. It has a goroutine only while it renews or releases. Times are
// the monotonic clock's.
type holder struct {
	mu      sync.Mutex
	held    map[*hold]struct{}
	timer   *time.Timer
	next    time.Time // when the timer fires; zero if it does not
	queue   []release
	workers int
	// idle is closed when there is nothing to release any more; nil if there is not.
	idle chan struct{}
	// quit ends the releases when nobody waits for them any more.
	quit chan struct{}
}

func newHolder() *holder {
	return &holder{held: map[*hold]struct{}{}, quit: make(chan struct{})}
}

// hold is one permit that is held. Its methods may be called on nil, which is none.
type hold struct {
	holder *holder
	store  PermitStore
	permit Permit
	lease  time.Duration

	// These belong to the holder's lock.
	due      time.Time // when it is to be renewed
	ends     time.Time // when it is lost unless it was renewed
	renewing bool
	ended    bool // released or lost
	released bool
	detached bool
	cause    error
	cancels  []context.CancelCauseFunc
}

// release is a permit to give back.
type release struct {
	store  PermitStore
	permit Permit
}

// acquire asks a store for a permit and keeps it until it is released. Only if the Result
// is one that admits there is a hold. p needs no ID.
//
// If it remains unknown whether the store granted the permit, it is given back.
func (h *holder) acquire(ctx context.Context, s PermitStore, p Permit) (*hold, Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, Result{}, err
	}
	if p.ID == "" {
		p.ID = rand.Text()
	}
	sent := time.Now()
	res, err := s.Acquire(ctx, p)
	if err != nil {
		failed := (*StoreError)(nil)
		if errors.As(err, &failed) && failed.Executed || failed == nil && ctx.Err() != nil {
			h.mu.Lock()
			h.giveBack(s, p)
			h.mu.Unlock()
		}
		return nil, Result{}, err
	}
	if !res.Allowed() {
		return nil, res, nil
	}
	_, lease, _ := p.Policy.Concurrent()
	x := &hold{holder: h, store: s, permit: p, lease: lease}
	x.renewed(sent)
	h.mu.Lock()
	h.held[x] = struct{}{}
	h.wake(x.due)
	h.mu.Unlock()
	return x, res, nil
}

// renewed begins the lease anew. It counts from when the store was asked: its own begins
// later and ends later.
func (x *hold) renewed(sent time.Time) {
	x.due, x.ends = sent.Add(x.lease/renewals), sent.Add(x.lease)
}

// wake sees to it that tick is called at a time or before.
func (h *holder) wake(at time.Time) {
	if !h.next.IsZero() && !at.Before(h.next) {
		return
	}
	h.next = at
	if d := time.Until(at); h.timer == nil {
		h.timer = time.AfterFunc(d, h.tick)
	} else {
		h.timer.Reset(d)
	}
}

// tick ends the permits that are lost, renews those that are due or will soon be, and
// waits for the next.
func (h *holder) tick() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, next := time.Now(), time.Time{}
	batches := map[PermitStore][]*hold{}
	for x := range h.held {
		if !now.Before(x.ends) {
			x.end(ErrPermitLost)
			continue
		}
		if soon := now.Add(x.lease / together); !x.renewing && !soon.Before(x.due) {
			x.renewing = true
			batches[x.store] = append(batches[x.store], x)
		}
		if at := x.next(); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	h.next = time.Time{}
	if !next.IsZero() {
		h.wake(next)
	}
	for s, batch := range batches {
		go h.renew(s, batch)
	}
}

// next is when there is something to do for the permit.
func (x *hold) next() time.Time {
	if !x.renewing && x.due.Before(x.ends) {
		return x.due
	}
	return x.ends
}

// renew renews permits of one store, in one batch.
func (h *holder) renew(s PermitStore, batch []*hold) {
	permits, timeout := make([]Permit, len(batch)), permitTimeout
	for i, x := range batch {
		permits[i], timeout = x.permit, min(timeout, x.lease/renewals)
	}
	sent := time.Now()
	lost, err := renewIn(s, permits, timeout)
	lostOnes := idsOf(lost)
	failedOnes := map[string]bool{}
	if err != nil {
		failedOnes = idsOf(permits)
	}
	if partly := (*RenewError)(nil); errors.As(err, &partly) {
		failedOnes = idsOf(partly.Failed)
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	for _, x := range batch {
		x.renewing = false
		switch id := x.permit.ID; {
		case x.released: // while it was renewed, which may have brought it back
			h.enqueue(release{x.store, x.permit})
		case x.ended:
		case lostOnes[id]:
			x.end(ErrPermitLost)
		case failedOnes[id]:
			x.due = time.Now().Add(x.lease / retries)
			h.wake(x.next())
		default:
			x.renewed(sent)
			h.wake(x.due)
		}
	}
}

// renewIn asks a store. A panic in it, such as of a client's hook, is a failure: nobody is
// there to see it.
func renewIn(s PermitStore, permits []Permit, timeout time.Duration) (lost []Permit, err error) {
	defer func() {
		if recover() != nil {
			lost, err = nil, errPanicked
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), timeout) //nolint:forbidigo // it belongs to many requests
	defer cancel()
	return s.Renew(ctx, permits)
}

var errPanicked = errors.New("core: the store panicked")

func idsOf(permits []Permit) map[string]bool {
	ids := make(map[string]bool, len(permits))
	for i := range permits {
		ids[permits[i].ID] = true
	}
	return ids
}

// end ends the contexts and what is done for the permit. The holder is locked.
func (x *hold) end(cause error) {
	if x.ended {
		return
	}
	x.ended, x.cause = true, cause
	delete(x.holder.held, x)
	for _, cancel := range x.cancels {
		cancel(cause)
	}
	x.cancels = nil
}

// attach returns a child of ctx that ends with the cause ErrPermitLost if the permit is
// lost, and when it is released.
func (x *hold) attach(ctx context.Context) context.Context {
	if x == nil {
		return ctx
	}
	ctx, cancel := context.WithCancelCause(ctx)
	x.holder.mu.Lock()
	defer x.holder.mu.Unlock()
	if x.ended {
		cancel(x.cause)
	} else {
		x.cancels = append(x.cancels, cancel)
	}
	return ctx
}

// release gives the permit back, without waiting for a store that is not in the process.
// Only the first call counts.
func (x *hold) release() {
	if x != nil {
		x.releaseBecause(context.Canceled)
	}
}

func (x *hold) releaseBecause(cause error) {
	h := x.holder
	h.mu.Lock()
	first := !x.released
	x.released = true
	x.end(cause)
	if first { // and again, if it is just being renewed, which may bring it back
		h.giveBack(x.store, x.permit)
	}
	h.mu.Unlock()
}

// detach lets the permit outlive finish.
func (x *hold) detach() {
	if x != nil {
		x.holder.mu.Lock()
		x.detached = true
		x.holder.mu.Unlock()
	}
}

// finish releases the permit unless it was detached.
func (x *hold) finish() {
	if x == nil {
		return
	}
	x.holder.mu.Lock()
	detached := x.detached
	x.holder.mu.Unlock()
	if !detached {
		x.release()
	}
}

// giveBack releases a permit: at once in the process, else in the background. The holder is
// locked.
func (h *holder) giveBack(s PermitStore, p Permit) {
	if m, ok := s.(*Memory); ok {
		_ = m.Release(context.Background(), p) //nolint:forbidigo // the request may be over
	} else {
		h.enqueue(release{s, p})
	}
}

// enqueue leaves a release to a worker. The holder is locked.
func (h *holder) enqueue(r release) {
	if len(h.queue) >= maxReleases {
		return
	}
	h.queue = append(h.queue, r)
	if h.workers < releaseWorkers {
		if h.workers == 0 {
			h.idle = make(chan struct{})
		}
		h.workers++
		go h.work(h.quit)
	}
}

// work releases until there is nothing left.
func (h *holder) work(quit <-chan struct{}) {
	for {
		h.mu.Lock()
		if len(h.queue) == 0 {
			if h.workers--; h.workers == 0 {
				close(h.idle)
				h.idle = nil
			}
			h.mu.Unlock()
			return
		}
		r := h.queue[0]
		h.queue[0] = release{}
		h.queue = h.queue[1:]
		h.mu.Unlock()
		r.do(quit)
	}
}

// do releases, and tries again a few times if the store fails, unless it lacks the right.
func (r release) do(quit <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // the request is over
	defer cancel()
	for pause, try := releasePause, 0; ; pause, try = pause*2, try+1 {
		err := r.once(ctx)
		failed := (*StoreError)(nil)
		if errors.As(err, &failed) && failed.Class == ClassDenied {
			return
		}
		if err == nil || try == releaseRetries || sleep(ctx, pause, quit) != nil {
			return
		}
	}
}

func (r release) once(ctx context.Context) (err error) {
	defer func() {
		if recover() != nil { // as in renewIn
			err = errPanicked
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, permitTimeout)
	defer cancel()
	return r.store.Release(ctx, r.permit)
}

// close gives back all that is held, whose contexts end with the cause ErrPermitLost, and
// waits for that and for what is to be released anyway, until ctx ends. A permit that is
// just being renewed may be brought back by that, and is left to its lease then. What is
// acquired later is held as ever.
func (h *holder) close(ctx context.Context) {
	h.mu.Lock()
	all := slices.Collect(maps.Keys(h.held))
	h.mu.Unlock()
	for _, x := range all {
		x.releaseBecause(ErrPermitLost)
	}
	h.mu.Lock()
	idle := h.idle
	h.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
		h.mu.Lock()
		h.queue = nil
		close(h.quit)
		h.quit = make(chan struct{})
		h.mu.Unlock()
	}
}
