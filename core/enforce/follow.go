package enforce

import (
	"fmt"
	"hash/maphash"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

// Listener is a Source that learns of changes in a goroutine and prepares a [Set] before it shows it, so that no request
// has to. It may do without, at any time: the first request that sees a Set which nobody has prepared prepares it,
// while others go by the Set before.
type Listener interface {
	Source
	// Listen is called once by each Guard and each Limiter that follows the Source, when it is made, possibly while
	// requests are served. From then on the Source calls f.Prepare with each Set, the one of now included, before its
	// Load returns that. It keeps f until Prepare reports that nobody follows it any more.
	Listen(f *Follower)
}

// Follower is a Guard or Limiter as a [Listener] sees it. It does not keep it alive.
type Follower struct {
	rules   []Rule
	prepare func(*Set) ([]Entry, bool)
}

// Rule is a policy of a [Follower], as its code has it.
type Rule struct {
	// Policy is the name of the policy, and Text the whole of it, such as "api: 100/1m; fail closed".
	Policy, Text string
	// Place, Key and OverLimit name the place of the rule in the code, its key function and its handler. They are "" for
	// a Limiter.
	Place, Key, OverLimit string
	// Tiers are the texts of its tiers, by their names.
	Tiers map[string]string
}

// NewFollower returns a Follower for a package such as guard. prepare does what [Follower.Prepare] says. It must not
// keep alive what it prepares: package weak has pointers for it.
func NewFollower(rules []Rule, prepare func(*Set) (entries []Entry, alive bool)) *Follower {
	return &Follower{rules, prepare}
}

// Rules returns the rules that follow the Source. They must not be changed.
func (f *Follower) Rules() []Rule { return f.rules }

// Prepare makes what the next Load that returns s leads to, so that no request has to, and returns what has become of
// each text of s. alive is false if nobody follows the Source any more: then forget f. It may take some milliseconds
// for each thousand texts. Calls of one Follower follow one another, in the order in which the Sets are shown.
func (f *Follower) Prepare(s *Set) (entries []Entry, alive bool) { return f.prepare(s) }

// checkSource reports a Source that would panic.
func checkSource(s Source) error {
	if v := reflect.ValueOf(s); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("enforce: Source is a nil %T; leave it out, or give one such as new(atomic.Pointer[enforce.Set])", s)
	}
	return nil
}

// following is a Limiter's view of its Source.
type following struct {
	source   Source
	code     *Limiter // the same, by the numbers of the code
	last     atomic.Pointer[version]
	prepared atomic.Pointer[version] // by the Source, which may show it next; nil if it prepares none
	next     sync.Mutex              // held while a version is made
	mistakes mistakes                // next guards it
}

// version is the Variants for a Set. They count from 0.
type version struct {
	number   int
	set      *Set
	variants *Variants
}

// follow lets l follow the Source of its engine, if that has one.
func (l *Limiter) follow() *Limiter {
	source := l.engine.source
	if source == nil {
		return l
	}
	f := &following{source: source, code: l}
	f.last.Store(&version{variants: l.variants(nil, texts{}, nil)})
	if listener, ok := source.(Listener); ok {
		held := weak.Make(f)
		listener.Listen(NewFollower([]Rule{{Policy: l.policy.Name(), Text: l.policy.String()}}, func(s *Set) ([]Entry, bool) {
			f := held.Value()
			if f == nil {
				return nil, false
			}
			return f.prepare(s), true
		}))
	}
	followed := *l
	followed.following = f
	return &followed
}

// now returns the Limiter that decides about a key: l itself if it follows no Source.
func (l *Limiter) now(key string) *Limiter {
	if l.following == nil {
		return l
	}
	v := l.following.current()
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

// current returns the Variants for the Set of now.
func (f *following) current() *Variants {
	last := f.last.Load() // before the Set, so that it is seen if others are faster
	if set := f.source.Load(); set != last.set {
		return f.change(last, set)
	}
	return last.variants
}

// change takes up another Set, for a caller that has seen last and then set. If nobody has prepared the Set, the first
// caller does, and callers that come meanwhile go by the Set before: none waits.
func (f *following) change(last *version, set *Set) *Variants {
	if p := f.prepared.Load(); p != nil && p.set == set && p.number > last.number {
		f.last.CompareAndSwap(last, p) // else the version of a later Set may be there already
	} else if f.next.TryLock() {
		if f.last.Load() == last {
			f.last.Store(f.make(set, last))
		}
		f.next.Unlock()
	}
	return f.last.Load().variants
}

// prepare makes the version of a Set that the Source will show.
func (f *following) prepare(set *Set) []Entry {
	f.next.Lock()
	defer f.next.Unlock()
	before := f.last.Load()
	if p := f.prepared.Load(); p != nil && p.number > before.number {
		if before = p; p.set == f.source.Load() { // nobody has come since that was shown, and somebody may come now
			f.last.Store(p)
		}
	}
	if before.set != set {
		before = f.make(set, before)
		f.prepared.Store(before)
	}
	return before.variants.entries
}

// make makes the version of a Set that follows another one, and logs what cannot be used.
func (f *following) make(set *Set, before *version) *version {
	of := set.textsFor(f.code.policy.Name())
	of.tiers = nil // a Limiter has none
	v := &version{before.number + 1, set, f.code.variants(nil, of, before.variants)}
	for _, e := range v.variants.entries {
		if e.Err != nil && f.mistakes.isNew(e) {
			f.code.engine.logger().Error("weir: the Source has numbers that cannot be used; those from before stay",
				"entry", shortened(e.String()), "text", shortened(e.Text), "error", shortened(e.Err.Error()), "code", "unusable-numbers")
		}
	}
	return v
}

// shortened cuts a text for the log.
func shortened(text string) string {
	if len(text) > maxLogged {
		return fmt.Sprintf("%s... (%d bytes)", text[:maxLogged], len(text))
	}
	return text
}

const maxLogged = 200

// mistakes are the entries that the log has had, however often a Source goes back and forth: at most maxMistakes in the
// time of forgetsMistakes, because a Source may have other ones for each request.
type mistakes struct {
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
