package policies_test

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/policies"
)

// plain is a Source that prepares nothing.
type plain = atomic.Pointer[follow.Set]

// preparing is a Source that prepares what it shows.
type preparing struct {
	plain

	mu        sync.Mutex
	followers []*follow.Follower
}

func (p *preparing) Listen(f *follow.Follower) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, alive := f.Prepare(p.Load()); alive {
		p.followers = append(p.followers, f)
	}
}

func (p *preparing) show(s *follow.Set) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.followers {
		f.Prepare(s)
	}
	p.Store(s)
}

// byHand merges Sets one name at a time.
func byHand(parts ...*follow.Set) *follow.Set {
	all := &follow.Set{Policies: map[string]string{}, Tiers: map[string]map[string]string{}, Keys: map[string]map[string]string{}}
	var revisions []string
	none := true
	names := map[string]bool{}
	for _, p := range parts {
		if p == nil {
			continue
		}
		none = false
		if p.Revision != "" {
			revisions = append(revisions, p.Revision)
		}
		mine := map[string]bool{}
		for name := range p.Policies {
			mine[name] = true
		}
		for name := range p.Tiers {
			mine[name] = true
		}
		for name := range p.Keys {
			mine[name] = true
		}
		for name := range mine {
			if names[name] {
				continue
			}
			names[name] = true
			if v, ok := p.Policies[name]; ok {
				all.Policies[name] = v
			}
			if v, ok := p.Tiers[name]; ok {
				all.Tiers[name] = v
			}
			if v, ok := p.Keys[name]; ok {
				all.Keys[name] = v
			}
		}
	}
	if none {
		return nil
	}
	all.Revision = strings.Join(revisions, "+")
	return all
}

func same(t require.TestingT, want, got *follow.Set) {
	require.Equal(t, want == nil, got == nil)
	if want == nil {
		return
	}
	require.Equal(t, want.Revision, got.Revision)
	require.True(t, maps.Equal(want.Policies, got.Policies), "%v, and not %v", got.Policies, want.Policies)
	for _, of := range [][2]map[string]map[string]string{{want.Tiers, got.Tiers}, {want.Keys, got.Keys}} {
		require.True(t, maps.EqualFunc(of[0], of[1], maps.Equal[map[string]string]), "%v, and not %v", of[1], of[0])
	}
}

// aSet draws Sets of a few names.
var aSet = rapid.Custom(func(t *rapid.T) *follow.Set {
	names := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	texts := rapid.MapOfN(rapid.SampledFrom([]string{"pro", "free"}), aText, 0, 2)
	s := &follow.Set{Revision: rapid.SampledFrom([]string{"", "1.1", "cafe"}).Draw(t, "revision")}
	if rapid.Bool().Draw(t, "policies") {
		s.Policies = rapid.MapOf(names, rapid.OneOf(aText, rapid.Just(""))).Draw(t, "policies")
	}
	if rapid.Bool().Draw(t, "tiers") {
		s.Tiers = rapid.MapOf(names, texts).Draw(t, "tiers")
	}
	if rapid.Bool().Draw(t, "keys") {
		s.Keys = rapid.MapOf(names, texts).Draw(t, "keys")
	}
	return s
})

// Layers agree with a merge by hand, whatever changes, and are made anew only if something has changed. A follower is
// prepared for each Set before Load returns it.
func TestLayersAreAMerge(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 4).Draw(t, "layers")
		sources := make([]follow.Source, n)
		listens := false
		for i := range sources {
			if rapid.Bool().Draw(t, "listens") {
				sources[i], listens = &preparing{}, true
			} else {
				sources[i] = &plain{}
			}
		}
		all := policies.Layers(sources...)
		listener, ok := all.(follow.Listener)
		require.Equal(t, listens, ok)
		prepared := map[*follow.Set]bool{}
		if ok {
			rules := []follow.Rule{{Policy: "a"}}
			listener.Listen(follow.NewFollower(rules, func(s *follow.Set) ([]follow.Entry, bool) {
				prepared[s] = true
				return nil, true
			}))
			for _, s := range sources {
				if p, ok := s.(*preparing); ok {
					require.Equal(t, rules, p.followers[0].Rules(), "a layer sees who goes by it")
				}
			}
		}
		parts := make([]*follow.Set, n)
		for range rapid.IntRange(1, 10).Draw(t, "changes") {
			byPreparing := false
			if n > 0 {
				i := rapid.IntRange(0, n-1).Draw(t, "which")
				if parts[i] = nil; rapid.IntRange(0, 5).Draw(t, "nothing") > 0 {
					parts[i] = aSet.Draw(t, "set")
				}
				switch s := sources[i].(type) {
				case *preparing:
					s.show(parts[i])
					byPreparing = true
				case *plain:
					s.Store(parts[i])
				}
			}
			got := all.Load()
			same(t, byHand(parts...), got)
			require.Same(t, got, all.Load())
			if byPreparing {
				require.True(t, prepared[got])
			}
		}
	})
}

func TestLayersAllocateNothing(t *testing.T) {
	var file, redis plain
	file.Store(&follow.Set{Policies: map[string]string{"a": "1/1s"}})
	redis.Store(&follow.Set{Policies: map[string]string{"b": "1/1s"}})
	var none *atomic.Pointer[follow.Set] // as of a file that could not be read
	all := policies.Layers(&file, nil, none, &redis)
	all.Load()
	assert.Zero(t, testing.AllocsPerRun(100, func() { all.Load() }))
}

// A Limiter behind layers obeys the first that has its policy, and finds each Set prepared.
func TestLayersOfALimiter(t *testing.T) {
	t.Parallel()
	file, redis := &plain{}, &preparing{}
	store, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	l, err := enforce.New(store, core.MustParse("mail: 1/1m"), enforce.Options{Source: policies.Layers(file, redis)})
	require.NoError(t, err)
	defer l.Close()
	assert.Equal(t, "mail: 1/1m", l.Policy().String())
	redis.show(&follow.Set{Policies: map[string]string{"mail": "2/1m"}})
	assert.Equal(t, "mail: 2/1m", l.Policy().String())
	file.Store(&follow.Set{Policies: map[string]string{"mail": "3/1m"}})
	assert.Equal(t, "mail: 3/1m", l.Policy().String())
	file.Store(&follow.Set{Policies: map[string]string{"mail": ""}})
	assert.Equal(t, "mail: 1/1m", l.Policy().String(), "as the code says, whatever Redis has")
	file.Store(nil)
	assert.Equal(t, "mail: 2/1m", l.Policy().String())
}

// late is a Source that lags.
type late struct {
	plain

	since time.Time
	why   string
}

func (l *late) Lag() (time.Time, string) { return l.since, l.why }

// Layers lag as long as one of them does, since the first did.
func TestLayersLag(t *testing.T) {
	t.Parallel()
	file, redis := &late{}, &late{}
	layers := policies.Layers(file, &plain{}, redis).(follow.Lagger)
	lag := func() string {
		since, why := layers.Lag()
		if since.IsZero() {
			return why
		}
		return since.UTC().Format("15:04 ") + why
	}
	assert.Empty(t, lag())
	redis.since, redis.why = time.Unix(7200, 0), "Redis is gone"
	assert.Equal(t, "02:00 Redis is gone", lag())
	file.since, file.why = time.Unix(3600, 0), "no such file"
	assert.Equal(t, "01:00 no such file; Redis is gone", lag())
	redis.why = ""
	assert.Equal(t, "01:00 no such file", lag())
}

// No caller sees a mix of what one layer has, none goes back, and none waits, however layers change.
func TestLayersAreSafe(t *testing.T) {
	t.Parallel()
	file, redis := &plain{}, &preparing{}
	all := policies.Layers(file, redis)
	all.(follow.Listener).Listen(follow.NewFollower(nil, func(*follow.Set) ([]follow.Entry, bool) { return nil, true }))
	stop := make(chan struct{})
	var running sync.WaitGroup
	for range 3 {
		running.Go(func() {
			last := 0
			for {
				select {
				case <-stop:
					return
				default:
				}
				s := all.Load()
				if s == nil || len(s.Policies) < 2 {
					continue
				}
				var n int
				if _, err := fmt.Sscan(s.Policies["a"], &n); err != nil || s.Policies["a"] != s.Policies["b"] || n < last {
					t.Errorf("%v after %d", s.Policies, last)
					return
				}
				last = n
			}
		})
	}
	for n := range 300 {
		redis.show(&follow.Set{Policies: map[string]string{"a": fmt.Sprint(n), "b": fmt.Sprint(n)}})
		file.Store(&follow.Set{Policies: map[string]string{"c": fmt.Sprint(n)}})
	}
	close(stop)
	running.Wait()
}

// broken is a Source whose Load panics, once it was called that often.
type broken struct {
	plain
	calls atomic.Int64
}

func (b *broken) Load() *follow.Set {
	if b.calls.Add(-1) == 0 {
		panic("broken")
	}
	return b.plain.Load()
}

// A panic of a layer reaches the caller, and what follows is shown all the same.
func TestPanicOfALayer(t *testing.T) {
	layer := new(broken)
	l := policies.Layers(layer, new(plain))
	layer.Store(&follow.Set{Revision: "1"})
	layer.calls.Store(2) // the first sees the change, and the second takes it up
	assert.PanicsWithValue(t, "broken", func() { l.Load() })
	assert.Equal(t, "1", l.Load().Revision)
}
