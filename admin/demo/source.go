package demo

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/internal/followers"
)

// source is an [follow.Listener] that follows the document of an app in an exchange, as a redissource.Source follows
// that in Redis.
type source struct {
	app, name string
	started   time.Time
	usage     func() stats.Usage
	set       atomic.Pointer[follow.Set]

	mu        sync.Mutex // held while a Set is prepared and shown
	version   policies.Version
	digest    string
	followers followers.Followers
}

// newSource returns the source of a process of an app, which announces what usage returns.
func newSource(x *exchange, app, name string, usage func() stats.Usage) (*source, error) {
	s := &source{app: app, name: name, started: time.Now(), usage: usage}
	return s, x.join(s)
}

// Load implements [follow.Source].
func (s *source) Load() *follow.Set { return s.set.Load() }

// Listen implements [follow.Listener].
func (s *source) Listen(f *follow.Follower) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followers.Add(f, s.set.Load())
}

// take shows a published document.
func (s *source) take(d document) error {
	decoded, err := policies.DecodePublished(d.encoded)
	if err != nil {
		return fmt.Errorf("demo: the document of %q: %w", s.app, err)
	}
	set := decoded.Set()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followers.Prepare(set)
	s.version, s.digest = d.version, d.digest
	s.set.Store(set)
	return nil
}

// counted returns what the process has counted.
func (s *source) counted() *stats.Usage {
	u := s.usage()
	s.mu.Lock()
	defer s.mu.Unlock()
	u = s.followers.Usage(u)
	return &u
}

// process returns what the process announces.
func (s *source) process() *policies.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followers.Prepare(s.set.Load()) // without those that are gone
	p := &policies.Process{
		App: s.app, ID: s.name, Name: s.name, Started: s.started, Version: s.version, Digest: s.digest, Meaning: policies.Code,
		Rules: s.followers.States(), Omitted: s.followers.Unlisted(),
	}
	if s.digest != "" {
		p.Meaning = policies.Fleet
	}
	return p
}
