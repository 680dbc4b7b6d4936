package redisstore

import (
	"context"
	"time"

	"github.com/weir-go/weir/core/redisstore/internal/dial"
	"github.com/weir-go/weir/core/stats"
)

// Ground keeps callers that wait for decisions from leaving, until they are let go. It is for the store of one server.
func (s *Store) Ground() (waiting func() int, letGo func()) {
	l := s.only.lanes[deciding]
	l.mu.Lock()
	l.out += l.maxOut
	l.maxAside = 0 // nobody leaves aside of them either
	l.mu.Unlock()
	waiting = func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.queue.Len()
	}
	return waiting, func() { s.LetGo(func() {}) }
}

// LetGo lets those go that Ground has kept, after it has called f, while which none of them can leave.
func (s *Store) LetGo(f func()) {
	l := s.only.lanes[deciding]
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	l.out -= l.maxOut
	l.depart(time.Now())
}

// Together looks for a proxy, and reports whether a script may decide for many keys.
func (s *Store) Together() bool {
	s.only.searchProxy()
	return s.only.maxKeys() > 1
}

// Join lets a script decide for many keys without a search.
func (s *Store) Join() { s.only.proxy.state.Store(noProxy) }

// Trying reports whether the search that a crowd has set off is under way.
func (s *Store) Trying() bool { return s.only.proxy.running.Load() }

// Patient is dial.Patient.
var Patient = dial.Patient

// Unhurried lets flights be as late as that if they are sent again.
func (s *Store) Unhurried(d time.Duration) { s.grace = d }

// Idle reports whether no decision is under way.
func (s *Store) Idle() bool {
	l := s.only.lanes[deciding]
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out == 0
}

// Joined reports whether a script may decide for many keys.
func (s *Store) Joined() bool { return s.only.maxKeys() > 1 }

// Look lets the next crowd look whether connections were lost.
func (s *Store) Look() { s.only.proxy.next.Store(0) }

// AddScoresTo is AddScores to boards with places for so many keys.
func (s *Store) AddScoresTo(ctx context.Context, size int64, all ...stats.Scores) error {
	return s.addScores(ctx, all, size)
}

// ForgetNodes lets the nodes of a Cluster or Ring be made again, as if there had been many.
func (s *Store) ForgetNodes() { s.nodes.byClient.Clear() }

// Skew lets this machine's clock seem to be off by so much.
func (s *Store) Skew(off time.Duration) { s.skew.Store(off.Microseconds()) }
