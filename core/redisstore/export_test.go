package redisstore

import (
	"time"

	"github.com/weir-go/weir/core/redisstore/internal/dial"
)

// Ground keeps those who wait for decisions from leaving, until they are let go. It is for the
// store of one server.
func (s *Store) Ground() (waiting func() int, letGo func()) {
	l := s.only.lanes[deciding]
	l.mu.Lock()
	l.out += l.most
	l.spare = 0 // nobody leaves aside of them either
	l.mu.Unlock()
	waiting = func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.waiting
	}
	return waiting, func() { s.LetGo(func() {}) }
}

// LetGo lets those go whom Ground has kept, after it has called f, while which none of them can leave.
func (s *Store) LetGo(f func()) {
	l := s.only.lanes[deciding]
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	l.out -= l.most
	l.depart(time.Now())
}

// Together tries whether a script may decide for many keys, and reports what has come of it.
func (s *Store) Together() bool {
	s.only.try()
	return s.only.keys() > 1
}

// Join lets a script decide for many keys without a try.
func (s *Store) Join() { s.only.joint.state.Store(together) }

// Trying reports whether the try that a crowd has set off is under way.
func (s *Store) Trying() bool { return s.only.joint.busy.Load() }

// Patient is what the dialer of ClientOptions makes of a connection.
var Patient = dial.Patient

// Unhurried lets flights be as late as that if they are sent again.
func (s *Store) Unhurried(d time.Duration) { s.lateness = d }

// Idle reports whether no decision is under way.
func (s *Store) Idle() bool {
	l := s.only.lanes[deciding]
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out == 0
}
