// Package redisstore keeps counts in Redis, so that one limit holds for a whole
// fleet: one key, one script, one round trip for each decision, by the server's
// clock. It works on a single server, Sentinel, Cluster and Ring.
//
// Decisions that are asked for while others are under way travel together in a flight, which is one pipeline, and one
// script decides for many keys where all of them are on one server. What Redis has just refused is
// refused again without it, for a second at most; see Options.DenyCache.
//
// A script runs at most once for a decision, even if its reply is lost: then the
// store fails and the policy's fail word decides, but nothing is charged twice.
// A store that does not answer costs a request no more than the deadline, and
// after five failures in a row it is asked only twice a second until it is back.
//
// It keeps permits as well, in separate keys: a Store is a [core.PermitStore].
//
// Its user needs the rights to EVALSHA, EVAL, TIME, GET, SET and DEL on the keys of its
// prefix; for permits also ZADD, ZCARD, ZCOUNT, ZRANGE, ZRANGEBYSCORE, ZREM,
// ZREMRANGEBYSCORE, ZSCORE and PEXPIRE; in a Cluster CLUSTER SLOTS and, while slots move,
// ASKING; on a Ring PING, which helps everywhere; in another database than 0 SELECT. With
// the right to MGET, decisions for many keys take Redis less time. A Store never writes a
// key without a TTL. Keep it on a server that does not evict: an evicted key is a limit
// that starts over.
//
// In the repository, docs/redis.md says how to choose a client and what each option bounds and
// costs, and docs/when-redis-fails.md what each fault looks like.
package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore/internal/denials"
	"github.com/weir-go/weir/core/redisstore/internal/keys"
	"github.com/weir-go/weir/core/stats"
)

// Read the files in this order, which is the way of a decision:
//
//  1. store.go: Take makes an entry of it, and a Result of the reply
//  2. lane.go: ask lets the entry fly alone or wait in the queue; next, run and land send the flights
//  3. passenger.go and entry.go: an entry in the queue; a command, and when it is sent again (retry)
//  4. flight.go: send, collect what came back, judge failures
//  5. wake.go: when flights leave, and who wakes whom, with a picture
//  6. classify.go, breaker.go, repair.go: the classes of failure, and what each leads to
//  7. share.go and proxy.go: one script for many keys, and whether it may be used
//
// The rest can wait: node.go (servers), script.go (what is computed once for a policy), deadline.go (contexts of
// flights), background.go, permits.go, scores.go and state.go (the other calls), client.go and observe.go.

// DefaultDeadline is the deadline of a decision if Options.Deadline is 0.
const DefaultDeadline = 50 * time.Millisecond

// DefaultFlights is the number of flights that may be under way to one server at a time if Options.Flights is 0, and
// DefaultMaxKeys the number of keys for which one script decides if Options.MaxKeys is 0: everybody else on the server
// waits for that script.
const (
	DefaultFlights = 8
	DefaultMaxKeys = 64
)

const maxFlights = 64

// Options are the settings of a [Store]. The zero value is a good choice.
type Options struct {
	// Deadline bounds the time in which Take, Acquire and Reset return, whatever their context says; 0 means
	// DefaultDeadline. A decision for which Redis takes longer is a failure of the store, which stops waiting three
	// milliseconds earlier, or 6 % of the deadline if that is less, because timers are late: with 50ms, after 47 ms.
	// Only if the process is stopped or has no processor at that moment, the answer comes later, by five milliseconds
	// of running at most: then a reply that has arrived meanwhile is used, and a command that could not be written is
	// sent once more. Timers are no finer than about a millisecond, and so answers may be late by that under a deadline
	// below 20 ms. The time counts from the call, but for composing the scripts of a kind of policy, which takes some
	// milliseconds once.
	//
	// A caller whose context leaves it less than four thirds of the deadline has its answer after three quarters of the
	// time that is left to it, so that the policy's fail word can still decide.
	//
	// Refund, Renew and Release, for which no request waits, may take as long as their caller's context lets them, up
	// to a second.
	Deadline time.Duration
	// Prefix begins every key; "" means "weir". It has 1 to 64 letters, digits,
	// "_", "." or "-". Policies that are named alike under one prefix share their
	// counts, also those of different services: give each service its own.
	Prefix string
	// HashKeys is a secret of at least 16 bytes with which every key is hashed
	// (HMAC-SHA-256), so that the server learns nobody's address or name; the policy's
	// name stays readable. nil means that keys can be read with redis-cli, which helps
	// on call. Changing it starts all counts over.
	HashKeys []byte
	// ScoreKeys makes the keys of all calls texts that [Store.ScoreKey] has returned, such as those of [Store.Scores]: a hash
	// among them is looked for as it is, and not hashed once more. It is for tools that look at the counts of keys that
	// they know from there, without the secret; HashKeys is nil then.
	ScoreKeys bool
	// Flights is the number of flights (round trips, each a pipeline) that may be under way to one server at a time, up
	// to 64; 0 means DefaultFlights. Decisions that are asked for while others are under way travel together in one.
	// A decision that finds no flight within three quarters of the deadline, or half of it if the server is far away,
	// fails with the class "busy", or "timeout" if the server has answered nobody meanwhile. More flights help only if
	// the server is far away.
	Flights int
	// MaxKeys is the number of keys for which one script may decide on a single server, up to DefaultMaxKeys, which 0
	// means. It is used once a try with a few keys has shown that a script for many keys and one for a single key see
	// the same state, as they do not behind a proxy that sends commands to one of several servers by their first key.
	// That is tried again when a connection was lost. 1 means a command for each key, and no tries. On a Cluster and a
	// Ring it is always 1.
	MaxKeys int
	// DenyCache is the number of refusals that are remembered, in about 200 bytes each and the key; 0
	// means DefaultDenyCache, and -1 that none are. While a refusal is remembered, Redis is
	// not asked for what it would refuse again, so that a client that does not stop costs it
	// next to nothing. Each request has the time that is left to wait all the same, and none is admitted from memory. One more refusal takes the place of
	// one that was not asked for again; the key that loses its place asks Redis once more.
	//
	// What it may cost: units that another process gives back, a Reset by another process and
	// a key deleted in Redis may go unnoticed for a second, or for 250 ms if the policy has
	// "wait" or a leaky-bucket, where a caller that gives up waiting gives back, and from the first
	// Refund of the policy through this Store. What goes through this Store counts at once: a
	// Refund, a Reset, and what it takes itself, at whatever cost and by whatever numbers.
	DenyCache int
	// Observe is called for each flight when it is over. It keeps no caller waiting but one whose decision travelled
	// alone. It must be quick, safe for concurrent use, and not panic, which a
	// caller that flies alone would see. Requests that were refused from memory took no flight:
	// [Store.Stats] counts them. nil means that nothing is called.
	Observe func(Flight)
	// ObserveBreaker is called once each time that a breaker of a server opens, because the server does not answer,
	// and once when it closes again. A server has one for decisions and one for what no request waits for. It is
	// called by the goroutine of the flight that was the reason, which may be a caller's: it must be quick, safe for
	// concurrent use, and not panic. nil means that nothing is called.
	ObserveBreaker func(BreakerChange)
}

// DefaultDenyCache is the number of refusals that are remembered if Options.DenyCache is 0, in about 16 MB if that many
// keys are refused at once.
const DefaultDenyCache = 65_536

// Store, built by [New], is a [core.Store] and a [core.PermitStore] on Redis. It needs no Close: its goroutines end
// within a second and a deadline after the last call. The client stays the caller's to close; wait that long before
// closing it, or late answers are lost.
type Store struct {
	rdb   redis.UniversalClient
	names keys.Names
	// Decisions and what is done behind them have different deadlines, so what is too slow
	// for the ones may do for the other.
	deadline           time.Duration
	backgroundDeadline time.Duration
	grace              time.Duration // see grace
	flights, keys      int           // of flights, and of a script
	observe            func(Flight)
	turns              func(BreakerChange)
	only               *node // nil for a Cluster or Ring
	nodes              nodes
	servers            servers
	mapped             atomic.Bool // the client of a cluster knows its nodes
	mapping            *breaker    // of asking for them
	local              func() *core.Memory
	programs           programs
	denials            *denials.Cache // nil for none
	// skew is the microseconds by which the server's clock was ahead of this machine's when that last mattered: for
	// windows of the calendar.
	skew atomic.Int64
}

// New builds a store on a client of go-redis. It does no input or output, so that
// a server that is down does not keep a program from starting. [ClientOptions] are
// the options to give the client.
//
// The client must be a *redis.Client, *redis.ClusterClient or *redis.Ring with ContextTimeoutEnabled, as a server that
// hangs would otherwise hold up a decision for seconds. The error reports every option that cannot work, and a client
// that is nil, that is of another type (an AutoPipeliner ignores its caller's context, and a wrapper hides its options),
// that has a URL as an address, or whose TLSConfig is ignored because it has a Dialer as well. A client of read-only
// replicas cannot be recognized: its every decision fails with the class "down".
func New(rdb redis.UniversalClient, o Options) (*Store, error) {
	all := mistakes(rdb)
	wrong := func(format string, args ...any) {
		all = append(all, fmt.Errorf("redisstore: "+format, args...))
	}
	if o.Deadline != 0 && o.Deadline < time.Millisecond { // a number without a unit is in nanoseconds
		wrong("Deadline is %v; give at least 1ms, or 0 for %v", o.Deadline, DefaultDeadline)
	}
	if o.Deadline == 0 {
		o.Deadline = DefaultDeadline
	}
	if o.Prefix == "" {
		o.Prefix = "weir"
	}
	if !keys.ValidPrefix(o.Prefix) {
		wrong("Prefix is %.80q; give 1 to 64 letters, digits, \"_\", \".\" or \"-\"", o.Prefix)
	}
	if o.HashKeys != nil && len(o.HashKeys) < 16 {
		wrong("HashKeys has %d bytes; give a secret of at least 16, or nil for readable keys", len(o.HashKeys))
	}
	if o.HashKeys != nil && o.ScoreKeys {
		wrong("HashKeys and ScoreKeys at once; leave HashKeys out, as the keys are hashed already, or ScoreKeys for keys that are not")
	}
	if o.Flights < 0 || o.Flights > maxFlights {
		wrong("Flights is %d; give 1 to %d, or 0 for %d", o.Flights, maxFlights, DefaultFlights)
	}
	if o.Flights == 0 {
		o.Flights = DefaultFlights
	}
	if o.MaxKeys < 0 || o.MaxKeys > DefaultMaxKeys {
		wrong("MaxKeys is %d; give 1 to %d, or 0 for %d", o.MaxKeys, DefaultMaxKeys, DefaultMaxKeys)
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = DefaultMaxKeys
	}
	if o.DenyCache < -1 || o.DenyCache > denials.MaxEntries {
		wrong("DenyCache is %d; give 1 to %d, 0 for %d, or -1 for none", o.DenyCache, denials.MaxEntries, DefaultDenyCache)
	}
	if all != nil {
		return nil, errors.Join(all...)
	}
	s := &Store{
		rdb:                rdb,
		names:              keys.New(o.Prefix, o.HashKeys),
		deadline:           o.Deadline,
		backgroundDeadline: max(o.Deadline, backgroundDeadline),
		grace:              grace(o.Deadline),
		flights:            o.Flights,
		keys:               o.MaxKeys,
		mapping:            newBreaker(nil),
		observe:            o.Observe,
		turns:              o.ObserveBreaker,
		local: sync.OnceValue(func() *core.Memory {
			m, err := core.NewMemory(core.MemoryOptions{})
			if err != nil {
				panic(err) // the defaults are valid
			}
			return m
		}),
	}
	if o.ScoreKeys {
		s.names = s.names.Given()
	}
	if o.DenyCache == 0 {
		o.DenyCache = DefaultDenyCache
	}
	if o.DenyCache > 0 {
		s.denials = denials.New(o.DenyCache, func() time.Duration { return time.Since(started) })
		s.programs.denials = s.denials
	}
	if client, ok := rdb.(*redis.Client); ok {
		s.only = newNode(s, client)
	}
	return s, nil
}

// String returns what names a Store in a log, in which there is nothing of the secret of HashKeys: "redisstore weir:1:".
func (s *Store) String() string { return "redisstore " + s.names.Prefix() }

// Location returns the prefix of the keys in Redis, and whether they are hashed.
func (s *Store) Location() stats.Location { return s.names.Location() }

// Fallback returns the in-process store that decides for this one while it fails,
// under "fail local". A Limiter finds it by the method's name.
func (s *Store) Fallback() *core.Memory {
	if s.local == nil {
		return new(core.Memory) // of a zero Store, and as unusable
	}
	return s.local()
}

// programs are those of the policies seen so far, up to maxPrograms, for a service that makes policies as it runs: one
// more makes room by dropping half of them, whichever they are. A program that was dropped is made again when its policy
// is used.
type programs struct {
	denials  *denials.Cache
	byPolicy sync.Map // core.Policy -> *program
	policies atomic.Int64
	dropping sync.Mutex // held while half of them are dropped
}

// maxPrograms is enough for 16 policies of a thousand tiers or keys each.
const maxPrograms = 16_384

// of returns the program of a policy whose keys have these names.
func (ps *programs) of(names keys.Names, p core.Policy) (*program, error) {
	if v, ok := ps.byPolicy.Load(p); ok {
		return v.(*program), nil //nolint:forcetypeassert // nothing else is stored
	}
	v, err := newProgram(names, p, ps.denials)
	if err != nil {
		return nil, err
	}
	if _, known := ps.byPolicy.LoadOrStore(p, v); !known && ps.policies.Add(1) > maxPrograms && ps.dropping.TryLock() {
		ps.dropHalf()
		ps.dropping.Unlock()
	}
	return v, nil
}

func (ps *programs) dropHalf() {
	ps.byPolicy.Range(func(p, _ any) bool {
		if rand.N(2) == 0 { //nolint:gosec // any half will do
			if _, was := ps.byPolicy.LoadAndDelete(p); was {
				ps.policies.Add(-1)
			}
		}
		return true
	})
}

// Take implements [core.Store].
func (s *Store) Take(ctx context.Context, t core.Take) (res core.Result, err error) {
	if err := t.Validate(); err != nil {
		return core.Result{}, err
	}
	known, _ := s.programs.byPolicy.Load(t.Policy)
	p, ok := known.(*program)
	if !ok {
		if p, err = s.programs.of(s.names, t.Policy); err != nil {
			return core.Result{}, err
		}
	}
	now := time.Now()
	if s.denials != nil {
		if res, ok := s.denials.Answer(p.denials, &t, now.Sub(started)); ok {
			if err := ctx.Err(); err != nil {
				return core.Result{}, err
			}
			res.Remembered = true
			return res, nil
		}
	}
	e := entry{policy: t.Policy, script: p.take, args: p.unit, weight: p.weight, mayShare: true, program: p}
	if t.AtMost {
		e.mayShare, e.script = false, p.upTo
	}
	n := s.only
	if n == nil {
		e.key = p.name(t.Key)
		if n, err = s.node(ctx, e.key); err != nil {
			return core.Result{}, err
		}
	}
	guess := int64(0)
	if p.unit == nil {
		guess = s.guess(t.Now)
	}
	for range 2 { // again if nothing ran, by the server's clock
		if p.unit == nil || !isUnit(&t) {
			e.args = takeArguments(&t, guess)
		}
		reply, err := n.lanes[deciding].ask(ctx, now, &e, &t, &res)
		if again, err := s.conclude(n, p, &t, &res, reply, err, now); err != nil {
			return core.Result{}, err
		} else if !again {
			return res, nil
		}
		guess = res.At
	}
	return core.Result{}, n.named(errClock)
}

// conclude makes the Result of a take that was asked for at the time given, and notes it for those to come. reply is nil
// if it was decided together with others: then res is there already. If again is true, nothing ran, because the server's
// clock, which is in res, is in another window of a calendar.
func (s *Store) conclude(n *node, p *program, t *core.Take, res *core.Result, reply []int64, err error, now time.Time) (again bool, _ error) {
	if err == nil && reply != nil {
		if *res, again, err = t.Policy.Spec().Explain(*t, reply); err != nil {
			err = &core.StoreError{Class: core.ClassReply, MaybeExecuted: true, Err: err}
		}
	}
	switch {
	case err != nil:
		return false, s.failed(n, p, t, err)
	case again:
		s.skew.Store(res.At - time.Now().UnixMicro())
	case s.denials == nil:
	case res.Allowed():
		s.denials.Seen(p.denials, t, res, now.Sub(started))
	case reply != nil: // else the flight has noted what was refused together with others
		s.denials.Keep(p.denials, t, reply, res, now.Sub(started))
	}
	return again, nil
}

// Recall implements [core.ManyStore]: by the refusals that are remembered, see Options.DenyCache.
func (s *Store) Recall(t core.Take) (res core.Result, ok bool) {
	p, err := s.programs.of(s.names, t.Policy)
	if s.denials == nil || t.Validate() != nil || err != nil {
		return core.Result{}, false
	}
	res, ok = s.denials.Answer(p.denials, &t, time.Since(started))
	res.Remembered = ok
	return res, ok
}

// TakeMany implements [core.ManyStore]. Takes that have to be asked for leave in one flight to each server, unless there
// are too many for one or others wait for theirs.
func (s *Store) TakeMany(ctx context.Context, takes []core.Take) ([]core.Result, error) {
	r := rooms.Get().(*room)
	r.all = slices.Grow(r.all, len(takes))[:len(takes)]
	defer r.release()
	for i := range takes {
		m := &r.all[i]
		m.take = &takes[i]
		err := m.take.Validate()
		if err == nil {
			m.program, err = s.programs.of(s.names, m.take.Policy)
		}
		if err != nil {
			return nil, err
		}
		if m.program.unit == nil {
			m.guess = s.guess(m.take.Now)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	results, now := make([]core.Result, len(takes)), time.Now()
	for i := range r.all {
		m := &r.all[i]
		m.res = &results[i]
		if res, ok := s.denials.Answer(m.program.denials, m.take, now.Sub(started)); ok {
			res.Remembered = true
			results[i] = res
		} else {
			r.due = append(r.due, m)
		}
	}
	for range 2 { // again for those in which nothing ran, by the server's clock
		s.askMany(ctx, now, r)
	}
	for _, m := range r.due {
		*m.res, m.err = core.Result{}, m.node.named(errClock)
	}
	return results, r.failure()
}

// room has what TakeMany needs, to be used again.
type room struct {
	all    []oneOfMany
	due    []*oneOfMany // those to ask for
	crowds []crowd      // nearly always one
}

// fewTakes is the number of those whose room is kept for the next TakeMany.
const fewTakes = 16

var rooms = sync.Pool{New: func() any { return new(room) }}

func (r *room) release() {
	if len(r.all) > fewTakes || len(r.crowds) > 1 {
		return
	}
	clear(r.all)
	clear(r.due[:cap(r.due)])
	for i := range r.crowds {
		ps := r.crowds[i].passengers
		clear(ps)
		r.crowds[i] = crowd{passengers: ps[:0]}
	}
	r.all, r.due, r.crowds = r.all[:0], r.due[:0], r.crowds[:0]
	rooms.Put(r)
}

// crowdOn returns the crowd on a lane.
func (r *room) crowdOn(l *lane) *crowd {
	for i := range r.crowds {
		if r.crowds[i].lane == l {
			return &r.crowds[i]
		}
	}
	n := len(r.crowds)
	r.crowds = slices.Grow(r.crowds, 1)[:n+1] // which may have the memory of one before
	r.crowds[n].lane = l
	return &r.crowds[n]
}

// failure returns the errors of all, or nil if there is none.
func (r *room) failure() error {
	if !slices.ContainsFunc(r.all, func(m oneOfMany) bool { return m.err != nil }) {
		return nil
	}
	errs := make([]error, len(r.all))
	for i := range r.all {
		errs[i] = r.all[i].err
	}
	return &core.BatchError{Errs: errs}
}

// oneOfMany is one of the takes of TakeMany.
type oneOfMany struct {
	take    *core.Take
	program *program
	guess   int64
	res     *core.Result
	err     error

	node      *node
	passenger *passenger
}

// entry returns the entry for a take that was not asked for before.
func (m *oneOfMany) entry() entry {
	p, t := m.program, m.take
	e := entry{policy: t.Policy, script: p.take, args: p.unit, weight: p.weight, mayShare: true, program: p}
	if t.AtMost {
		e.mayShare, e.script = false, p.upTo
	}
	if p.unit == nil || !isUnit(t) {
		e.args = takeArguments(t, m.guess)
	}
	return e
}

// crowd are the passengers of one caller on one lane.
type crowd struct {
	*lane
	passengers []*passenger
	limit      time.Duration // how long they may wait for a flight
}

// askMany asks for the takes that are due at the same time, and leaves those to ask for again.
func (s *Store) askMany(ctx context.Context, now time.Time, r *room) {
	if len(r.due) == 0 {
		return
	}
	patience := s.deadline
	if at, ok := ctx.Deadline(); ok { // a quarter of the caller's own time is for the fail word to decide in
		patience = min(patience, at.Sub(now)/4*3)
	}
	for i := range r.crowds { // of before
		r.crowds[i].passengers = r.crowds[i].passengers[:0]
	}
	for _, m := range r.due {
		e := m.entry()
		if m.node = s.only; m.node == nil {
			e.key = m.program.name(m.take.Key)
			if m.node, m.err = s.node(ctx, e.key); m.err != nil {
				continue
			}
		}
		c := r.crowdOn(m.node.lanes[deciding])
		m.passenger = passengers.Get().(*passenger).enter(&e, m.take, now)
		c.passengers = append(c.passengers, m.passenger)
	}
	for i := range r.crowds {
		c := &r.crowds[i]
		if len(c.passengers) == 0 {
			continue
		}
		var err error
		if c.limit, err = c.together(ctx, now, patience, c.passengers, len(r.crowds) == 1); err != nil {
			for _, p := range c.passengers {
				p.settle(nil, err)
			}
		}
	}
	again := r.due[:0]
	for _, m := range r.due {
		if m.err != nil {
			continue
		}
		if s.settleOne(ctx, now, patience, r.crowdOn(m.node.lanes[deciding]), m) {
			again = append(again, m)
		}
	}
	r.due = again
}

// settleOne waits for the answer of one that was asked for, and reports whether it is to be asked for again.
func (s *Store) settleOne(ctx context.Context, now time.Time, patience time.Duration, c *crowd, m *oneOfMany) (again bool) {
	var reply []int64
	var err error
	if p := m.passenger; p.outcome.answered() {
		reply, err = p.answer(false, m.res)
	} else {
		if time.Since(now) >= answerBy(patience) { // the time of one before is over, and so is that of all
			over, stop := context.WithDeadline(ctx, now)
			defer stop()
			ctx = over
		}
		reply, err = p.await(ctx, c.lane, p.answerOnly, c.limit, patience, m.res)
	}
	m.passenger = nil
	again, m.err = s.conclude(m.node, m.program, m.take, m.res, reply, err, now)
	m.guess = m.res.At
	return again
}

// isUnit reports whether t takes a unit and nothing more, so that the arguments of its program do for it.
func isUnit(t *core.Take) bool { return t.Cost == 1 && !t.AtMost && t.Wait == 0 && t.Now == 0 }

// takeArguments are those of the script for t.
func takeArguments(t *core.Take, guess int64) []any {
	params := t.Policy.Spec().TakeArgs(*t, guess)
	if !t.AtMost && t.Now == 0 {
		params = short(params)
	}
	return arguments(params, t.Now)
}

// failed is the error of a take that has failed at a server. If it may have been charged, nothing is remembered any more
// of its key, unless that is to be known later: see [passenger.settleLate].
func (s *Store) failed(n *node, p *program, t *core.Take, err error) error {
	var failed *core.StoreError
	var late *core.LateError
	if t.Cost > 0 && (!errors.As(err, &failed) || failed.MaybeExecuted) && !errors.As(err, &late) {
		s.denials.Forget(p.denials, t.Key)
	}
	return n.named(err)
}

// noteRefusal remembers the reply of the script takes for a key that it refused in a flight sent then: the time, and the
// state.
func (s *Store) noteRefusal(p *passenger, now int64, said []int64, res *core.Result, sent time.Time) {
	if s.denials == nil {
		return
	}
	var room [denials.MaxReply]int64
	reply := append(append(room[:0], now), said...)
	s.denials.Keep(p.program.denials, &p.take, reply, res, sent.Sub(started))
}

// errClock is the failure of a server that answers twice from another window of a calendar than that of its clock.
var errClock = &core.StoreError{Class: core.ClassOther, Err: errors.New("redisstore: the server's clock changed twice during one call")}

// guess returns the time that the server's clock probably has, unless it is forced.
func (s *Store) guess(forced int64) int64 {
	if forced != 0 {
		return forced
	}
	return time.Now().UnixMicro() + s.skew.Load()
}

// Reset implements [core.Store].
func (s *Store) Reset(ctx context.Context, p core.Policy, key string) error {
	t := core.Take{Policy: p, Key: key}
	if err := t.Validate(); err != nil {
		return err
	}
	prog, err := s.programs.of(s.names, p)
	if err != nil {
		return err
	}
	now := time.Now()
	e := entry{key: prog.name(key), policy: p, weight: resetWeight, harmless: true}
	n, err := s.node(ctx, e.key)
	if err != nil {
		return err
	}
	s.denials.Forget(prog.denials, key)
	defer s.denials.Forget(prog.denials, key)
	_, err = n.lanes[deciding].ask(ctx, now, &e, nil, nil)
	return n.named(err)
}
