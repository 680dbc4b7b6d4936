package redissource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/internal/followers"
)

// Options are for [New]. The zero value is a Source without a bridge.
type Options struct {
	// Bridge is the path of a file that keeps the last document, so that a program which starts while Redis is gone
	// goes by it, and not by its code. The file is written by the Source, in whole or not at all, and only its user can
	// read it. Its directory must exist, and no two programs may share a file. "" means that there is none.
	Bridge string
	// Every is the time between two reads, up to a fifth more or less; 0 means 10 seconds, and less than 100 ms is a
	// mistake. Changes are announced and read at once, so it is the time until one is noticed whose announcement was
	// lost. The other times are in proportion: a process is announced each 2 Every (20 s), is forgotten after 6 Every
	// (60 s), says that its document is stale after 6 Every without an answer (60 s), and asks a Redis that fails once
	// in 3 Every (30 s).
	Every time.Duration
	// Log receives one line a minute at most for each kind of trouble. nil means slog.Default().
	Log *slog.Logger
	// Name is the name of this process in the inventory. "" means the name of the host and the process id.
	Name string
	// Silent leaves this process out of the inventory: it writes nothing to Redis.
	Silent bool
	// Usage returns what this process has counted of its policies, which is then announced beside what it obeys, such as
	// the Usage of an observe.Observer. It is called once for each announcement, by a goroutine of the Source. Of policies
	// that do not follow the Source nothing is announced, and keys only as their stores keep them: in hashes where they are
	// hashed. nil means that nothing is announced of it.
	Usage func() stats.Usage
}

// Source follows the document of an app in Redis: it is an [follow.Listener], for Config.Source of a Guard and
// Options.Source of a Limiter. Build it by [New], and end it by Close. It is safe for concurrent use.
//
// What it reads is never taken back: not when Redis cannot be reached, not when the document is gone, cannot be read,
// or is earlier than the one in use.
type Source struct {
	rdb     redis.UniversalClient
	app     string
	o       Options
	pace    pace
	id      string // in the inventory
	started time.Time
	log     calmLog

	set     atomic.Pointer[follow.Set]
	wake    chan struct{} // holds one if a read is due: after a notification, and when a subscription begins
	changed chan struct{} // holds one if an announcement is due
	used    chan struct{} // closed when a document is in use

	end     context.CancelFunc
	ended   <-chan struct{}
	running sync.WaitGroup

	mu        sync.Mutex // also held while a Set is prepared and shown, so that no other comes between
	held      held
	followers followers.Followers
	bridge    string  // why the bridge is of no use, or ""
	unkept    *answer // has the document that is to be written to the bridge; nil if there is none
	keeping   bool    // it is being written, or the bridge is being read
}

// pace has the times of a Source.
type pace struct {
	read, spread   time.Duration // between two reads: read, and up to spread more or less
	deadline       time.Duration // of a read
	retry, longest time.Duration // the first pause after a failure, and the longest
	merge          time.Duration // between two reads because of notifications
	silence        time.Duration // after which a subscription is tried by a PING
	announce       time.Duration // between two announcements
	soon           time.Duration // between a change and its announcement: once to twice
	expire         time.Duration // of an announcement
	stale          time.Duration // without an answer
	log            time.Duration // between two lines of a kind
	disk           func()        // called before the bridge is read or written
}

const (
	usualEvery = 10 * time.Second
	leastEvery = 100 * time.Millisecond
)

// paceOf returns the times for Options.Every.
func paceOf(every time.Duration) pace {
	if every == 0 {
		every = usualEvery
	}
	return pace{
		read: every, spread: every / 5,
		deadline: time.Second,
		retry:    every / 10, longest: 3 * every,
		merge:    100 * time.Millisecond,
		silence:  min(every, 3*time.Second),
		announce: 2 * every, soon: every / 20, expire: 6 * every,
		stale: 6 * every,
		log:   time.Minute,
		disk:  func() {},
	}
}

// New returns a Source of the document of an app, which is 1 to 64 letters, digits, "_", "." and "-". Any client that
// redisstore takes will do, the one of the store included. New does no input or output: until the bridge is read, a
// moment later, or else Redis has answered, all is as the code says; see [Source.Ready].
func New(rdb redis.UniversalClient, app string, o Options) (*Source, error) {
	return start(rdb, app, o, paceOf(o.Every))
}

func start(rdb redis.UniversalClient, app string, o Options, p pace) (*Source, error) {
	var errs []error
	if v := reflect.ValueOf(rdb); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		errs = append(errs, errors.New("redissource: the client is nil; give one of redis.NewUniversalClient(redisstore.ClientOptions(addr))"))
	}
	if err := policies.CheckApp(app); err != nil {
		errs = append(errs, fmt.Errorf("redissource: %w", err))
	}
	if o.Every != 0 && o.Every < leastEvery {
		errs = append(errs, fmt.Errorf("redissource: Every is %v; give at least %v, or 0 for %v", o.Every, leastEvery, usualEvery))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(context.Background()) //nolint:forbidigo // until Close
	s := &Source{
		rdb: rdb, app: app, o: o, pace: p, id: newID(), started: time.Now(),
		log:  calmLog{log: o.Log, every: p.log, app: app},
		wake: make(chan struct{}, 1), changed: make(chan struct{}, 1), used: make(chan struct{}),
		end: end, ended: ctx.Done(),
	}
	s.held.confirmed = s.started
	s.running.Go(func() { s.poll(ctx) })
	s.running.Go(func() { s.subscribe(ctx) })
	return s, nil
}

// Load returns the Set of the document in use, and nil while there is none.
func (s *Source) Load() *follow.Set { return s.set.Load() }

// Listen implements [follow.Listener].
func (s *Source) Listen(f *follow.Follower) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.followers.Add(f, s.set.Load()) {
		signal(s.changed)
	}
}

// Close ends the Source: the last document stays in use. It returns when nothing runs any more, which takes at most as
// long as the client lets a read or a handshake take, and the disk a write. The client stays its caller's to close.
func (s *Source) Close() error {
	s.end()
	s.running.Wait()
	return nil
}

// Ready returns nil as soon as a document is in use, from Redis or from the bridge, for programs that must not start by
// the numbers of their code. If ctx or the Source ends before, the error has what was tried. An app of which the fleet
// says nothing has no document, and is never ready.
func (s *Source) Ready(ctx context.Context) error {
	err := errors.New("the Source is closed")
	select {
	case <-s.used: // whatever else is over
		return nil
	default:
	}
	select {
	case <-s.used:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.ended:
	}
	st := s.Status()
	if st.Why == "" {
		st.Why = "Redis has none under " + Key(s.app)
	}
	switch {
	case s.o.Bridge == "":
		st.Bridge = "there is no Options.Bridge"
	case st.Bridge == "":
		st.Bridge = "there is no file " + s.o.Bridge
	}
	return fmt.Errorf("redissource: no document for %q: %w; %s; %s", s.app, err, st.Why, st.Bridge)
}

// show takes a document up. All that follow are prepared for it before the first request sees it. s.mu is held.
func (s *Source) show(d *policies.Document) {
	set := d.Set()
	s.followers.Prepare(set)
	s.set.Store(set)
	select {
	case <-s.used:
	default:
		close(s.used)
	}
	signal(s.changed)
}

// signal puts an element into a channel of one, unless there is one already.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
