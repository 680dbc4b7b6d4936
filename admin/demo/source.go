package demo

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/policies"
)

// source is an [enforce.Listener] that follows the document of an app in an exchange, as a redissource.Source follows
// that in Redis.
type source struct {
	app, id, name string
	started       time.Time
	set           atomic.Pointer[enforce.Set]

	mu        sync.Mutex // held while a Set is prepared and shown
	version   policies.Version
	digest    string
	followers []*enforce.Follower
}

// newSource returns the source of a process of an app.
func newSource(x *exchange, app, name string) (*source, error) {
	s := &source{app: app, id: name, name: name, started: time.Now()}
	return s, x.join(s)
}

// Load implements [enforce.Source].
func (s *source) Load() *enforce.Set { return s.set.Load() }

// Listen implements [enforce.Listener].
func (s *source) Listen(f *enforce.Follower) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.Prepare(s.set.Load())
	s.followers = append(s.followers, f)
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
	for _, f := range s.followers {
		f.Prepare(set)
	}
	s.version, s.digest = d.version, d.digest
	s.set.Store(set)
	return nil
}

// process returns what the process announces.
func (s *source) process() *policies.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &policies.Process{
		App: s.app, ID: s.id, Name: s.name, Started: s.started, Version: s.version, Digest: s.digest, Meaning: policies.Code,
	}
	if s.digest != "" {
		p.Meaning = policies.Fleet
	}
	for _, f := range s.followers {
		entries, _ := f.Prepare(s.set.Load())
		for _, r := range f.Rules() {
			state := policies.RuleState{
				Policy: r.Policy, Place: r.Place, Key: r.Key, OverLimit: r.OverLimit, Code: r.Text, Now: r.Text,
				Tiers: r.Tiers, Meaning: policies.Code,
			}
			for _, e := range entries {
				if e.Policy != r.Policy || e.Place != r.Place || e.Field != "Policies" {
					continue
				}
				switch state.Now, state.Meaning = e.Now, policies.Fleet; {
				case e.Err != nil:
					state.Meaning, state.Why = policies.Unusable, e.Err.Error()
				case e.Trial:
					state.Meaning = policies.Trial
				}
			}
			p.Rules = append(p.Rules, state)
		}
	}
	return p
}
