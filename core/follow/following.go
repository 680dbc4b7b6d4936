package follow

import (
	"sync"
	"sync/atomic"
)

// Following holds a T for the [Set] that a Source shows now, such as the rules of a guard with its numbers. It is for
// packages such as guard; an enforce.Limiter has one for its Variants.
type Following[T any] struct {
	source   Source
	next     func(s *Set, before T) T
	last     atomic.Pointer[version[T]]
	prepared atomic.Pointer[version[T]] // which the Source may show next; nil if it prepares none
	making   sync.Mutex                 // held while a version is made
}

// version is the T of a Set. They count from 0.
type version[T any] struct {
	number int
	set    *Set
	of     T
}

// NewFollowing returns a Following of a Source. first is the T of a nil Set, and next makes that of a Set from the one
// before. It is called for one Set at a time.
func NewFollowing[T any](source Source, first T, next func(s *Set, before T) T) *Following[T] {
	f := &Following[T]{source: source, next: next}
	f.last.Store(&version[T]{of: first})
	return f
}

// Now returns the T of the Set that the Source shows now. If nobody has prepared that, the first caller does, and
// callers that come meanwhile get the T before: none waits. No caller gets a T that is earlier than one that another
// has had.
func (f *Following[T]) Now() T {
	last := f.last.Load() // before the Set, so that it is seen if others are faster
	if set := f.source.Load(); set != last.set {
		return f.change(last, set)
	}
	return last.of
}

// Last returns the T that is in use, and its Set, without looking for a later one: what Now has returned last.
func (f *Following[T]) Last() (*Set, T) {
	last := f.last.Load()
	return last.set, last.of
}

// change takes up another Set, for a caller that has seen last and then set.
func (f *Following[T]) change(last *version[T], set *Set) T {
	if now := f.last.Load(); now != last { // others were faster, and the Set may be over as well
		if last, set = now, f.source.Load(); last.set == set {
			return last.of
		}
	}
	if p := f.prepared.Load(); p != nil && p.set == set && p.number > last.number {
		f.last.CompareAndSwap(last, p) // else that of a later Set may be there already
	} else if f.making.TryLock() {
		f.catchUp(last, set)
	}
	return f.last.Load().of
}

// catchUp makes the version of a Set that nobody has prepared, after last. It unlocks making, also if a handler of the
// log panics.
func (f *Following[T]) catchUp(last *version[T], set *Set) {
	defer f.making.Unlock()
	if f.last.Load() == last {
		f.last.CompareAndSwap(last, f.make(set, last)) // else others have taken up a prepared one meanwhile
	}
}

// Prepare makes the T of a Set before the Source shows that, as [Follower.Prepare] does, and returns it.
func (f *Following[T]) Prepare(s *Set) T {
	f.making.Lock()
	defer f.making.Unlock()
	before := f.last.Load()
	if p := f.prepared.Load(); p != nil && p.number > before.number {
		if before = p; p.set == f.source.Load() { // nobody has come since that was shown, and somebody may come now
			f.last.Store(p)
		}
	}
	if before.set != s {
		before = f.make(s, before)
		f.prepared.Store(before)
	}
	return before.of
}

func (f *Following[T]) make(s *Set, before *version[T]) *version[T] {
	return &version[T]{before.number + 1, s, f.next(s, before.of)}
}
