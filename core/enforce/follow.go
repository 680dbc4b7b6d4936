package enforce

import (
	"fmt"
	"hash/maphash"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

// checkSource reports a Source that would panic.
func checkSource(s Source) error {
	if v := reflect.ValueOf(s); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("enforce: Source is a nil %T; leave it out, or give one such as new(atomic.Pointer[enforce.Set])", s)
	}
	return nil
}

// Following holds a T for the [Set] that a Source shows now, such as the rules of a guard with its numbers. It is for
// packages such as guard; a [Limiter] has one for its Variants.
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
		f.last.Store(f.make(set, last))
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

// LogMistakes logs each of the entries that is not used, with the code "unusable-numbers": once for l and all that With
// made, however often a Source goes back and forth, and not more than a thousand of them in an hour. A Limiter that
// follows a Source does so by itself.
func (l *Limiter) LogMistakes(entries []Entry) {
	for _, e := range entries {
		if e.Err != nil && l.engine.mistakes.isNew(e) {
			l.engine.logger().Error("weir: the Source has numbers that cannot be used; those from before stay",
				"entry", shortened(e.String()), "text", shortened(e.Text), "error", shortened(e.Err.Error()), "code", "unusable-numbers")
		}
	}
}

// follow lets l follow the Source of its engine, if that has one.
func (l *Limiter) follow() *Limiter {
	source := l.engine.source
	if source == nil {
		return l
	}
	followed := *l
	followed.code = l
	f := NewFollowing(source, l.variants(nil, texts{}, nil), func(s *Set, before *Variants) *Variants {
		of := s.textsFor(l.policy.Name())
		of.tiers = nil // a Limiter has none
		now := l.variants(nil, of, before)
		l.LogMistakes(now.entries)
		return now
	})
	followed.following = f
	if listener, ok := source.(Listener); ok {
		held := weak.Make(f)
		listener.Listen(NewFollower([]Rule{{Policy: l.policy.Name(), Text: l.policy.String(), Store: l.engine.store}}, func(s *Set) ([]Entry, bool) {
			f := held.Value()
			if f == nil {
				return nil, false
			}
			return f.Prepare(s).entries, true
		}))
	}
	return &followed
}

// now returns the Limiter that decides about a key: l itself if it follows no Source.
func (l *Limiter) now(key string) *Limiter {
	if l.following == nil {
		return l
	}
	v := l.following.Now()
	if len(v.Keys) > 0 {
		if own, ok := v.Keys[key]; ok {
			if own == nil {
				return v.free
			}
			return own
		}
	}
	return v.Limiter
}

// shortened cuts a text for the log.
func shortened(text string) string {
	if len(text) > maxLogged {
		return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(text[:maxLogged], ""), len(text))
	}
	return text
}

const maxLogged = 200

// mistakes are the entries that the log has had, however often a Source goes back and forth: at most maxMistakes in the
// time of forgetsMistakes, because a Source may have other ones for each request.
type mistakes struct {
	mu     sync.Mutex
	hashes map[uint64]bool
	since  time.Time
}

const (
	maxMistakes     = 1000
	forgetsMistakes = time.Hour
)

var mistakesSeed = maphash.MakeSeed()

// isNew reports whether a mistake is to be logged, and notes it.
func (m *mistakes) isNew(e Entry) bool {
	hash := maphash.Comparable(mistakesSeed, [3]string{e.String(), e.Text, e.Err.Error()})
	m.mu.Lock()
	defer m.mu.Unlock()
	full := len(m.hashes) >= maxMistakes
	if m.hashes[hash] || full && time.Since(m.since) < forgetsMistakes {
		return false
	}
	if full || m.hashes == nil {
		m.hashes, m.since = map[uint64]bool{}, time.Now()
	}
	m.hashes[hash] = true
	return true
}
