package manage

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/core/policies"
)

// Bounds of what is kept of announcements.
const (
	fresh     = 3 * time.Second  // for as long nobody reads the announcements of an app again
	usable    = 30 * time.Second // an older standing is read before it is shown
	again     = 20 * time.Second // Run reads each app, whether somebody looks at it or not
	listed    = 10 * time.Second // a list is kept for those who ask again
	maxListed = 1000             // processes in lists, unless one app has more
	glimpse   = 2 * time.Second  // for reading them, for a page
	maxPlaces = 5                // of a limit of the code
	maxTexts  = 5                // of a limit of the code
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
	known     bool // whether tiers are those of a rule
	mixed     bool // whether rules differ in their tiers
	places    []string
	processes int
	origins   map[string]int // rules by meaning
	why       string         // why one of them cannot use it
}

// standings keeps the standing of each app, of maxStandings at most, and for a short while what processes have announced
// of those apps at which somebody looks. While Run runs, requests do not wait for Redis: they have what was read last,
// and Run reads it again.
type standings struct {
	mu      sync.Mutex
	apps    map[string]*standing
	lists   map[string]*list
	running bool
	wanted  map[string]bool // apps that are to be read again
	wake    chan struct{}
}

// list has what the processes of an app have announced.
type list struct {
	read, asked time.Time
	processes   []*policies.Process
	unreadable  int
}

// take keeps what a reading of the announcements of an app has found.
func (s *standings) take(app string, now time.Time, processes []*policies.Process, unreadable int, err error) {
	if errors.Is(err, context.Canceled) { // somebody has gone away, and nothing is known
		return
	}
	next := standing{}
	if err == nil {
		next = standingOf(processes)
		next.read, next.unreadable = now, unreadable
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.apps[app]
	if err != nil && kept != nil {
		next = *kept
	}
	next.tried, next.failed = now, err
	if kept == nil && len(s.apps) >= maxStandings {
		s.drop()
	}
	s.apps[app] = &next
	if l := s.lists[app]; l != nil && err == nil {
		l.read, l.processes, l.unreadable = now, processes, unreadable
		s.limit(app)
	}
}

// drop forgets the app that was read longest ago: one that is deleted, or was only asked for.
func (s *standings) drop() {
	oldest := ""
	for app, kept := range s.apps {
		if oldest == "" || kept.tried.Before(s.apps[oldest].tried) {
			oldest = app
		}
	}
	delete(s.apps, oldest)
}

// limit drops the lists for which nobody asks, and those of other apps than one while there are too many processes in all.
func (s *standings) limit(but string) {
	for {
		sum, oldest := 0, ""
		for app, l := range s.lists {
			sum += max(1, len(l.processes))
			if app != but && (oldest == "" || l.asked.Before(s.lists[oldest].asked)) {
				oldest = app
			}
		}
		if oldest == "" || sum <= maxListed && s.lists[but].asked.Sub(s.lists[oldest].asked) < listed {
			return
		}
		delete(s.lists, oldest)
	}
}

// list returns the processes of an app as they were read a moment ago. If they were not, kept is false, and the next
// reading is kept for those who ask again.
func (s *standings) list(app string, now time.Time) (processes []*policies.Process, unreadable int, kept bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		return nil, 0, false
	}
	l := s.lists[app]
	if l == nil {
		l = &list{}
		s.lists[app] = l
	}
	l.asked = now
	s.limit(app)
	if now.Sub(l.read) >= listed {
		return nil, 0, false
	}
	if now.Sub(l.read) >= fresh {
		s.want(app)
	}
	return l.processes, l.unreadable, true
}

// want lets Run read the announcements of an app again.
func (s *standings) want(app string) {
	s.wanted[app] = true
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// of returns the standing of an app if it is recent enough.
func (s *standings) of(app string, now time.Time) (standing, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.apps[app]
	switch {
	case kept == nil:
		return standing{}, false
	case now.Sub(kept.tried) < fresh:
		return *kept, true
	case !s.running || now.Sub(kept.tried) >= usable:
		return standing{}, false
	}
	s.want(app)
	return *kept, true
}

// Run reads what services announce, again and again, so that no request waits for it, until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	s := &m.standings
	runs := func(is bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running = is
		clear(s.lists)
	}
	runs(true)
	defer runs(false)
	round := time.NewTicker(again)
	defer round.Stop()
	m.readAll(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-round.C:
			m.readAll(ctx)
		case <-s.wake:
			m.readWanted(ctx)
		}
	}
}

// readAll reads the announcements of all apps that nobody has read lately.
func (m *Manager) readAll(ctx context.Context) {
	all, err := m.o.Record.Apps(ctx)
	if err != nil {
		return // whoever needs the record learns it
	}
	for _, a := range all {
		if m.o.Now().Sub(m.lastStanding(a.App).tried) >= again/2 {
			m.readAgain(ctx, a.App)
			m.readWanted(ctx)
		}
	}
}

// readWanted reads the announcements of the apps at which somebody looks.
func (m *Manager) readWanted(ctx context.Context) {
	m.standings.mu.Lock()
	wanted := slices.Sorted(maps.Keys(m.standings.wanted))
	clear(m.standings.wanted)
	m.standings.mu.Unlock()
	for _, app := range wanted {
		m.readAgain(ctx, app)
	}
}

func (m *Manager) readAgain(ctx context.Context, app string) {
	ctx, cancel := context.WithTimeout(ctx, reading)
	defer cancel()
	_, _, _ = m.inventory(ctx, app) // an error is kept
}

// standing returns that of an app, which is a few seconds old, or, if Redis does not answer, the last one with the
// error. It never fails.
func (m *Manager) standing(ctx context.Context, app string) standing {
	if kept, ok := m.standings.of(app, m.o.Now()); ok {
		return kept
	}
	ctx, cancel := context.WithTimeout(ctx, glimpse)
	defer cancel()
	processes, unreadable, err := m.inventory(ctx, app)
	if kept := m.lastStanding(app); !kept.tried.IsZero() {
		return kept
	}
	now := m.o.Now()
	next := standing{failed: err} // there is no room to keep it
	if err == nil {
		next = standingOf(processes)
		next.read, next.unreadable = now, unreadable
	}
	next.tried = now
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

// maxStandings bounds the apps that are kept: those that a record may have.
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
	if a.known {
		a.mixed = a.mixed || !maps.Equal(a.tiers, r.Tiers)
	} else {
		a.known, a.tiers = true, r.Tiers
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
