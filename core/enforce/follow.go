package enforce

import (
	"fmt"
	"hash/maphash"
	"reflect"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/weir-go/weir/core/follow"
)

// checkSource reports a Source that would panic.
func checkSource(s follow.Source) error {
	if v := reflect.ValueOf(s); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("enforce: Source is a nil %T; leave it out, or give one such as new(atomic.Pointer[follow.Set])", s)
	}
	return nil
}

// LogMistakes logs each of the entries that is not used, with the code "unusable-numbers": once for l and all that With
// made, however often a Source goes back and forth, and not more than a thousand of them in an hour. A Limiter that
// follows a Source does so by itself.
func (l *Limiter) LogMistakes(entries []follow.Entry) {
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
	f := follow.NewFollowing(source, l.variants(nil, texts{}, nil), func(s *follow.Set, before *Variants) *Variants {
		of := textsFor(s, l.policy.Name())
		of.tiers = nil // a Limiter has none
		now := l.variants(nil, of, before)
		l.LogMistakes(now.entries)
		return now
	})
	followed.following = f
	if listener, ok := source.(follow.Listener); ok {
		held := weak.Make(f)
		listener.Listen(follow.NewFollower([]follow.Rule{{Policy: l.policy.Name(), Text: l.policy.String(), Store: l.engine.store}}, func(s *follow.Set) ([]follow.Entry, bool) {
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
func (m *mistakes) isNew(e follow.Entry) bool {
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
