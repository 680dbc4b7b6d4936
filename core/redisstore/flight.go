package redisstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core"
)

// entry is one thing to ask the server for: a script, or without one to forget the key.
type entry struct {
	key    string
	script *script
	args   []any // of the script
	// harmless is true of a script that does nothing when it runs a second time.
	harmless bool
	// weight is for how long everybody else on the server waits; see askAll.
	weight int64

	answer *redis.IntSliceCmd // of a script, once it was sent
	err    error

	text     bool // the script travels whole, for a server that does not know its hash
	sent     bool // there is nothing to send any more
	known    bool // the server was told the script by another entry
	repeated bool // it was sent once more
	lost     bool // the reply to a harmless script was lost, so that it may have run
}

// flight is one or more entries that travel together: with one deadline, one question to
// a breaker and one word to it about how that went. It is the context of its commands.
type flight struct {
	deadline
	probe   func(error) // not nil if the breaker wants to know how it goes
	entries []entry
	single  [1]entry // the entries of a flight of one, which is one allocation
	// background is true of what no request waits for. It travels in a pipeline, because
	// clients have other connections for those.
	background bool
}

// ask flies with one entry that a request waits for, and returns what came of it.
func (s *Store) ask(ctx context.Context, e entry) (*redis.IntSliceCmd, error) {
	f := &flight{}
	f.single[0] = e
	f.entries = f.single[:]
	s.fly(ctx, f)
	return f.single[0].answer, f.single[0].err
}

// A flight in the background has at most maxFlight entries, and of the weight maxWeight or
// one entry: others on the server wait up to 2 ms for as many refunds. With a server 10 ms
// away, 20 000 a second come back.
const (
	maxFlight = 256
	maxWeight = 4 * maxPlaces
)

// backgroundDeadline is how long a flight in the background may take. Nobody waits for
// it, so it has the patience that a server in trouble needs; a second is short enough to
// try again several times within a lease.
const backgroundDeadline = time.Second

// askAll flies with entries that no request waits for, in as many flights as it takes.
func (s *Store) askAll(ctx context.Context, entries []entry) {
	for len(entries) > 0 {
		n, weight := 1, entries[0].weight
		for n < len(entries) && n < maxFlight && weight+entries[n].weight <= maxWeight {
			weight += entries[n].weight
			n++
		}
		f := &flight{entries: entries[:n], background: true}
		if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) {
			f.fail(errNoTime) // the flights before it took all of the time
		} else {
			s.fly(ctx, f)
		}
		entries = entries[n:]
	}
}

// fly gives each entry its answer or its error.
func (s *Store) fly(ctx context.Context, f *flight) {
	g := s.decisions
	if f.background {
		g = s.background
	}
	if err := g.enter(ctx, f); err != nil {
		f.fail(err)
		return
	}
	verdict := error(errPanicked) // unless it comes to an end
	defer func() { g.leave(f, verdict) }()
	var answered bool
	if s.bounded && (s.oneServer || len(f.entries) == 1) {
		answered = s.exchange(f, f.entries, f.background)
	} else {
		answered = s.divide(f)
	}
	f.stop(answered)
	if verdict = nil; !answered {
		verdict = f.judge(ctx)
		s.repair(ctx, verdict)
	}
}

var errNoTime = &core.StoreError{Class: core.ClassTimeout, Err: context.DeadlineExceeded}

// ready says why nothing can be asked at all.
func (s *Store) ready(ctx context.Context) error {
	if s.decisions == nil {
		return errZero
	}
	return ctx.Err()
}

func (f *flight) fail(err error) {
	for i := range f.entries {
		f.entries[i].err = err
	}
}

// judge says what the failures of a flight mean, each and all together: nil if the server
// has answered any entry.
func (f *flight) judge(ctx context.Context) (verdict error) {
	alive := false
	for i := range f.entries {
		e := &f.entries[i]
		if e.err == nil {
			alive = true
			continue
		}
		failed := classify(e.err)
		failed.Executed = failed.Executed || e.lost
		if e.err = failed; verdict == nil || !silent(failed.Class) {
			verdict = failed
		}
	}
	switch {
	case alive:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		f.fail(ctx.Err())
		return errLeft
	case f.hurried:
		return hurried{verdict}
	}
	return verdict
}

// divide is exchange for a flight to several servers, each of which gets its own part, so that
// one that hangs holds up nobody else's; and for a client that does not keep to a deadline by
// itself. What was not answered in time is left to the goroutine that asked.
func (s *Store) divide(f *flight) (answered bool) {
	parts := s.parts(f)
	answers := make(chan part, len(parts))
	for _, p := range parts {
		go func() {
			defer func() {
				// A panic in a hook is the caller's to see; here it would end the program.
				p.panicked = recover()
				answers <- p
			}()
			p.answered = s.exchange(f, p.entries, f.background)
		}()
	}
	f.fail(context.DeadlineExceeded) // unless there is an answer
	answered = true
	for range parts {
		select {
		case p := <-answers:
			if p.panicked != nil {
				panic(p.panicked)
			}
			for k, i := range p.of {
				f.entries[i] = p.entries[k]
			}
			answered = answered && p.answered
		case <-f.Done():
			return false
		}
	}
	return answered
}

// part is what one server has to do of a flight.
type part struct {
	of       []int // the indices of the entries
	entries  []entry
	answered bool
	panicked any
}

// parts divides a flight by servers, or into single entries if it takes too long to ask the
// client which these are.
func (s *Store) parts(f *flight) (all []part) {
	server := func(i int) any { return i }
	switch c := s.rdb.(type) {
	case *redis.Client:
		server = func(int) any { return c }
	case *redis.ClusterClient:
		if s.bounded {
			server = func(i int) any { m, _ := c.MasterForKey(f, f.entries[i].key); return m }
		}
	case *redis.Ring:
		server = func(i int) any { m, _ := c.GetShardClientForKey(f.entries[i].key); return m }
	}
	known := make(map[any]int)
	for i, e := range f.entries {
		at := server(i)
		n, ok := known[at]
		if !ok {
			n = len(all)
			known[at], all = n, append(all, part{})
		}
		all[n].of, all[n].entries = append(all[n].of, i), append(all[n].entries, e)
	}
	return all
}

// exchange sends entries, again where that may help, and reports whether all were answered.
func (s *Store) exchange(ctx context.Context, entries []entry, pipelined bool) (answered bool) {
	for again := true; again; {
		if pipelined {
			s.pipeline(ctx, entries)
		} else {
			entries[0].err = s.rdb.Process(ctx, entries[0].command(ctx))
		}
		answered, again = true, false
		var texts []*script // that travel whole; then the server knows them for the rest
		for i := range entries {
			if e := &entries[i]; e.err != nil {
				answered = false
				e.sent = !e.retry(&texts)
				again = again || !e.sent
			}
		}
	}
	return answered
}

// retry reports whether an entry that failed is to be sent once more, because it surely has
// not run, or may run twice. One that the server then does not know by its hash, because it
// has just restarted, goes a third time, as a text.
func (e *entry) retry(texts *[]*script) bool {
	switch {
	case e.script == nil:
		return false
	case strings.HasPrefix(serverSays(e.err), "NOSCRIPT") && !e.text && !e.known:
		if e.known = slices.Contains(*texts, e.script); !e.known {
			e.text = true
			*texts = append(*texts, e.script)
		}
	case e.repeated:
		return false
	case replayable(e.err):
	case e.harmless && classify(e.err).Class == core.ClassLost:
		e.lost = true
	default:
		return false
	}
	e.repeated = true
	return true
}

// pipeline sends at once what was not sent.
func (s *Store) pipeline(ctx context.Context, entries []entry) {
	pipe := s.rdb.Pipeline()
	bytes := 0
	for i := range entries {
		if e := &entries[i]; !e.sent {
			cmd := e.command(ctx)
			_ = pipe.Process(ctx, cmd) // it only waits in the pipeline
			for _, arg := range cmd.Args() {
				text, _ := arg.(string)
				bytes += len(text) + maxFraming
			}
		}
	}
	_, failed := pipe.Exec(ctx)
	for i := range entries {
		e := &entries[i]
		if e.sent {
			continue
		}
		if e.sent, e.err = true, e.answer.Err(); e.err == nil && e.answer.Val() == nil {
			e.err = failed // a command that was not even sent
		}
		if bytes > maxUntorn {
			e.err = torn(e.err)
		}
	}
}

// maxUntorn is how much goes into a socket at once or not at all, and maxFraming is what
// the protocol adds to an argument.
const (
	maxUntorn  = 16 << 10
	maxFraming = 16
)

// command is a call of a script that no client ever repeats by itself: whether a
// script ran is unknown once its reply is lost, and running it again would
// charge twice. Clients still follow a cluster's redirections, after which
// nothing has run.
type command struct{ *redis.IntSliceCmd }

// NoRetry overrides that of go-redis's commands.
func (command) NoRetry() bool { return true }

func (e *entry) command(ctx context.Context) redis.Cmder {
	if e.script == nil {
		cmd := redis.NewIntCmd(ctx, "del", e.key)
		cmd.SetFirstKeyPos(1)
		cmd.SetStepCount(1)
		return cmd
	}
	name, script := any("evalsha"), e.script.hash
	if e.text {
		name, script = "eval", e.script.text
	}
	args := make([]any, 0, 4+len(e.args))
	args = append(append(args, name, script, "1", e.key), e.args...)
	e.answer = redis.NewIntSliceCmd(ctx, args...)
	cmd := command{e.answer}
	cmd.SetFirstKeyPos(3)
	cmd.SetStepCount(1) // or a cluster's client would ask the servers what EVALSHA is
	return cmd
}
