package redissource

import (
	"log/slog"
	"sync"
	"time"

	"github.com/weir-go/weir/core/policies"
)

// Status describes the document that a [Source] goes by, and how Redis is.
type Status struct {
	Version policies.Version // of the document in use; zero if there is none
	Digest  string           // of the document in use, as [policies.Digest] returns it
	// Read is the time at which Redis last had the document that is in use; zero if it never had, as with one of the
	// bridge.
	Read time.Time
	// Meaning is [policies.Unread] or [policies.Stale], which then holds for all policies, or else [policies.Fleet] if a
	// document is in use, and [policies.Code] if there is none.
	Meaning policies.Meaning
	// Why is the reason for which the last read has not confirmed the document in use. It is "" if all is well.
	Why string
	// Bridge is the reason for which the file of Options.Bridge is of no use. It is "" if all is well.
	Bridge string
	// Rules are those of the Guards and Limiters that follow the Source.
	Rules []policies.RuleState
	// Unlisted is the number of Guards and Limiters that came when there were a thousand. They go by the same document,
	// which their first request prepares.
	Unlisted int
}

// Status returns what s goes by now.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Digest: s.held.digest, Read: s.held.read, Bridge: s.bridge, Unlisted: s.followers.Unlisted()}
	if s.held.document != nil {
		st.Version = s.held.document.Version
	}
	st.Meaning, st.Why = s.held.meaning(time.Now(), s.pace.stale)
	s.followers.Prepare(s.set.Load()) // as it is, but for those that are gone, and for what other layers say
	st.Rules = s.followers.States()
	if st.Meaning == policies.Unread || st.Meaning == policies.Stale {
		for i := range st.Rules {
			st.Rules[i].Meaning = st.Meaning
		}
	}
	return st
}

// Lag implements [follow.Lagger]: since is the time at which Redis last had the document in use, or last said that there
// is none while none was in use, or else the start of s.
func (s *Source) Lag() (since time.Time, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, why = s.held.meaning(time.Now(), s.pace.stale); why == "" {
		return time.Time{}, ""
	}
	return s.held.confirmed, why
}

// calmLog writes one line in its time for each kind, of which there are a few.
type calmLog struct {
	log   *slog.Logger
	every time.Duration
	app   string

	mu   sync.Mutex
	last map[string]time.Time // by kind
	open bool                 // there is a line of trouble, and none that it is over
}

func (l *calmLog) logger() *slog.Logger {
	if l.log != nil {
		return l.log
	}
	return slog.Default()
}

// warn writes a line of trouble of a kind, unless there was one.
func (l *calmLog) warn(kind, line string, err error) {
	if l.due(kind) {
		l.logger().Warn("redissource: "+line, "app", l.app, "error", err)
	}
}

// trouble is warn for what over ends.
func (l *calmLog) trouble(kind, line string, why string) {
	if !l.due(kind) {
		return
	}
	l.mu.Lock()
	l.open = true
	l.mu.Unlock()
	l.logger().Warn("redissource: "+line, "app", l.app, "why", why)
}

// over says that trouble is over, if there is a line of it.
func (l *calmLog) over() {
	l.mu.Lock()
	open := l.open
	l.open = false
	l.mu.Unlock()
	if open {
		l.logger().Info("redissource: the policies in Redis are read again", "app", l.app)
	}
}

func (l *calmLog) due(kind string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if last, said := l.last[kind]; said && now.Sub(last) < l.every {
		return false
	}
	if l.last == nil {
		l.last = map[string]time.Time{}
	}
	l.last[kind] = now
	return true
}
