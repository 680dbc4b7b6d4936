package observe

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/observe/internal/worst"
)

// Boards keep what the processes of a fleet have counted, so that each can ask who are the worst callers of all.
// *redisstore.Store is one.
type Boards interface {
	// AddScores adds what this process has counted. The error is a *core.BatchError if a part was not added.
	AddScores(ctx context.Context, all []stats.Scores) error
	// Scores returns the n keys that count most on these boards together, the first the one that surely counts most. Any
	// other key counts rest at most.
	Scores(ctx context.Context, boards []string, n int) (scores []stats.Score, rest int64, err error)
}

// What is shared, and how often. A board is that of a policy and a minute.
const (
	shareEvery    = 10 * time.Second
	shareWithin   = 5 * time.Second
	shareKeys     = 50  // of each table at a time, and
	shareMostKeys = 150 // with those that could not be added before
	sharePolicies = 8   // if none are named
	mostMinutes   = 120 // for which boards are kept
)

// sharing adds what is new to boards, every 10 seconds.
type sharing struct {
	boards   Boards
	policies []string // nil means the first
	source   string   // a name of this process, with the time of its start
	stop     chan struct{}
	done     chan struct{}
	fails    atomic.Pointer[Sharing] // nil unless the last addition has failed

	mu       sync.Mutex
	byPolicy map[string]*shared
}

// shared is the state of a policy that is shared.
type shared struct {
	minute int64 // of the board to which was added last
	missed int64 // that was said there
	units  map[string]int64
	carry  int64 // missed that no board has
}

// Share adds what the worst callers of each policy were counted to boards of the fleet, every 10 seconds: for each policy
// the 50 keys with most that is new. [FleetWorst] reads them. Name the policies to share, or none for the first 8 that
// refuse somebody. With WorstBy those are units.
//
// It starts a goroutine, which Close ends. Give it a store after that was made, as in o.Share(store).
//
// A policy takes 17 MB of Redis at most, if 1000 keys and more were refused in each minute of the last two hours.
func (o *Observer) Share(b Boards, policies ...string) error {
	if b == nil {
		return errors.New("observe: Share needs boards; give it a redisstore.Store")
	}
	if len(policies) > worstPolicies {
		return fmt.Errorf("observe: Share of %d policies; give at most %d", len(policies), worstPolicies)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return errors.New("observe: Share after Close")
	case o.sharing != nil:
		return errors.New("observe: Share was called before; call it once")
	}
	s := &sharing{
		boards: b, policies: slices.Clone(policies), source: rand.Text(), stop: make(chan struct{}), done: make(chan struct{}),
		byPolicy: map[string]*shared{},
	}
	o.sharing = s
	go s.run(&o.callers)
	return nil
}

// Boards returns the boards that were given to Share, or nil.
func (o *Observer) Boards() Boards {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sharing == nil {
		return nil
	}
	return o.sharing.boards
}

// Close ends what Share has begun, after it has added what is new since the last time; it takes some seconds if the
// boards do not answer. Without Share it does nothing. The Observer still counts.
func (o *Observer) Close() error {
	o.mu.Lock()
	s, closed := o.sharing, o.closed
	o.closed = true
	o.mu.Unlock()
	if s == nil {
		return nil
	}
	if !closed {
		close(s.stop)
	}
	<-s.done
	return nil
}

func (s *sharing) run(c *callers) {
	defer close(s.done)
	every := time.NewTicker(shareEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			s.share(c)
		case <-s.stop:
			s.share(c)
			return
		}
	}
}

// share adds what is new.
func (s *sharing) share(c *callers) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tables := c.tables.Load()
	if tables == nil {
		return
	}
	now := time.Now()
	var all []stats.Scores
	var of []*shared
	for _, t := range *tables {
		if !s.shares(t.policy) {
			continue
		}
		p := s.byPolicy[t.policy]
		if p == nil {
			p = &shared{}
			s.byPolicy[t.policy] = p
		}
		if p.collect(t.Table, now) {
			all = append(all, stats.Scores{Board: board(t.policy, p.minute), Source: s.source, Units: p.units, Missed: p.missed})
			of = append(of, p)
		}
	}
	if len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), shareWithin) //nolint:forbidigo // it is of no request
	defer cancel()
	err := s.boards.AddScores(ctx, all)
	s.note(err, now)
	var batch *core.BatchError
	for i, p := range of {
		e := err
		if errors.As(err, &batch) {
			e = batch.Errs[i]
		}
		p.added(e)
	}
}

// note keeps the failure of an addition for Snapshot.
func (s *sharing) note(err error, now time.Time) {
	if err == nil {
		s.fails.Store(nil)
		return
	}
	fails := &Sharing{FailsSince: now, Err: err.Error()}
	if before := s.fails.Load(); before != nil {
		fails.FailsSince = before.FailsSince
	}
	s.fails.Store(fails)
}

// shares reports whether a policy is shared.
func (s *sharing) shares(policy string) bool {
	if s.policies != nil {
		return slices.Contains(s.policies, policy)
	}
	return s.byPolicy[policy] != nil || len(s.byPolicy) < sharePolicies
}

// collect takes what is new of a table, beside what could not be added before, and reports whether there is anything.
func (p *shared) collect(t *worst.Table, now time.Time) bool {
	if minute := now.Unix() / 60; minute != p.minute {
		p.minute, p.missed = minute, 0
	}
	news, missed := t.News(time.Duration(now.UnixMicro())*time.Microsecond, shareKeys)
	if p.units == nil {
		p.units = map[string]int64{}
	}
	for key, n := range news {
		p.units[key] += int64(n) //nolint:gosec // it would take centuries
	}
	p.missed += p.carry + int64(missed) //nolint:gosec // it would take centuries
	some := len(p.units) > 0 || missed > 0 || p.carry > 0
	p.carry = 0
	if len(p.units) > shareMostKeys {
		most := slices.SortedFunc(maps.Keys(p.units), func(a, b string) int {
			return cmp.Or(cmp.Compare(p.units[b], p.units[a]), cmp.Compare(a, b))
		})
		p.missed += p.units[most[shareMostKeys]]
		for _, key := range most[shareMostKeys:] {
			delete(p.units, key)
		}
	}
	return some
}

// added notes what has become of an addition. Units that surely were not added are in the next one; those that may have
// been are missed.
func (p *shared) added(err error) {
	if err == nil {
		p.units = nil
		return
	}
	// The board need not know what is missed, and the next may be that of another minute.
	p.carry, p.missed = p.missed, 0
	var failed *core.StoreError
	if errors.As(err, &failed) && failed.MaybeExecuted {
		most := int64(0)
		for _, n := range p.units {
			most = max(most, n)
		}
		p.carry += most
		p.units = nil
	}
}

// board is the name of the board of a policy and a minute since the epoch.
func board(policy string, minute int64) string { return policy + ":" + strconv.FormatInt(minute, 10) }

// FleetWorst returns the n callers of a policy that all processes of the fleet have counted most, in the last so many
// minutes, up to two hours, and the minute that has begun. The worst comes first. Any caller that is not among them was
// counted rest at most.
//
// What a process has counted since it was last heard of, for 10 seconds at most, is in no bound, nor is what a process
// that was killed has not sent. Where the store hashes keys, so are those of the callers: redisstore.Store.ScoreKey says
// what stands for a key.
func FleetWorst(ctx context.Context, b Boards, policy string, last time.Duration, n int) (all []Caller, rest uint64, err error) {
	now := time.Now().Unix() / 60
	minutes := min(max(int64((last+time.Minute-1)/time.Minute), 0), mostMinutes-1)
	var boards []string
	for m := now - minutes; m <= now; m++ {
		boards = append(boards, board(policy, m))
	}
	scores, most, err := b.Scores(ctx, boards, n)
	if err != nil {
		return nil, 0, err
	}
	for _, s := range scores {
		all = append(all, Caller{
			Policy: policy, Key: s.Key, Count: uint64(s.High), Error: uint64(s.High - s.Low), //nolint:gosec // they are positive
			Since: time.Unix((now-minutes)*60, 0),
		})
	}
	return all, uint64(max(most, 0)), nil //nolint:gosec // it is not negative
}
