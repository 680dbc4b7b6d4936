package manage

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/core/policies"
)

// Bounds of what is kept of announcements.
const (
	fresh     = 3 * time.Second // for as long nobody reads the announcements of an app again
	glimpse   = 2 * time.Second // for reading them, for a page
	maxPlaces = 5               // of a limit of the code
	maxTexts  = 5               // of a limit of the code
)

// standing has the announcements of an app's processes in short: a few numbers for each process, and each rule once.
type standing struct {
	read       time.Time // zero if they have never been read
	failed     error     // of the last attempt, which is later than read
	tried      time.Time
	processes  int
	versions   map[policies.Version]int // processes
	unusable   int                      // processes
	stale      int                      // processes
	unreadable int
	rules      []counts.Rule
	moreRules  int
	policies   map[string]*announcedPolicy
}

// announcedPolicy is a policy as the rules of processes obey it.
type announcedPolicy struct {
	texts     []string // of the code
	tiers     map[string]string
	places    []string
	processes int
	origins   map[string]int // rules by meaning
	why       string         // why one of them cannot use it
}

// standings keeps the standing of each app, of policies.MaxApps at most.
type standings struct {
	mu   sync.Mutex
	apps map[string]*standing
}

// standing returns that of an app, which is a few seconds old at most, or, if Redis does not answer, the last one with
// the error. It never fails.
func (m *Manager) standing(ctx context.Context, app string) standing {
	m.standings.mu.Lock()
	kept := m.standings.apps[app]
	m.standings.mu.Unlock()
	now := m.o.Now()
	if kept != nil && now.Sub(kept.tried) < fresh {
		return *kept
	}
	ctx, cancel := context.WithTimeout(ctx, glimpse)
	defer cancel()
	processes, unreadable, err := m.inventory(ctx, app)
	next := standing{tried: now, failed: err}
	switch {
	case err == nil:
		next = standingOf(processes)
		next.read, next.tried, next.unreadable = now, now, unreadable
	case kept != nil:
		next = *kept
		next.tried, next.failed = now, err
	}
	m.standings.mu.Lock()
	defer m.standings.mu.Unlock()
	if _, known := m.standings.apps[app]; known || len(m.standings.apps) < maxStandings {
		m.standings.apps[app] = &next
	}
	return next
}

// patience bounds how long a look at counts may take, if the announcements could not be read right now: the counts are
// mostly in the same Redis, and a person has waited for that already.
func (s *standing) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.failed != nil {
		return context.WithTimeout(ctx, glimpse/5)
	}
	return context.WithCancel(ctx)
}

// lastStanding returns that of an app as it was read last, a zero one if it was not.
func (m *Manager) lastStanding(app string) standing {
	m.standings.mu.Lock()
	defer m.standings.mu.Unlock()
	if kept := m.standings.apps[app]; kept != nil {
		return *kept
	}
	return standing{}
}

// maxStandings bounds the apps that are kept: those that a record may have. Others are read again each time.
const maxStandings = 1000

func standingOf(processes []*policies.Process) standing {
	s := standing{processes: len(processes), versions: map[policies.Version]int{}, policies: map[string]*announcedPolicy{}}
	for _, p := range processes {
		s.versions[p.Version]++
		unusable := false
		counted := map[string]bool{}
		for i := range p.Rules {
			r := &p.Rules[i]
			a := s.policies[r.Policy]
			if a == nil {
				a = &announcedPolicy{origins: map[string]int{}}
				s.policies[strings.Clone(r.Policy)] = a
			}
			a.add(r)
			if !counted[r.Policy] {
				counted[r.Policy] = true
				a.processes++
			}
			unusable = unusable || r.Meaning == policies.Unusable
		}
		if unusable {
			s.unusable++
		}
		if p.Meaning == policies.Stale || p.Meaning == policies.Unread {
			s.stale++
		}
	}
	s.rules, s.moreRules = counts.Rules(processes)
	return s
}

func (a *announcedPolicy) add(r *policies.RuleState) {
	a.origins[string(r.Meaning)]++
	if r.Code != "" && len(a.texts) < maxTexts && !slices.Contains(a.texts, r.Code) {
		a.texts = append(a.texts, r.Code)
	}
	if r.Place != "" && len(a.places) < maxPlaces && !slices.Contains(a.places, r.Place) {
		a.places = append(a.places, r.Place)
	}
	if a.tiers == nil {
		a.tiers = r.Tiers
	}
	if r.Meaning == policies.Unusable && a.why == "" {
		a.why = r.Why
	}
}

// health returns the standing in numbers, nil if it is not known.
func (s *standing) health(now policies.Version) *Health {
	if s.read.IsZero() {
		return nil
	}
	h := &Health{Read: s.read.UTC(), Processes: s.processes, Unusable: s.unusable, Stale: s.stale}
	for version, n := range s.versions {
		if version.Compare(now) < 0 {
			h.Behind += n
		}
	}
	for _, a := range s.policies {
		if a.origins[string(policies.Trial)] > 0 {
			h.Trials++
		}
	}
	return h
}
