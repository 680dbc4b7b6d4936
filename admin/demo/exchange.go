package demo

import (
	"context"
	"slices"
	"sync"

	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/stats"
)

// exchange holds what Redis holds for a fleet: the published documents, and the processes with what they obey. A
// document reaches the sources of its app before publish returns, and a process is gone when its source is closed.
type exchange struct {
	mu        sync.Mutex
	documents map[string]document // by app
	sources   map[string][]*source
}

// document is one that is published.
type document struct {
	version policies.Version
	digest  string
	encoded []byte
}

func newExchange() *exchange {
	return &exchange{documents: map[string]document{}, sources: map[string][]*source{}}
}

// version returns that of the published document of an app.
func (x *exchange) version(app string) policies.Version {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.documents[app].version
}

// publish shows a document to the sources of its app. They decode it as they would from Redis.
func (x *exchange) publish(app string, d document) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.documents[app] = d
	for _, s := range x.sources[app] {
		if err := s.take(d); err != nil {
			return err
		}
	}
	return nil
}

// join makes a source follow the document of its app.
func (x *exchange) join(s *source) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sources[s.app] = append(x.sources[s.app], s)
	if d, published := x.documents[s.app]; published {
		return s.take(d)
	}
	return nil
}

// leave ends that.
func (x *exchange) leave(s *source) {
	x.mu.Lock()
	defer x.mu.Unlock()
	kept := x.sources[s.app][:0]
	for _, other := range x.sources[s.app] {
		if other != s {
			kept = append(kept, other)
		}
	}
	clear(x.sources[s.app][len(kept):])
	x.sources[s.app] = kept
}

// processes returns what the processes of an app announce, as redissource.Processes does: encoded and decoded, so that
// what has no place in an announcement is cut here as well.
func (x *exchange) processes(_ context.Context, app string) (all []*policies.Process, unreadable int, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.sources[app] {
		p, err := policies.DecodeProcess(s.process().Encode())
		if err != nil {
			unreadable++
			continue
		}
		all = append(all, p)
	}
	return all, unreadable, nil
}

// usages calls f with what each process of an app has counted, as redissource.Usages does.
func (x *exchange) usages(_ context.Context, app string, f func(id string, u *stats.Usage, err error)) error {
	x.mu.Lock()
	sources := slices.Clone(x.sources[app])
	x.mu.Unlock()
	for _, s := range sources {
		u, err := policies.DecodeUsage(policies.EncodeUsage(s.counted()))
		f(s.name, u, err)
	}
	return nil
}
