package guard

import (
	"container/list"
	"context"
	"math"
	"sync"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
)

// afterWait is the longest time that a request waits for others of its key whose cost is not known yet.
const afterWait = time.Second

// afterQueue holds back requests of rules with After, which are charged only when they are over: of one key no more run
// at a time than it has units left, as if each of them would use one. The others wait, first come first served, until
// those before them have used nothing, or until nothing is left. It has an entry for each key of which a request is
// under way in this process, and none for others. The zero afterQueue is empty.
type afterQueue struct {
	mu     sync.Mutex
	closed bool
	keys   map[afterID]*afterKey
}

// afterID names a key of a policy in an epoch.
type afterID struct{ policy, key string }

// afterKey is a key of which requests are under way. The lock of the queue guards it and its attempts.
type afterKey struct {
	id       afterID
	attempts int       // that are not over
	running  int64     // of them those that run, or whose charge is on its way
	charged  int64     // attempts that ran and have been charged
	waiting  list.List // of *attempt
}

// attempt is one request, from before it looks how much is left until what it has used is charged. A nil attempt is
// that of a request which is not held back.
type attempt struct {
	queue   *afterQueue
	key     *afterKey
	limiter *enforce.Limiter
	seen    int64         // key.charged when it looked, or before: what is charged later may be in left or not
	left    int64         // units, when it looked
	place   *list.Element // while it waits
	wake    chan struct{} // has an element when there is something to do for an attempt that waits
	looking bool          // it is to look again, or does so
	running bool
	over    bool
	forNow  bool // it was refused although there were units left
}

// enter returns an attempt that is to look by limiter for the first time.
func (q *afterQueue) enter(id afterID, limiter *enforce.Limiter) *attempt {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := q.keys[id]
	if k == nil {
		k = &afterKey{id: id}
		if q.keys == nil {
			q.keys = map[afterID]*afterKey{}
		}
		q.keys[id] = k
	}
	k.attempts++
	return &attempt{queue: q, key: k, limiter: limiter, seen: k.charged}
}

// close ends the waiting of all attempts.
func (q *afterQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, k := range q.keys {
		for e := k.waiting.Front(); e != nil; e = e.Next() {
			e.Value.(*attempt).signal() //nolint:forcetypeassert // there is nothing else in the list
		}
	}
}

// next lets those run that are first in line, as far as there are units for them. The first one for which there is none
// looks again if what others have used has been charged since it looked.
func (k *afterKey) next() {
	for e := k.waiting.Front(); e != nil; e = k.waiting.Front() {
		x := e.Value.(*attempt) //nolint:forcetypeassert // there is nothing else in the list
		switch {
		case x.looking:
			return
		case x.fits():
			x.run()
			x.signal()
		default:
			x.lookAgain()
			return
		}
	}
}

// fits reports whether there is a unit for x beside those that may be used by all that run.
func (x *attempt) fits() bool { return x.key.running+x.key.charged-x.seen < x.left }

// run lets x run.
func (x *attempt) run() {
	x.leaveLine()
	x.running = true
	x.key.running++
}

// lookAgain makes x look once more if it may find something else.
func (x *attempt) lookAgain() {
	if x.key.charged > x.seen && !x.looking {
		x.seen, x.looking = x.key.charged, true
		x.signal()
	}
}

// learn takes over what a later attempt has found: units may have come back meanwhile. An attempt that looks again
// finds that itself.
func (x *attempt) learn(later *attempt) {
	if x.limiter == later.limiter && !x.looking {
		x.seen, x.left = later.seen, later.left
	}
}

func (x *attempt) signal() {
	select {
	case x.wake <- struct{}{}:
	default: // it has not seen the last one yet
	}
}

func (x *attempt) leaveLine() {
	if x.place != nil {
		x.key.waiting.Remove(x.place)
		x.place = nil
	}
}

// start is called when x has looked and there were units left. It reports whether x runs; if not, it is in line.
func (x *attempt) start(left int64) (runs bool) {
	x.queue.mu.Lock()
	defer x.queue.mu.Unlock()
	x.left = left
	first := x.key.waiting.Front()
	if first == nil && x.fits() {
		x.run()
		return true
	}
	if first != nil && x.fits() {
		first.Value.(*attempt).learn(x) //nolint:forcetypeassert // there is nothing else in the list
	}
	x.wake = make(chan struct{}, 1)
	x.place = x.key.waiting.PushBack(x)
	x.key.next()
	if x.queue.closed {
		x.signal()
	}
	return x.running
}

// wait returns when x may run, with a admitted, or when it may not. Then it is over. Result.Delay says how long it
// took.
func (x *attempt) wait(ctx context.Context, a *enforce.Admission) error {
	began := time.Now()
	defer func() {
		if a.Result.Allowed() {
			a.Result.Delay = time.Since(began).Round(time.Microsecond)
		}
	}()
	late := time.NewTimer(afterWait)
	defer late.Stop()
	for {
		select {
		case <-x.wake:
		case <-late.C:
			if x.leave() {
				x.refuseForNow(&a.Result)
			}
			return nil
		case <-ctx.Done():
			if x.leave() {
				return ctx.Err()
			}
			return nil
		}
		x.queue.mu.Lock()
		running, looking, closed := x.running, x.looking, x.queue.closed
		x.queue.mu.Unlock()
		switch {
		case running:
			return nil
		case closed:
			x.end(false)
			return enforce.ErrClosed
		case looking:
			*a = enforce.Admission{}
			err := x.limiter.Begin(ctx, enforce.Ask{Key: x.key.id.key, AtMost: true}, a)
			if err != nil || !a.Result.Allowed() {
				x.refused()
				return err
			}
			x.looked(left(&a.Result))
		}
	}
}

// looked is called when x has looked again and there were units left.
func (x *attempt) looked(left int64) {
	x.queue.mu.Lock()
	defer x.queue.mu.Unlock()
	x.looking, x.left = false, left
	x.key.next()
}

// refused is called when x has looked again and there was nothing left. Others that may find the same look at once, and
// not in turn.
func (x *attempt) refused() {
	x.queue.mu.Lock()
	defer x.queue.mu.Unlock()
	x.finish(false)
	for e := x.key.waiting.Front(); e != nil; e = e.Next() {
		e.Value.(*attempt).lookAgain() //nolint:forcetypeassert // there is nothing else in the list
	}
}

// leave ends x, and reports whether it has: not if x runs by now.
func (x *attempt) leave() bool {
	x.queue.mu.Lock()
	defer x.queue.mu.Unlock()
	if !x.running {
		x.finish(false)
	}
	return !x.running
}

// end is called when the request of x is over: if it has used something, when that is charged. Only the first call
// counts.
func (x *attempt) end(charged bool) {
	if x == nil {
		return
	}
	x.queue.mu.Lock()
	defer x.queue.mu.Unlock()
	x.finish(charged)
}

// finish is end under the lock.
func (x *attempt) finish(charged bool) {
	if x.over {
		return
	}
	x.over = true
	k := x.key
	x.leaveLine()
	if x.running {
		k.running--
		if charged {
			k.charged++
		}
	}
	if k.attempts--; k.attempts == 0 {
		delete(x.queue.keys, k.id)
	}
	k.next()
}

// left returns how many units a look has found, without a bound if the policy has failed open.
func left(res *core.Result) int64 {
	if res.Limit == 0 {
		return math.MaxInt64
	}
	return res.Remaining
}

// refuseForNow turns what a look has found into a refusal: what is left may be used by others that are under way.
func (x *attempt) refuseForNow(res *core.Result) {
	x.forNow = true
	res.Outcome, res.Remaining, res.RetryAfter = core.Refused, 0, afterWait
}
