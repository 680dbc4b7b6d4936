package policies

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core/follow"
)

// Layers returns a Source of several: for each policy the first one that has it holds, with its tiers and keys. A file
// on the machine before Redis is a way out when Redis and the record are gone:
//
//	source := policies.Layers(file, redis)
//
// A policy that a layer has without a text, tiers and keys is as the code says, whatever the layers behind it say. The
// Set is made anew when one of theirs has changed, and its Revision has theirs, joined by "+". Layers is an
// [follow.Listener] if one of the sources is, and an [follow.Lagger]. A source that is nil is left out, and so is a nil pointer.
func Layers(sources ...follow.Source) follow.Source {
	l := &layers{}
	listens := false
	for _, s := range sources {
		if v := reflect.ValueOf(s); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			continue
		}
		_, is := s.(follow.Listener)
		listens = listens || is
		l.sources = append(l.sources, s)
	}
	l.shown.Store(&merged{parts: make([]*follow.Set, len(l.sources))})
	if listens {
		return &listeningLayers{l}
	}
	return l
}

// layers shows what several Sources have, merged.
type layers struct {
	sources []follow.Source
	shown   atomic.Pointer[merged]
	mu      sync.Mutex // held while Sets are merged and prepared
	next    *merged    // prepared by a layer, which may show it next; nil if there is none
}

// merged is a Set made of one of each layer.
type merged struct {
	parts []*follow.Set
	set   *follow.Set
}

// Load implements [follow.Source].
func (l *layers) Load() *follow.Set {
	m := l.shown.Load()
	for i, s := range l.sources {
		if s.Load() != m.parts[i] {
			return l.change()
		}
	}
	return m.set
}

// Lag implements [follow.Lagger]: it is that of the layers that lag.
func (l *layers) Lag() (since time.Time, why string) {
	var whys []string
	for _, s := range l.sources {
		lagger, ok := s.(follow.Lagger)
		if !ok {
			continue
		}
		if at, why := lagger.Lag(); why != "" {
			if since.IsZero() || at.Before(since) {
				since = at
			}
			whys = append(whys, why)
		}
	}
	return since, strings.Join(whys, "; ")
}

// change merges what the layers have now. Callers that come meanwhile go by the Set before: none waits.
func (l *layers) change() *follow.Set {
	if l.mu.TryLock() {
		l.showNow()
	}
	return l.shown.Load().set
}

// showNow shows what the layers have now, not what a caller that was slow has seen. It unlocks l.mu, also if a layer
// panics.
func (l *layers) showNow() {
	defer l.mu.Unlock()
	l.shown.Store(l.merge(l.parts()))
}

// parts returns what each layer has now.
func (l *layers) parts() []*follow.Set {
	parts := make([]*follow.Set, len(l.sources))
	for i, s := range l.sources {
		parts[i] = s.Load()
	}
	return parts
}

// merge returns what the parts make together: as before, if they are the same. l.mu is held.
func (l *layers) merge(parts []*follow.Set) *merged {
	for _, m := range []*merged{l.shown.Load(), l.next} {
		if m != nil && slices.Equal(m.parts, parts) {
			return m
		}
	}
	return &merged{parts, merge(parts)}
}

// merge returns a Set in which each policy is that of the first part that has it.
func merge(parts []*follow.Set) *follow.Set {
	there := slices.DeleteFunc(slices.Clone(parts), func(s *follow.Set) bool { return s == nil })
	switch len(there) {
	case 0:
		return nil
	case 1:
		return there[0]
	}
	all := &follow.Set{
		Policies: maps.Clone(there[0].Policies), Tiers: maps.Clone(there[0].Tiers), Keys: maps.Clone(there[0].Keys),
	}
	var revisions []string
	for i, part := range there {
		if part.Revision != "" {
			revisions = append(revisions, part.Revision)
		}
		if i > 0 {
			add(all, part)
		}
	}
	all.Revision = strings.Join(revisions, "+")
	return all
}

// add adds to a Set the policies of another one that it does not have.
func add(to, from *follow.Set) {
	taken := func(name string) bool {
		_, policy := to.Policies[name]
		_, tiers := to.Tiers[name]
		_, keys := to.Keys[name]
		return policy || tiers || keys
	}
	missing := &follow.Set{
		Policies: without(from.Policies, taken), Tiers: without(from.Tiers, taken), Keys: without(from.Keys, taken),
	}
	to.Policies = with(to.Policies, missing.Policies)
	to.Tiers = with(to.Tiers, missing.Tiers)
	to.Keys = with(to.Keys, missing.Keys)
}

func without[V any](m map[string]V, taken func(string) bool) map[string]V {
	left := make(map[string]V, len(m))
	for name, v := range m {
		if !taken(name) {
			left[name] = v
		}
	}
	return left
}

func with[V any](m, more map[string]V) map[string]V {
	if m == nil {
		return more
	}
	maps.Copy(m, more)
	return m
}

// listeningLayers are layers of which one at least prepares what it shows.
type listeningLayers struct{ *layers }

// Listen implements [follow.Listener]: f is prepared for what each of the layers is about to show, merged with what the
// others show.
func (l *listeningLayers) Listen(f *follow.Follower) {
	for i, s := range l.sources {
		listener, ok := s.(follow.Listener)
		if !ok {
			continue
		}
		listener.Listen(follow.NewFollower(f.Rules(), func(set *follow.Set) ([]follow.Entry, bool) {
			l.mu.Lock()
			defer l.mu.Unlock()
			parts := l.parts()
			parts[i] = set
			m := l.merge(parts)
			if m != l.shown.Load() {
				l.next = m
			}
			return f.Prepare(m.set)
		}))
	}
}
